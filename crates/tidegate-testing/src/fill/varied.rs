//! One of everything.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use anyhow::{Context, Result};
use rustix::fs::{CWD, FallocateFlags, FileType, Mode, fallocate, makedev, mknodat};

use super::Rng;
use super::attrs::{acl, capabilities, set_mtime, set_xattr};

/// Makes every type, size, name, time and attribute; needs root.
pub fn varied(dir: &Path) -> Result<()> {
    let mut rng = Rng::new(2);
    sizes(&sub(dir, "sizes")?, &mut rng)?;
    links(&sub(dir, "links")?)?;
    names(&sub(dir, "names")?)?;
    deep(&sub(dir, "deep")?)?;
    modes(&sub(dir, "modes")?)?;
    special(&sub(dir, "special")?)?;
    attributes(&sub(dir, "xattrs")?, &mut rng)?;
    churn(&sub(dir, "churn")?, &mut rng)?;
    holes(&sub(dir, "holes")?, &mut rng)?;
    times(&sub(dir, "times")?)
}

fn sub(dir: &Path, name: &str) -> Result<std::path::PathBuf> {
    let path = dir.join(name);
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    Ok(path)
}

fn put(path: &Path, data: &[u8]) -> Result<()> {
    fs::write(path, data).with_context(|| format!("writing {}", path.display()))
}

fn sizes(dir: &Path, rng: &mut Rng) -> Result<()> {
    let steps = (1..20_000).step_by(97);
    // The longest inline data has between 3,400 and 3,700 bytes, depending on the features.
    let edges = (3_400..3_700).step_by(4).chain([0, 4095, 4096, 4097, 8191, 8192, 8193, 12_288]);
    for size in steps.chain(edges) {
        put(&dir.join(format!("s{size:05}")), &rng.bytes(size))?;
    }
    put(&dir.join("five-mib"), &rng.bytes(5 << 20))?;
    put(&dir.join("zeros"), &[0; 50_000])
}

fn links(dir: &Path) -> Result<()> {
    put(&dir.join("one"), b"one file, many names\n")?;
    let other = sub(dir, "other")?;
    for n in 0..5 {
        fs::hard_link(dir.join("one"), other.join(format!("again-{n}")))?;
    }
    symlink("one", dir.join("short"))?;
    symlink("/absolute/../nowhere", dir.join("dangling"))?;
    symlink(OsStr::from_bytes(b"raw\xff\xfe"), dir.join("raw"))?;
    for len in [59, 60, 61, 255, 1_000, 3_400, 3_480, 3_487, 3_488, 3_489, 3_600, 4_000, 4_094] {
        let target: String = "0123456789abcde/".chars().cycle().take(len - 1).chain(['t']).collect();
        symlink(target, dir.join(format!("length-{len}")))?;
    }
    Ok(())
}

fn names(dir: &Path) -> Result<()> {
    let mut all: Vec<OsString> = vec![
        "a".repeat(255).into(),
        "é".repeat(127).into(),
        "x".into(),
        " leading and trailing ".into(),
        "-rf".into(),
        "...".into(),
        "UPPER".into(),
        "upper".into(),
        "semi;colon'quote\"dollar$".into(),
        OsString::from_vec(b"bad-utf8-\xff\x80\xc3".to_vec()),
        OsString::from_vec(b"new\nline\ttab\\slash\x01\x7f".to_vec()),
        OsString::from_vec((1..=255).filter(|b| *b != b'/').collect()),
    ];
    // A directory slot holds eight bytes of a name.
    all.extend([7, 8, 9, 15, 16, 17, 63, 64, 65, 247, 248, 249, 254].map(|n| "n".repeat(n).into()));
    for (n, name) in all.iter().enumerate() {
        put(&dir.join(name), format!("{n}\n").as_bytes())?;
    }
    let many = sub(dir, "many")?;
    for n in 0..1_500 {
        put(&many.join(format!("entry {n} {}", "z".repeat(n % 90))), b"")?;
    }
    for n in (0..1_500).step_by(3) {
        fs::remove_file(many.join(format!("entry {n} {}", "z".repeat(n % 90))))?;
    }
    Ok(())
}

fn deep(dir: &Path) -> Result<()> {
    let mut at = dir.to_path_buf();
    for level in 0..200 {
        at = sub(&at, &format!("level-{level}"))?;
    }
    put(&at.join("bottom"), b"here\n")
}

fn modes(dir: &Path) -> Result<()> {
    for mode in [0, 0o400, 0o644, 0o777, 0o1755, 0o2755, 0o4755, 0o6711, 0o7777] {
        let path = dir.join(format!("m{mode:04o}"));
        put(&path, b"mode")?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    for mode in [0o700, 0o1777, 0o2775] {
        let path = sub(dir, &format!("d{mode:04o}"))?;
        fs::set_permissions(&path, Permissions::from_mode(mode))?;
    }
    Ok(())
}

fn special(dir: &Path) -> Result<()> {
    let mode = Mode::from_raw_mode(0o640);
    let node = |name: &str, kind, major, minor| {
        mknodat(CWD, dir.join(name), kind, mode, makedev(major, minor)).with_context(|| name.to_owned())
    };
    node("fifo", FileType::Fifo, 0, 0)?;
    node("char", FileType::CharacterDevice, 1, 3)?;
    node("char-wide", FileType::CharacterDevice, 300, 70_000)?;
    node("block", FileType::BlockDevice, 8, 255)?;
    node("block-wide", FileType::BlockDevice, 259, 256)?;
    node("socket", FileType::Socket, 0, 0)?;
    drop(UnixListener::bind(dir.join("bound")).context("binding a socket")?);
    for (n, (uid, gid)) in [(0, 5), (1000, 1000), (65_534, 65_536), (4_000_000_000, 7)].iter().enumerate() {
        let path = dir.join(format!("owner-{n}"));
        put(&path, b"owned")?;
        chown(&path, Some(*uid), Some(*gid))?;
    }
    symlink("fifo", dir.join("owned-link"))?;
    lchown(dir.join("owned-link"), Some(12), Some(34))?;
    Ok(())
}

fn attributes(dir: &Path, rng: &mut Rng) -> Result<()> {
    let many = dir.join("forty");
    put(&many, b"many attributes")?;
    for n in 0..40 {
        set_xattr(&many, &format!("user.attribute-{n:02}"), &rng.bytes(n + 10))?;
    }
    for n in (0..40).step_by(8) {
        set_xattr(&many, &format!("user.attribute-{n:02}"), b"")?;
    }
    let few = dir.join("few");
    put(&few, b"few attributes")?;
    set_xattr(&few, "user.a", b"1")?;
    set_xattr(&few, "trusted.overlay", b"y\0")?;
    set_xattr(&few, "security.note", b"free form")?;
    set_xattr(&few, "user.empty", b"")?;
    let large = dir.join("large");
    put(&large, &rng.bytes(9_000))?;
    set_xattr(&large, "user.large", &rng.bytes(3_400))?;
    let shrunk = dir.join("shrunk");
    put(&shrunk, b"")?;
    set_xattr(&shrunk, "user.gone", &rng.bytes(3_000))?;
    set_xattr(&shrunk, "user.stays", b"kept")?;
    rustix::fs::removexattr(&shrunk, "user.gone")?;
    symlink("few", dir.join("link"))?;
    set_xattr(&dir.join("link"), "trusted.link", b"on the link itself")?;

    let capable = dir.join("capable");
    put(&capable, b"#!")?;
    set_xattr(&capable, "security.capability", &capabilities(1 << 10 | 1 << 13))?;
    let shared = dir.join("acl");
    put(&shared, b"shared")?;
    set_xattr(&shared, "system.posix_acl_access", &acl(&[(7, 6), (70_000, 4)], &[(8, 5)]))?;
    let inherit = sub(dir, "acl-default")?;
    set_xattr(&inherit, "user.on-a-directory", &rng.bytes(300))?;
    set_xattr(&inherit, "system.posix_acl_default", &acl(&[(9, 7)], &[(10, 1), (11, 7)]))?;
    put(&inherit.join("inherits"), b"")?;
    sub(&inherit, "inherits-too").map(drop)
}

fn churn(dir: &Path, rng: &mut Rng) -> Result<()> {
    let name = |n: u64| dir.join(format!("file-{n}"));
    for n in 0..300 {
        let len = rng.below(9_000) as usize;
        put(&name(n), &rng.bytes(len))?;
    }
    for n in (0..300).step_by(2) {
        fs::remove_file(name(n))?;
    }
    for n in (1..300).step_by(6) {
        OpenOptions::new().append(true).open(name(n))?.write_all(&rng.bytes(6_000))?;
    }
    for n in (3..300).step_by(6) {
        File::options().write(true).open(name(n))?.set_len(rng.below(12_000))?;
    }
    for n in (5..300).step_by(12) {
        fs::rename(name(n), dir.join(format!("renamed-{n}")))?;
    }
    fs::rename(name(1), name(3))?;
    let gone = sub(dir, "gone")?;
    put(&gone.join("x"), b"x")?;
    fs::remove_dir_all(gone)?;
    let moved = sub(dir, "moved")?;
    put(&moved.join("y"), b"y")?;
    let into = sub(dir, "into")?;
    fs::rename(moved, into.join("moved"))?;
    Ok(())
}

fn holes(dir: &Path, rng: &mut Rng) -> Result<()> {
    let gaps = File::create_new(dir.join("gaps"))?;
    for at in [4_096, 5 << 20, 20 << 20, (20 << 20) + 8_193] {
        gaps.write_all_at(&rng.bytes(5_000), at)?;
    }
    gaps.set_len((24 << 20) + 1)?;
    File::create_new(dir.join("all-hole"))?.set_len(10 << 20)?;
    let reserved = File::create_new(dir.join("reserved"))?;
    fallocate(&reserved, FallocateFlags::empty(), 0, 100_000).context("fallocate")?;
    reserved.write_all_at(b"in the middle", 50_000)?;
    let beyond = File::create_new(dir.join("beyond-end"))?;
    beyond.write_all_at(b"short", 0)?;
    fallocate(&beyond, FallocateFlags::KEEP_SIZE, 0, 100_000).context("fallocate")?;
    let punched = File::create_new(dir.join("punched"))?;
    punched.write_all_at(&rng.bytes(100_000), 0)?;
    fallocate(&punched, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 20_000, 40_000)
        .context("fallocate")
}

fn times(dir: &Path) -> Result<()> {
    let all = [
        (-1, 500_000_000),
        (-2_147_483_648, 1),
        (-2_147_483_649, 0),
        (0, 0),
        (0, 999_999_999),
        (1_234_567_890, 123_456_789),
        (2_147_483_647, 999_999_999),
        (2_147_483_648, 0),
        (4_294_967_296, 7),
        (15_032_385_535, 3),
    ];
    for (n, (sec, nsec)) in all.iter().enumerate() {
        let path = dir.join(format!("time-{n}"));
        put(&path, b"then")?;
        set_mtime(&path, *sec, *nsec)?;
    }
    symlink("time-0", dir.join("link"))?;
    set_mtime(&dir.join("link"), 77, 777)?;
    set_mtime(&sub(dir, "directory")?, 1_000_000_000, 1)
}
