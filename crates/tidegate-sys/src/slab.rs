//! Memory from the system in slabs of the size of its huge pages.
//!
//! Anonymous memory is zeroed, so a buffer needs no filling before its first use. Huge pages need one page
//! fault instead of hundreds.

use crate::PAGE_SIZE;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Bytes of a slab, and its alignment: a huge page of most machines.
pub const SLAB_BYTES: usize = 2 << 20;

/// A slab that was not cut into pieces. Its first page was touched, and so all of it where it is one huge
/// page. It is unmapped when dropped.
#[derive(Debug)]
pub struct Slab(NonNull<u8>);

// SAFETY: it is plain memory without other pointers to it.
unsafe impl Send for Slab {}

impl Slab {
    /// Maps a slab of zeros at an address that is a multiple of its size. `None` when the system has no memory.
    pub fn map() -> Option<Self> {
        // SAFETY: a new anonymous mapping, wherever the system puts it.
        let all = unsafe {
            mmap_anonymous(null_mut(), 2 * SLAB_BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let all = all.ok()?.cast::<u8>();
        let before = all.align_offset(SLAB_BYTES);
        // SAFETY: the slab begins in the first half of the mapping, so all of it lies there.
        let slab = unsafe { all.add(before) };
        if before > 0 {
            // SAFETY: this end of the mapping lies outside the slab, and is not in use.
            let _ = unsafe { munmap(all.cast::<c_void>(), before) };
        }
        // SAFETY: as above, for the other end.
        let _ = unsafe { munmap(slab.add(SLAB_BYTES).cast::<c_void>(), SLAB_BYTES - before) };
        // SAFETY: it is advice on memory that only this slab owns. It is not needed for correctness.
        let _ = unsafe { madvise(slab.cast::<c_void>(), SLAB_BYTES, Advice::LinuxHugepage) };
        // The slab is touched here by one thread: several threads that fault in one huge page would each
        // clear one. SAFETY: it is the first byte of the slab.
        unsafe { slab.write_volatile(0) };
        NonNull::new(slab).map(Slab)
    }

    /// Cuts the slab into pieces of `size` bytes. They are never unmapped.
    ///
    /// # Panics
    /// When `size` is no power of two from a page to a slab.
    pub fn cut(self, size: usize) -> impl DoubleEndedIterator<Item = Pages> {
        assert!(size.is_power_of_two() && (PAGE_SIZE..=SLAB_BYTES).contains(&size), "pieces of {size} bytes");
        let start = self.0;
        std::mem::forget(self);
        (0..SLAB_BYTES / size).map(move |i| {
            // SAFETY: every piece lies in the slab; no two overlap, since each is made once.
            Pages { ptr: unsafe { start.add(i * size) }, len: size }
        })
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        // SAFETY: it is the whole mapping; there are no pieces of it, since cutting forgets the slab.
        let _ = unsafe { munmap(self.0.as_ptr().cast::<c_void>(), SLAB_BYTES) };
    }
}

/// A piece of a slab: initialised, page-aligned memory with one owner. It is not given back when dropped.
#[derive(Debug)]
pub struct Pages {
    ptr: NonNull<u8>,
    len: usize,
}

// SAFETY: the piece owns its memory, as `Box<[u8]>` does.
unsafe impl Send for Pages {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pages {}

impl Pages {
    /// A piece without memory, to leave in place of a piece that is taken.
    pub const EMPTY: Pages = Pages { ptr: NonNull::dangling(), len: 0 };

    /// Gives the memory behind the piece back to the system. The piece stays usable. Its bytes are then zeros
    /// or, if the system refused, unchanged.
    pub fn give_back(&mut self) {
        if self.len > 0 {
            // SAFETY: they are whole private pages, borrowed exclusively; zeros are valid bytes.
            let _ = unsafe { madvise(self.ptr.as_ptr().cast::<c_void>(), self.len, Advice::LinuxDontNeed) };
        }
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: there are `len` initialised bytes that this piece owns; 0 bytes for a dangling pointer.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.len) }
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_aligned_zeros_and_come_back_as_zeros() {
        let mut pieces: Vec<_> = Slab::map().unwrap().cut(1 << 16).collect();
        assert_eq!(pieces.len(), 32);
        for p in &mut pieces {
            assert_eq!((p.as_ptr().align_offset(PAGE_SIZE), p.len()), (0, 1 << 16));
            assert!(p.iter().all(|b| *b == 0));
            p.fill(7);
        }
        pieces[3].give_back();
        assert!(pieces[3].iter().all(|b| *b == 0));
        assert!(pieces[4].iter().all(|b| *b == 7));
    }

    #[test]
    #[should_panic(expected = "pieces of 6144 bytes")]
    fn a_piece_is_a_power_of_two() {
        let _ = Slab::map().unwrap().cut(6144);
    }
}
