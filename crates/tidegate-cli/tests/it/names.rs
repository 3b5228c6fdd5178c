//! Names that are no text, files that are no images, and operands of which one fails.

use crate::common::Bench;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output, Stdio};

fn said(out: &Output) -> (Option<i32>, String, String) {
    let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_fifo_is_no_image() {
    let b = Bench::new();
    assert!(Command::new("mkfifo").arg(b.path("fifo")).status().unwrap().success());
    for args in [&["info", "fifo"][..], &["ls", "fifo"], &["df", "fifo"], &["mkdir", "fifo:/x"]] {
        assert_eq!(b.fails(args, 1), "fifo: not an image: is a fifo");
    }
    assert_eq!(b.fails(&["check", "fifo"], 8), "fifo: not an image: is a fifo");
}

#[test]
fn names_that_differ_are_told_apart() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    let names: [&[u8]; 5] = [b"a\xfe", b"a\xff", b"b\\n", b"b\n", b"c\x1b[1m"];
    for n in names {
        fs::write(b.path("src").join(OsStr::from_bytes(n)), "").unwrap();
    }
    std::os::unix::fs::symlink(OsStr::from_bytes(b"to\xff"), b.path("src/link")).unwrap();
    b.ok(&["mkfs", "--from", "src", "--size", "64M", "a.img", "--quiet"]);
    // A program gets the bytes, with whatever end it wants.
    let out = b.command(&["ls", "-0", "a.img"]).output().unwrap();
    let mut got: Vec<&[u8]> = out.stdout.split(|c| *c == 0).filter(|n| !n.is_empty()).collect();
    got.retain(|n| *n != b"link");
    got.sort();
    let mut want = names;
    want.sort();
    assert_eq!(got, want);
    let json = b.command(&["ls", "--json", "a.img"]).output().unwrap();
    let v: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let entries = v[0]["entries"].as_array().unwrap();
    let link = entries.iter().find(|e| e["name"] == "link").unwrap();
    assert_eq!(link["target_hex"], "746fff");
    let hexes: Vec<_> = entries.iter().filter_map(|e| e["name_hex"].as_str()).collect();
    assert_eq!(hexes, ["61fe", "61ff"]);
    // A message is for people.
    let bad = OsStr::from_bytes(b"a.img:/no\xff\x1b");
    let out = b.command(&["rm"]).arg(bad).output().unwrap();
    let line = "tidegate: a.img:/no\\xff\\u{1b}: no such file or directory\n";
    assert_eq!(said(&out), (Some(1), String::new(), line.into()));
    let line = b.fails(&["ls", "-o", "x\u{1b}[1m", "a.img"], 1);
    assert!(line.contains("x\\u{1b}[1m"), "{line:?}");
}

/// The output is that for a terminal.
#[test]
fn a_terminal_is_not_written_to_by_names() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "--label", "l\u{1b}[2J\u{202e}", "a.img", "--quiet"]);
    let info = b.ok(&["info", "a.img"]);
    assert!(info.contains("l\\u{1b}[2J\\u{202e}\n"), "{info:?}");
    b.ok(&["mkdir", "a.img:/x\u{1b}[1m"]);
    let shell = format!("{} ls a.img; {0} tree a.img", env!("CARGO_BIN_EXE_tidegate"));
    let out = Command::new("script").args(["-qec", &shell, "/dev/null"]).current_dir(b.dir.path()).output();
    let Ok(out) = out else {
        println!("SKIPPED: script(1) is not installed");
        return;
    };
    let (_, text, _) = said(&out);
    assert!(text.matches("x\\u{1b}[1m").count() == 2 && !text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn one_operand_that_fails_leaves_the_others() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img", "--quiet"]);
    let run = |args: &[&str]| said(&b.command(args).output().unwrap());
    let missing = "tidegate: none.img: no such file or directory\n";
    let (code, out, err) = run(&["df", "none.img", "a.img"]);
    assert!(code == Some(1) && out.contains("a.img ") && err == missing, "{out}{err}");
    let (code, out, err) = run(&["ls", "none.img", "a.img"]);
    assert!(code == Some(1) && out == "a.img:/:\n" && err == missing, "{out}{err}");
    let (code, _, err) = run(&["mkdir", "a.img:/d", "a.img:/no/x", "a.img:/e"]);
    assert_eq!((code, err.as_str()), (Some(1), "tidegate: a.img:/no/x: no such file or directory\n"));
    b.ok(&["ln", "-s", "nowhere", "a.img:/dangling"]);
    assert_eq!(b.ok(&["ls", "a.img"]), "d\ndangling\ne\n");
    assert_eq!(b.ok(&["ls", "a.img:/dangling"]), "/dangling\n");
    let (code, out, _) = run(&["stat", "a.img:/no", "a.img:/d"]);
    assert!(code == Some(1) && out.contains("File: /d"), "{out}");
    let (code, _, err) = run(&["rm", "-r", "a.img:/d", "a.img:/no", "a.img:/e"]);
    assert_eq!((code, err.as_str()), (Some(1), "tidegate: a.img:/no: no such file or directory\n"));
    assert_eq!(b.ok(&["ls", "a.img"]), "dangling\n");
    let line = b.fails(&["rm", "-r", "a.img:/"], 1);
    assert!(line.contains("the volume's root cannot be removed"), "{line}");
    b.ok(&["mkdir", "a.img:/d"]);
    assert!(b.fails(&["ln", "/d", "a.img:/x"], 1).contains("ln -s"));
    assert!(b.fails(&["ls", ""], 1).contains("an empty name"));
    assert!(b.fails(&["cat", "--json", "a.img:/d"], 1).starts_with("--json: "));
    assert_eq!(run(&["tree", "-L", "0", "a.img"]).0, Some(2));
    assert_eq!(run(&["check", "--nonsense"]).0, Some(16));
}

#[test]
fn an_image_may_have_a_colon_in_its_path() {
    let b = Bench::new();
    fs::create_dir(b.path("a:")).unwrap();
    b.ok(&["mkfs", "--size", "64M", "a.img", "--quiet"]);
    fs::rename(b.path("a.img"), b.path("a:/b.img")).unwrap();
    for command in ["df", "check", "info", "ls", "trim"] {
        b.ok(&[command, "a:/b.img"]);
    }
    b.ok(&["mkdir", "a:/b.img:/d"]);
    assert_eq!(b.ok(&["ls", "a:/b.img:/"]), "d\n");
}

/// Names that can be listed are, the rest is marked, and a cure is named.
#[test]
fn a_damaged_inode_does_not_hide_its_directory() {
    let b = Bench::new();
    fs::create_dir_all(b.path("src/dir")).unwrap();
    for name in ["good", "lost", "rest"] {
        fs::write(b.path("src/dir").join(name), name).unwrap();
    }
    b.ok(&["mkfs", "--size", "64M", "--from", "src", "a.img", "--quiet"]);
    let mut bytes = fs::read(b.path("a.img")).unwrap();
    let lost = bytes.chunks_mut(4096).filter(|c| c[92..].starts_with(b"lost\0"));
    // Its block is no inode any more.
    assert_eq!(lost.map(|c| c.fill(0)).count(), 1);
    fs::write(b.path("a.img"), bytes).unwrap();
    assert_eq!(b.ok(&["ls", "a.img:/dir"]), "good\nlost\nrest\n");
    assert!(b.ok(&["tree", "a.img"]).contains("├── lost\n"));
    let run = |args: &[&str]| said(&b.command(args).stdin(Stdio::null()).output().unwrap());
    let (code, out, err) = run(&["ls", "-l", "a.img:/dir"]);
    assert_eq!(code, Some(1));
    assert!(out.contains(" good\n") && out.contains(" rest\n"), "{out}");
    assert!(out.lines().any(|l| l.starts_with("??????????") && l.ends_with(" lost")), "{out}");
    assert!(err.starts_with("tidegate: a.img:/dir/lost: ") && err.lines().count() == 1, "{err}");
    assert!(err.contains("tidegate check --repair a.img"), "{err}");
    let (code, out, _) = run(&["ls", "--json", "a.img:/dir"]);
    let v: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert!(code == Some(1) && v[0]["entries"][1]["error"].is_string(), "{out}");
    let (code, out, _) = run(&["cat", "a.img:/dir/lost", "a.img:/dir/good"]);
    assert_eq!((code, out.as_str()), (Some(1), "good"));
}
