//! ext4 volumes that the kernel filled, cached like the other golden volumes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use super::{is_clean, recovered, run, text};
use crate::fill::Kind;
use crate::golden::{Golden, default_dir, fill_with, once, sparse_copy};
use crate::manifest::{Manifest, Options, compare};
use crate::temp::TempDir;
use crate::uml::{self, Uml};

/// Raised when the content changes, so that older copies are made anew.
const VERSION: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(300);

/// How a volume ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Unmounted.
    Clean,
    /// Synced, changed further, then a power cut: the journal is to be recovered.
    Cut(Kind),
}

/// A golden ext4 volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The name of the volume and of its files.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// Size in MiB.
    mib: u64,
    mke2fs: &'static [&'static str],
    kind: Kind,
    end: End,
}

impl Spec {
    /// Whether it was unmounted.
    pub fn is_unmounted(&self) -> bool {
        self.end == End::Clean
    }
}

const fn spec(name: &'static str, about: &'static str, mke2fs: &'static [&'static str], kind: Kind) -> Spec {
    Spec { name, about, mib: 128, mke2fs, kind, end: End::Clean }
}

/// Every golden ext4 volume.
pub const SPECS: &[Spec] = &[
    spec("ext4-default", "one of everything, blocks of 4 KiB", &["-t", "ext4", "-b", "4096"], Kind::Varied),
    spec("ext4-bigdir", "one directory of 100,000 names", &["-t", "ext4", "-N", "120000"], Kind::Bigdir),
    spec("ext4-sparse", "data at 0, 1 GiB and 3 TiB; files in many fragments", &["-t", "ext4"], Kind::Sparse),
    spec(
        "ext4-plain",
        "blocks of 1 KiB without checksums, 64bit and flex_bg, inodes of 128 bytes",
        &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-I",
            "128",
            "-O",
            "^64bit,^metadata_csum,uninit_bg,^flex_bg,^extra_isize",
        ],
        Kind::Simple,
    ),
    spec("ext4-ext3", "block maps and a journal", &["-t", "ext3"], Kind::Simple),
    spec("ext4-ext2", "block maps, no journal", &["-t", "ext2", "-b", "2048"], Kind::Simple),
    Spec {
        end: End::Cut(Kind::Unsynced),
        ..spec(
            "ext4-dirty",
            "cut off while changes were not synced",
            &["-t", "ext4", "-b", "4096"],
            Kind::Varied,
        )
    },
    Spec {
        end: End::Cut(Kind::Fsynced),
        ..spec(
            "ext4-fsynced",
            "cut off after single files were synced",
            &["-t", "ext4", "-b", "4096"],
            Kind::Varied,
        )
    },
];

/// The volume of that name; makes it if it is missing.
///
/// # Errors
/// There is none; a program or the guest fails.
pub fn ensure(name: &str) -> Result<Golden> {
    let Some(spec) = SPECS.iter().find(|s| s.name == name) else {
        bail!("no golden ext4 volume is called {name:?}");
    };
    obtain(&default_dir(), spec, false).map(|(golden, _)| golden)
}

pub(crate) fn obtain(dir: &Path, spec: &Spec, force: bool) -> Result<(Golden, bool)> {
    let files = ["img", "jsonl", "recovered.jsonl"];
    let made = once(dir, spec.name, VERSION, &files, force, || make(spec, dir))?;
    Ok((Golden::at(dir, spec.name), made))
}

/// Mounts read-only and writes a manifest of the tree to `$OUT`.
const DESCRIBE: &str = "mount -t ext4 -o ro $DEV $MNT; $HELPER manifest $MNT -o $OUT; umount $MNT\n";

fn make(spec: &Spec, dir: &Path) -> Result<()> {
    let work = TempDir::new("golden")?;
    let image = dir.join(format!("{}.part", spec.name));
    let _ = fs::remove_file(&image);
    fs::File::create_new(&image)?.set_len(spec.mib << 20)?;
    let out = run("mke2fs", &[&["-q", "-F"], spec.mke2fs, &[&image.to_string_lossy()]].concat())?;
    ensure!(out.status.success(), "mke2fs {:?}: {}", spec.mke2fs, text(&out));
    let (first, second) = (work.path().join("first"), work.path().join("second"));
    let mounted = |then: &str| {
        Ok::<_, anyhow::Error>(format!("mount -t ext4 $DEV $MNT\n{}{then}", fill_with(spec.kind)?))
    };
    match spec.end {
        End::Clean => {
            guest(&image, &first).run(&mounted(&format!("umount $MNT\n{DESCRIBE}"))?)?.check()?;
            is_clean(&image)?;
        }
        End::Cut(kind) => {
            let changed = fill_with(kind)?;
            let then =
                format!("sync -f $MNT\n$HELPER manifest $MNT -o $OUT\n{changed}echo cut-here\nsleep 1000\n");
            let mut running = guest(&image, &first).spawn(&mounted(&then)?)?;
            running.wait_for_line("cut-here")?;
            running.kill()?;
            let copy = work.path().join("copy.img");
            sparse_copy(&image, &copy)?;
            let recovers = format!("mount -t ext4 $DEV $MNT; umount $MNT\n{DESCRIBE}");
            guest(&copy, &second).run(&recovers)?.check()?;
            recovered(&copy)?;
            let changes = compare(&Manifest::load(&first)?, &Manifest::load(&second)?, &Options::default());
            ensure!(kind != Kind::Fsynced || !changes.is_empty(), "nothing was brought forward");
        }
    }
    for (from, to) in [(first, "jsonl"), (second, "recovered.jsonl")] {
        if from.exists() {
            fs::copy(from, dir.join(format!("{}.{to}", spec.name)))?;
        }
    }
    fs::rename(&image, dir.join(format!("{}.img", spec.name)))?;
    Ok(())
}

fn guest(image: &Path, out: &Path) -> Uml {
    uml::guest(image).timeout(PATIENCE).env("OUT", out)
}
