//! Access to a device's bytes in blocks that may be smaller than a page, and waits for several bios.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use tidegate_block::{
    Bio, BioData, BioFlags, Errno, Op, PAGE_SIZE, PageBuf, RequestQueue, SECTOR_SIZE, Sector, Segment,
};
use tidegate_rt::{LockClass, Mutex, WaitQueue};

/// Bytes of a page.
const PAGE: u64 = PAGE_SIZE as u64;

/// Reads `to.len()` bytes at byte `at` of the device, which need not end at a page boundary.
///
/// # Errors
/// The device's errno; `IO` past its end.
pub(crate) fn read(queue: &RequestQueue, at: u64, to: &mut [u8]) -> Result<(), Errno> {
    let size = queue.device().size() / SECTOR_SIZE * SECTOR_SIZE;
    let end = at.checked_add(to.len() as u64).filter(|&end| end <= size).ok_or(Errno::IO)?;
    let first = at - at % PAGE;
    if end.next_multiple_of(PAGE) <= size {
        return read_pages(queue, first, at, to);
    }
    // A block in the device's last, incomplete page is read with a page that does not begin at a page
    // boundary.
    let cut = at.max(end - end % PAGE);
    let (head, tail) = to.split_at_mut((cut - at) as usize);
    if !head.is_empty() {
        read_pages(queue, first, at, head)?;
    }
    read_pages(queue, size.checked_sub(PAGE).ok_or(Errno::IO)?, cut, tail)
}

/// Reads in pages from byte `first` on, which is at most `at`; all pages are on the device.
fn read_pages(queue: &RequestQueue, first: u64, at: u64, to: &mut [u8]) -> Result<(), Errno> {
    let mut skip = (at - first) as usize;
    let pages = (skip + to.len()).div_ceil(PAGE_SIZE);
    let max = PageBuf::MAX_PAGES;
    let bufs = (0..pages.div_ceil(max)).map(|n| PageBuf::stale((pages - n * max).min(max))).collect();
    let bio = Bio::read(Sector::from_bytes(first), bufs, BioFlags::META | BioFlags::SYNC);
    let BioData::Read(bufs) = queue.submit_wait(bio)? else { return Err(Errno::IO) };
    let mut done = 0;
    for buf in bufs {
        let from = &buf[skip.min(buf.len())..];
        let n = from.len().min(to.len() - done);
        to[done..done + n].copy_from_slice(&from[..n]);
        (done, skip) = (done + n, skip.saturating_sub(buf.len()));
    }
    Ok(())
}

/// A write of `bytes` at byte `at` of the device; at most 1 MiB, and whole sectors.
pub(crate) fn write_bio(at: u64, bytes: &[u8], flags: BioFlags) -> Bio {
    let buf = Arc::new(PageBuf::from_slice(bytes));
    let segment = Segment { buf, offset: 0, len: bytes.len() as u32 };
    Bio::write(Sector::from_bytes(at), vec![segment], flags)
}

static PENDING: LockClass = LockClass::new("journal->bios", 940);

/// Bios in flight with a common wait.
pub(crate) struct Pending {
    left: AtomicU32,
    error: Mutex<Option<Errno>>,
    ended: WaitQueue,
}

impl Pending {
    pub fn new() -> Arc<Pending> {
        Arc::new(Pending {
            left: AtomicU32::new(0),
            error: Mutex::new(&PENDING, None),
            ended: WaitQueue::new(),
        })
    }

    /// Adds a bio to them.
    pub fn watch(self: &Arc<Self>, bio: Bio) -> Bio {
        debug_assert!(bio.op != Op::Read, "its memory would be lost");
        self.left.fetch_add(1, Relaxed);
        let these = self.clone();
        bio.on_end(move |result, _| {
            if let Err(e) = result {
                these.error.lock().get_or_insert(e);
            }
            if these.left.fetch_sub(1, AcqRel) == 1 {
                these.ended.wake_all();
            }
        })
    }

    /// Whether all bios have ended.
    pub fn is_done(&self) -> bool {
        self.left.load(Acquire) == 0
    }

    /// Waits until all bios have ended.
    ///
    /// # Errors
    /// The first error of a bio.
    pub fn wait(&self) -> Result<(), Errno> {
        self.ended.wait_until(|| self.left.load(Acquire) == 0);
        self.error.lock().map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_block::{MemoryDevice, QueueLimits};

    #[test]
    fn any_range_of_any_device_is_read() {
        for size in [1024, 5 * 1024, 2 << 20, (2 << 20) + 3 * 1024] {
            let bytes: Vec<u8> = (0..size).map(|i| (i / 1024 * 7 + i) as u8).collect();
            let device = Arc::new(MemoryDevice::from_bytes(&bytes));
            let queue = RequestQueue::new(device, QueueLimits::default());
            let ranges = [(0, 1024), (3072, 1024), (size - 1024, 1024), (1024, size - 1024), (0, size)];
            for (at, len) in ranges {
                let mut to = vec![0; len];
                match read(&queue, at as u64, &mut to) {
                    Ok(()) => assert_eq!(to, bytes[at..at + len], "{size}: {at} {len}"),
                    // A device smaller than a page cannot be read in pages.
                    Err(e) => assert!(at + len > size || size < PAGE_SIZE, "{size}: {at} {len}: {e}"),
                }
            }
            assert!(read(&queue, u64::MAX - 5, &mut [0; 512]).is_err());
        }
    }
}
