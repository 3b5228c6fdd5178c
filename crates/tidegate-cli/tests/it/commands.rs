//! The small commands, one after the other on one volume.

use crate::common::Bench;
use std::fs;

#[test]
fn a_volume_is_changed_and_looked_at() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "--label", "grün", "a.img"]);
    b.ok(&["mkdir", "-p", "a.img:/etc/init.d", "a.img:/usr/bin"]);
    fs::write(b.path("hello"), "hello\n").unwrap();
    b.ok(&["cp", "hello", "a.img:/etc/motd"]);
    b.ok(&["ln", "-s", "../etc/motd", "a.img:/usr/motd"]);
    b.ok(&["ln", "a.img:/etc/motd", "a.img:/usr/hard"]);
    b.ok(&["ln", "/etc/motd", "a.img:/usr/bin"]);
    assert_eq!(b.ok(&["cat", "a.img:/usr/motd"]), "hello\n");
    assert_eq!(b.ok(&["ls", "a.img:/usr"]), "bin\nhard\nmotd\n");
    assert!(b.ok(&["ls", "-l", "a.img:/usr"]).contains("motd -> ../etc/motd"));
    assert_eq!(b.ok(&["ls", "-R", "a.img:/usr"]), "a.img:/usr:\nbin\nhard\nmotd\n\na.img:/usr/bin:\nmotd\n");
    assert!(b.ok(&["stat", "a.img:/usr/hard"]).contains("3 links"));
    let tree = b.ok(&["tree", "a.img"]);
    assert!(tree.contains("├── etc\n│   ├── init.d\n│   └── motd\n└── usr\n"), "{tree}");
    assert!(tree.ends_with("4 directories, 4 files\n"), "{tree}");
    b.ok(&["mv", "a.img:/usr/hard", "a.img:/usr/easy"]);
    b.ok(&["mv", "a.img:/usr/easy", "a.img:/etc", "a.img:/usr/bin"]);
    assert_eq!(b.ok(&["ls", "a.img:/usr/bin/etc"]), "init.d\nmotd\n");
    b.fsck("a.img");
    let line = b.fails(&["rm", "a.img:/usr"], 1);
    assert_eq!(line, "a.img:/usr: is a directory");
    let line = b.fails(&["rm", "-r", "a.img:/"], 1);
    assert_eq!(line, "a.img:/: the volume's root cannot be removed; name what is in it");
    let line = b.fails(&["mv", "a.img:/", "a.img:/usr/x"], 1);
    assert_eq!(line, "a.img:/: the volume's root cannot be moved; name what is in it");
    let line = b.fails(&["mkdir", "a.img:/no/where"], 1);
    assert_eq!(line, "a.img:/no/where: no such file or directory");
    b.ok(&["rm", "-rf", "a.img:/usr", "a.img:/missing"]);
    assert_eq!(b.ok(&["ls", "-a", "a.img"]), "");
    b.fsck("a.img");
    let info: serde_json::Value = serde_json::from_str(&b.ok(&["info", "--json", "a.img"])).unwrap();
    assert_eq!(info["superblock"]["label"], "grün");
    assert_eq!(info["checkpoint"]["valid_inodes"], 1);
    assert!(b.ok(&["info", "a.img"]).contains("Checkpoint"));
    assert!(b.ok(&["df", "a.img"]).contains("f2fs"));
}

#[test]
fn machines_read_json() {
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    fs::write(b.path("src/f"), "12345").unwrap();
    let made: serde_json::Value =
        serde_json::from_str(&b.ok(&["mkfs", "--json", "--from", "src", "a.img"])).unwrap();
    assert_eq!((&made["files"], &made["bytes"]), (&1.into(), &5.into()));
    assert!(made["commits"].as_u64().unwrap() >= 1 && made["phases"].is_array(), "{made}");
    for args in [&["ls"][..], &["stat"], &["tree"]] {
        let args: Vec<&str> = args.iter().copied().chain(["--json", "a.img:/"]).collect();
        let v: serde_json::Value = serde_json::from_str(&b.ok(&args)).unwrap();
        assert!(v.is_array(), "{v}");
    }
}

#[test]
fn checkpoints_are_explained() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    let version = || {
        let info: serde_json::Value = serde_json::from_str(&b.ok(&["info", "--json", "a.img"])).unwrap();
        assert!(info["checkpoint"]["flags"].as_array().unwrap().contains(&"umount".into()), "{info}");
        info["checkpoint"]["version"].as_u64().unwrap()
    };
    let stats = |args: &[&str]| -> serde_json::Value {
        let args: Vec<&str> = ["info", "--json", "--checkpoints"].iter().chain(args).copied().collect();
        serde_json::from_str(&b.ok(&args)).unwrap()
    };
    let start = version();
    let merged = stats(&["a.img"]);
    let issued = merged["issued_ckpt"].as_u64().unwrap();
    assert_eq!((&merged["checkpoint_merge"], &merged["total_ckpt"]), (&true.into(), &32.into()));
    assert!((8..=32).contains(&issued), "{merged}"); // each thread's come one after the other
    assert_eq!(version(), start + issued + 1); // and one to unmount
    let alone = stats(&["-o", "nocheckpoint_merge", "a.img"]);
    assert_eq!((&alone["checkpoint_merge"], &alone["issued_ckpt"]), (&false.into(), &32.into()));
    let step = |name: &str| {
        let steps = alone["steps"].as_array().unwrap();
        steps.iter().find(|s| s["step"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    assert_eq!(step("flush and tail block")["count"], 32);
    assert_eq!(
        (&step("frozen in all")["frozen"], &step("frozen in all")["count"]),
        (&true.into(), &32.into())
    );
    let text = b.ok(&["info", "--checkpoints", "a.img"]);
    assert!(text.contains("issued_ckpt") && text.contains("* flush and tail block"), "{text}");
    b.fsck("a.img");
    let line = b.fails(&["info", "--checkpoints", "-o", "chekpoint_merge", "a.img"], 1);
    assert_eq!(line, "-o: unknown option \"chekpoint_merge\": tidegate mount -o help lists all");
    b.fails(&["info", "--checkpoints", "missing.img"], 1);
}

#[test]
fn options_of_another_format_are_told() {
    let b = Bench::new();
    for (format, of_it, of_another) in
        [("f2fs", "mode=lfs", "journal=jbd2"), ("ext4", "journal=jbd2", "mode=lfs")]
    {
        let image = format!("{format}.img");
        b.ok(&["mkfs", "--format", format, "--size", "64M", &image, "--quiet"]);
        let options = format!("{of_it},{of_another}");
        let out = b.command(&["ls", "-o", &options, &format!("{image}:/")]).output().unwrap();
        assert!(out.status.success(), "{out:?}");
        let told = format!("tidegate: note: option \"{of_another}\" has no effect on {format}\n");
        assert_eq!(String::from_utf8(out.stderr).unwrap(), told);
    }
}

#[test]
fn options_are_told_and_taken() {
    let b = Bench::new();
    b.ok(&["mkfs", "--size", "64M", "a.img", "--quiet"]);
    let told = b.ok(&["mount", "-o", "help"]);
    assert!(told.lines().count() > 20, "{told}");
    let long = |l: &&str| l.starts_with(' ') && l.chars().count() > 80;
    assert_eq!(told.lines().find(long), None);
    for word in told.lines().filter(|l| !l.starts_with(' ')) {
        let (name, values) = word.split_once('=').unwrap_or((word, ""));
        let options: Vec<String> = match (name.strip_prefix("[no]"), values) {
            (Some(flag), _) => vec![flag.into(), format!("no{flag}")],
            (None, "") => vec![name.into()],
            (None, values) => values.split('|').map(|v| format!("{name}={v}")).collect(),
        };
        options.iter().for_each(|o| _ = b.ok(&["mount", "--fake", "a.img", ".", "-o", o]));
    }
    let line = b.fails(&["ls", "-o", "cache=64M", "a.img:/"], 1);
    assert!(line.contains("for mounts alone"), "{line}");
    let line = b.fails(&["mount", "--fake", "a.img", ".", "-o", "no_such_word"], 1);
    assert!(line.contains("no_such_word"), "{line}");
}
