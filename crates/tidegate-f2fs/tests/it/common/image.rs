//! The content of an image, in memory.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice};

const PIECE: usize = 64 << 10;

/// The parts of an image that are not zero, and its size.
#[derive(Clone, Default)]
pub struct Image {
    pub size: u64,
    pub parts: Vec<(u64, Vec<u8>)>,
}

impl Image {
    /// Reads a device through `read`, which fills a buffer from an offset.
    fn gather(size: u64, mut read: impl FnMut(u64, &mut [u8])) -> Image {
        let mut image = Image { size, parts: Vec::new() };
        let mut buf = vec![0; PIECE];
        for at in (0..size).step_by(PIECE) {
            let part = &mut buf[..(size - at).min(PIECE as u64) as usize];
            read(at, part);
            if part.iter().any(|&b| b != 0) {
                image.parts.push((at, part.to_vec()));
            }
        }
        image
    }

    /// The content of a device, which may be in use: all of it is from one moment, as after a power cut.
    pub fn of(device: &MemoryDevice) -> Image {
        let now = device.copy();
        Self::gather(now.size(), |at, to| now.read_at(at, to))
    }

    /// The content of a file.
    #[allow(dead_code)] // not every format's tests load one
    pub fn load(path: &Path) -> Image {
        let file = File::open(path).unwrap();
        let size = file.metadata().unwrap().len();
        Self::gather(size, |at, to| file.read_exact_at(to, at).unwrap())
    }

    /// Writes the content to a sparse file.
    #[allow(dead_code)]
    pub fn save(&self, path: &Path) {
        let file = File::create(path).unwrap();
        file.set_len(self.size).unwrap();
        for (at, part) in &self.parts {
            file.write_all_at(part, *at).unwrap();
        }
    }

    /// A separate device with this content.
    pub fn device(&self) -> Arc<MemoryDevice> {
        let device = MemoryDevice::new(self.size);
        for (at, part) in &self.parts {
            device.write_at(*at, part);
        }
        Arc::new(device)
    }
}
