//! The bytes of a block.

use std::ops::Deref;
use std::sync::Arc;
use tidegate_block::{PAGE_SIZE, PageBuf};

/// The bytes of a block at one moment.
#[derive(Clone)]
pub struct Block {
    pub(super) buf: Arc<PageBuf>,
    pub(super) len: usize,
    /// The checks that it passed, as bits.
    pub(super) passed: u8,
}

/// A check of a block's bytes, as its format makes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Verified {
    /// The checksum, and what else costs as little.
    Checksum = 1,
    /// All of the content.
    Content = 2,
}

impl Block {
    pub(crate) fn zeroed(len: usize) -> Block {
        Block { buf: Arc::new(PageBuf::zeroed(len.div_ceil(PAGE_SIZE))), len, passed: 0 }
    }

    /// Whether it passed a check since it was read from the device
    /// ([`Cache::set_verified`](super::Cache::set_verified)); changes in memory do not affect this. As
    /// `buffer_verified` in Linux. The check may have been for another use of the block.
    pub fn is_verified(&self, check: Verified) -> bool {
        self.passed & check as u8 != 0
    }

    /// The memory; the block is its first bytes.
    pub(crate) fn buf(&self) -> &Arc<PageBuf> {
        &self.buf
    }

    /// The bytes, to be changed; in a copy if others hold them. Also returns whether a copy was made.
    pub(crate) fn change(&mut self) -> (&mut [u8], bool) {
        let shared = Arc::get_mut(&mut self.buf).is_none();
        (&mut Arc::make_mut(&mut self.buf)[..self.len], shared)
    }
}

impl Deref for Block {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf[..self.len]
    }
}
