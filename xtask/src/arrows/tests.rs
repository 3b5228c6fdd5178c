use super::*;
use tidegate_testing::temp::TempDir;
use tidegate_testing::workspace;

fn arrows(files: &[(&str, &str)]) -> Arrows {
    let dir = TempDir::new("arrows").unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    of(dir.path()).unwrap()
}

#[test]
fn calls_are_followed_by_type() {
    let found = arrows(&[
        ("volume.rs", "pub struct Volume { table: Arc<Table> } impl Volume { fn low(&self) {} }"),
        ("table.rs", "pub struct Table; impl Table { fn get(&self) {} } pub fn free() {}"),
        (
            "high/mod.rs",
            "impl Volume { fn high(&self) { self.low(); self.table.get(); self.lock().get(); } }",
        ),
        (
            "top.rs",
            "fn top(v: &Volume) { v.high(); table::free(); } #[cfg(test)] mod tests { fn t(v: &Volume) { v.low(); } }",
        ),
    ]);
    let of = |file: &str| found[file].keys().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("high/mod.rs"), ["table.rs", "volume.rs"]);
    assert_eq!(of("top.rs"), ["high/mod.rs", "table.rs"]);
    assert!(cycles(&found).is_empty());
}

#[test]
fn a_cycle_is_found_with_all_of_its_files() {
    let found = arrows(&[
        ("a.rs", "struct V; impl V { fn a(&self) { self.b() } }"),
        ("b.rs", "impl V { fn b(&self) { Self::c(self); self.d() } }"),
        ("c.rs", "impl V { fn c(&self) { [1].map(|_| self.a()); } }"),
        ("d.rs", "impl V { fn d(&self) {} }"),
    ]);
    assert_eq!(cycles(&found), [BTreeSet::from(["a.rs", "b.rs", "c.rs"].map(str::to_owned))]);
}

#[test]
fn a_private_module_is_a_file_as_others_are() {
    let found = arrows(&[
        ("table/mod.rs", "mod free; struct T; impl T { fn low(&self) {} fn top(&self) { self.empty() } }"),
        ("table/free.rs", "impl T { fn empty(&self) { self.low() } }"),
    ]);
    assert_eq!(cycles(&found).len(), 1);
}

#[test]
fn locals_are_followed_where_the_text_tells_their_type() {
    let table = "pub struct Table; impl Table { fn new() -> Self { Table } fn get(&self) {} }
        pub fn open() -> Result<Table> {}";
    for body in [
        "let t: Table = x; t.get();",
        "let t = Table::new(); t.get();",
        "let t = table::open()?; t.get();",
        "if let Some(t) = self.maybe() { t.get(); }",
        "let Some(t) = self.maybe() else { return }; t.get();",
        "let t = self.locked.lock(); t.get();",
        "match self.maybe() { Some(t) => t.get(), None => {} }",
        "assert!(self.table().get());",
        "[1].map(|_| self.table().get());",
    ] {
        let top = format!(
            "struct Top {{ locked: Mutex<Table> }} impl Top {{
                fn table(&self) -> &Arc<Table> {{}} fn maybe(&self) -> Option<&Table> {{}} fn f(&self) {{ {body} }}
            }}"
        );
        let found = arrows(&[("table.rs", table), ("top.rs", &top)]);
        let called = found["top.rs"].get("table.rs").is_some_and(|c| c.contains("Table::get"));
        assert!(called, "{body}: {found:?}");
    }
    for body in
        ["let t = Table::new(); let t = other(); t.get();", "let t = Table::new(); [1].map(|t| t.get());"]
    {
        let found = arrows(&[("table.rs", table), ("top.rs", &format!("fn f() {{ {body} }}"))]);
        let called = &found["top.rs"]["table.rs"];
        assert!(!called.contains("Table::get"), "{body}: {found:?}");
    }
}

/// Calls that still lead upwards, one per line: `crate: from -> to: call`. The list may only become shorter.
const UPWARD: &str = include_str!("../../upward.txt");

/// The number of lines of [`UPWARD`], and below it the number of entries of [`UP`]. When a list becomes
/// shorter, its number has to be lowered.
const UPWARD_LINES: usize = 62;
const UP_ENTRIES: usize = 24;

#[test]
fn lists_of_upward_calls_do_not_grow() {
    assert_eq!(UPWARD.lines().count(), UPWARD_LINES, "upward.txt may only become shorter");
    assert_eq!(UP.len(), UP_ENTRIES, "the folders' calls up may only become fewer");
}

#[test]
fn files_call_downwards() {
    for (package, least) in
        [("tidegate-f2fs", 1200), ("tidegate-ext4", 950), ("tidegate-jbd2", 150), ("tidegate-vfs", 230)]
    {
        let mut found = of(&workspace::root().join("crates").join(package).join("src")).unwrap();
        let calls: usize = found.values().flat_map(BTreeMap::values).map(BTreeSet::len).sum();
        assert!(calls > least, "{package}: only {calls} calls were followed");
        let all = cycles(&found);
        for line in UPWARD.lines().filter_map(|l| l.strip_prefix(package)?.strip_prefix(": ")) {
            let (from, rest) = line.split_once(" -> ").unwrap();
            let (to, call) = rest.split_once(": ").unwrap();
            let calls = found.get_mut(from).and_then(|f| f.get_mut(to));
            let there = calls.is_some_and(|calls| calls.remove(call));
            let needed = all.iter().any(|files| files.contains(from) && files.contains(to));
            assert!(
                there && needed,
                "upward.txt: {package} has no such call, or it leads to no cycle: {line}"
            );
        }
        found.values_mut().for_each(|to| to.retain(|_, calls| !calls.is_empty()));
        assert_eq!(cycles(&found), Vec::<BTreeSet<String>>::new(), "{package}");
    }
}

/// The folders of tidegate-f2fs, each above the folders that it calls.
const FOLDERS: [&str; 12] = [
    "vfs_impl", "offline", "gc", "durable", "dir", "file", "inode", "node", "segment", "tables", "volume",
    "format",
];

/// Calls that lead upwards on purpose: from, to, and why.
const UP: &[(&str, &str, &str)] = &[
    ("volume/assemble.rs", "", "it makes the parts of a volume"),
    ("volume/open.rs", "", "it reads the parts of a volume, recovers, and begins the first checkpoint"),
    ("volume/info.rs", "", "it says how a volume is"),
    ("volume/stats.rs", "segment/log.rs", "statistics are kept by log"),
    ("volume/health.rs", "file/write_io", "a volume that stops gives up its growing bios"),
    ("durable/", "gc/mod.rs", "an fsync that finds no room has some made"),
    ("durable/", "gc/state.rs", "the cleaner is told that segments came free"),
    ("dir/", "durable/since_cp.rs", "names that change are noted until the next checkpoint"),
    ("file/", "durable/since_cp.rs", "files that shrink are noted until the next checkpoint"),
    ("node/", "durable/since_cp.rs", "inodes that are written are noted until the next checkpoint"),
    ("file/", "durable/flush.rs", "ends of writes are counted for flushes"),
    ("inode/", "durable/flush.rs", "an inode begins with the writes that have ended"),
    ("file/", "gc/state.rs", "reads and writes look for pages that cleaning moves"),
    ("segment/", "gc/state.rs", "a segment that is to be discarded wakes the cleaner's thread"),
    ("inode/", "dir/names/mod.rs", "an inode holds its directory's index of names"),
    ("inode/", "file/extent.rs", "an inode holds its cache of extents"),
    ("node/", "file/write_io", "node blocks join growing bios"),
    ("node/", "inode/checksum.rs", "a node block that is an inode has the inode's checksum"),
    ("node/", "inode/mod.rs", "an inode's number is its node's"),
    ("segment/", "file/write_io/order.rs", "on zones a log says where its blocks go on"),
    ("segment/", "inode/dirty.rs", "dirty inodes count among the nodes that a checkpoint writes"),
    ("tables/", "segment/log.rs", "entries name the log of a segment"),
    ("tables/", "segment/zones.rs", "zones are the bounds of sections"),
    ("tables/", "segment/curseg/mod.rs", "blocks are counted by their logs"),
];

#[test]
fn folders_of_f2fs_call_downwards() {
    let found = of(&workspace::root().join("crates/tidegate-f2fs/src")).unwrap();
    let folder = |file: &str| {
        let name = file.split('/').next().unwrap();
        FOLDERS.iter().position(|f| *f == name)
    };
    let mut used = BTreeSet::new();
    let mut wrong = Vec::new();
    for (from, to) in found.iter().flat_map(|(from, to)| to.keys().map(move |to| (from, to))) {
        let (Some(f), Some(t)) = (folder(from), folder(to)) else { continue };
        if f > t {
            match UP.iter().position(|(a, b, _)| from.starts_with(a) && to.starts_with(b)) {
                Some(n) => drop(used.insert(n)),
                None => wrong.push(format!("{from} -> {to}: {:?}", found[from][to])),
            }
        }
    }
    assert!(wrong.is_empty(), "calls up: {wrong:#?}");
    let unused: Vec<_> = UP.iter().enumerate().filter(|(n, _)| !used.contains(n)).map(|(_, u)| u).collect();
    assert!(unused.is_empty(), "no call needs these any more: {unused:?}");
    let folders = fs::read_dir(workspace::root().join("crates/tidegate-f2fs/src")).unwrap();
    for dir in folders.map(|d| d.unwrap().path()).filter(|d| d.is_dir()) {
        let name = dir.file_name().unwrap().to_str().unwrap();
        assert!(name == "testing" || FOLDERS.contains(&name), "{name} has no place among the folders");
    }
}
