//! `tidegate chmod`, `chown`, `touch`, `rmdir`, and names that must not get lost.

use crate::common::Bench;
use std::fs;

/// The mode and the owner that `stat` shows.
fn stat(b: &Bench, place: &str) -> (String, String) {
    let v: serde_json::Value = serde_json::from_str(&b.ok(&["stat", "--json", place])).unwrap();
    (v[0]["mode"].as_str().unwrap().to_string(), format!("{}:{}", v[0]["uid"], v[0]["gid"]))
}

fn bench(format: &str) -> Bench {
    let b = Bench::new();
    b.ok(&["mkfs", "-q", "--format", format, "--size", "64M", "a.img"]);
    b.ok(&["mkdir", "-p", "a.img:/d/e", "a.img:/etc"]);
    b.ok(&["touch", "a.img:/d/f", "a.img:/d/e/g"]);
    b.ok(&["ln", "-s", "f", "a.img:/d/link"]);
    b
}

#[test]
fn permissions_and_owners_are_changed() {
    for format in ["f2fs", "ext4"] {
        let b = bench(format);
        b.ok(&["chmod", "4751", "a.img:/d/link"]);
        assert_eq!(stat(&b, "a.img:/d/f").0, "4751");
        b.ok(&["chmod", "-R", "u=rwX,go=", "a.img:/d"]);
        assert_eq!(
            ["/d", "/d/e", "/d/e/g"].map(|p| stat(&b, &format!("a.img:{p}")).0),
            ["0700", "0700", "0600"]
        );
        b.ok(&["chmod", "-w", "a.img:/d/e/g"]);
        assert_eq!(stat(&b, "a.img:/d/e/g").0, "0400");
        fs::write(b.path("passwd"), "root:x:0:0::/:/bin/sh\nwww:x:33:44::/:/bin/sh\n7:x:77:78:::\n").unwrap();
        fs::write(b.path("group"), "adm:x:4:www\n").unwrap();
        b.ok(&["cp", "passwd", "group", "a.img:/etc"]);
        for (owner, wanted) in [
            ("5:6", "5:6"),
            ("7", "77:6"),
            (":8", "77:8"),
            ("www", "33:8"),
            ("www:", "33:44"),
            ("0:adm", "0:4"),
        ] {
            b.ok(&["chown", owner, "a.img:/d/link"]);
            assert_eq!(stat(&b, "a.img:/d/f").1, wanted, "{owner}");
        }
        b.ok(&["chown", "-h", "9:9", "a.img:/d/link"]);
        b.ok(&["chown", "-R", "12:13", "a.img:/d/e"]);
        let owners = ["/d", "/d/e", "/d/e/g", "/d/f", "/d/link"].map(|p| stat(&b, &format!("a.img:{p}")).1);
        assert_eq!(owners[1..], ["12:13", "12:13", "0:4", "9:9"]);
        let line = b.fails(&["chown", "nobody", "a.img:/d"], 1);
        assert_eq!(line, "a.img:/etc/passwd: it has no nobody; a number needs no entry");
        assert!(b.fails(&["chown", ":", "a.img:/d"], 1).contains("neither a user nor a group"));
        let out = b.command(&["chmod", "u+y", "a.img:/d"]).output().unwrap();
        let told = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && told.contains("u+y: not permission bits such as 755"), "{told}");
        assert_eq!(b.fails(&["chmod", "755", "a.img:/no"], 1), "a.img:/no: no such file or directory");
        assert!(b.ok(&["check", "a.img"]).contains("clean"));
    }
}

#[test]
fn times_are_set_and_empty_directories_go() {
    let b = bench("ext4");
    b.ok(&["touch", "-d", "2001-02-03T04:05:06.5", "a.img:/d/link"]);
    let text = b.ok(&["stat", "a.img:/d/f"]);
    assert_eq!(text.matches("2001-02-03 04:05:06.500000000 UTC").count(), 2, "{text}");
    b.ok(&["touch", "-md", "@7", "a.img:/d/f"]);
    assert!(b.ok(&["stat", "a.img:/d/f"]).contains("Modify: 1970-01-01 00:00:07.000000000 UTC"));
    b.ok(&["touch", "-c", "a.img:/d/missing"]);
    assert_eq!(b.ok(&["ls", "a.img:/d"]), "e\nf\nlink\n");
    assert!(b.fails(&["touch", "a.img:/d/new/"], 1).contains("is a directory"));
    assert!(b.fails(&["rmdir", "a.img:/d/e"], 1).contains("not empty"));
    assert!(b.fails(&["rmdir", "a.img:/d/f"], 1).contains("not a directory"));
    b.ok(&["mkdir", "-p", "a.img:/x/y/z"]);
    b.ok(&["rmdir", "-p", "a.img:/x//y/z//"]);
    b.ok(&["ln", "-s", "made", "a.img:/d/dangling"]);
    b.ok(&["touch", "a.img:/d/dangling"]);
    assert!(b.ok(&["stat", "a.img:/d/made"]).contains("Size: 0"));
    assert_eq!(b.fails(&["ls", "a.img:/x"], 1), "a.img:/x: no such file or directory");
    assert!(b.ok(&["check", "a.img"]).contains("clean"));
}

/// A file keeps its name where the link that is to replace it cannot be made.
#[test]
fn a_link_that_cannot_be_made_replaces_nothing() {
    let b = bench("f2fs");
    fs::write(b.path("f"), "content").unwrap();
    b.ok(&["cp", "f", "a.img:/kept"]);
    let long = "x".repeat(5000);
    for args in [&["-f", "a.img:/d"][..], &["-sf", ""], &["-sf", &long]] {
        let args: Vec<&str> = ["ln"].iter().chain(args).copied().chain(["a.img:/kept"]).collect();
        b.fails(&args, 1);
        assert_eq!(b.ok(&["cat", "a.img:/kept"]), "content", "{args:?}");
    }
    b.fails(&["ln", "-sf", "to", "a.img:/new/"], 1);
    b.ok(&["ln", "-f", "a.img:/d/f", "a.img:/kept"]);
    assert!(b.ok(&["stat", "a.img:/d/f"]).contains("2 links"));
    b.ok(&["ln", "-sf", "d/e/g", "a.img:/kept"]);
    assert_eq!(b.ok(&["ls", "-a", "a.img:/"]), "d\netc\nkept\n");
    assert!(b.ok(&["check", "a.img"]).contains("clean"));
}

/// A slash at the end means a directory, and nothing else.
#[test]
fn a_final_slash_spares_files_and_links() {
    let b = bench("f2fs");
    for args in [
        &["rm", "a.img:/d/f/"][..],
        &["rm", "-r", "a.img:/d/link/"],
        &["mv", "a.img:/d/f/", "a.img:/moved"],
        &["ln", "-s", "to", "a.img:/d/new/"],
    ] {
        assert!(b.fails(args, 1).contains("not a directory"), "{args:?}");
    }
    assert_eq!(b.ok(&["ls", "a.img:/d"]), "e\nf\nlink\n");
    b.ok(&["mv", "a.img:/d/e/", "a.img:/moved"]);
    b.ok(&["rm", "-r", "a.img:/moved/"]);
    assert_eq!(b.ok(&["ls", "a.img:/"]), "d\netc\n");
}

/// rename(2) leaves two names of one file as they are.
#[test]
fn a_name_moves_onto_another_name_of_its_file() {
    let b = bench("ext4");
    b.ok(&["ln", "a.img:/d/f", "a.img:/d/g"]);
    b.ok(&["mv", "a.img:/d/f", "a.img:/d/g"]);
    assert_eq!(b.ok(&["ls", "a.img:/d"]), "e\ng\nlink\n");
    assert!(b.ok(&["stat", "a.img:/d/g"]).contains("1 links"));
    b.ok(&["mv", "a.img:/d/g", "a.img:/d/g"]);
    assert_eq!(b.ok(&["ls", "a.img:/d"]), "e\ng\nlink\n");
}
