//! Names, link targets and attributes in tars, judged by what the stock tar extracts.

use crate::common::{Bench, assert_same, has};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use tidegate_rt::rng::Rng;
use tidegate_testing::manifest::Options;

/// A path of exactly `len` bytes, with a slash at byte `slash` (0: anywhere).
fn path(rng: &mut Rng, n: usize, len: usize, slash: usize) -> String {
    let mut p = format!("{n:04}");
    let mut since = p.len();
    while p.len() < len {
        let last = p.len() + 1 == len;
        let must = p.len() == slash || since >= 200;
        let near = slash > 0 && p.len() + 1 >= slash && p.len() <= slash + 1;
        if !last && since > 0 && (must || !near && rng.below(20) == 0) {
            p.push('/');
            since = 0;
        } else {
            p.push((b'a' + rng.below(26) as u8) as char);
            since += 1;
        }
    }
    p
}

/// Files with and without content, directories, symbolic and hard links, at paths of 90 to 260 bytes, many of
/// which have a slash where a header's name field of 100 bytes ends.
fn fill(dir: &Path, rng: &mut Rng) {
    let mut files: Vec<String> = Vec::new();
    for n in 0..200 {
        let len = 90 + rng.below(171) as usize;
        let slash = if rng.below(2) == 0 { 97 + rng.below(5) as usize } else { 0 };
        let p = path(rng, n, len, slash);
        let at = dir.join(&p);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match rng.below(6) {
            0 => fs::create_dir(&at).unwrap(),
            1 => symlink(path(rng, n, 1.max(len - 60), 99), &at).unwrap(),
            2 if !files.is_empty() => {
                let to = &files[rng.below(files.len() as u64) as usize];
                fs::hard_link(dir.join(to), &at).unwrap();
            }
            3 => fs::write(&at, "").unwrap(),
            _ => fs::write(&at, vec![b'x'; 1 + rng.below(3000) as usize]).unwrap(),
        }
        if at.symlink_metadata().unwrap().is_file() {
            files.push(p);
        }
    }
}

const PYTHON: &str = "import sys, tarfile\n\
    t = tarfile.open(sys.argv[1], 'w', format=getattr(tarfile, sys.argv[2]))\n\
    t.add('src', '.')\n\
    t.close()";

#[test]
fn long_names_come_out_as_from_the_stock_tar() {
    if !has("tar") {
        eprintln!("skipped: tar is not installed");
        assert!(std::env::var_os("CI").is_none());
        return;
    }
    let seed = std::env::var("TIDEGATE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x7a6);
    eprintln!("TIDEGATE_SEED={seed}");
    let b = Bench::new();
    fs::create_dir(b.path("src")).unwrap();
    fill(&b.path("src"), &mut Rng::new(seed));
    let run = |c: &mut Command| c.current_dir(b.dir.path()).stderr(Stdio::null()).status().unwrap().success();
    let mut tars = Vec::new();
    for format in ["gnu", "oldgnu", "pax", "posix"] {
        let name = format!("{format}.tar");
        assert!(
            run(Command::new("tar").args(["--format", format, "-cf", &name, "-C", "src", "."])),
            "{name}"
        );
        tars.push(name);
    }
    // Names that these cannot hold are left out.
    for format in ["ustar", "v7"] {
        // A hard link to a name that is left out could not be extracted.
        let name = format!("{format}.tar");
        let args = ["--hard-dereference", "--format", format, "-cf", &name, "-C", "src", "."];
        run(Command::new("tar").args(args));
        tars.push(name);
    }
    for format in ["GNU_FORMAT", "PAX_FORMAT"] {
        let name = format!("python-{format}.tar");
        if run(Command::new("python3").args(["-c", PYTHON, &name, format])) {
            tars.push(name);
        } else {
            eprintln!("skipped: no archive by python3");
            assert!(std::env::var_os("CI").is_none());
        }
    }
    b.ok(&["mkfs", "--from", "src", "tree.img"]);
    let own = b.command(&["tar", "tree.img:/"]).output().unwrap();
    assert!(own.status.success());
    fs::write(b.path("own.tar"), own.stdout).unwrap();
    tars.push("own.tar".into());
    let options = Options { ignore_nanoseconds: true, ..Default::default() };
    for name in tars {
        eprintln!("{name}");
        for dir in ["stock", "ours"] {
            let _ = fs::remove_dir_all(b.path(dir));
        }
        fs::create_dir(b.path("stock")).unwrap();
        let mut stock = Command::new("tar");
        stock.args(["--numeric-owner", "-xpf", &name, "-C", "stock"]).current_dir(b.dir.path());
        assert!(stock.stderr(Stdio::null()).status().unwrap().success(), "{name}: the stock tar fails");
        b.ok(&["mkfs", "--force", "--from", &name, "a.img"]);
        b.fsck("a.img");
        b.ok(&["cp", "a.img:/", "ours"]);
        assert_same(&b.path("stock"), &b.path("ours"), &options);
    }
}

/// An archive by Python's tarfile, whose `t` the code in `body` fills by `add(name, **fields)`.
pub fn archive(b: &Bench, body: &str) {
    let code = format!(
        "import tarfile, io\n\
         t = tarfile.open('x.tar', 'w', format=tarfile.PAX_FORMAT)\n\
         def add(name, data=b'', **f):\n\
         \x20   i = tarfile.TarInfo(name)\n\
         \x20   for k, v in f.items(): setattr(i, k, v)\n\
         \x20   i.size = len(data)\n\
         \x20   t.addfile(i, io.BytesIO(data))\n\
         {body}\nt.close()"
    );
    let out = Command::new("python3").args(["-c", &code]).current_dir(b.dir.path()).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn what_no_volume_can_hold_is_refused_by_name() {
    if !has("python3") {
        eprintln!("skipped: python3 is not installed");
        assert!(std::env::var_os("CI").is_none());
        return;
    }
    let b = Bench::new();
    let link = "type=tarfile.SYMTYPE";
    for (body, says) in [
        (format!("add('bad', {link}, linkname='y' * 5000)"), "5000 bytes"),
        (format!("add('bad', {link}, linkname='')"), "without a target"),
        ("add('bad', type=tarfile.CHRTYPE, devmajor=4096, devminor=1)".into(), "device 4096, 1"),
        ("add('bad', type=tarfile.BLKTYPE, devmajor=1, devminor=1 << 20)".into(), "device 1, 1048576"),
        (format!("add('bad', {link}, pax_headers={{'linkpath': 'a\\0b'}})"), "zero byte"),
        (
            "add('bad', pax_headers={'SCHILY.xattr.security.capability': '1234567'})".into(),
            "security.capability",
        ),
    ] {
        archive(&b, &body);
        let line = b.fails(&["mkfs", "--from", "x.tar", "a.img"], 1);
        assert!(line.contains("bad") && line.contains(says), "{line}");
        assert!(!b.path("a.img").exists(), "{line}");
    }
    archive(&b, &format!("add('good', {link}, linkname='y' * 4095)"));
    b.ok(&["mkfs", "--from", "x.tar", "a.img"]);
    b.fsck("a.img");
}

/// Before there was a flag for them, directories were files with a slash at the end of their name.
#[test]
fn a_name_that_ends_with_a_slash_is_a_directory() {
    if !has("python3") {
        eprintln!("skipped: python3 is not installed");
        assert!(std::env::var_os("CI").is_none());
        return;
    }
    let b = Bench::new();
    let body = "add('d/', data=b'z' * 700, type=tarfile.REGTYPE)\n\
                add('e' * 150 + '/', type=tarfile.AREGTYPE)\n\
                add('d/f', data=b'in')";
    archive(&b, body);
    b.ok(&["mkfs", "--from", "x.tar", "a.img"]);
    assert_eq!(b.ok(&["cat", "a.img:/d/f"]), "in");
    assert!(b.ok(&["ls", "-l", "a.img:/"]).lines().all(|l| l.starts_with('d')));
}
