//! ext4 volumes made, checked and recovered by e2fsprogs, and those that the kernel filled.

pub mod golden;

use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;
use tidegate_rt::thread;

use crate::oracle;
use crate::temp::TempDir;

/// The time in seconds after which a program is taken to hang.
const LIMIT: &str = "120";

fn run(name: &str, args: &[&str]) -> Result<Output> {
    let program = oracle::require(name)?;
    let mut command = Command::new("timeout");
    command.arg(LIMIT).arg(program).args(args).stdin(std::process::Stdio::null());
    command.env("SOURCE_DATE_EPOCH", "1600000000").output().with_context(|| format!("running {name}"))
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// A scratch directory in memory, where the host has one.
pub fn scratch(label: &str) -> Result<TempDir> {
    let memory = PathBuf::from("/dev/shm");
    TempDir::new_in(&if memory.is_dir() { memory } else { std::env::temp_dir() }, label)
}

/// The bytes that `mke2fs` makes for a volume of this size: the same each time.
///
/// # Errors
/// `mke2fs` fails or is missing.
pub fn made(dir: &TempDir, bytes: u64, args: &[&str]) -> Result<Vec<u8>> {
    let one = TempDir::new_in(dir.path(), "made")?;
    let image = one.path().join("new.img");
    std::fs::File::create(&image)?.set_len(bytes)?;
    let path = image.to_string_lossy();
    let same = [
        "-U",
        "74696465-6761-7465-2063-726173686573",
        "-E",
        "hash_seed=74696465-6761-7465-2063-726173686573",
    ];
    let out = run("mke2fs", &[&["-q", "-F"], &same[..], args, &[&path]].concat())?;
    ensure!(out.status.success(), "mke2fs {args:?}: {}", text(&out));
    Ok(std::fs::read(&image)?)
}

/// The bytes of a volume with blocks of `block` bytes and a journal as small as mke2fs can make it, so that
/// its log wraps. `how` has further arguments.
///
/// # Errors
/// As [`made`].
pub fn made_small(dir: &TempDir, bytes: u64, block: usize, how: &[&str]) -> Result<Vec<u8>> {
    let (size, journal) = (block.to_string(), format!("size={}", block / 1024));
    made(dir, bytes, &[&["-m", "0", "-b", &size, "-J", &journal], how].concat())
}

/// Checks that `e2fsck -fn` finds no fault in an image.
///
/// # Errors
/// The faults that it finds.
pub fn is_clean(image: &Path) -> Result<()> {
    let out = run("e2fsck", &["-fn", &image.to_string_lossy()])?;
    ensure!(out.status.success() && !declined(&text(&out)), "e2fsck -fn: {}", text(&out));
    Ok(())
}

/// Whether `e2fsck -fn` said "no" to the repair of a fault. Its status does not tell: it counts a volume as valid after it
/// has looked at the superblock, the group descriptors and the resize inode, whatever it found there.
pub fn declined(said: &str) -> bool {
    // A tree with an unneeded level is no error; Linux leaves such trees, too.
    said.matches("? no").count() > said.matches("Optimize? no").count()
}

/// Runs e2fsck and has it repair what it finds; returns what it says.
///
/// # Errors
/// It does not come to its end, or leaves faults.
pub fn mend(image: &Path) -> Result<String> {
    let out = run("e2fsck", &["-fy", &image.to_string_lossy()])?;
    // e2fsck(8): 0 for no fault, 1 for all faults repaired. Other statuses: it failed, was killed or ran out
    // of time.
    ensure!(matches!(out.status.code(), Some(0 | 1)), "e2fsck -fy: {}: {}", out.status, text(&out));
    Ok(text(&out))
}

/// Has e2fsck repair all that it finds.
///
/// # Errors
/// The faults that are left.
pub fn mended(image: &Path) -> Result<()> {
    mend(image)?;
    is_clean(image)
}

/// Has e2fsck recover a volume after a power cut. It replays the journal, deletes files without a name, and
/// corrects the superblock's counts of free blocks and inodes, which Linux leaves stale in a power cut, too;
/// it may find nothing else to do.
///
/// # Errors
/// The faults that it found.
pub fn recovered(image: &Path) -> Result<()> {
    let said = mend(image)?;
    // A tree with an unneeded level is no error; Linux leaves such trees, too.
    let counts = [
        "Free blocks count wrong (",
        "Free inodes count wrong (",
        "could be narrower.  Optimize? yes",
        "could be shorter.  Optimize? yes",
        // e2fsck has freed the inodes in the orphan file, and empties the file.
        "is not clean.\nClear? yes",
    ];
    let counted: usize = counts.iter().map(|c| said.matches(c).count()).sum();
    ensure!(said.matches("? yes").count() == counted, "e2fsck -fy: {said}");
    is_clean(image)
}

/// Has the host's kernel recover a volume that a power cut left, by a mount, which needs root; e2fsck then has
/// nothing against it.
///
/// # Errors
/// The kernel does not mount it, or stops changing it; the faults that e2fsck finds.
pub fn recovered_by_kernel(image: &Path) -> Result<()> {
    let dir = TempDir::new_in(image.parent().context("an image in a directory")?, "mnt")?;
    let at = dir.path().to_string_lossy();
    // After an error the mount is read-only, and the change below fails.
    let options = ["-t", "ext4", "-o", "loop,rw,errors=remount-ro"];
    let out = run("mount", &[&options[..], &[&image.to_string_lossy(), &at]].concat())?;
    ensure!(out.status.success(), "mount: {}", text(&out));
    // A change that needs no room: there may be none.
    let mode = std::fs::metadata(dir.path()).map(|m| m.permissions());
    let changed = mode.and_then(|mode| std::fs::set_permissions(dir.path(), mode));
    unmount(&at)?;
    changed.context("changing the volume through the kernel's mount")?;
    is_clean(image)
}

/// Unmounts a directory. A child that another thread forks holds this process's open files until it has called exec, so
/// the mount may be busy for that long.
///
/// # Errors
/// It stays busy for ten seconds; then it is detached.
pub fn unmount(dir: &str) -> Result<()> {
    let mut out = run("umount", &[dir])?;
    for _ in 0..500 {
        if out.status.success() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(20));
        out = run("umount", &[dir])?;
    }
    run("umount", &["-l", dir])?;
    bail!("umount: {}", text(&out))
}
