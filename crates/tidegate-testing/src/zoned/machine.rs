//! A guest: its devices, its script, its end.

use std::ffi::OsString;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use tidegate_uml::{GuestOutput, Running, job, launch, scratch_directory, visible};

use super::image::{Geometry, Image, parse};
use super::{initrd, kernel};
use crate::{oracle, workspace};

/// The script that is wrapped around a given script.
const OUTER: &str = include_str!("outer.sh");
/// The command with which a script resets the machine.
const POWER_CUT: &str = include_str!("power-cut.sh");

/// A guest that is not started yet.
#[derive(Debug, Clone)]
pub struct Machine {
    disks: Vec<PathBuf>,
    zoned: Vec<PathBuf>,
    shares: Vec<PathBuf>,
    env: Vec<(String, OsString)>,
    timeout: Duration,
    memory: String,
}

impl Default for Machine {
    fn default() -> Self {
        Self::new()
    }
}

impl Machine {
    /// A guest without devices.
    pub fn new() -> Self {
        let (disks, zoned, shares, env) = Default::default();
        Machine { disks, zoned, shares, env, timeout: Duration::from_secs(240), memory: "512M".into() }
    }

    /// Adds a conventional disk with blocks of 4 KiB; the first is `$DISK0`.
    pub fn disk(mut self, image: impl AsRef<Path>) -> Self {
        self.disks.push(image.as_ref().to_path_buf());
        self
    }

    /// Adds a zoned disk with blocks of 4 KiB and the data of an [`Image`]; the first is `$ZONED0`.
    pub fn zoned(mut self, image: impl AsRef<Path>) -> Self {
        self.zoned.push(image.as_ref().to_path_buf());
        self
    }

    /// Lets the guest write to a directory of the host, at the host's path. Everything else is read-only.
    pub fn share(mut self, dir: impl AsRef<Path>) -> Self {
        self.shares.push(dir.as_ref().to_path_buf());
        self
    }

    /// An environment variable for the script.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// How long the guest may run before it is killed; four minutes by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Memory of the guest, in the form `512M`.
    pub fn memory(mut self, memory: &str) -> Self {
        self.memory = memory.into();
        self
    }

    /// Boots, runs a script in `sh -e`, powers off.
    ///
    /// The script finds `$MNT` (an empty directory to mount on), `$HELPER` (`xtask`), its devices, and
    /// `$DEV`, the first of them. An exit status other than 0 is not an error here; see
    /// [`GuestOutput::check`].
    ///
    /// # Errors
    /// An oracle is missing; an image is none; the guest dies or runs out of time.
    pub fn run(&self, script: &str) -> Result<GuestOutput> {
        self.run_cut(&[script])
    }

    /// Runs scripts with a reset of the machine between them. Each script but the last has to call
    /// `power-cut`, possibly in the background; the next script begins after a boot. Zoned devices keep their
    /// zones, and all devices keep acknowledged writes.
    ///
    /// # Errors
    /// As [`Machine::run`]; a script that ends before the power is cut.
    pub fn run_cut(&self, scripts: &[&str]) -> Result<GuestOutput> {
        self.spawn(scripts)?.wait()
    }

    /// Boots and returns at once; with several scripts, like [`Machine::run_cut`].
    ///
    /// # Errors
    /// An oracle is missing; an image is none.
    pub fn spawn(&self, scripts: &[&str]) -> Result<Guest> {
        let images = self.zoned.iter().map(|p| Image::open(p)).collect::<Result<Vec<_>>>()?;
        let volatile = images.iter().any(|i| i.geometry.conventional > 0);
        ensure!(!volatile || scripts.len() == 1, "a device with conventional zones is lost in a reset");
        let dir = scratch_directory();
        let dir = tempfile::Builder::new().prefix("tidegate-zoned-").tempdir_in(dir)?;
        let job = visible(dir.path())?;
        self.write_job(&job, scripts, &images)?;
        let mut command = self.command(&job)?;
        for image in &self.disks {
            attach(&mut command, &visible(image)?);
        }
        for (n, image) in images.iter().enumerate() {
            attach_zoned(&mut command, n, image)?;
        }
        for image in &images {
            image.lend()?;
        }
        let running = launch(&command, dir, self.timeout)?;
        Ok(Guest { running, images })
    }

    fn command(&self, job: &Path) -> Result<Command> {
        let kernel = kernel::get()?;
        let initrd = job.join("initrd");
        fs::write(&initrd, initrd::build(&kernel)?)?;
        let mut command = Command::new(oracle::require("qemu-system-x86_64")?);
        command
            .args(["-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", &self.memory])
            .args(["-nodefaults", "-display", "none", "-serial", "stdio"])
            .arg("-kernel")
            .arg(kernel.image())
            .arg("-initrd")
            .arg(initrd)
            .arg("-append")
            .arg(format!("console=ttyS0 quiet loglevel=1 panic=-1 job={}", job.display()));
        share(&mut command, "host", Path::new("/"), ",readonly=on");
        share(&mut command, "job", job, "");
        for (n, dir) in self.shares.iter().enumerate() {
            share(&mut command, &format!("share{n}"), &visible(dir)?, "");
        }
        if !self.zoned.is_empty() {
            command.args(["-device", "nvme,id=nvme,serial=zoned"]);
        }
        Ok(command)
    }

    fn write_job(&self, job: &Path, scripts: &[&str], images: &[Image]) -> Result<()> {
        let put = |name: &str, bytes: &[u8]| {
            let path = job.join(name);
            fs::write(&path, bytes).with_context(|| path.display().to_string())
        };
        for (n, script) in scripts.iter().enumerate() {
            put(&format!("{}{n}", job::BODY), script.as_bytes())?;
        }
        let shares = self.shares.iter().map(|d| Ok(format!("{}\n", visible(d)?.display())));
        put("shares", shares.collect::<Result<String>>()?.as_bytes())?;
        let mut devices = String::new();
        for (n, image) in images.iter().enumerate() {
            let written = image.zones.iter().filter(|z| z.data() > 0);
            let list: String = written.map(|z| format!("{} {}\n", z.start, z.data())).collect();
            put(&format!("put{n}"), list.as_bytes())?;
            put(&format!("null{n}"), null_blk(&image.geometry).as_bytes())?;
            let (device, backing) = names(images, self.disks.len(), n);
            writeln!(devices, "{device} {backing}")?;
        }
        put("devices", devices.as_bytes())?;
        put("power-cut", POWER_CUT.as_bytes())?;
        let mut outer = job::exports(&self.variables(job, images)?)?;
        outer.extend_from_slice(OUTER.as_bytes());
        put("outer", &outer)?;
        set_executable(&job.join("power-cut"))
    }

    fn variables(&self, job: &Path, images: &[Image]) -> Result<Vec<(String, OsString)>> {
        let mut helper = workspace::helper_binary()?;
        if tidegate_uml::is_hidden(&helper) {
            let copy = job.join("helper");
            fs::copy(&helper, &copy).context("copying the helper")?;
            helper = copy;
        }
        let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", job.display());
        let mut all: Vec<(String, OsString)> = vec![
            ("JOB".into(), job.into()),
            ("PATH".into(), path.into()),
            ("LC_ALL".into(), "C".into()),
            ("HOME".into(), "/root".into()),
            ("TMPDIR".into(), "/run".into()),
            ("MNT".into(), "/run/mnt".into()),
            ("HELPER".into(), helper.into()),
        ];
        all.extend((0..self.disks.len()).map(|n| (format!("DISK{n}"), disk_name(n).into())));
        let zoned = (0..images.len()).map(|n| names(images, self.disks.len(), n).0);
        all.extend(zoned.enumerate().map(|(n, name)| (format!("ZONED{n}"), name.into())));
        let first = match (self.disks.is_empty(), images.is_empty()) {
            (true, false) => names(images, 0, 0).0,
            _ => disk_name(0),
        };
        all.push(("DEV".into(), first.into()));
        all.extend(self.env.iter().cloned());
        Ok(all)
    }
}

/// The guest's name for the nth attached disk.
fn disk_name(n: usize) -> String {
    let letter = char::from_digit(n as u32 + 10, 36).unwrap_or('z');
    format!("/dev/vd{letter}")
}

/// The guest's name for a zoned device, and the name of the disk under it if the guest makes the zoned
/// device.
fn names(images: &[Image], disks: usize, n: usize) -> (String, String) {
    let made = |i: &&Image| i.geometry.conventional > 0;
    let before = images.iter().take(n).filter(made).count();
    match images.get(n).is_some_and(|i| made(&i)) {
        true => (format!("/dev/nullb{before}"), disk_name(disks + before)),
        false => (format!("/dev/nvme0n{}", n - before + 1), String::new()),
    }
}

/// The attributes of a `null_blk` device, which counts in MiB.
fn null_blk(geometry: &Geometry) -> String {
    let Geometry { zone_size, capacity, conventional, max_open, max_active, .. } = *geometry;
    let of = |bytes: u64| bytes >> 20;
    format!(
        "memory_backed 1\nblocksize 4096\nsize {}\nzoned 1\nzone_size {}\nzone_capacity {}\nzone_nr_conv \
         {conventional}\nzone_max_open {max_open}\nzone_max_active {max_active}\n",
        of(geometry.size()),
        of(zone_size),
        of(capacity)
    )
}

fn share(command: &mut Command, tag: &str, dir: &Path, more: &str) {
    let dir = dir.display();
    command
        .arg("-virtfs")
        .arg(format!("local,path={dir},mount_tag={tag},security_model=none,multidevs=remap{more}"));
}

const BLOCKS: &str = "logical_block_size=4096,physical_block_size=4096";

fn attach(command: &mut Command, image: &Path) {
    // A power cut affects the guest only: its writes are in the host's cache, and need not reach a disk.
    let drive = format!("if=none,format=raw,cache=unsafe,file={}", image.display());
    let id = format!("d{}", command.get_args().count());
    command.arg("-drive").arg(format!("{drive},id={id}"));
    command.arg("-device").arg(format!("virtio-blk-pci,drive={id},{BLOCKS}"));
}

fn attach_zoned(command: &mut Command, n: usize, image: &Image) -> Result<()> {
    let path = visible(&image.path)?;
    let Geometry { zone_size, capacity, conventional, max_open, max_active, .. } = image.geometry;
    if conventional > 0 {
        attach(command, &path);
        return Ok(());
    }
    let drive = format!("if=none,format=raw,cache=unsafe,file={},id=z{n}", path.display());
    command.arg("-drive").arg(drive);
    command.arg("-device").arg(format!(
        "nvme-ns,bus=nvme,drive=z{n},{BLOCKS},zoned=true,zoned.zone_size={zone_size},zoned.zone_capacity={capacity},\
         zoned.max_open={max_open},zoned.max_active={max_active}"
    ));
    Ok(())
}

fn set_executable(path: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// A running guest. If it is dropped, it is killed, and the zones of its devices are unknown.
#[derive(Debug)]
pub struct Guest {
    running: Running,
    images: Vec<Image>,
}

impl Guest {
    /// The next line of the script's output; none when it has ended.
    ///
    /// # Errors
    /// The guest ran out of time.
    pub fn next_line(&mut self) -> Result<Option<String>> {
        Ok(self.running.next_line()?)
    }

    /// Waits until the script prints a line, given whole.
    ///
    /// # Errors
    /// It ended without, or ran out of time.
    pub fn wait_for_line(&mut self, wanted: &str) -> Result<()> {
        Ok(self.running.wait_for_line(wanted)?)
    }

    /// Waits for the end and keeps the resulting zones.
    ///
    /// # Errors
    /// The guest died or ran out of time; its zones were wrong at the start.
    pub fn wait(mut self) -> Result<GuestOutput> {
        let output = self.running.finish()?;
        let read = |name: String| fs::read_to_string(self.running.job().join(name)).ok();
        for (n, image) in self.images.iter_mut().enumerate() {
            let report = read(format!("report{n}"));
            let (Some(began), Some(report)) = (read(format!("began{n}")), report) else {
                // The machine failed earlier; the output has the reason.
                ensure!(output.status != 0, "the guest reported no zones");
                continue;
            };
            for (zone, wanted) in parse(&began)?.iter().zip(&image.zones) {
                ensure!(zone.is_like(wanted), "{zone:?} where {wanted:?} was to be put");
            }
            image.give_back(&report)?;
        }
        Ok(output)
    }
}
