//! Memory for buffers, from the system in pieces as large as its large pages.
//!
//! Anonymous memory comes as zeros, so a buffer needs no filling before its first use, and large pages make
//! it one fault instead of hundreds.

use crate::reserve;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::alloc::{Layout, handle_alloc_error};
use std::ffi::c_void;
use std::ptr::{NonNull, null_mut};

/// Bytes of a slab and its alignment: a large page of most machines.
pub(crate) const BYTES: usize = 2 << 20;

/// A slab that nobody has pieces of. All zeros; its first page was touched, and so all of it where it is one.
pub(crate) struct Slab(pub NonNull<u8>);
// SAFETY: plain memory that nobody else points to.
unsafe impl Send for Slab {}

/// A new slab, cut into pieces of `size` bytes, a power of two from a page to a slab. All are zeros. They
/// stay mapped for good.
///
/// # Panics
/// As the allocator does when the system has no memory.
pub(crate) fn carve(size: usize) -> impl DoubleEndedIterator<Item = NonNull<u8>> {
    debug_assert!(size.is_power_of_two() && size <= BYTES);
    let slab = reserve::take().or_else(map).unwrap_or_else(|| {
        handle_alloc_error(Layout::from_size_align(BYTES, BYTES).expect("a power of two below isize::MAX"))
    });
    // SAFETY: every piece lies in the slab.
    (0..BYTES / size).map(move |i| unsafe { slab.0.add(i * size) })
}

/// Maps a slab at an address that is a multiple of its size.
pub(crate) fn map() -> Option<Slab> {
    // SAFETY: a new anonymous mapping, wherever the system puts it.
    let all = unsafe {
        mmap_anonymous(null_mut(), 2 * BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
    };
    let all = all.ok()?.cast::<u8>();
    let before = all.align_offset(BYTES);
    // SAFETY: both ends lie in the mapping, outside the slab, and nobody has them.
    let slab = unsafe {
        let slab = all.add(before);
        if before > 0 {
            let _ = munmap(all.cast::<c_void>(), before);
        }
        let _ = munmap(slab.add(BYTES).cast::<c_void>(), BYTES - before);
        slab
    };
    // SAFETY: advice on memory that is ours alone. Without large pages it works, too.
    let _ = unsafe { madvise(slab.cast::<c_void>(), BYTES, Advice::LinuxHugepage) };
    // Now, by one thread: of several that meet in a large page each would clear one.
    // SAFETY: the first byte of it.
    unsafe { slab.write_volatile(0) };
    NonNull::new(slab).map(Slab)
}

/// Gives the memory behind a piece back to the system. The piece stays usable and is zeros then, or, if the
/// system refused, as it was.
///
/// # Safety
/// `piece` is `size` bytes from [`carve`] that nobody else uses.
pub(crate) unsafe fn give_back(piece: NonNull<u8>, size: usize) {
    // SAFETY: the caller's.
    let _ = unsafe { madvise(piece.as_ptr().cast::<c_void>(), size, Advice::LinuxDontNeed) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_zeros_and_come_back_as_zeros() {
        let pieces: Vec<_> = carve(1 << 16).collect();
        assert_eq!(pieces.len(), 32);
        for p in &pieces {
            assert_eq!(p.as_ptr().align_offset(crate::PAGE_SIZE), 0);
            // SAFETY: 64 KiB from `carve`.
            let bytes = unsafe { std::slice::from_raw_parts_mut(p.as_ptr(), 1 << 16) };
            assert!(bytes.iter().all(|b| *b == 0));
            bytes.fill(7);
        }
        // SAFETY: as above; the slices are gone.
        unsafe {
            give_back(pieces[3], 1 << 16);
            assert!(std::slice::from_raw_parts(pieces[3].as_ptr(), 1 << 16).iter().all(|b| *b == 0));
            assert!(std::slice::from_raw_parts(pieces[4].as_ptr(), 1 << 16).iter().all(|b| *b == 7));
        }
    }
}
