//! What format an image has.

use crate::error::{Error, Result};
use tidegate_block::{BioFlags, PAGE_SIZE, RequestQueue, Sector};

/// A format that a volume can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// F2FS.
    #[default]
    F2fs,
}

/// Where ext2, 3 and 4 keep their magic number, and the number.
const EXT_MAGIC_AT: usize = 1024 + 0x38;
const EXT_MAGIC: [u8; 2] = [0x53, 0xef];

/// The format of the image called `image` behind `queue`.
///
/// # Errors
/// One that says what the image is instead.
pub fn detect(image: &str, queue: &RequestQueue) -> Result<Format> {
    let size = queue.device().size();
    if size == 0 {
        return Err(Error::other(image, "not an f2fs or ext4 volume: the image is empty"));
    }
    if size < 2 * PAGE_SIZE as u64 {
        return Err(Error::other(image, format_args!("not an f2fs or ext4 volume: only {size} bytes long")));
    }
    if tidegate_f2fs::is_f2fs(queue) {
        return Ok(Format::F2fs);
    }
    let first = queue
        .read_wait(Sector(0), 1, BioFlags::empty())
        .map_err(|e| Error::Os(image.to_string(), e.into()))?;
    if first[EXT_MAGIC_AT..EXT_MAGIC_AT + 2] == EXT_MAGIC {
        return Err(Error::other(image, "ext4 is not supported yet"));
    }
    Err(Error::other(image, "not an f2fs or ext4 volume"))
}
