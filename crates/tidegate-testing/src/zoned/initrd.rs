//! The archive that the guest boots from: cpio in the form `newc` (the kernel's `initramfs-buffer-format`).

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

use super::kernel::Kernel;

const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// The first program of the guest; it gets a job's path in `$job`.
const INIT: &str = include_str!("init.sh");

/// An archive of Busybox, the modules, and [`INIT`].
pub fn build(kernel: &Kernel) -> Result<Vec<u8>> {
    let mut archive = Archive::default();
    for dir in ["bin", "m", "proc", "sys", "dev", "h"] {
        archive.add(dir, DIRECTORY, &[]);
    }
    let read = |path: &Path| fs::read(path).with_context(|| path.display().to_string());
    archive.add("bin/busybox", PROGRAM, &read(&kernel.busybox())?);
    for (n, module) in kernel.modules()?.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("m/{n:02}-{name}"), PROGRAM, &read(module)?);
    }
    archive.add("init", PROGRAM, INIT.as_bytes());
    Ok(archive.end())
}

#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    entries: usize,
}

impl Archive {
    /// Adds a file: thirteen numbers of eight hexadecimal digits, the name with a NUL, and the data; name and
    /// data are padded to multiples of four bytes.
    fn add(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entries += 1;
        let (inode, links, size, name_size) = (self.entries, 1, data.len(), name.len() + 1);
        let _ =
            write!(self.bytes, "070701{inode:08x}{mode:08x}{0:08x}{0:08x}{links:08x}{0:08x}{size:08x}", 0);
        let _ = write!(self.bytes, "{0:08x}{0:08x}{0:08x}{0:08x}{name_size:08x}{0:08x}{name}\0", 0);
        self.fill();
        self.bytes.extend_from_slice(data);
        self.fill();
    }

    fn fill(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn end(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}
