//! `tidegate check --repair`: what it prints, what it leaves, and how it ends.

use crate::common;
use crate::common::Bench;
use std::fs;

const BLOCK: usize = 4096;
/// Offsets in an inode block.
const I_LINKS: usize = 12;
const I_NAME: usize = 92;
const FOOTER: usize = 4072;

/// A volume with a few files, one of which says that it has five names.
fn damaged(b: &Bench) -> Vec<u8> {
    fs::create_dir(b.path("src")).unwrap();
    fs::write(b.path("src/hello.txt"), "hello").unwrap();
    fs::write(b.path("src/other.txt"), vec![7; 100_000]).unwrap();
    b.ok(&["mkfs", "--size", "64M", "--from", "src", "a.img"]);
    edit(b, |block| {
        if block[I_NAME..].starts_with(b"hello.txt\0") {
            block[I_LINKS] = 5;
        }
    })
}

/// Changes every block of the image that `f` wants to.
fn edit(b: &Bench, f: impl Fn(&mut [u8])) -> Vec<u8> {
    let mut bytes = fs::read(b.path("a.img")).unwrap();
    bytes.chunks_mut(BLOCK).for_each(f);
    fs::write(b.path("a.img"), &bytes).unwrap();
    bytes
}

/// Standard output of a check that ends with `code` and says nothing else.
fn check(b: &Bench, args: &[&str], code: i32) -> String {
    let out = b.command(&[&["check"], args].concat()).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), said.as_str()), (Some(code), ""), "{args:?}: {text}");
    text
}

#[test]
fn a_repair_says_what_it_changes_and_ends_with_1() {
    let b = Bench::new();
    let before = damaged(&b);
    assert!(check(&b, &["a.img"], 4).contains("link-count"));
    let dry = check(&b, &["--repair", "--dry-run", "a.img"], 4);
    assert!(dry.contains("i_links: 5 -> 1\n") && dry.ends_with("a.img: 1 change would be made\n"), "{dry}");
    assert!(fs::read(b.path("a.img")).unwrap() == before, "a dry run wrote");
    let text = check(&b, &["--repair", "a.img"], 1);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("a.img: inode: inode ") && lines[0].ends_with(" i_links: 5 -> 1"), "{text}");
    assert_eq!(lines[1], "a.img: 1 change made");
    assert!(lines[2].starts_with("a.img: clean; 2 files, 1 directories, "), "{text}");
    assert!(b.fsck("a.img") || !common::has("fsck.f2fs"));
    let clean = check(&b, &["--repair", "a.img"], 0);
    assert!(clean.starts_with("a.img: clean; ") && clean.lines().count() == 1, "{clean}");
    assert_eq!(b.ok(&["cat", "a.img:/hello.txt"]), "hello");
    assert_eq!(b.ok(&["cat", "a.img:/other.txt"]).as_bytes(), vec![7; 100_000]);
}

#[test]
fn a_repair_as_json() {
    let b = Bench::new();
    damaged(&b);
    let json =
        |args: &[&str], code| serde_json::from_str::<serde_json::Value>(&check(&b, args, code)).unwrap();
    let dry = json(&["--json", "--repair", "--dry-run", "a.img"], 4);
    assert_eq!((&dry["outcome"], &dry["dry_run"]), (&"left".into(), &true.into()));
    let done = json(&["--json", "--repair", "a.img"], 1);
    assert_eq!((&done["outcome"], &done["rounds"]), (&"corrected".into(), &1.into()));
    let change = &done["changes"][0];
    assert_eq!(
        (&change["what"], &change["from"], &change["to"]),
        (&"inode".into(), &"5".into(), &"1".into())
    );
    assert_eq!(done["check"]["clean"], true);
    let again = json(&["--json", "--repair", "a.img"], 0);
    assert_eq!((&again["outcome"], &again["changes"]), (&"clean".into(), &serde_json::json!([])));
}

#[test]
fn what_cannot_be_mended_is_said_and_left() {
    let b = Bench::new();
    damaged(&b);
    let before = edit(&b, |block| {
        if block[FOOTER..FOOTER + 8] == [3, 0, 0, 0, 3, 0, 0, 0] {
            block.fill(0);
        }
    });
    let text = check(&b, &["--repair", "a.img"], 4);
    assert!(text.contains("the root directory's inode is gone: nothing was changed"), "{text}");
    assert!(fs::read(b.path("a.img")).unwrap() == before);
    b.fails(&["check", "--repair", "missing.img"], 8);
    fs::write(b.path("none.img"), vec![0; 1 << 20]).unwrap();
    b.fails(&["check", "--repair", "none.img"], 8);
    let out = b.command(&["check", "--dry-run", "a.img"]).output().unwrap();
    assert_eq!(out.status.code(), Some(16), "--dry-run is --repair's");
}
