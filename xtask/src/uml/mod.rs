//! The real kernel file system, run as an ordinary process.
//!
//! A user-mode kernel boots with the host's root as its root (hostfs), so the
//! guest sees every host program and file at its usual path, and `/dev/ubda`
//! is the image. `/dev`, `/proc`, `/sys` and `/run` are the guest's own.
//! Killing the process is a power cut: what the kernel had not written to the
//! image is gone, what it had written stays.

mod guest;
mod handle;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::temp::TempDir;
use crate::{oracle, workspace};

pub use guest::{init, poweroff};
pub use handle::{GuestOutput, Running};

/// Line the guest prints before the body's first output.
const BEGIN: &str = "@@guest-begin";
/// Line the guest prints, with the exit status, after the body's last output.
const END: &str = "@@guest-end";
/// File of the job directory that holds the exit status.
const RESULT: &str = "result";
/// File of the job directory that holds the shell script to run.
const BODY: &str = "body";

/// A guest yet to be started.
#[derive(Debug, Clone)]
pub struct Uml {
    image: PathBuf,
    second: Option<PathBuf>,
    timeout: Duration,
    memory: String,
    env: Vec<(String, OsString)>,
}

impl Uml {
    /// A guest whose `/dev/ubda` is `image`.
    pub fn new(image: impl AsRef<Path>) -> Self {
        Uml {
            image: image.as_ref().to_path_buf(),
            second: None,
            timeout: Duration::from_secs(120),
            memory: "512M".into(),
            env: Vec::new(),
        }
    }

    /// Adds a second image as `/dev/ubdb`.
    pub fn second_image(mut self, image: impl AsRef<Path>) -> Self {
        self.second = Some(image.as_ref().to_path_buf());
        self
    }

    /// How long the guest may run before it is killed; two minutes unless told.
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
    /// The body finds `$DEV` (the image), `$MNT` (an empty directory to mount
    /// on), and `$XTASK` (this helper). An exit status other than 0 is not an
    /// error here; see [`GuestOutput::check`].
    pub fn run(&self, body: &str) -> Result<GuestOutput> {
        self.spawn(body)?.wait()
    }

    /// Boots and returns at once.
    pub fn spawn(&self, body: &str) -> Result<Running> {
        let kernel = oracle::require("linux.uml")?;
        oracle::require("f2fs.ko")?;
        let image = visible(&self.image)?;
        let job = TempDir::new("guest")?;
        let init = self.write_job(job.path(), body)?;

        let mut command = run_kernel(kernel)?;
        command
            .arg(format!("mem={}", self.memory))
            .args(["root=/dev/root", "rootfstype=hostfs", "rootflags=/", "rw"])
            .arg(joined("ubda=", &image))
            .arg(joined("init=", &init))
            .args(["con=null", "con0=fd:0,fd:1", "quiet", "selinux=0", "apparmor=0"])
            .env("TMPDIR", fast_tmp())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        if let Some(second) = &self.second {
            command.arg(joined("ubdb=", &visible(second)?));
        }
        // SAFETY: setsid is async-signal-safe and touches no memory.
        unsafe {
            command.pre_exec(|| Ok(rustix::process::setsid().map(drop)?));
        }
        let child = command.spawn().context("starting linux.uml")?;
        Running::new(child, job, self.timeout)
    }

    fn write_job(&self, job: &Path, body: &str) -> Result<PathBuf> {
        let mut helper = workspace::helper_binary()?;
        if helper.starts_with("/dev") {
            fs::copy(&helper, job.join("xtask")).context("copying the helper")?;
            helper = job.join("xtask");
        }
        let mut script = b"#!/bin/sh\n".to_vec();
        for (name, value) in &self.env {
            let fits =
                |(i, c): (usize, char)| c == '_' || c.is_ascii_alphabetic() || i > 0 && c.is_ascii_digit();
            ensure!(!name.is_empty() && name.chars().enumerate().all(fits), "bad variable name {name:?}");
            script.extend_from_slice(format!("export {name}=").as_bytes());
            script.extend(quoted(value.as_bytes()));
            script.push(b'\n');
        }
        script.extend_from_slice(b"exec ");
        script.extend(quoted(helper.as_os_str().as_bytes()));
        script.extend_from_slice(b" guest-init ");
        script.extend(quoted(job.as_os_str().as_bytes()));
        script.push(b'\n');
        let init = job.join("init");
        fs::write(job.join(BODY), body)?;
        fs::write(&init, script)?;
        fs::set_permissions(&init, fs::Permissions::from_mode(0o755))?;
        Ok(init)
    }
}

/// The kernel's command line splits at blanks and ubd's arguments at commas.
fn visible(image: &Path) -> Result<PathBuf> {
    let path = fs::canonicalize(image).with_context(|| format!("image {}", image.display()))?;
    if path.as_os_str().as_bytes().iter().any(|b| b" \t\n,:\"".contains(b)) {
        bail!("image path {} holds a character the guest cannot take", path.display());
    }
    Ok(path)
}

fn joined(prefix: &str, path: &Path) -> OsString {
    let mut out = OsString::from(prefix);
    out.push(path);
    out
}

/// The guest's memory is a file here; on a disk it would be written back.
fn fast_tmp() -> PathBuf {
    let shm = PathBuf::from("/dev/shm");
    if shm.is_dir() { shm } else { std::env::temp_dir() }
}

/// A word that the shell takes literally.
fn quoted(word: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for &b in word {
        match b {
            b'\'' => out.extend_from_slice(b"'\\''"),
            b => out.push(b),
        }
    }
    out.push(b'\'');
    out
}

/// A path as a literal shell word, for building bodies.
pub fn sh(path: impl AsRef<Path>) -> String {
    String::from_utf8_lossy(&quoted(path.as_ref().as_os_str().as_bytes())).into_owned()
}

/// Prepares to run the kernel where the CPU has more registers than it was built for (AMX): the first process would
/// die of that.
fn run_kernel(kernel: PathBuf) -> Result<Command> {
    let mut command = Command::new(kernel);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if cpu.contains(" amx_tile") {
        command.env("LD_PRELOAD", registers()?);
    }
    Ok(command)
}

/// The library that fills in the registers that the kernel does not know, built when it is missing.
fn registers() -> Result<PathBuf> {
    const SOURCE: &str = include_str!("registers.c");
    let dir = oracle::own_root().join("lib");
    let library = dir.join("uml-registers.so");
    if library.exists() {
        return Ok(library);
    }
    fs::create_dir_all(&dir).context("making the oracles' directory")?;
    let (source, part) =
        (dir.join(format!("{}.c", std::process::id())), dir.join(format!("{}.so", std::process::id())));
    fs::write(&source, SOURCE)?;
    let status = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).args([&part, &source]).status();
    ensure!(status.context("running cc")?.success(), "cc cannot build {}", source.display());
    let _ = fs::remove_file(&source);
    // Several tests may be here at once: each gives the same the name.
    fs::rename(&part, &library)?;
    Ok(library)
}
