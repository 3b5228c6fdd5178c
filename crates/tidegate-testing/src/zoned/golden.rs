//! Volumes that the kernel made on zoned devices, cached like the other golden volumes.
//!
//! Its [`Devices`] are an [`Image`] `NAME.zoned.img` and, where that has no conventional zones, a disk
//! `NAME.disk.img` before it.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use tidegate_uml::GuestOutput;

use super::devices::Devices;
use super::image::{Geometry, Image};
use super::machine::Machine;
use crate::golden::{default_dir, once, sparse_copy};
use crate::manifest::{Manifest, Options, compare};
use crate::power::Promises;
use crate::temp::TempDir;

/// Raised when the content changes, so that older copies are made anew.
const VERSION: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(300);
/// Processes that write until the power is cut.
const WORKERS: u32 = 3;
/// The operations that a process may have begun beyond those that it printed.
const AHEAD: u32 = 3;
const FIRST_SEED: u64 = 21;
/// Seeds that are tried until the kernel's own recovery keeps its promises. It breaks one when a truncation took
/// a node that was fsynced after the last checkpoint: roll-forward finds the old node and brings its blocks back.
const SEEDS: u64 = 4;

/// How a volume ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// Unmounted.
    Clean,
    /// Synced, changed further, single files fsynced; stopped without a checkpoint.
    Fsynced,
    /// The machine was reset while files were written and synced.
    Cut,
}

/// A golden volume on a zoned device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spec {
    /// The name of the volume and of its files.
    pub name: &'static str,
    /// Its purpose.
    pub about: &'static str,
    /// The geometry of the zoned device.
    pub geometry: Geometry,
    end: End,
}

/// 1 GiB in zones of 8 MiB.
const FULL: Geometry = Geometry {
    zones: 128,
    zone_size: 8 << 20,
    capacity: 8 << 20,
    conventional: 0,
    max_open: 14,
    max_active: 14,
};
/// The capacity ends in the middle of a segment.
const PART: Geometry = Geometry { capacity: 7 << 20, ..FULL };
const CONVENTIONAL: Geometry = Geometry { conventional: 8, ..FULL };

/// Every golden volume on a zoned device.
pub const SPECS: &[Spec] = &[
    Spec {
        name: "zoned-capacity-cut",
        about: "a reset while files were synced",
        geometry: PART,
        end: End::Cut,
    },
    Spec {
        name: "zoned-capacity-fsynced",
        about: "stopped after single files were synced, zones of 7 of 8 MiB",
        geometry: PART,
        end: End::Fsynced,
    },
    Spec {
        name: "zoned-fsynced",
        about: "stopped after single files were synced, zones of 8 MiB",
        geometry: FULL,
        end: End::Fsynced,
    },
    Spec {
        name: "zoned-conventional-fsynced",
        about: "stopped after single files were synced, one device, conventional zones",
        geometry: CONVENTIONAL,
        end: End::Fsynced,
    },
    Spec {
        name: "zoned-capacity-clean",
        about: "unmounted, zones of 7 of 8 MiB",
        geometry: PART,
        end: End::Clean,
    },
    Spec { name: "zoned-clean", about: "unmounted, zones of 8 MiB", geometry: FULL, end: End::Clean },
    Spec {
        name: "zoned-conventional-clean",
        about: "unmounted, one device, conventional zones",
        geometry: CONVENTIONAL,
        end: End::Clean,
    },
];

/// A golden volume that exists.
///
/// Its files are shared: tests that write work on a copy of its devices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// The devices of the volume.
    pub devices: Devices,
    /// The content of its last checkpoint.
    pub manifest: Option<PathBuf>,
    /// The tree that the kernel has at the next mount.
    pub recovered: Option<PathBuf>,
    /// The promises before a reset ([`Promises::parse`]).
    pub promises: Option<PathBuf>,
}

impl Volume {
    fn at(dir: &Path, name: &str) -> Self {
        let file = |suffix: &str| dir.join(format!("{name}.{suffix}"));
        let there = |suffix| Some(file(suffix)).filter(|p| p.exists());
        Volume {
            devices: Devices { disk: there("disk.img"), zoned: file("zoned.img") },
            manifest: there("jsonl"),
            recovered: there("recovered.jsonl"),
            promises: there("promises"),
        }
    }
}

/// The volume of that name; makes it if it is missing.
///
/// # Errors
/// There is none; the guest fails.
pub fn ensure(name: &str) -> Result<Volume> {
    let Some(spec) = SPECS.iter().find(|s| s.name == name) else {
        bail!("no golden volume on a zoned device is called {name:?}");
    };
    obtain(&default_dir(), spec, false).map(|(volume, _)| volume)
}

pub(crate) fn obtain(dir: &Path, spec: &Spec, force: bool) -> Result<(Volume, bool)> {
    // The list of zones is written last.
    let files = ["zoned.img.zones", "zoned.img", "disk.img", "jsonl", "recovered.jsonl", "promises"];
    let made = once(dir, spec.name, VERSION, &files, force, || make(spec, dir))?;
    Ok((Volume::at(dir, spec.name), made))
}

/// Formats `$DEV`, the first device.
pub const FORMAT: &str = "mkfs.f2fs -q -f -m ${DISK0:+-c $ZONED0} $DEV\n";

const CLEAN: &str = "mount -t f2fs $DEV $MNT; $HELPER guest-fill varied $MNT; umount $MNT
    mount -t f2fs -o ro $DEV $MNT; $HELPER manifest $MNT -o $OUT/first; umount $MNT
    fsck.f2fs -f --dry-run $DEV > /run/fsck || { cat /run/fsck; exit 1; }\n";

const FSYNCED: &str = "mount -t f2fs -o background_gc=off $DEV $MNT
    $HELPER guest-fill varied $MNT; sync -f $MNT; $HELPER manifest $MNT -o $OUT/first
    $HELPER guest-fill fsynced $MNT; f2fs_io shutdown 2 $MNT > /run/log; umount $MNT\n";

const RECOVER: &str = "mount -t f2fs $DEV $MNT; umount $MNT
    mount -t f2fs -o ro $DEV $MNT; $HELPER manifest $MNT -o $OUT/second; umount $MNT\n";

const WRITERS: &str = "mount -t f2fs $DEV $MNT
    for w in 0 1 2; do $HELPER guest-power $SEED $w $MNT/w$w & done
    sleep 4; power-cut\n";

const VERIFY: &str = "mount -t f2fs $DEV $MNT; $HELPER guest-power-verify $PROMISES $MNT; umount $MNT\n";

struct Job<'a> {
    spec: &'a Spec,
    work: TempDir,
    devices: Devices,
}

fn make(spec: &Spec, dir: &Path) -> Result<()> {
    let work = TempDir::new("golden")?;
    let made = work.path().join("made");
    fs::create_dir(&made)?;
    let devices = Devices::create(&made, spec.geometry)?;
    let job = Job { spec, work, devices };
    match spec.end {
        End::Clean => job.run(&job.devices, &format!("{FORMAT}{CLEAN}")).map(drop)?,
        End::Fsynced => job.fsynced()?,
        End::Cut => job.cut()?,
    }
    job.keep(dir)
}

impl Job<'_> {
    fn machine(&self, devices: &Devices) -> Machine {
        let machine =
            devices.machine().timeout(PATIENCE).share(self.work.path()).env("OUT", self.work.path());
        machine.env("PROMISES", self.work.path().join("promises"))
    }

    fn run(&self, devices: &Devices, script: &str) -> Result<GuestOutput> {
        Ok(self.machine(devices).run(script)?.check()?)
    }

    fn copy(&self) -> Result<Devices> {
        let dir = self.work.path().join("copy");
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        fs::create_dir(&dir)?;
        self.devices.copy_to(&dir)
    }

    fn fsynced(&self) -> Result<()> {
        self.run(&self.devices, &format!("{FORMAT}{FSYNCED}"))?;
        self.run(&self.copy()?, RECOVER)?;
        let load = |name| Manifest::load(&self.work.path().join(name));
        let changes = compare(&load("first")?, &load("second")?, &Options::default());
        ensure!(!changes.is_empty(), "nothing was brought forward");
        Ok(())
    }

    fn cut(&self) -> Result<()> {
        for seed in FIRST_SEED..FIRST_SEED + SEEDS {
            self.cut_from(seed)?;
            let verified = self.machine(&self.copy()?).run(VERIFY)?;
            let Err(e) = verified.check() else { return Ok(()) };
            eprintln!("seed {seed}: the kernel lost what it promised: {e:#}");
        }
        bail!("from {SEEDS} seeds, the kernel lost what it promised each time");
    }

    fn cut_from(&self, seed: u64) -> Result<()> {
        let mut promises = Promises::new(seed, WORKERS, AHEAD);
        let machine = self.machine(&self.devices).env("SEED", seed.to_string());
        let mut guest = machine.spawn(&[&format!("{FORMAT}{WRITERS}"), "true"])?;
        while let Some(line) = guest.next_line()? {
            // The last line before the reset may be cut off.
            let _ = promises.hear(&line);
        }
        guest.wait()?.check()?;
        ensure!(promises.len() > 20, "only {} promises", promises.len());
        Ok(fs::write(self.work.path().join("promises"), promises.to_text())?)
    }

    /// Moves the made files to the cache, the list of zones last.
    fn keep(&self, dir: &Path) -> Result<()> {
        let name = self.spec.name;
        for (from, to) in [("first", "jsonl"), ("second", "recovered.jsonl"), ("promises", "promises")] {
            let from = self.work.path().join(from);
            if from.exists() {
                fs::copy(from, dir.join(format!("{name}.{to}")))?;
            }
        }
        if let Some(disk) = &self.devices.disk {
            sparse_copy(disk, &dir.join(format!("{name}.disk.img")))?;
        }
        Image::open(&self.devices.zoned)?.copy_to(&dir.join(format!("{name}.zoned.img")))?;
        Ok(())
    }
}
