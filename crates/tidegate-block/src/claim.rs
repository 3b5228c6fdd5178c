//! The kernel's claim on a block device, apart from the file that I/O goes through.

use crate::Errno;
use crate::file::patiently;
use rustix::fs::{FileType, Mode, OFlags, open, stat};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

/// Keeps the kernel, and programs that ask for the claim, from using a block device. A mount of the kind
/// `fuseblk` takes the claim over: mount(2) wants the device for itself.
pub struct Claim {
    device: PathBuf,
    fd: Option<OwnedFd>,
}

impl Claim {
    /// Claims the block device at `path`. `None` where the path leads to something else.
    ///
    /// # Errors
    /// `EBUSY`: the device is mounted or claimed. Also the errors of open(2).
    pub fn of(path: &Path) -> Result<Option<Claim>, Errno> {
        if FileType::from_raw_mode(stat(path)?.st_mode) != FileType::BlockDevice {
            return Ok(None);
        }
        let mut claim = Claim { device: path.to_path_buf(), fd: None };
        claim.take()?;
        Ok(Some(claim))
    }

    /// Takes the claim.
    ///
    /// # Errors
    /// Those of [`Claim::of`].
    pub fn take(&mut self) -> Result<(), Errno> {
        let flags = OFlags::RDWR | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NONBLOCK;
        self.fd = Some(patiently(Errno::BUSY, || open(&self.device, flags, Mode::empty()))?);
        Ok(())
    }

    /// Releases the claim, so that the kernel can take it.
    pub fn release(&mut self) {
        self.fd = None;
    }
}
