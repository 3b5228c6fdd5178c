//! The guest's side: the program that runs there as process 1.
//!
//! A program needs neither `kmod` nor an init system on the host, whose root the guest uses; a shell script
//! would.

use crate::error::{Error, Result};
use crate::job::{BEGIN, BODY, END, RESULT};
use crate::programs::require_module;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, finit_module, reboot};
use std::convert::Infallible;
use std::ffi::CStr;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;

const MOUNT_POINT: &str = "/run/mnt";

/// Runs a job as process 1 and powers off.
///
/// # Errors
/// This process is not process 1; the guest cannot be powered off.
pub fn init(job: &Path) -> Result<Infallible> {
    if std::process::id() != 1 {
        return Err(Error::Guest(format!("{} is for process 1 of a guest", crate::INIT)));
    }
    let status = run(job).unwrap_or_else(|e| {
        println!("guest set-up failed: {e}");
        126
    });
    println!("{END} {status}");
    // The result is renamed into place, so that a result that exists is complete.
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
///
/// # Errors
/// The kernel does not power off.
pub fn poweroff() -> Result<Infallible> {
    rustix::fs::sync();
    reboot(RebootCommand::PowerOff).map_err(Error::io("powering off"))?;
    Err(Error::Guest("still running after power off".into()))
}

fn run(job: &Path) -> Result<i32> {
    mount_base()?;
    for name in ["crc32_generic.ko", "f2fs.ko"] {
        load_module(name)?;
    }
    for name in ["quota_tree.ko", "quota_v2.ko", "loop.ko", "bfq.ko"] {
        let _ = load_module(name);
    }
    let helper = std::env::current_exe().map_err(Error::io("finding the helper"))?;
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
        .env("HELPER", helper)
        .status()
        .map_err(Error::io("running sh"))?;
    Ok(status.code().unwrap_or(128))
}

fn mount_base() -> Result<()> {
    let none: Option<&CStr> = None;
    let on = |what: &'static str, at: &'static str, kind: &'static str| {
        mount(what, at, kind, MountFlags::empty(), none).map_err(Error::io(format!("mounting {at}")))
    };
    on("proc", "/proc", "proc")?;
    on("sys", "/sys", "sysfs")?;
    if !Path::new("/dev/ubda").exists() {
        on("dev", "/dev", "devtmpfs")?;
    }
    on("run", "/run", "tmpfs")?;
    fs::create_dir(MOUNT_POINT).map_err(Error::io("making the mount point"))
}

fn load_module(name: &str) -> Result<()> {
    let path = require_module(name)?;
    let file = File::open(&path).map_err(Error::file(&path))?;
    match finit_module(&file, c"", 0) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(e) => Err(Error::file(&path)(e)),
    }
}
