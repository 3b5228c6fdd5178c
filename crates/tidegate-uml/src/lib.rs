//! Linux's own file systems, run as an ordinary process.
//!
//! A user-mode kernel boots with the host's root as its root (hostfs), so the guest sees every host program
//! and file at its usual path, and `/dev/ubda` is the image. `/dev`, `/proc`, `/sys` and `/run` are the
//! guest's own. Killing the process is a power cut: blocks that the kernel had not written to the image are
//! lost, blocks that it had written stay.
//!
//! It does: boot a guest, run a shell script in it, return its output. It does not: make images, or know what
//! a file system is.
//!
//! | module | holds |
//! |---|---|
//! | `guest` | the guest's side: process 1, which a program that uses this has as a command |
//! | [`job`] | what host and guest agree on: a script, its variables, its output and its status |
//! | `launch` | a guest's process under a guard, whichever kernel it is |
//! | `handle` | a started guest: its output, its end, the power cut |
//! | [`programs`] | where programs and the guest's modules are |
//! | `registers` | help for a kernel that was built before the CPU |
//! | `error` | what can go wrong |
#![forbid(unsafe_code)]

mod error;
mod guest;
mod handle;
pub mod job;
mod launch;
pub mod programs;
mod registers;

pub use error::{Error, Result};
pub use guest::{init, poweroff};
pub use handle::{GuestOutput, Running};
pub use job::sh;
pub use launch::launch;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The command with which the helper becomes the guest's process 1; its argument is the directory of the job.
pub const INIT: &str = "guest-init";

/// A guest that is not started yet.
#[derive(Debug, Clone)]
pub struct Uml {
    image: PathBuf,
    /// Flags of the first disk, between `ubda` and `=`.
    flags: &'static str,
    second: Option<PathBuf>,
    timeout: Duration,
    memory: String,
    env: Vec<(String, OsString)>,
    helper: fn() -> std::io::Result<PathBuf>,
}

impl Uml {
    /// A guest whose `/dev/ubda` is `image`.
    pub fn new(image: impl AsRef<Path>) -> Self {
        Uml {
            image: image.as_ref().to_path_buf(),
            flags: "",
            second: None,
            timeout: Duration::from_secs(120),
            memory: "512M".into(),
            env: Vec::new(),
            helper: std::env::current_exe,
        }
    }

    /// Sets how to find the helper: the program that the guest runs as its process 1, and that has the
    /// command [`INIT`]. By default, it is the running program.
    pub fn helper(mut self, find: fn() -> std::io::Result<PathBuf>) -> Self {
        self.helper = find;
        self
    }

    /// Makes each write of the first disk wait until the write is on the host's disk (O_SYNC). Otherwise a
    /// write goes to the host's page cache and stays there: user-mode-linux passes no flush on, so an fsync
    /// in the guest costs nothing.
    pub fn synchronous(mut self) -> Self {
        self.flags = "s";
        self
    }

    /// Adds a second image as `/dev/ubdb`.
    pub fn second_image(mut self, image: impl AsRef<Path>) -> Self {
        self.second = Some(image.as_ref().to_path_buf());
        self
    }

    /// How long the guest may run before it is killed; two minutes by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Memory of the guest, in the form `512M`.
    pub fn memory(mut self, memory: &str) -> Self {
        self.memory = memory.into();
        self
    }

    /// An environment variable for the body.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.env.push((name.into(), value.into()));
        self
    }

    /// Boots, runs the body in `sh -e`, powers off.
    ///
    /// The body finds `$DEV` (the image), `$MNT` (an empty directory to mount on), and `$HELPER`. An exit status
    /// other than 0 is not an error here; see [`GuestOutput::check`].
    ///
    /// # Errors
    /// The kernel is not installed; the guest dies or runs out of time.
    pub fn run(&self, body: &str) -> Result<GuestOutput> {
        self.spawn(body)?.wait()
    }

    /// Boots and returns at once.
    ///
    /// # Errors
    /// The kernel is not installed; the guest cannot use an image.
    pub fn spawn(&self, body: &str) -> Result<Running> {
        let kernel = programs::require(programs::KERNEL, programs::PACKAGE)?;
        programs::require_module("f2fs.ko")?;
        let image = visible(&self.image)?;
        let dir = scratch_directory();
        let job =
            tempfile::Builder::new().prefix("tidegate-guest-").tempdir_in(&dir).map_err(Error::file(&dir))?;
        let own = visible(job.path())?;
        let init = self.write_job(&own, body)?;

        let mut command = Command::new(kernel);
        command
            .arg(format!("mem={}", self.memory))
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw"])
            .arg(joined(&format!("ubda{}=", self.flags), &image))
            .arg(joined("init=", &init))
            // The kernel's own files go here; by default they go to the home directory, which may not be
            // writable.
            .arg(joined("uml_dir=", &own.join("")))
            .args(["con=null", "con0=fd:0,fd:1", "quiet", "selinux=0", "apparmor=0"])
            .env("TMPDIR", fast_tmp());
        if let Some(library) = registers::library(job.path())? {
            command.env("LD_PRELOAD", library);
        }
        if let Some(second) = &self.second {
            command.arg(joined("ubdb=", &visible(second)?));
        }
        launch(&command, job, self.timeout)
    }

    fn write_job(&self, dir: &Path, body: &str) -> Result<PathBuf> {
        let mut helper = (self.helper)().map_err(Error::io("finding the program that the guest runs"))?;
        if is_hidden(&helper) {
            let copy = dir.join("helper");
            fs::copy(&helper, &copy).map_err(Error::file(&helper))?;
            helper = copy;
        }
        let mut script = b"#!/bin/sh\n".to_vec();
        script.extend(job::exports(&self.env)?);
        script.extend_from_slice(b"exec ");
        script.extend(job::quoted(helper.as_os_str()));
        script.extend_from_slice(format!(" {INIT} ").as_bytes());
        script.extend(job::quoted(dir.as_os_str()));
        script.push(b'\n');
        let (init, of_body) = (dir.join("init"), dir.join(job::BODY));
        fs::write(&of_body, body).map_err(Error::file(&of_body))?;
        fs::write(&init, script).map_err(Error::file(&init))?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(Error::file(&init))?;
        Ok(init)
    }
}

/// A parent directory for the files that a guest and the host share: the system's temporary directory, or
/// `/var/tmp` where a guest cannot see that.
pub fn scratch_directory() -> PathBuf {
    seen_by_guests(std::env::temp_dir())
}

fn seen_by_guests(dir: PathBuf) -> PathBuf {
    if is_hidden(&dir) { PathBuf::from("/var/tmp") } else { dir }
}

/// Whether a guest mounts something of its own over this path.
pub fn is_hidden(path: &Path) -> bool {
    ["/dev", "/proc", "/sys", "/run"].iter().any(|dir| path.starts_with(dir))
}

/// The path of an image or a job, without links. The kernel's command line is split at blanks, arguments of
/// disks at commas.
///
/// # Errors
/// The file does not exist, or its path cannot be passed to the kernel.
pub fn visible(image: &Path) -> Result<PathBuf> {
    let path = fs::canonicalize(image).map_err(Error::file(image))?;
    if path.as_os_str().as_bytes().iter().any(|b| b" \t\n,:\"".contains(b)) {
        let what =
            "holds a blank, a quote, a comma or a colon, which the guest cannot take: give it another name";
        return Err(Error::Guest(format!("{}: the path {what}", path.display())));
    }
    Ok(path)
}

fn joined(prefix: &str, path: &Path) -> OsString {
    let mut out = OsString::from(prefix);
    out.push(path);
    out
}

/// The guest's memory is a file in this directory; on a disk, the file would be written back.
fn fast_tmp() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if shm.is_dir() { shm } else { std::env::temp_dir() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_that_the_guest_cannot_take_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (name, word) in [("a,b.img", "a comma"), ("c d.img", "a blank")] {
            let path = dir.path().join(name);
            fs::write(&path, "").unwrap();
            let e = visible(&path).unwrap_err().to_string();
            assert!(e.contains(word) && e.contains(name), "{e}");
        }
        let e = visible(&dir.path().join("none.img")).unwrap_err().to_string();
        assert!(e.contains("none.img"), "{e}");
        for hidden in ["/dev/shm/x", "/run/user/1000"] {
            assert_eq!(seen_by_guests(hidden.into()), Path::new("/var/tmp"));
        }
        assert_eq!(seen_by_guests("/home/x".into()), Path::new("/home/x"));
    }
}
