//! Page-aligned buffers, recycled by size class.
//!
//! A buffer in flight is shared by [`std::sync::Arc`]. A thread that wants to change the buffer must hold the
//! only reference or make a copy. So bytes never change while a device works on them, and no lock is held for
//! I/O.

use crate::{PAGE_SIZE, reserve};
use std::alloc::{Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tidegate_rt::{LockClass, Mutex};
use tidegate_sys::slab::{Pages, SLAB_BYTES, Slab};

static POOL_CLASS: LockClass = LockClass::new("buf_pool", 1000);

/// The largest buffer: 2^MAX_ORDER pages (1 MiB).
const MAX_ORDER: usize = 8;
/// The most bytes that are kept for reuse, all size classes together. It is a few times as much as a writer has in
/// flight, so that it also serves files that come and go: giving pages back to the system and faulting them in again
/// costs more than writing them, and a huge page that loses some of its pages comes back as small pages.
static KEEP: AtomicUsize = AtomicUsize::new(96 << 20);

/// Sets the most bytes of buffers that the process keeps for reuse, 96 MiB by default: for a program that
/// does one thing and ends. Buffers that are kept already stay.
pub fn keep_for_reuse(bytes: usize) {
    KEEP.store(bytes, Relaxed);
}

/// Bytes in the pool that have memory behind them.
static KEPT: AtomicUsize = AtomicUsize::new(0);

/// Free buffers of one size.
#[derive(Default)]
struct Class {
    /// With memory behind them; counted in [`KEPT`].
    warm: Vec<Pages>,
    /// Pages whose memory was given back to the system.
    cold: Vec<Pages>,
}

static POOL: [Mutex<Class>; MAX_ORDER + 1] =
    [const { Mutex::new(&POOL_CLASS, Class { warm: Vec::new(), cold: Vec::new() }) }; MAX_ORDER + 1];

/// A free buffer; its bytes are zeros or its last user's.
fn take(order: usize) -> Pages {
    let mut class = POOL[order].lock();
    if let Some(piece) = class.warm.pop() {
        KEPT.fetch_sub(PAGE_SIZE << order, Relaxed);
        return piece;
    }
    if class.cold.is_empty() {
        class.cold.extend(slab().cut(PAGE_SIZE << order).rev());
    }
    class.cold.pop().expect("a slab holds at least one")
}

/// A slab from the reserve or, where the reserve has none at once, from the system. Ends the process when the
/// system has no memory, as the allocator does.
fn slab() -> Slab {
    reserve::take().or_else(Slab::map).unwrap_or_else(|| {
        let layout = Layout::from_size_align(SLAB_BYTES, SLAB_BYTES);
        handle_alloc_error(layout.expect("a power of two below isize::MAX"))
    })
}

/// A page-aligned buffer of a whole number of pages, at most 256 (1 MiB).
pub struct PageBuf {
    /// All of the size class.
    piece: Pages,
    pages: u16,
    order: u8,
}

impl PageBuf {
    /// The most pages one buffer holds.
    pub const MAX_PAGES: usize = 1 << MAX_ORDER;

    /// A buffer with the bytes that its last user left, for callers that overwrite all of it.
    ///
    /// # Panics
    /// When `pages` is 0 or above [`PageBuf::MAX_PAGES`].
    pub fn stale(pages: usize) -> Self {
        assert!((1..=Self::MAX_PAGES).contains(&pages), "PageBuf of {pages} pages");
        let order = pages.next_power_of_two().trailing_zeros() as usize;
        PageBuf { piece: take(order), pages: pages as u16, order: order as u8 }
    }

    /// A buffer of zeros.
    pub fn zeroed(pages: usize) -> Self {
        let mut b = Self::stale(pages);
        b.fill(0);
        b
    }

    /// A buffer of as many pages as `bytes` needs, filled up with zeros.
    pub fn from_slice(bytes: &[u8]) -> Self {
        let mut b = Self::stale(bytes.len().div_ceil(PAGE_SIZE).max(1));
        b[..bytes.len()].copy_from_slice(bytes);
        b[bytes.len()..].fill(0);
        b
    }

    /// Length in pages.
    pub fn pages(&self) -> usize {
        self.pages as usize
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.piece[..self.pages as usize * PAGE_SIZE]
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.piece[..self.pages as usize * PAGE_SIZE]
    }
}

impl Clone for PageBuf {
    fn clone(&self) -> Self {
        let mut b = Self::stale(self.pages());
        b.copy_from_slice(self);
        b
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        let order = self.order as usize;
        let bytes = PAGE_SIZE << order;
        let mut piece = std::mem::replace(&mut self.piece, Pages::EMPTY);
        if KEPT.fetch_add(bytes, Relaxed) + bytes <= KEEP.load(Relaxed) {
            POOL[order].lock().warm.push(piece);
            return;
        }
        KEPT.fetch_sub(bytes, Relaxed);
        piece.give_back();
        POOL[order].lock().cold.push(piece);
    }
}

impl std::fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBuf({} pages)", self.pages)
    }
}
