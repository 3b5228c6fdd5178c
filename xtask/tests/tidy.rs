//! Checks of the sources against rules in the documents and comments.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tidegate_testing::workspace;

/// Sources of the shipped crates without their tests, each with its path.
fn sources() -> Vec<(PathBuf, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(workspace::root().join("crates")).unwrap() {
        collect(&entry.unwrap().path().join("src"), &mut all);
    }
    assert!(all.len() > 200, "only {} sources", all.len());
    all
}

fn collect(dir: &Path, all: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            collect(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") && !name.ends_with("tests") {
            all.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The files of test-only modules, according to their declarations.
fn of_tests(all: &[(PathBuf, String)]) -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for (path, text) in all {
        for (before, after) in text.lines().zip(text.lines().skip(1)) {
            if before.trim() == "#[cfg(test)]"
                && let Some(name) = after.trim().strip_prefix("mod ").and_then(|m| m.strip_suffix(';'))
            {
                let stem = path.file_stem().unwrap().to_string_lossy();
                let own = ["lib", "mod", "main"].contains(&&*stem);
                let dir = if own { path.parent().unwrap().into() } else { path.with_extension("") };
                files.extend([dir.join(format!("{name}.rs")), dir.join(name).join("mod.rs")]);
            }
        }
    }
    files
}

/// Rank and class of each lock in a text.
fn locks(text: &str) -> Vec<(String, String)> {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let classes = text.split("LockClass::new(\"").skip(1);
    classes
        .map(|rest| {
            let (class, rest) = rest.split_once('"').unwrap();
            let rank: String =
                rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
            (rank, class.to_owned())
        })
        .collect()
}

#[test]
fn every_lock_has_its_row() {
    let all = sources();
    let tests = of_tests(&all);
    let shipped = all.iter().filter(|(path, _)| !tests.contains(path));
    let declared: BTreeSet<_> = shipped
        .flat_map(|(_, text)| locks(text))
        .filter(|(_, class)| !class.starts_with("test->") && class.as_str() != "example")
        .collect();
    let document = fs::read_to_string(workspace::root().join("docs/locks.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (rank, class) = (cells.next()?, cells.next()?.trim_matches('`'));
        rank.parse::<u32>().ok().map(|_| (rank.to_owned(), class.to_owned()))
    };
    let written: BTreeSet<_> = document.lines().filter_map(row).collect();
    let missing: Vec<_> = declared.difference(&written).collect();
    let gone: Vec<_> = written.difference(&declared).collect();
    assert!(missing.is_empty() && gone.is_empty(), "without a row: {missing:?}; without a lock: {gone:?}");
}

/// The head of a folder's `mod.rs`, or of the file with the folder's name, lists the locks that are declared
/// in the folder.
#[test]
fn each_folder_names_its_locks() {
    let all = sources();
    let tests = of_tests(&all);
    for (path, text) in all.iter().filter(|(path, _)| !tests.contains(path)) {
        let within = path.strip_prefix(workspace::root().join("crates")).unwrap();
        let parts: Vec<_> = within.iter().map(|p| p.to_string_lossy()).collect();
        // crate, "src", folder or file
        let folder = workspace::root()
            .join("crates")
            .join(&*parts[0])
            .join("src")
            .join(parts[2].trim_end_matches(".rs"));
        let heads = [folder.join("mod.rs"), folder.with_extension("rs")];
        let Some(head) = heads.iter().filter(|_| folder.is_dir()).find_map(|h| fs::read_to_string(h).ok())
        else {
            continue;
        };
        let head: String =
            head.lines().map_while(|l| l.strip_prefix("//!")).flat_map(|l| [l.trim(), " "]).collect();
        for (rank, class) in locks(text).iter().filter(|(_, class)| !class.starts_with("test->")) {
            let named = head.contains(&format!("`{class}` {rank}"));
            assert!(named, "{}: the head of {} lacks `{class}` {rank}", within.display(), folder.display());
        }
    }
}

#[test]
fn comments_say_what_they_describe() {
    const SAY_NOTHING: [&str; 8] =
        ["Does it.", "Arguments.", "How many.", "Why.", "All of them.", "That one.", "Those.", "The rest."];
    for (path, text) in sources() {
        for (n, line) in text.lines().enumerate() {
            let comment = line.trim_start().strip_prefix("///").unwrap_or_default().trim();
            let empty = comment.contains("See the module") || SAY_NOTHING.contains(&comment);
            // "The same error, about an inode" has a noun; "The same for an inode" sends the reader elsewhere.
            let vague = comment.strip_prefix("The same").is_some_and(|rest| {
                let word = rest.trim_start().split(' ').next().unwrap_or_default();
                !rest.starts_with(' ')
                    || ["for", "of", "with", "without", "in", "on", "where", "as", "if"].contains(&word)
            });
            assert!(!empty && !vague, "{}:{}: {comment}", path.display(), n + 1);
        }
    }
}

/// All files below `dir` whose names end in `ending`, with their texts; build directories are left out.
fn texts(dir: &Path, ending: &str, all: &mut Vec<(PathBuf, String)>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            texts(&path, ending, all);
        } else if path.is_file() && name.ends_with(ending) {
            all.push((path.clone(), fs::read_to_string(&path).unwrap()));
        }
    }
}

/// Whether a text begins with a clause that stands for a noun. Questions may.
fn begins_with_a_clause(text: &str) -> bool {
    ["Who ", "Whoever ", "What ", "Whatever "].iter().any(|w| text.starts_with(w)) && !text.contains('?')
}

/// A sentence has a noun for its subject, not a clause.
#[test]
fn no_comment_begins_with_who() {
    let mut all = Vec::new();
    for dir in ["crates", "xtask", "fuzz"] {
        texts(&workspace::root().join(dir), ".rs", &mut all);
    }
    assert!(all.len() > 600, "only {} files", all.len());
    for (path, text) in all {
        for (n, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let comment =
                ["///", "//!", "//"].iter().find_map(|s| line.strip_prefix(s)).unwrap_or_default().trim();
            assert!(!begins_with_a_clause(comment), "{}:{}: {comment}", path.display(), n + 1);
        }
    }
}

/// Documents keep this rule where a paragraph or a list item begins; tables, headings and blocks are exempt.
#[test]
fn no_paragraph_begins_with_who() {
    let mut all = Vec::new();
    texts(&workspace::root(), ".md", &mut all);
    assert!(all.len() > 20, "only {} documents", all.len());
    for (path, text) in all {
        let (mut block, mut before) = (false, "");
        for (n, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.starts_with("```") {
                block = !block;
            }
            let item = line.strip_prefix("- ");
            let begins = item.or(before.is_empty().then_some(line)).unwrap_or_default();
            assert!(block || !begins_with_a_clause(begins), "{}:{}: {line}", path.display(), n + 1);
            before = line;
        }
    }
}

/// Of the crates above the file systems, only the facade knows which formats there are.
#[test]
fn formats_are_named_by_the_facade_alone() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let formats = ["tidegate-f2fs", "tidegate-ext4"];
    // The fuzzer uses the body of a format's test.
    let may = ["crates/tidegate", "crates/tidegate-f2fs", "crates/tidegate-ext4", "fuzz"];
    let mut wrong = Vec::new();
    let manifests = std::fs::read_dir(root.join("crates")).unwrap().map(|d| d.unwrap().path());
    for dir in manifests.chain([root.join("xtask"), root.join("fuzz")]) {
        let here = dir.strip_prefix(root).unwrap().to_str().unwrap().to_string();
        let manifest = std::fs::read_to_string(dir.join("Cargo.toml")).unwrap_or_default();
        if !may.contains(&here.as_str()) && formats.iter().any(|f| manifest.contains(f)) {
            wrong.push(here);
        }
    }
    assert!(wrong.is_empty(), "these depend on a format, and should go through tidegate: {wrong:?}");
}

/// Files `x.rs` beside a folder `x`, in a folder and all folders below it.
fn beside_their_folders(dir: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            beside_their_folders(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") && path.with_extension("").is_dir() {
            found.push(path);
        }
    }
}

/// A module with submodules is in `x/mod.rs`.
#[test]
fn modules_have_one_style() {
    let root = workspace::root();
    let crates = fs::read_dir(root.join("crates")).unwrap().map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for dir in crates.chain([root.join("xtask"), root.join("fuzz")]) {
        for part in ["src", "tests", "examples", "fuzz_targets"] {
            beside_their_folders(&dir.join(part), &mut found);
        }
    }
    assert!(found.is_empty(), "these should be mod.rs in their folders: {found:?}");
}

/// The number of lines in which a test judges an error by the whole of its text, since there is nothing else:
/// errors of tars, of the host and of our tools have no kind, rule or place. The list may only become
/// shorter.
const BY_TEXT: [(&str, usize); 6] = [
    ("tidegate/src/tar/header.rs", 1),
    ("tidegate-lab/tests/fio.rs", 1),
    ("tidegate-testing/src/zoned/image.rs", 1),
    ("tidegate-testing/src/zoned/kernel.rs", 2),
    ("tidegate-testing/tests/kernel.rs", 1),
    ("xtask/src/watched.rs", 1),
];

fn all_sources(dir: &Path, all: &mut Vec<PathBuf>) {
    for path in fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()) {
        if path.is_dir() {
            all_sources(&path, all);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
}

/// Errors of a volume have a kind, a rule (`what`) and places.
#[test]
fn errors_are_judged_by_their_data() {
    let mut all = Vec::new();
    ["crates", "xtask"].iter().for_each(|dir| all_sources(&workspace::root().join(dir), &mut all));
    assert!(all.len() > 700, "only {} sources", all.len());
    // The text is in two parts, so that this file is not found.
    let direct = ["to_string()", ".contains("].concat();
    let mut found = BTreeSet::new();
    for path in all {
        let lines = fs::read_to_string(&path).unwrap().lines().filter(|l| l.contains(&direct)).count();
        let known = BY_TEXT.iter().find(|(file, _)| path.ends_with(file)).map_or(0, |(_, lines)| *lines);
        assert!(lines <= known, "{}: judge an error by kind(), what() and places()", path.display());
        assert!(lines == known, "{}: the list has {known} lines, there are {lines}", path.display());
        found.extend((lines > 0).then_some(path));
    }
    assert_eq!(found.len(), BY_TEXT.len(), "one that is gone need not be named: {found:?}");
}

/// The tasks of a simulated world share a thread, so thread-locals are not theirs:
/// `tidegate_rt::thread::local!` is.
#[test]
fn tasks_have_their_own_of_what_threads_have() {
    // Thread-locals that really belong to threads: the macro itself, the number of a thread, the current
    // task, the kernel's statistics of a thread, the current coroutine.
    const OF_THREADS: [&str; 5] = [
        "tidegate-rt/src/thread/local.rs",
        "tidegate-rt/src/thread/mod.rs",
        "tidegate-rt/src/sim/task.rs",
        "tidegate-rt/src/trace/causes.rs",
        "tidegate-sys/src/coroutine/mod.rs",
    ];
    let found: BTreeSet<String> = sources()
        .into_iter()
        .filter(|(_, text)| text.contains("thread_local!(") || text.contains("thread_local! {"))
        .map(|(path, _)| path.display().to_string())
        .collect();
    let wrong = |path: &&String| !OF_THREADS.iter().any(|known| path.ends_with(known));
    assert_eq!(found.iter().filter(wrong).collect::<Vec<_>>(), Vec::<&String>::new());
    assert_eq!(found.len(), OF_THREADS.len(), "one that is gone need not be named: {found:?}");
}
