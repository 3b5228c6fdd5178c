//! Options and operands: where they may stand, what they mean, and which are refused.

use crate::common::{Bench, failed};
use std::fs;

#[test]
fn mount_options_may_stand_anywhere_and_be_repeated() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    let help = b.ok(&["mount", "-o", "help"]);
    for words in [&["-ohelp"][..], &["-o=help"], &["--options=help"], &["--options", "help"]] {
        assert_eq!(b.ok(&[&["mount"], words].concat()), help, "{words:?}");
    }
    let wrong = |args: &[&str]| assert!(b.fails(args, 1).contains("no_such_word"), "{args:?}");
    wrong(&["-o", "no_such_word", "ls", "-o", "wbt", "a.img"]);
    wrong(&["ls", "-o", "wbt", "-o", "no_such_word", "a.img"]);
    wrong(&["-qono_such_word", "mount", "--fake", "a.img", ".", "-o", "noatime"]);
    b.ok(&["-o", "wbt", "ls", "-o", "nowbt", "-omode=lfs", "a.img"]);
}

#[test]
fn a_check_that_is_asked_for_wrongly_says_so_by_its_status() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    let status = |args: &[&str]| b.command(args).output().unwrap().status.code();
    for args in [
        &["-q", "check", "--bogus", "a.img"][..],
        &["--json", "check"],
        &["--bogus", "check", "a.img"],
        &["-o", "ro", "check", "--dry-run", "a.img"],
        &["check", "-o", "bogus", "a.img"],
        &["check", "--cache", "1M", "a.img"],
        &["check", ""],
    ] {
        assert_eq!(status(args), Some(16), "{args:?}");
    }
    let out = b.command(&["check", "a.img"]).env("SOURCE_DATE_EPOCH", "soon").output().unwrap();
    assert!(failed(&out, 16).starts_with("SOURCE_DATE_EPOCH: "));
    assert_eq!(status(&["check", "missing.img"]), Some(8));
    assert_eq!(status(&["ls", "--bogus", "check"]), Some(2));
    assert_eq!(status(&["check", "--help"]), Some(0));
}

#[test]
fn none_is_a_size_where_that_means_something() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    b.ok(&["mkfs", "-q", "--from", "src", "--free", "0", "a.img"]);
    b.ok(&["trim", "--offset", "0", "-m", "0K", "a.img"]);
    let refused = b.command(&["trim", "--length", "0", "a.img"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn sizes_have_units_where_people_ask_for_them() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    fs::write(b.path("f"), vec![0; 1536]).unwrap();
    b.ok(&["cp", "f", "a.img:/f"]);
    assert_eq!(b.ok(&["df", "-h", "a.img"]), b.ok(&["df", "a.img"]));
    let words = |args: &[&str]| b.ok(args).split_whitespace().map(String::from).collect::<Vec<_>>();
    assert_eq!(words(&["ls", "-l", "a.img"])[4], "1536");
    assert_eq!(words(&["ls", "-lh", "a.img"])[4], "1.5K");
    for command in ["ls", "df"] {
        assert!(b.ok(&[command, "--help"]).contains("--human-readable"), "{command}");
    }
}

#[test]
fn operands_that_name_no_entry_are_told_from_the_root() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    b.ok(&["mkdir", "a.img:/d"]);
    for path in ["a.img:/d/.", "a.img:/d/.."] {
        let line = b.fails(&["rm", "-r", path], 1);
        assert_eq!(
            line,
            format!("{path}: a path that ends in . or .. cannot be removed; end it in the directory's name")
        );
        assert!(b.fails(&["mv", path, "a.img:/e"], 1).contains("cannot be moved; end it"));
    }
    assert_eq!(b.ok(&["ls", "a.img"]), "d\n");
}

#[test]
fn an_image_is_one_however_it_is_spelled() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    std::os::unix::fs::symlink("a.img", b.path("link")).unwrap();
    let whole = format!("{}:/z", b.path("a.img").display());
    b.ok(&["mkdir", "./a.img:/x", "a.img:/y", &whole]);
    b.ok(&["mv", "a.img:/x", "link:/y"]);
    b.ok(&["rm", "-r", "./a.img:/y/x", "link:/z"]);
    assert_eq!(b.ok(&["ls", "a.img"]), "y\n");
    fs::copy(b.path("a.img"), b.path("b.img")).unwrap();
    assert_eq!(b.fails(&["rm", "a.img:/y", "b.img:/y"], 1), "b.img:/y: not in the same volume as a.img:/y");
}

/// A directory of that name on the host makes no difference.
#[test]
fn a_path_without_an_image_is_refused_by_mv() {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--size", "64M", "a.img"]);
    b.ok(&["mkdir", "-p", "a.img:/d/e"]);
    fs::create_dir(b.path("there")).unwrap();
    let there = b.path("there").display().to_string();
    for to in ["/new", "/tmp", "there", &there] {
        let line = b.fails(&["mv", "a.img:/d", to], 1);
        assert!(line.starts_with(&format!("{to}: not in a volume; ")), "{line}");
        assert!(line.contains(&format!("a.img:/{}", to.trim_start_matches('/'))), "{line}");
    }
    assert!(b.fails(&["mv", "there", "a.img:/d"], 1).starts_with("there: not in a volume; "));
    b.ok(&["mv", "a.img:/d/e", "./a.img"]);
    assert_eq!(b.ok(&["ls", "a.img"]), "d\ne\n");
}

#[test]
fn a_place_in_a_disk_is_refused_with_the_way_to_it() {
    let b = Bench::new();
    fs::File::create(b.path("disk.img")).unwrap().set_len(64 << 20).unwrap();
    let line = b.fails(&["mkfs", "disk.img@1M"], 1);
    assert!(line.starts_with("disk.img@1M: a place in a disk") && line.contains("losetup"), "{line}");
}
