//! The functions of a source file: where each begins and ends, by the layout that rustfmt gives the file.

/// A function, or a method with its type before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name, such as `F2fs::place_pages`.
    pub name: String,
    /// Its first and last line, from 1.
    pub lines: (u32, u32),
}

/// A piece of source that begins at a line and ends where the indentation of that line returns.
struct Block {
    name: String,
    lines: (u32, u32),
}

/// The functions of `text` with a line for which `wanted` is true, in order of their first lines.
pub fn functions(text: &str, wanted: impl Fn(&str) -> bool) -> Vec<Function> {
    let lines: Vec<&str> = text.lines().collect();
    let types: Vec<Block> = blocks(&lines, type_of);
    let mut found = Vec::new();
    for f in blocks(&lines, name_of) {
        let (first, last) = f.lines;
        if lines[first as usize - 1..last as usize].iter().any(|l| wanted(l)) {
            let around = types.iter().rfind(|t| t.lines.0 < first && last <= t.lines.1);
            let name = around.map_or(f.name.clone(), |t| format!("{}::{}", t.name, f.name));
            found.push(Function { name, lines: f.lines });
        }
    }
    found
}

fn blocks(lines: &[&str], named: impl Fn(&str) -> Option<String>) -> Vec<Block> {
    let mut found = Vec::new();
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = named(line.trim_start()) else { continue };
        let indent = line.len() - line.trim_start().len();
        if let Some(more) = end(&lines[i..], indent) {
            let first = i as u32 + 1;
            found.push(Block { name, lines: (first, first + more) });
        }
    }
    found
}

/// The number of lines from the first line of a block to its last. `None` for a declaration without a body.
fn end(lines: &[&str], indent: usize) -> Option<u32> {
    let first = lines.first()?.trim_end();
    if first.ends_with(';') {
        return None;
    }
    if first.ends_with('}') {
        return Some(0);
    }
    let outer = |l: &str| l.len() - l.trim_start().len() == indent && !l.trim().is_empty();
    let back = |l: &&str| outer(l) && (l.trim_start().starts_with('}') || l.ends_with(';'));
    let at = lines.iter().skip(1).position(back)?;
    lines[at + 1].trim_start().starts_with('}').then_some(at as u32 + 1)
}

/// The name of the function that begins at a line.
fn name_of(line: &str) -> Option<String> {
    let mut rest = line;
    if let Some(public) = rest.strip_prefix("pub") {
        rest = public.strip_prefix('(').map_or(public, |p| p.split_once(')').map_or(p, |(_, after)| after));
        rest = rest.trim_start();
    }
    while let Some(after) =
        ["const ", "async ", "unsafe ", "extern \"C\" "].iter().find_map(|w| rest.strip_prefix(w))
    {
        rest = after;
    }
    identifier(rest.strip_prefix("fn ")?)
}

/// The type whose methods begin at a line.
fn type_of(line: &str) -> Option<String> {
    let rest = line.strip_prefix("pub ").or(line.strip_prefix("pub(crate) ")).unwrap_or(line);
    if let Some(name) = rest.strip_prefix("trait ") {
        return identifier(name);
    }
    let rest = rest.strip_prefix("impl")?;
    let head = after_generics(rest)?;
    let whose = head.split_once(" for ").map_or(head, |(_, whose)| whose);
    let whose = whose.trim_start_matches(['&', ' ']);
    let whose = whose.strip_prefix('\'').and_then(|w| w.split_once(' ')).map_or(whose, |(_, after)| after);
    let path = whose.trim_start_matches("mut ").trim_start_matches("dyn ");
    let end = path.find(['<', ' ', '{']).unwrap_or(path.len());
    identifier(path[..end].rsplit("::").next()?)
}

/// The text after `<…>`, if the text begins so.
fn after_generics(text: &str) -> Option<&str> {
    if !text.starts_with('<') {
        return text.strip_prefix(' ');
    }
    let mut depth = 0;
    for (i, c) in text.char_indices() {
        match c {
            '<' => depth += 1,
            // The `>` of an arrow does not count.
            '>' if !text[..i].ends_with(['-', '=']) => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(text[i + 1..].trim_start());
        }
    }
    None
}

fn identifier(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    (end > 0).then(|| text[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
fn free() {
    m.lock();
}
impl<T: Fn() -> u8, const N: usize> fmt::Display for &'_ Held<T>
where
    T: Clone,
{
    pub(crate) const fn long(
        &self,
    ) -> u8 {
        fn inside() {
            m.lock();
        }
        m.read();
    }

    fn short(&self) -> u8 { self.m.lock() }

    fn nothing(&self) {
        1
    }
}
pub trait Way {
    fn declared(
        m: u8,
    ) -> u8;
    fn has_one(&self) {
        m.lock()
    }
}
";

    #[test]
    fn each_line_is_in_its_function() {
        let found = functions(TEXT, |l| l.contains(".lock") || l.contains(".read"));
        let found: Vec<(&str, (u32, u32))> = found.iter().map(|f| (&*f.name, f.lines)).collect();
        let want = [
            ("free", (1, 3)),
            ("Held::long", (8, 15)),
            ("Held::inside", (11, 13)),
            ("Held::short", (17, 17)),
            ("Way::has_one", (27, 29)),
        ];
        assert_eq!(found, want);
    }
}
