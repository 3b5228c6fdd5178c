//! Memory for the calls of a coroutine.

use crate::Errno;
use corosensei::stack::StackPointer;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// Bytes below a stack that nobody can touch: whole pages of every machine, and more than a function of C puts on the
/// stack before it writes there.
const GUARD: usize = 64 << 10;

/// A stack, with a guard below it. Memory is taken as calls get there.
#[derive(Debug)]
pub struct Stack {
    /// Where the guard begins.
    lowest: NonNull<u8>,
    /// Bytes of both.
    len: usize,
}

// SAFETY: plain memory that nobody else points to.
unsafe impl Send for Stack {}

impl Stack {
    /// Maps a stack of at least `size` bytes.
    ///
    /// # Errors
    /// `ENOMEM` when the system has no memory, or no room for another mapping.
    pub fn map(size: usize) -> Result<Stack, Errno> {
        let room = size.max(1).checked_next_multiple_of(GUARD);
        let len = room.and_then(|n| n.checked_add(GUARD)).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::STACK | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping, wherever the system puts it.
        let all = unsafe { mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        let lowest = NonNull::new(all.cast::<u8>()).ok_or(Errno::NOMEM)?;
        let stack = Stack { lowest, len };
        // SAFETY: the lower end of a mapping of ours that nobody has pointers to.
        unsafe { mprotect(all, GUARD, MprotectFlags::empty())? };
        Ok(stack)
    }

    /// Addresses of the guard.
    pub(super) fn guard(&self) -> Range<usize> {
        let from = self.lowest.addr().get();
        from..from + GUARD
    }
}

impl Drop for Stack {
    fn drop(&mut self) {
        // SAFETY: the whole mapping; a coroutine that moves or is suspended owns its stack, so nobody is on it.
        let _ = unsafe { munmap(self.lowest.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping stays where it is while the stack lives, has a guard at its lower end, and room of 64 KiB at least
// above it. Both ends are page-aligned.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.lowest.addr().saturating_add(self.len)
    }

    fn limit(&self) -> StackPointer {
        self.lowest.addr()
    }
}
