//! The effect of `cp` and `tar` on existing files, and how they go on after a failure.

use crate::common::{Bench, damage, failed, has, is_root};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

const MIB: usize = 1 << 20;

/// A volume with a directory `d` of some files.
fn volume(b: &Bench) {
    fs::create_dir_all(b.path("src/d")).unwrap();
    for (name, bytes) in [("f", &b"content"[..]), ("first", b"1"), ("last", b"2")] {
        fs::write(b.path("src/d").join(name), bytes).unwrap();
    }
    fs::set_permissions(b.path("src/d/f"), fs::Permissions::from_mode(0o751)).unwrap();
    fs::write(b.path("src/d/large"), vec![3; 6 * MIB]).unwrap();
    b.ok(&["mkfs", "--size", "128M", "--from", "src", "a.img"]);
}

fn lines(out: &Output, code: i32) -> Vec<String> {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(code), "{text}");
    text.lines().map(str::to_string).collect()
}

fn no_temporary(b: &Bench, dir: &str) {
    for e in fs::read_dir(b.path(dir)).unwrap() {
        let name = e.unwrap().file_name();
        assert!(!name.to_string_lossy().starts_with(".tidegate"), "{name:?}");
    }
}

#[test]
fn what_is_named_as_the_destination_stays_what_it_is() {
    let b = Bench::new();
    volume(&b);
    fs::write(b.path("there"), "something longer").unwrap();
    fs::set_permissions(b.path("there"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::hard_link(b.path("there"), b.path("other")).unwrap();
    std::os::unix::fs::symlink("there", b.path("link")).unwrap();
    let ino = fs::metadata(b.path("there")).unwrap().ino();
    for to in ["there", "link"] {
        fs::write(b.path("other"), "something longer").unwrap();
        b.ok(&["cp", "a.img:/d/f", to]);
        assert_eq!(fs::read(b.path("other")).unwrap(), b"content");
        let m = fs::metadata(b.path("there")).unwrap();
        assert_eq!((m.ino(), m.nlink(), m.mode() & 0o7777), (ino, 2, 0o600));
        assert!(b.path("link").is_symlink());
    }
    b.ok(&["cp", "-p", "a.img:/d/f", "link"]);
    let m = fs::metadata(b.path("other")).unwrap();
    assert_eq!((m.ino(), m.mode() & 0o7777), (ino, 0o751));
    // A dangling link is no name for a new file.
    std::os::unix::fs::symlink("nowhere", b.path("dangling")).unwrap();
    b.fails(&["cp", "a.img:/d/f", "dangling"], 1);
    assert!(!b.path("nowhere").exists() && b.path("dangling").is_symlink());
    let before = fs::read(b.path("a.img")).unwrap();
    assert!(b.fails(&["cp", "a.img:/d/f", "a.img"], 1).contains("the image itself"));
    assert!(fs::read(b.path("a.img")).unwrap() == before);
}

#[test]
fn devices_and_fifos_are_written_to() {
    let b = Bench::new();
    volume(&b);
    let ok = |args: &[&str]| {
        Command::new(args[0]).args(&args[1..]).current_dir(b.dir.path()).status().is_ok_and(|s| s.success())
    };
    assert!(ok(&["mkfifo", "fifo"]));
    let got = fs::File::create(b.path("got")).unwrap();
    let mut reader = Command::new("cat").arg(b.path("fifo")).stdout(got).spawn().unwrap();
    b.ok(&["cp", "a.img:/d/large", "fifo"]);
    assert!(reader.wait().unwrap().success());
    assert!(fs::read(b.path("got")).unwrap() == vec![3; 6 * MIB]);
    assert!(fs::symlink_metadata(b.path("fifo")).unwrap().file_type().is_fifo());
    // A separate node of the null device.
    if !is_root() || !ok(&["mknod", "null", "c", "1", "3"]) {
        eprintln!("skipped: no device node can be made");
        return;
    }
    if fs::OpenOptions::new().write(true).open(b.path("null")).is_err() {
        eprintln!("skipped: the scratch directory takes no devices");
        return;
    }
    for args in [&["cp", "a.img:/d/f", "null"][..], &["cp", "-p", "a.img:/d/large", "null"]] {
        let before = fs::symlink_metadata(b.path("null")).unwrap();
        b.ok(args);
        let after = fs::symlink_metadata(b.path("null")).unwrap();
        assert!(after.file_type().is_char_device());
        assert_eq!((before.ino(), before.mode()), (after.ino(), after.mode()));
    }
}

#[test]
fn nothing_else_goes_to_standard_output_when_a_content_does() {
    let b = Bench::new();
    volume(&b);
    // Neither figures, nor JSON beside the content.
    for (option, done, content) in [("-v", true, &b"content"[..]), ("--json", false, b"")] {
        let out = fs::File::create(b.path("out")).unwrap();
        let mut copy = b.command(&["cp", option, "a.img:/d/f", "/dev/stdout"]);
        assert_eq!(copy.stdout(out).status().unwrap().success(), done);
        assert_eq!(fs::read(b.path("out")).unwrap(), content);
    }
}

#[test]
fn a_program_that_runs_is_replaced() {
    let b = Bench::new();
    volume(&b);
    let path = std::env::var_os("PATH").unwrap();
    let mut sleep = std::env::split_paths(&path).map(|d| d.join("sleep"));
    b.copy_program(&sleep.find(|p| p.is_file()).unwrap(), "prog");
    let mut running = Command::new(b.path("prog")).arg0("sleep").arg("600").spawn().unwrap();
    let busy = fs::OpenOptions::new().write(true).open(b.path("prog")).is_err();
    let out = b.command(&["cp", "a.img:/d/f", "prog"]).output().unwrap();
    running.kill().unwrap();
    running.wait().unwrap();
    if !busy {
        eprintln!("skipped: programs that run can be written to here");
    }
    assert_eq!(lines(&out, 0), [""; 0]);
    assert_eq!(fs::read(b.path("prog")).unwrap(), b"content");
    no_temporary(&b, ".");
}

#[test]
fn a_directory_that_is_there_keeps_its_mode() {
    let b = Bench::new();
    volume(&b);
    let mode = || fs::metadata(b.path("out")).unwrap().mode() & 0o7777;
    fs::create_dir(b.path("out")).unwrap();
    fs::set_permissions(b.path("out"), fs::Permissions::from_mode(0o711)).unwrap();
    fs::set_permissions(b.path("src"), fs::Permissions::from_mode(0o750)).unwrap();
    b.ok(&["mkfs", "--force", "--size", "128M", "--from", "src", "a.img"]);
    b.ok(&["cp", "a.img:/", "out"]);
    assert_eq!(mode(), 0o711);
    b.ok(&["cp", "-p", "a.img:/", "out"]);
    assert_eq!(mode(), 0o750);
}

#[test]
fn a_copied_tree_replaces_whole_files() {
    let b = Bench::new();
    volume(&b);
    fs::create_dir_all(b.path("out/d")).unwrap();
    fs::write(b.path("out/d/f"), "old").unwrap();
    fs::hard_link(b.path("out/d/f"), b.path("other")).unwrap();
    std::os::unix::fs::symlink("../../other", b.path("out/d/first")).unwrap();
    fs::create_dir(b.path("out/d/last")).unwrap();
    let out = b.command(&["cp", "a.img:/d", "out"]).output().unwrap();
    assert_eq!(lines(&out, 1), ["tidegate: out/d/last: is a directory"]);
    assert_eq!(fs::read(b.path("other")).unwrap(), b"old");
    assert_eq!(fs::read(b.path("out/d/f")).unwrap(), b"content");
    assert!(!b.path("out/d/first").is_symlink());
    assert_eq!(fs::read(b.path("out/d/large")).unwrap().len(), 6 * MIB);
    no_temporary(&b, "out/d");
    // Again, over all of it: also where two names are one file already.
    fs::remove_dir(b.path("out/d/last")).unwrap();
    b.ok(&["ln", "a.img:/d/f", "a.img:/d/same"]);
    for _ in 0..2 {
        b.ok(&["cp", "a.img:/d", "out"]);
        assert_eq!(fs::metadata(b.path("out/d/same")).unwrap().nlink(), 2);
        no_temporary(&b, "out/d");
    }
}

#[test]
fn a_full_host_does_not_cost_what_was_there() {
    let b = Bench::new();
    volume(&b);
    fs::create_dir(b.path("out")).unwrap();
    let mount = |options| {
        let mut c = Command::new("mount");
        c.args(["-t", "tmpfs", "-o", options, "tidegate"]).arg(b.path("out"));
        c.output().is_ok_and(|o| o.status.success())
    };
    if !mount("size=4m") {
        eprintln!("skipped: no tmpfs can be mounted here");
        return;
    }
    struct Mounted<'a>(&'a Bench);
    impl Drop for Mounted<'_> {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("-l").arg(self.0.path("out")).status();
        }
    }
    let _mounted = Mounted(&b);
    fs::create_dir(b.path("out/d")).unwrap();
    fs::write(b.path("out/d/large"), "old").unwrap();
    let line = b.fails(&["cp", "a.img:/d", "out"], 1);
    assert_eq!(line, "out/d/large: no space left on device");
    assert_eq!(fs::read(b.path("out/d/large")).unwrap(), b"old");
    no_temporary(&b, "out/d");
    let line = b.fails(&["cp", "a.img:/d/large", "out/d/large"], 1);
    assert!(line.contains("no space left on device; what it held is gone"), "{line}");
}

#[test]
fn an_operand_that_fails_does_not_cost_the_others() {
    let b = Bench::new();
    volume(&b);
    for name in ["f1", "f2"] {
        fs::write(b.path(name), name).unwrap();
    }
    let line = b.fails(&["cp", "f1", "nope", "f2", "a.img:/"], 1);
    assert_eq!(line, "nope: no such file or directory");
    assert_eq!(b.ok(&["cat", "a.img:/f1", "a.img:/f2"]), "f1f2");
    b.fsck("a.img");
    fs::create_dir(b.path("out")).unwrap();
    let line = b.fails(&["cp", "missing.img:/x", "a.img:/f1", "out"], 1);
    assert_eq!(line, "missing.img: no such file or directory");
    let line = b.fails(&["cp", "a.img:/nope", "a.img:/f2", "out"], 1);
    assert_eq!(line, "a.img:/nope: no such file or directory");
    assert!(b.path("out/f1").exists() && b.path("out/f2").exists());
}

#[test]
fn a_full_volume_keeps_what_was_copied() {
    let b = Bench::new();
    let sources: Vec<String> = (0..8).map(|n| format!("f{n}")).collect();
    for (n, name) in sources.iter().enumerate() {
        fs::write(b.path(name), vec![n as u8; 10 * MIB]).unwrap();
    }
    b.ok(&["mkfs", "--size", "64M", "a.img"]);
    let args: Vec<&str> =
        ["cp"].into_iter().chain(sources.iter().map(String::as_str)).chain(["a.img:/"]).collect();
    let line = b.fails(&args, 1);
    assert!(line.contains("no space left on the volume; the copy ends here; what was copied"), "{line}");
    let partial = line.split(": ").next().unwrap().to_string();
    b.fsck("a.img");
    let listed = b.ok(&["ls", "a.img"]);
    let there: Vec<&str> = listed.lines().collect();
    assert!(!there.is_empty() && there.len() < 8, "{listed}");
    assert!(!there.iter().any(|n| partial.ends_with(&format!("/{n}"))), "{partial} is among {there:?}");
    for (n, name) in there.iter().enumerate() {
        assert_eq!(*name, sources[n]);
        b.ok(&["cp", &format!("a.img:/{name}"), "back"]);
        assert!(fs::read(b.path("back")).unwrap() == vec![n as u8; 10 * MIB], "{name}");
    }
}

#[test]
fn damage_does_not_end_a_rescue() {
    let b = Bench::new();
    volume(&b);
    // One inode is damaged, and one file points out of the volume after its first pieces.
    damage::inodes(&b, "f", damage::no_inode);
    damage::inodes(&b, "large", damage::points_outside);
    let out = b.command(&["cp", "a.img:/", "out"]).output().unwrap();
    let said = lines(&out, 1);
    assert_eq!(said.len(), 2, "{said:?}");
    for name in ["f", "large"] {
        let about = said.iter().find(|l| l.starts_with(&format!("tidegate: a.img:/d/{name}: ")));
        assert!(about.is_some_and(|l| l.contains("the volume is damaged")), "{said:?}");
    }
    let advised = |said: &[String]| {
        said.iter().filter(|l| l.ends_with("; run `tidegate check --repair a.img`")).count()
    };
    assert_eq!(advised(&said), 1, "{said:?}");
    let mut names: Vec<_> = fs::read_dir(b.path("out/d"))
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["first", "last"]);

    let tar = fs::File::create(b.path("a.tar")).unwrap();
    let out = b.command(&["tar", "a.img:/"]).stdout(tar).output().unwrap();
    let said = lines(&out, 1);
    assert_eq!((said.len(), advised(&said)), (2, 1), "{said:?}");
    if has("tar") {
        let list = Command::new("tar").arg("-tf").arg(b.path("a.tar")).output().unwrap();
        assert!(list.status.success(), "{}", String::from_utf8_lossy(&list.stderr));
        let text = String::from_utf8(list.stdout).unwrap();
        assert!(text.contains("d/first\n") && text.contains("d/last\n") && !text.contains("d/f\n"), "{text}");
    }
    let line = failed(&b.command(&["cp", "a.img:/d/f", "alone"]).output().unwrap(), 1);
    assert_eq!(advised(&[line.to_string()]), 1, "{line}");
}

/// The volume has a set-id file of another user.
#[test]
fn owners_and_set_id_bits_are_left_behind_when_told() {
    let b = Bench::new();
    volume(&b);
    fs::set_permissions(b.path("src/d/f"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(b.path("src/d"), fs::Permissions::from_mode(0o1777)).unwrap();
    b.ok(&["mkfs", "-q", "--force", "--from", "src", "--owner", "12:34", "a.img"]);
    let got = |name: &str| {
        let m = fs::metadata(b.path(name)).unwrap();
        (m.uid(), m.gid(), m.mode() & 0o7777)
    };
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    b.ok(&["cp", "--no-same-owner", "a.img:/d", "mine"]);
    assert_eq!((got("mine"), got("mine/f")), ((uid, gid, 0o1777), (uid, gid, 0o755)));
    let mut narrow = Command::new("bash");
    narrow.args(["-c", "umask 27; exec $0 cp --no-same-permissions --no-same-owner a.img:/d narrow"]);
    let done = narrow.arg(env!("CARGO_BIN_EXE_tidegate")).current_dir(b.dir.path()).status().unwrap();
    assert!(done.success());
    assert_eq!((got("narrow"), got("narrow/f")), ((uid, gid, 0o750), (uid, gid, 0o750)));
    if is_root() {
        b.ok(&["cp", "--no-same-permissions", "a.img:/d/f", "theirs"]);
        assert_eq!(got("theirs").0, 12);
        assert_eq!(got("theirs").2 & 0o7000, 0);
        b.ok(&["cp", "a.img:/d/f", "same"]);
        assert_eq!(got("same"), (12, 34, 0o6755));
    }
    for to in ["-", "a.img:/x"] {
        let line = b.fails(&["cp", "--no-same-owner", "a.img:/d/f", to], 1);
        assert!(line.starts_with("--no-same-owner, --no-same-permissions: "), "{line}");
    }
}

/// The caller named the directory, and not the link in it.
#[test]
fn a_link_in_the_destination_leads_no_tree_elsewhere() {
    let b = Bench::new();
    volume(&b);
    fs::create_dir_all(b.path("victim")).unwrap();
    fs::write(b.path("victim/f"), "old").unwrap();
    fs::create_dir(b.path("out")).unwrap();
    std::os::unix::fs::symlink("../victim", b.path("out/d")).unwrap();
    let out = b.command(&["cp", "a.img:/d", "out"]).output().unwrap();
    assert_eq!(lines(&out, 1), ["tidegate: out/d: not a directory"]);
    assert_eq!(fs::read(b.path("victim/f")).unwrap(), b"old");
    assert_eq!(fs::read_dir(b.path("victim")).unwrap().count(), 1);
    // Here the link is what the caller named.
    b.ok(&["cp", "a.img:/d/.", "out/d"]);
    assert_eq!(fs::read(b.path("victim/f")).unwrap(), b"content");
}

/// Files on the host have the permissions of the volume's, whatever ACL their directory hands down.
#[test]
fn a_default_acl_of_the_host_is_left_out() {
    let b = Bench::new();
    volume(&b);
    fs::create_dir(b.path("out")).unwrap();
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, u32::MAX), (2, 7, 65534), (4, 0, u32::MAX), (0x10, 7, u32::MAX), (0x20, 0, u32::MAX)];
    let bytes = |(tag, perm, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &perm.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let acl = [2_u32.to_le_bytes().to_vec(), entries.map(bytes).concat()].concat();
    let flags = rustix::fs::XattrFlags::empty();
    fs::create_dir(b.path("out/filled")).unwrap();
    for dir in ["out", "out/filled"] {
        rustix::fs::setxattr(b.path(dir), "system.posix_acl_default", &acl, flags).unwrap();
    }
    let fifo = b.path("fifo");
    rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, rustix::fs::Mode::from(0o644), 0)
        .unwrap();
    b.ok(&["mkdir", "-m", "755", "a.img:/d/sub"]);
    b.ok(&["cp", "fifo", "a.img:/d/sub/fifo"]);
    b.ok(&["chmod", "644", "a.img:/d/f", "a.img:/d/sub/fifo"]);
    b.ok(&["cp", "a.img:/d/f", "a.img:/d/sub/fifo", "a.img:/d", "out"]);
    b.ok(&["cp", "a.img:/d/.", "out/filled"]);
    for (name, mode) in [
        ("f", 0o644),
        ("fifo", 0o644),
        ("d", 0o755),
        ("d/f", 0o644),
        ("d/sub", 0o755),
        ("d/sub/fifo", 0o644),
        ("filled/f", 0o644),
        ("filled/sub/fifo", 0o644),
    ] {
        let path = b.path("out").join(name);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, mode, "{name}");
        for acl in ["system.posix_acl_access", "system.posix_acl_default"] {
            let got = rustix::fs::lgetxattr(&path, acl, &mut [0_u8; 0][..]);
            assert_eq!(got, Err(rustix::io::Errno::NODATA), "{name}: {acl}");
        }
    }
}
