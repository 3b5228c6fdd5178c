//! `tidegate cp` from volume to volume, and within one.

use crate::common::{Bench, assert_same};
use std::fs;
use tidegate_testing::manifest::Options;

#[test]
fn a_tree_goes_from_one_volume_to_another() {
    let b = Bench::new();
    let src = b.varied();
    b.ok(&["mkfs", "-q", "--from", "src", "--free", "64M", "a.img"]);
    b.ok(&["mkfs", "-q", "--format", "ext4", "--size", "1G", "b.img"]);
    b.ok(&["cp", "a.img:/", "b.img:/there"]);
    b.ok(&["cp", "b.img:/there/.", "a.img:/back"]);
    assert!(b.ok(&["check", "b.img"]).contains("clean"));
    b.fsck("a.img");
    for (from, to) in [("b.img:/there", "out"), ("a.img:/back", "again")] {
        b.ok(&["cp", from, to]);
        assert_same(&src, &b.path(to), &Options::default());
    }
}

#[test]
fn files_go_into_directories_and_over_files() {
    let b = Bench::new();
    for image in ["a.img", "b.img"] {
        b.ok(&["mkfs", "-q", "--size", "64M", image]);
    }
    fs::write(b.path("f"), "new content").unwrap();
    fs::write(b.path("old"), "old content that is longer").unwrap();
    b.ok(&["cp", "f", "a.img:/f"]);
    b.ok(&["cp", "old", "b.img:/g"]);
    b.ok(&["ln", "b.img:/g", "b.img:/name"]);
    b.ok(&["mkdir", "b.img:/d"]);
    b.ok(&["cp", "a.img:/f", "b.img:/g"]);
    assert_eq!(b.ok(&["cat", "b.img:/name"]), "new content");
    // From the host and from volumes in one go.
    b.ok(&["cp", "-a", "old", "a.img:/f", "b.img:/g", "b.img:/d"]);
    assert_eq!(b.ok(&["ls", "b.img:/d"]), "f\ng\nold\n");
    let line = b.fails(&["cp", "a.img:/f", "a.img:/no", "b.img:/d"], 1);
    assert_eq!(line, "a.img:/no: no such file or directory");
    assert!(b.fails(&["cp", "b.img:/d", "b.img:/g"], 1).contains("not a directory"));
    assert_eq!(b.ok(&["cat", "b.img:/g"]), "new content");
    b.fsck("b.img");
}

#[test]
fn nothing_is_copied_into_or_over_itself() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    fs::write(b.path("f"), "content").unwrap();
    b.ok(&["mkdir", "-p", "a.img:/d/e"]);
    b.ok(&["cp", "f", "a.img:/d/f"]);
    b.ok(&["ln", "a.img:/d/f", "a.img:/name"]);
    for to in ["a.img:/d/f", "a.img:/name", "a.img:/d"] {
        let line = b.fails(&["cp", "a.img:/d/f", to], 1);
        assert_eq!(line, "a.img:/d/f: source and destination are the same file", "{to}");
    }
    for to in ["a.img:/d", "a.img:/d/e", "a.img:/d/e/new"] {
        let line = b.fails(&["cp", "a.img:/d", to], 1);
        assert_eq!(line, "a.img:/d: a directory cannot be copied into itself", "{to}");
    }
    assert!(b.fails(&["cp", "a.img:/", "a.img:/d/x"], 1).contains("into itself"));
    b.ok(&["cp", "a.img:/d", "a.img:/copy"]);
    assert_eq!(b.ok(&["cat", "a.img:/copy/f"]), "content");
    assert_eq!(b.ok(&["ls", "a.img:/d"]), "e\nf\n");
    b.fsck("a.img");
}

#[test]
fn a_link_takes_the_place_of_a_file_when_told() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    for name in ["f", "g"] {
        fs::write(b.path(name), name).unwrap();
        b.ok(&["cp", name, &format!("a.img:/{name}")]);
    }
    assert!(b.fails(&["ln", "a.img:/f", "a.img:/g"], 1).contains("exists"));
    b.ok(&["ln", "-f", "a.img:/f", "a.img:/g"]);
    assert_eq!(b.ok(&["cat", "a.img:/g"]), "f");
    b.ok(&["ln", "-f", "a.img:/f", "a.img:/g"]);
    b.ok(&["ln", "-sf", "f", "a.img:/g"]);
    assert!(b.ok(&["ls", "-l", "a.img:/g"]).contains("g -> f"));
    b.fails(&["ln", "-f", "a.img:/missing", "a.img:/f"], 1);
    assert_eq!(b.ok(&["cat", "a.img:/f"]), "f");
}
