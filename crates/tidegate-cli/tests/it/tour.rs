//! README and `docs/` are correct: the commands that they show are run, and print the output that they show.

use crate::common::tour::{blocks, documents, run};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use tidegate_testing::oracle::skip_or_fail;
use tidegate_testing::workspace;

#[test]
fn documents_run_as_they_stand() {
    let mut commands = 0;
    for document in documents() {
        let ran = run(&document, Path::new(env!("CARGO_BIN_EXE_tidegate")), false);
        println!("{}: {ran} commands", document.display());
        commands += ran;
    }
    assert!(commands > 40, "{commands}");
}

/// A command of ours stands in a block that is run, or in a sentence. Output that was recorded on a certain
/// disk, once, is marked so.
#[test]
fn no_block_hides_a_command() {
    for document in documents() {
        for b in blocks(&document) {
            let at = format!("{}:{}", document.display(), b.line);
            let known = ["", "sh", "sh mount", "text", "recorded", "rust,no_run"].contains(&b.info.as_str());
            assert!(known, "{at}: a block of {:?}", b.info);
            let is_ours = |l: &&String| l.starts_with("$ ") || l.starts_with("tidegate ");
            if !b.info.starts_with("sh") && b.info != "recorded" {
                assert_eq!(b.text.iter().find(is_ours), None, "{at}: is not run; mark it sh");
            }
        }
    }
}

/// A link to a file of this repository leads to one, and every text in `docs/` is linked from README or ARCHITECTURE.
#[test]
fn links_lead_somewhere() {
    let root = workspace::root();
    let more = ["ARCHITECTURE.md", "CONTRIBUTING.md"].map(|f| root.join(f));
    let mut linked = BTreeSet::new();
    for document in documents().into_iter().chain(more) {
        let text = std::fs::read_to_string(&document).unwrap();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(to, _)| to);
        for to in links.filter(|to| !to.contains("://") && !to.starts_with('#')) {
            let file = document.parent().unwrap().join(to.split('#').next().unwrap());
            assert!(file.exists(), "{}: {to}", document.display());
            if !document.starts_with(root.join("docs")) {
                linked.insert(std::fs::canonicalize(file).unwrap());
            }
        }
    }
    let all = documents().into_iter().map(|d| std::fs::canonicalize(d).unwrap());
    let lost: Vec<_> = all.filter(|d| !d.ends_with("README.md") && !linked.contains(d)).collect();
    assert!(lost.is_empty(), "nothing leads to {lost:?}");
}

/// The table of README: the script runs, and has a row for each way. The figures here mean nothing.
#[test]
fn the_comparison_prints_its_tables() {
    if ["mke2fs", "fuse2fs"].into_iter().any(skip_or_fail) || !Path::new("/dev/fuse").exists() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let out = Command::new(workspace::root().join("docs/compare.sh"))
        .arg("1")
        .env("TIDEGATE", env!("CARGO_BIN_EXE_tidegate"))
        .env("TMPDIR", dir.path())
        // A virtual machine takes a minute where it starts at all.
        .envs([("FILES", "60"), ("UNTAR", "20"), ("RING", "keep"), ("GUESTFISH", "none")])
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    for row in [
        "| `tidegate mkfs --from`, F2FS | 0.",
        "| `tidegate mkfs --format ext4 --from` | 0.",
        "| `mke2fs -d` | ",
        "| `mke2fs`, `fuse2fs`, `cp -a` | ",
        "| Tidegate's F2FS, by ",
        "| Tidegate's ext4, by ",
    ] {
        assert!(said.contains(row), "{row}\n{said}");
    }
    assert!(said.contains("60 files") && said.contains("20 files"), "{said}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "something is left");
}
