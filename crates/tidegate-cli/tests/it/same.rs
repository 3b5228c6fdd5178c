//! Commands that would lose a file because two of their places are one: refused, as by coreutils.

use crate::common::Bench;
use std::fs;

fn volume() -> Bench {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    b.ok(&["mkdir", "a.img:/a", "a.img:/b", "a.img:/d"]);
    for (host, text) in [("h1/x", "one"), ("h2/x", "two")] {
        fs::create_dir_all(b.path(host).parent().unwrap()).unwrap();
        fs::write(b.path(host), text).unwrap();
    }
    b.ok(&["cp", "h1/x", "a.img:/a/x"]);
    b.ok(&["cp", "h2/x", "a.img:/b/x"]);
    b
}

#[test]
fn the_second_file_of_a_name_is_left_where_it_is() {
    let b = volume();
    let lost = "left out: what an earlier argument of this name became would be lost";
    assert_eq!(b.fails(&["mv", "a.img:/a/x", "a.img:/b/x", "a.img:/d"], 1), format!("a.img:/b/x: {lost}"));
    assert_eq!(b.ok(&["cat", "a.img:/d/x", "a.img:/b/x"]), "onetwo");
    b.ok(&["rm", "a.img:/d/x"]);
    assert_eq!(b.fails(&["cp", "h1/x", "h2/x", "a.img:/d"], 1), format!("h2/x: {lost}"));
    assert_eq!(b.ok(&["cat", "a.img:/d/x"]), "one");
    fs::create_dir(b.path("out")).unwrap();
    assert_eq!(b.fails(&["cp", "a.img:/b/x", "a.img:/d/x", "out"], 1), format!("a.img:/d/x: {lost}"));
    assert_eq!(fs::read(b.path("out/x")).unwrap(), b"two");
    // Directories are put together.
    fs::write(b.path("h2/y"), "more").unwrap();
    fs::create_dir_all(b.path("p/dir")).unwrap();
    fs::create_dir_all(b.path("q/dir")).unwrap();
    fs::write(b.path("p/dir/f"), "").unwrap();
    fs::write(b.path("q/dir/g"), "").unwrap();
    b.ok(&["cp", "p/dir", "q/dir", "a.img:/d"]);
    assert_eq!(b.ok(&["ls", "a.img:/d/dir"]), "f\ng\n");
}

#[test]
fn nothing_takes_its_own_place() {
    let b = volume();
    let same = "source and destination are the same file";
    assert_eq!(b.fails(&["cp", "a.img:/a", "a.img:/"], 1), format!("a.img:/a: {same}"));
    b.ok(&["ln", "-s", "x", "a.img:/a/link"]);
    assert_eq!(b.fails(&["cp", "a.img:/a/link", "a.img:/a/x"], 1), format!("a.img:/a/link: {same}"));
    let itself = "the link would take the place of the file that it leads to";
    for target in ["x", "/a/x", "../a/link"] {
        assert_eq!(b.fails(&["ln", "-sf", target, "a.img:/a/x"], 1), format!("a.img:/a/x: {itself}"));
    }
    assert_eq!(b.ok(&["cat", "a.img:/a/x"]), "one");
    // A link is made anew, and one that leads to itself is mended.
    b.ok(&["ln", "-sf", "x", "a.img:/a/link"]);
    b.ok(&["ln", "-s", "loop", "a.img:/a/loop"]);
    b.ok(&["ln", "-sf", "x", "a.img:/a/loop"]);
    assert_eq!(b.ok(&["cat", "a.img:/a/link", "a.img:/a/loop"]), "oneone");
    b.fsck("a.img");
}

#[test]
fn directories_on_the_way_have_the_usual_mode() {
    let b = volume();
    b.ok(&["mkdir", "-p", "-m", "1777", "a.img:/p/q/r/"]);
    let mode = |path: &str| {
        let v: serde_json::Value = serde_json::from_str(&b.ok(&["stat", "--json", path])).unwrap();
        v[0]["mode"].clone()
    };
    assert_eq!((mode("a.img:/p"), mode("a.img:/p/q")), (mode("a.img:/a"), mode("a.img:/a")));
    assert_ne!(mode("a.img:/p/q/r"), mode("a.img:/a"));
    // Below a file there is nothing to be removed.
    b.ok(&["rm", "-f", "a.img:/a/x/y"]);
    b.fails(&["rm", "-f", "a.img:/a/x/"], 1);
}

#[test]
fn no_file_replaces_the_image_that_it_comes_from() {
    let b = volume();
    fs::write(b.path("tiny"), "tiny").unwrap();
    b.ok(&["cp", "tiny", "a.img:/a.img"]);
    b.ok(&["cp", "tiny", "a.img:/other"]);
    let line = b.fails(&["cp", "a.img:/.", "."], 1);
    assert!(line.ends_with("a.img: device or resource busy"), "{line}");
    assert_eq!(fs::read(b.path("other")).unwrap(), b"tiny");
    b.fsck("a.img");
}
