//! Memory from the system in pieces as large as its large pages.
//!
//! Anonymous memory comes as zeros, so a buffer needs no filling before its first use, and large pages make
//! it one fault instead of hundreds.

use crate::PAGE_SIZE;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};

/// Bytes of a slab and its alignment: a large page of most machines.
pub const SLAB_BYTES: usize = 2 << 20;

/// A slab that nobody has pieces of. Its first page was touched, and so all of it where it is one large page.
/// Unmapped when dropped.
#[derive(Debug)]
pub struct Slab(NonNull<u8>);

// SAFETY: plain memory that nobody else points to.
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
            // SAFETY: this end of the mapping lies outside the slab, and nobody has it.
            let _ = unsafe { munmap(all.cast::<c_void>(), before) };
        }
        // SAFETY: as above: the other end.
        let _ = unsafe { munmap(slab.add(SLAB_BYTES).cast::<c_void>(), SLAB_BYTES - before) };
        // SAFETY: advice on memory that is ours alone. Without large pages it works, too.
        let _ = unsafe { madvise(slab.cast::<c_void>(), SLAB_BYTES, Advice::LinuxHugepage) };
        // At once, by one thread: of several that meet in a large page each would clear one.
        // SAFETY: the first byte of the slab.
        unsafe { slab.write_volatile(0) };
        NonNull::new(slab).map(Slab)
    }

    /// Cuts the slab into pieces of `size` bytes. They stay mapped for good.
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
        // SAFETY: the whole mapping; nobody has a piece of it, since cutting forgets the slab.
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
    /// No memory, to leave where a piece is taken from.
    pub const EMPTY: Pages = Pages { ptr: NonNull::dangling(), len: 0 };

    /// Gives the memory behind the piece back to the system. The piece stays usable; its bytes are zeros then
    /// or, if the system refused, as before.
    pub fn give_back(&mut self) {
        if self.len > 0 {
            // SAFETY: whole private pages of ours, borrowed exclusively; zeros are as good as any bytes.
            let _ = unsafe { madvise(self.ptr.as_ptr().cast::<c_void>(), self.len, Advice::LinuxDontNeed) };
        }
    }
}

impl Deref for Pages {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that this piece owns; none at all behind a dangling pointer.
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
