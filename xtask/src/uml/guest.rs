//! The guest's side: what runs there as process 1.
//!
//! Doing this here rather than in a shell script needs neither `kmod` nor an
//! init system on the host whose root the guest borrows.

use std::convert::Infallible;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};

use super::{BEGIN, BODY, END, RESULT};
use crate::oracle;

const MOUNT_POINT: &str = "/run/mnt";

/// Runs a job as process 1 and powers off.
pub fn init(job: &Path) -> Result<Infallible> {
    if std::process::id() != 1 {
        bail!("guest-init is for process 1 of a guest");
    }
    let status = run(job).unwrap_or_else(|e| {
        println!("guest set-up failed: {e:#}");
        126
    });
    println!("{END} {status}");
    // Renamed into place, so that a result that is there is whole.
    let part = job.join("result.part");
    let written = File::create(&part).and_then(|mut f| {
        writeln!(f, "{status}")?;
        f.sync_all()
    });
    if let Err(e) = written.and_then(|()| fs::rename(&part, job.join(RESULT))) {
        println!("cannot write the result: {e}");
    }
    poweroff()
}

/// Syncs and powers the guest off.
pub fn poweroff() -> Result<Infallible> {
    rustix::fs::sync();
    reboot(RebootCommand::PowerOff).context("powering off")?;
    bail!("still running after power off")
}

fn run(job: &Path) -> Result<i32> {
    mount_base()?;
    for name in ["crc32_generic.ko", "f2fs.ko"] {
        load_module(name)?;
    }
    for name in ["quota_tree.ko", "quota_v2.ko", "loop.ko"] {
        let _ = load_module(name);
    }
    let helper = std::env::current_exe().context("finding the helper")?;
    println!("{BEGIN}");
    let status = Command::new("/bin/sh")
        .arg("-e")
        .arg(job.join(BODY))
        .current_dir("/")
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LC_ALL", "C")
        .env("HOME", "/root")
        .env("DEV", "/dev/ubda")
        .env("MNT", MOUNT_POINT)
        .env("XTASK", helper)
        .status()
        .context("running sh")?;
    Ok(status.code().unwrap_or(128))
}

fn mount_base() -> Result<()> {
    let none: Option<&CStr> = None;
    mount("proc", "/proc", "proc", MountFlags::empty(), none).context("mounting /proc")?;
    mount("sys", "/sys", "sysfs", MountFlags::empty(), none).context("mounting /sys")?;
    if !Path::new("/dev/ubda").exists() {
        mount("dev", "/dev", "devtmpfs", MountFlags::empty(), none).context("mounting /dev")?;
    }
    mount("run", "/run", "tmpfs", MountFlags::empty(), none).context("mounting /run")?;
    fs::create_dir(MOUNT_POINT).context("making the mount point")
}

fn load_module(name: &str) -> Result<()> {
    let path = oracle::require(name)?;
    let file = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
    match finit_module(&file, c"", 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(e).with_context(|| format!("loading {}", path.display())),
    }
}
