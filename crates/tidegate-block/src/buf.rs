//! Page-aligned buffers, recycled by size class.
//!
//! A buffer in flight is shared by [`std::sync::Arc`]; whoever wants to change it must hold the only
//! reference or make a copy. So a device never sees bytes move under it and no lock is held for I/O.

use crate::PAGE_SIZE;
use crate::slab;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tidegate_rt::{LockClass, Mutex};

static POOL_CLASS: LockClass = LockClass::new("buf_pool", 1000);

/// The largest buffer: 2^MAX_ORDER pages (1 MiB).
const MAX_ORDER: usize = 8;
/// Memory kept for reuse, all size classes together. A few times what a writer has in flight, so that files
/// which come and go are served from it, too: giving pages back to the system and faulting them in again
/// costs more than writing them, and a large page that loses some comes back as small ones.
const KEEP_BYTES: usize = 96 << 20;

/// Bytes in the pool that are memory, not address space alone.
static KEPT: AtomicUsize = AtomicUsize::new(0);

struct Free(NonNull<u8>);
// SAFETY: a free buffer is plain memory that nobody else points to.
unsafe impl Send for Free {}

/// Free buffers of one size.
#[derive(Default)]
struct Class {
    /// With memory behind them; counted in [`KEPT`].
    warm: Vec<Free>,
    /// Whose memory the system has back.
    cold: Vec<Free>,
}

static POOL: [Mutex<Class>; MAX_ORDER + 1] =
    [const { Mutex::new(&POOL_CLASS, Class { warm: Vec::new(), cold: Vec::new() }) }; MAX_ORDER + 1];

/// A free buffer; its bytes are zeros or what its last user left.
fn take(order: usize) -> NonNull<u8> {
    let mut class = POOL[order].lock();
    if let Some(f) = class.warm.pop() {
        KEPT.fetch_sub(PAGE_SIZE << order, Relaxed);
        return f.0;
    }
    if class.cold.is_empty() {
        class.cold.extend(slab::carve(PAGE_SIZE << order).rev().map(Free));
    }
    class.cold.pop().expect("a slab holds at least one").0
}

/// A page-aligned buffer of a whole number of pages, at most 256 (1 MiB).
pub struct PageBuf {
    ptr: NonNull<u8>,
    pages: u16,
    order: u8,
}

// SAFETY: the buffer owns its memory, as `Box<[u8]>` does.
unsafe impl Send for PageBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for PageBuf {}

impl PageBuf {
    /// The most pages one buffer holds.
    pub const MAX_PAGES: usize = 1 << MAX_ORDER;

    /// A buffer whose bytes are whatever its last user left. For callers that overwrite all of it.
    ///
    /// # Panics
    /// When `pages` is 0 or above [`PageBuf::MAX_PAGES`].
    pub fn stale(pages: usize) -> Self {
        assert!((1..=Self::MAX_PAGES).contains(&pages), "PageBuf of {pages} pages");
        let order = pages.next_power_of_two().trailing_zeros() as usize;
        let ptr = take(order);
        PageBuf { ptr, pages: pages as u16, order: order as u8 }
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
        // SAFETY: `ptr` is valid and initialised for the whole size class, which holds `pages` pages.
        unsafe { std::slice::from_raw_parts(self.ptr.as_ptr(), self.pages as usize * PAGE_SIZE) }
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.ptr.as_ptr(), self.pages as usize * PAGE_SIZE) }
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
        if KEPT.fetch_add(bytes, Relaxed) + bytes <= KEEP_BYTES {
            POOL[order].lock().warm.push(Free(self.ptr));
            return;
        }
        KEPT.fetch_sub(bytes, Relaxed);
        // SAFETY: from `slab::carve` with this size; nobody else points to it.
        unsafe { slab::give_back(self.ptr, bytes) };
        POOL[order].lock().cold.push(Free(self.ptr));
    }
}

impl std::fmt::Debug for PageBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PageBuf({} pages)", self.pages)
    }
}
