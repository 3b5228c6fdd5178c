//! Names of the functions that take locks, by their places in the source.

/// First line, last line, name.
type Function = (u32, u32, &'static str);

/// The functions by file, whose path begins with the directory of its crate. Files are in order of name, and
/// functions in order of their first lines.
static FILES: &[(&str, &[Function])] = include!(concat!(env!("OUT_DIR"), "/functions.in"));

/// The path `file` from the directory of its crate on.
pub(super) fn short(file: &str) -> &str {
    file.rsplit_once("crates/").map_or(file, |(_, rest)| rest)
}

/// The innermost function around a line. `None` where the source was not available at build time.
pub(super) fn at(file: &str, line: u32) -> Option<&'static str> {
    let i = FILES.binary_search_by(|f| f.0.cmp(short(file))).ok()?;
    let around = FILES[i].1.iter().rev().find(|f| (f.0..=f.1).contains(&line));
    around.map(|f| f.2)
}

#[cfg(test)]
#[path = "../../../build/functions.rs"]
mod scan;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_the_engine_have_names() {
        let text = include_str!("../../../../tidegate-f2fs/src/segment/curseg/alloc.rs");
        let line = text.lines().position(|l| l.contains(" c = self.cursegs.lock(log);")).unwrap() as u32 + 1;
        for file in [
            "crates/tidegate-f2fs/src/segment/curseg/alloc.rs",
            "/src/crates/tidegate-f2fs/src/segment/curseg/alloc.rs",
        ] {
            assert_eq!(at(file, line), Some("F2fs::allocate_extents"), "{file}:{line}");
        }
        assert_eq!(
            (at("crates/tidegate-f2fs/src/segment/curseg/alloc.rs", 1), at("nowhere.rs", 1)),
            (None, None)
        );
    }
}
