//! What the crate promises: every public item, as text. A change of `tests/surface.txt` is a change for users.
//!
//! `UPDATE_SURFACE=1 cargo test -p tidegate --test surface` writes the list anew.

use std::fs;
use std::path::{Path, PathBuf};

/// The public items of a module, one on a line, behind its path.
fn items(module: &str, text: &str, out: &mut Vec<String>) {
    let mut lines = text.lines().take_while(|l| *l != "#[cfg(test)]");
    // What `pub` stands in: a type's name behind its module's.
    let mut within = String::new();
    while let Some(line) = lines.next() {
        let item = line.trim_start();
        let indent = line.len() - item.len();
        if indent == 0 && item.starts_with("impl") {
            within = item.trim_end_matches(" {").to_string() + ": ";
        } else if indent == 0 && item == "}" {
            within.clear();
        }
        if !item.starts_with("pub ") {
            continue;
        }
        let mut whole = item.to_string();
        while !whole.ends_with(['{', ';', ',', '}'])
            || whole.matches('(').count() > whole.matches(')').count()
        {
            let Some(next) = lines.next() else { break };
            whole = format!("{whole} {}", next.trim());
        }
        let whole = whole.trim_end_matches(['{', ';', ',', ' ']).to_string();
        if indent == 0 && (whole.starts_with("pub struct") || whole.starts_with("pub enum")) {
            within = whole.split(['<', '(']).next().unwrap().trim_start_matches("pub ").to_string() + ": ";
            out.push(format!("{module}: {whole}"));
            continue;
        }
        let prefix = if indent == 0 { "" } else { within.as_str() };
        out.push(format!("{module}: {prefix}{whole}"));
    }
}

/// Files of public modules, with the modules' paths.
fn modules(file: &Path, path: &str, out: &mut Vec<(String, PathBuf)>) {
    out.push((path.to_string(), file.to_path_buf()));
    let text = fs::read_to_string(file).unwrap();
    let dir = match file.file_name().unwrap().to_str().unwrap() {
        "lib.rs" | "mod.rs" => file.parent().unwrap().to_path_buf(),
        _ => file.with_extension(""),
    };
    for name in text.lines().filter_map(|l| l.strip_prefix("pub mod ")?.strip_suffix(';')) {
        let flat = dir.join(format!("{name}.rs"));
        let below = if flat.exists() { flat } else { dir.join(name).join("mod.rs") };
        modules(&below, &format!("{path}::{name}"), out);
    }
}

#[test]
fn what_is_public_is_promised() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut files, mut out) = (Vec::new(), Vec::new());
    modules(&here.join("src/lib.rs"), "tidegate", &mut files);
    files.sort();
    for (module, file) in files {
        items(&module, &fs::read_to_string(file).unwrap(), &mut out);
    }
    assert!(out.len() > 100 && out.iter().any(|l| l.contains("pub fn unmount(self)")), "{out:#?}");
    let found = out.join("\n") + "\n";
    let list = here.join("tests/surface.txt");
    if std::env::var_os("UPDATE_SURFACE").is_some() {
        fs::write(&list, &found).unwrap();
    }
    let promised = fs::read_to_string(&list).unwrap_or_default();
    let gone: Vec<&str> = promised.lines().filter(|l| !out.iter().any(|o| o == l)).collect();
    let new: Vec<&String> = out.iter().filter(|o| !promised.lines().any(|l| l == *o)).collect();
    assert!(gone.is_empty() && new.is_empty(), "tests/surface.txt: gone {gone:#?}, new {new:#?}");
}
