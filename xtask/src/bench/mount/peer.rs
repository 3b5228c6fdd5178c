//! The peers: how to make and mount a volume of each.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::bench::image::{self, Image, quiet};
use tidegate_testing::oracle;
use tidegate_testing::temp::TempDir;

/// How long a mount may take to appear, and a daemon to exit.
const PATIENCE: Duration = Duration::from_secs(60);

/// A measured peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// Our mount, of F2FS.
    Tidegate,
    /// Our mount, of ext4.
    TidegateExt4,
    /// ext4 through FUSE.
    Fuse2fs,
    /// The kernel's ext4 on a loop device.
    Ext4,
    /// Our transport with a server that only answers. Written data are dropped.
    Floor,
}

/// The argument that makes the floor keep written bytes.
pub const CONTENTS: &str = "contents";

impl Peer {
    /// Every peer.
    pub const ALL: [Peer; 5] = [Peer::Tidegate, Peer::TidegateExt4, Peer::Fuse2fs, Peer::Ext4, Peer::Floor];

    /// The peer's name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Peer::Tidegate => "tidegate",
            Peer::TidegateExt4 => "tidegate ext4",
            Peer::Fuse2fs => "fuse2fs",
            Peer::Ext4 => "ext4",
            Peer::Floor => "floor",
        }
    }

    /// The reason why the peer cannot be measured here.
    pub fn missing(self) -> Option<&'static str> {
        if !rustix::process::geteuid().is_root() {
            return Some("mounting and dropping caches need root");
        }
        let lacks = |name: &str| oracle::available(name).is_none();
        match self {
            Peer::Tidegate if lacks("mkfs.f2fs") => Some("mkfs.f2fs is not installed (f2fs-tools)"),
            Peer::Fuse2fs if lacks("fuse2fs") => Some("fuse2fs is not installed (fuse2fs)"),
            Peer::Fuse2fs | Peer::Ext4 | Peer::TidegateExt4 if lacks("mke2fs") => {
                Some("mke2fs is not installed (e2fsprogs)")
            }
            _ => None,
        }
    }

    /// Makes an empty volume in the peer's format.
    pub fn make(self, image: &Image) -> Result<()> {
        match self {
            Peer::Tidegate => image.mkfs_f2fs(),
            Peer::Fuse2fs | Peer::Ext4 | Peer::TidegateExt4 => image.mkfs_ext4(),
            Peer::Floor => Ok(()),
        }
    }

    /// Mounts the volume in `image`; `more` is for the floor.
    pub fn mount(self, image: &Image, tidegate: &Path, options: &str, more: &[&str]) -> Result<Mounted> {
        let mut command = match self {
            Peer::Ext4 => return Ok(Mounted::Loop(image.mount_ext4(false)?)),
            Peer::Tidegate | Peer::TidegateExt4 => Command::new(tidegate),
            Peer::Floor => Command::new(tidegate.with_file_name("examples").join("floor")),
            Peer::Fuse2fs => Command::new(oracle::require("fuse2fs")?),
        };
        let dir = TempDir::new("mnt")?;
        match self {
            Peer::Tidegate | Peer::TidegateExt4 => {
                command.args(["mount", "--foreground"]);
                if !options.is_empty() {
                    command.args(["-o", options]);
                }
            }
            Peer::Floor => {}
            _ => drop(command.arg("-f")),
        }
        match self {
            Peer::Floor => command.arg(dir.path()).arg(options).args(more),
            _ => command.arg(image.path()).arg(dir.path()),
        };
        let before = fs::metadata(dir.path())?.dev();
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().with_context(|| format!("running {command:?}"))?;
        let mut daemon = Daemon { child, dir };
        let deadline = Instant::now() + PATIENCE;
        while fs::metadata(daemon.dir.path())?.dev() == before {
            if let Some(status) = daemon.child.try_wait()? {
                bail!("{command:?}: {status}");
            }
            ensure!(Instant::now() < deadline, "{command:?}: nothing is mounted");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Mounted::Daemon(daemon))
    }
}

/// A mounted volume; unmounted when dropped.
pub enum Mounted {
    Loop(image::Mounted),
    Daemon(Daemon),
}

impl Mounted {
    /// The mount point.
    pub fn dir(&self) -> &Path {
        match self {
            Mounted::Loop(m) => m.dir(),
            Mounted::Daemon(d) => d.dir.path(),
        }
    }

    /// Unmounts the volume and waits until its daemon has exited.
    ///
    /// # Errors
    /// The volume is in use, or the daemon failed at its end.
    pub fn end(self) -> Result<()> {
        let Mounted::Daemon(mut daemon) = self else { return Ok(()) };
        quiet(Command::new("umount").arg(daemon.dir.path()))?;
        match daemon.wait()? {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the daemon ended with {status}"),
            None => bail!("the daemon does not end"),
        }
    }
}

/// A process that serves a mount.
pub struct Daemon {
    child: Child,
    dir: TempDir,
}

impl Daemon {
    fn wait(&mut self) -> Result<Option<std::process::ExitStatus>> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.child.try_wait()? {
                None if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
                done => return Ok(done),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Ok(Some(_)) = self.child.try_wait() {
            return;
        }
        let _ = quiet(Command::new("umount").arg("--lazy").arg(self.dir.path()));
        if !matches!(self.wait(), Ok(Some(_))) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
