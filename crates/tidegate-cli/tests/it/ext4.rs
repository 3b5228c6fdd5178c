//! The commands on an ext4 image that mke2fs made: those that read, those that change, and what is not changed.

use crate::common::{Bench, assert_same, is_root};
use std::fs;
use std::process::{Command, Stdio};
use tidegate_testing::manifest::Options;
use tidegate_testing::oracle::{require, skip_or_fail};

/// A bench with `e.img`, which holds the tree at `src`.
fn bench() -> Option<Bench> {
    if skip_or_fail("mke2fs") {
        return None;
    }
    let b = Bench::new();
    let src = b.path("src");
    fs::create_dir_all(src.join("dir/sub")).unwrap();
    fs::write(src.join("dir/hello"), "hello\n").unwrap();
    fs::write(src.join("dir/sub/large"), vec![7; 300_000]).unwrap();
    std::os::unix::fs::symlink("hello", src.join("dir/link")).unwrap();
    fs::hard_link(src.join("dir/hello"), src.join("again")).unwrap();
    let args = ["-q", "-t", "ext4", "-L", "name", "-d", "src", "e.img", "32M"];
    let mut made = Command::new(require("mke2fs").unwrap());
    assert!(made.args(args).current_dir(b.dir.path()).stdin(Stdio::null()).status().unwrap().success());
    Some(b)
}

#[test]
fn commands_that_read_work_on_ext4() {
    let Some(b) = bench() else { return };
    assert_eq!(b.ok(&["ls", "e.img:/"]), "again\ndir\nlost+found\n");
    assert_eq!(b.ok(&["cat", "e.img:/dir/hello"]), "hello\n");
    assert!(b.ok(&["tree", "e.img"]).contains("large"));
    assert!(b.ok(&["stat", "e.img:/again"]).contains("2 links"));
    assert!(b.ok(&["df", "e.img"]).contains("ext4"));
    let info = b.ok(&["info", "e.img"]);
    for word in
        ["ext4", "label          name", "metadata_csum", "journal        ", "Groups: 4 of 8192 blocks"]
    {
        assert!(info.contains(word), "{word}: {info}");
    }
    let json: serde_json::Value = serde_json::from_str(&b.ok(&["--json", "info", "e.img"])).unwrap();
    assert_eq!((&json["format"], json["groups"].as_array().unwrap().len()), (&"ext4".into(), 4));
    assert_eq!(json["journal"]["inode"], 8);
    // Times of directories are those of their filling, in seconds.
    let but = Options {
        ignore_nanoseconds: true,
        ignore_dir_mtime: true,
        ignore_root: true,
        ignore_lost_found: true,
        ignore_owner: !is_root(),
        ..Options::default()
    };
    b.ok(&["cp", "-r", "e.img:/", "out"]);
    assert_same(&b.path("src"), &b.path("out"), &but);
    let tar = b.command(&["tar", "e.img:/"]).output().unwrap();
    fs::write(b.path("e.tar"), tar.stdout).unwrap();
    fs::create_dir(b.path("untarred")).unwrap();
    let untar = ["-xf", "e.tar", "-C", "untarred"];
    assert!(Command::new("tar").args(untar).current_dir(b.dir.path()).status().unwrap().success());
    assert_same(&b.path("src"), &b.path("untarred"), &but);
}

/// The findings of `e2fsck -fn`, if anything is wrong.
fn assert_clean(b: &Bench) {
    if !skip_or_fail("e2fsck") {
        tidegate_testing::ext4::is_clean(&b.path("e.img")).unwrap();
    }
}

/// A file of the bench's volume becomes one of no type, and its directory's entry with it.
fn damage(b: &Bench) {
    let mut damage = Command::new(require("debugfs").unwrap());
    damage.args(["-w", "-R", "sif /dir/hello mode 0170644", "e.img"]).current_dir(b.dir.path());
    assert!(damage.stdin(Stdio::null()).output().unwrap().status.success());
}

/// Standard output of a command that ends with `code` and says nothing else.
fn ends(b: &Bench, args: &[&str], code: i32) -> String {
    let out = b.command(args).output().unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), said.as_str()), (Some(code), ""), "{args:?}: {text}");
    text
}

#[test]
fn a_damaged_volume_is_repaired() {
    if skip_or_fail("debugfs") {
        return;
    }
    let Some(b) = bench() else { return };
    damage(&b);
    let line = b.fails(&["cat", "e.img:/dir/hello"], 1);
    assert!(line.ends_with("; run `tidegate check --repair e.img`"), "{line}");
    assert!(ends(&b, &["check", "e.img"], 4).contains("inode-mode"));
    let before = fs::read(b.path("e.img")).unwrap();
    let dry = ends(&b, &["check", "--repair", "--dry-run", "e.img"], 4);
    assert!(dry.contains(": mode 170644 -> cleared\n") && dry.ends_with(" would be made\n"), "{dry}");
    assert!(fs::read(b.path("e.img")).unwrap() == before, "a dry run wrote");
    let text = ends(&b, &["check", "--repair", "e.img"], 1);
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].starts_with("e.img: inode: ") && lines[0].ends_with(": mode 170644 -> cleared"),
        "{text}"
    );
    assert!(text.contains("e.img: entry: directory ") && text.contains("\"hello\": names inode "), "{text}");
    assert!(lines[lines.len() - 1].starts_with("e.img: clean; 1 files, 4 directories, 1 others"), "{text}");
    assert_clean(&b);
    assert_eq!(b.ok(&["cat", "e.img:/dir/sub/large"]).len(), 300_000);
    let clean = ends(&b, &["check", "--repair", "e.img"], 0);
    assert!(clean.starts_with("e.img: clean; ") && clean.lines().count() == 1, "{clean}");
}

#[test]
fn a_repair_as_json() {
    if skip_or_fail("debugfs") {
        return;
    }
    let Some(b) = bench() else { return };
    damage(&b);
    let json =
        |args: &[&str], code| serde_json::from_str::<serde_json::Value>(&ends(&b, args, code)).unwrap();
    let done = json(&["--json", "check", "--repair", "e.img"], 1);
    assert_eq!((&done["outcome"], &done["check"]["clean"]), (&"corrected".into(), &true.into()));
    assert_eq!(
        (&done["changes"][0]["what"], &done["changes"][0]["to"]),
        (&"inode".into(), &"cleared".into())
    );
    let again = json(&["--json", "check", "--repair", "e.img"], 0);
    assert_eq!((&again["outcome"], &again["changes"]), (&"clean".into(), &serde_json::json!([])));
}

#[test]
fn commands_that_change_work_on_ext4() {
    let Some(b) = bench() else { return };
    b.ok(&["mkdir", "e.img:/new"]);
    b.ok(&["cp", "src/dir/hello", "e.img:/new/"]);
    b.ok(&["cp", "-r", "src/dir", "e.img:/copied"]);
    b.ok(&["mv", "e.img:/again", "e.img:/other"]);
    b.ok(&["ln", "e.img:/other", "e.img:/third"]);
    b.ok(&["ln", "-s", "third", "e.img:/link"]);
    b.ok(&["rm", "-r", "e.img:/dir"]);
    assert!(b.ok(&["trim", "e.img"]).contains("e.img"));
    assert_eq!(b.ok(&["ls", "e.img:/"]), "copied\nlink\nlost+found\nnew\nother\nthird\n");
    assert_eq!(b.ok(&["cat", "e.img:/new/hello"]), "hello\n");
    assert!(b.ok(&["check", "e.img"]).contains("clean"));
    assert_clean(&b);
    b.ok(&["cp", "-r", "e.img:/copied", "out"]);
    // The other name of its file was not copied.
    fs::remove_file(b.path("src/again")).unwrap();
    let but = Options { ignore_owner: !is_root(), ignore_root: true, ..Options::default() };
    assert_same(&b.path("src/dir"), &b.path("out"), &but);
}

#[test]
fn what_is_not_changed_says_why() {
    let Some(b) = bench() else { return };
    let args = ["-q", "-F", "-t", "ext4", "-O", "bigalloc", "e.img", "32M"];
    let mut made = Command::new(require("mke2fs").unwrap());
    let made = made.args(args).current_dir(b.dir.path()).stdin(Stdio::null()).stderr(Stdio::null()).status();
    assert!(made.unwrap().success());
    let before = fs::read(b.path("e.img")).unwrap();
    let why = "e.img: the volume is read-only: ext4 feature \"bigalloc\" (ro_compat 0x200) is not supported";
    for args in [&["mkdir", "e.img:/new"][..], &["cp", "src/dir/hello", "e.img:/new"], &["trim", "e.img"]] {
        let line = b.fails(args, 1);
        assert!(line.starts_with(why), "{args:?}: {line}");
    }
    let why = "ext4 volumes with bigalloc are not checked yet: use e2fsck";
    assert!(b.fails(&["check", "--repair", "e.img"], 8).contains(why));
    assert!(fs::read(b.path("e.img")).unwrap() == before, "the image changed");
}

/// A copy of a superblock stays where something else was made in the meantime: that is no volume which lost its own.
#[test]
fn no_repair_brings_an_old_volume_back_over_something_else() {
    if skip_or_fail("mke2fs") {
        return;
    }
    let Some(b) = bench() else { return };
    let mut made = Command::new(require("mke2fs").unwrap());
    made.args(["-q", "-F", "-t", "ext4", "-b", "1024", "e.img", "16M"]).current_dir(b.dir.path());
    assert!(made.stdin(Stdio::null()).stderr(Stdio::null()).status().unwrap().success());
    let with_front = |mark: &[u8]| {
        let mut bytes = fs::read(b.path("e.img")).unwrap();
        bytes[..4096].fill(0);
        bytes[..mark.len()].copy_from_slice(mark);
        fs::write(b.path("e.img"), &bytes).unwrap();
        bytes
    };
    let before = with_front(b"XFSB");
    let line = b.fails(&["check", "--repair", "e.img"], 8);
    assert!(line.contains("not an f2fs or ext4 volume, but an xfs file system"), "{line}");
    assert!(fs::read(b.path("e.img")).unwrap() == before, "the image changed");
    with_front(b"");
    assert!(ends(&b, &["check", "--repair", "e.img"], 1).contains("superblock"));
    assert_clean(&b);
}

/// Holes of single blocks, where a page has several, go out as they are.
#[test]
fn holes_within_pages_are_copied() {
    if skip_or_fail("debugfs") || skip_or_fail("mke2fs") {
        return;
    }
    let b = Bench::new();
    let must = |program: &str, args: &[&str]| {
        let mut command = Command::new(require(program).unwrap_or(program.into()));
        let out = command.args(args).current_dir(b.dir.path()).output().unwrap();
        assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    b.ok(&["mkfs", "-q", "--size", "64M", "to.img"]);
    for block in [1024, 2048] {
        let image = format!("b{block}.img");
        must("mke2fs", &["-q", "-F", "-t", "ext4", "-b", &block.to_string(), &image, "16M"]);
        let mut wanted: Vec<u8> = (0..80_u32 << 10).map(|n| (n / 7 % 251 + 1) as u8).collect();
        fs::write(b.path("f"), &wanted).unwrap();
        b.ok(&["cp", "f", &format!("{image}:/f")]);
        for (first, last) in [(0, 0), (3, 4), (9, 9), (13, 22)] {
            must("debugfs", &["-w", "-R", &format!("punch /f {first} {last}"), &image]);
            wanted[first * block..(last + 1) * block].fill(0);
        }
        let (file, out, there) = (format!("{image}:/f"), format!("out{block}"), format!("to.img:/f{block}"));
        b.ok(&["cp", &file, &out]);
        b.ok(&["cp", &file, &there]);
        let bytes = |args: &[&str]| b.command(args).output().unwrap().stdout;
        fs::write(b.path("t.tar"), bytes(&["tar", &image])).unwrap();
        must("tar", &["-xf", "t.tar", "./f"]);
        for (way, got) in [
            ("cat", bytes(&["cat", &file])),
            ("cp", fs::read(b.path(&out)).unwrap()),
            ("cp to a volume", bytes(&["cat", &there])),
            ("tar", fs::read(b.path("f")).unwrap()),
        ] {
            let at = got.iter().zip(&wanted).position(|(a, b)| a != b);
            assert!(got == wanted, "{way}, blocks of {block}: {} bytes, wrong from {at:?}", got.len());
        }
    }
}
