//! Memory for the calls of a coroutine.

use crate::Errno;
use corosensei::stack::StackPointer;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// The number of inaccessible bytes below a stack: whole pages on every machine, and more than a C function reserves on
/// the stack before it writes there.
const GUARD: usize = 64 << 10;

/// A stack, with a guard below it. Memory is allocated when calls reach it.
#[derive(Debug)]
pub struct Stack {
    /// The beginning of the guard.
    lowest: NonNull<u8>,
    /// Bytes of guard and stack.
    len: usize,
}

// SAFETY: it is plain memory without other pointers to it.
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
        // SAFETY: it is the lower end of a new mapping, to which no other pointers exist.
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
        // SAFETY: it is the whole mapping; a running or suspended coroutine owns its stack, so no code is on this one.
        let _ = unsafe { munmap(self.lowest.as_ptr().cast(), self.len) };
    }
}

// SAFETY: the mapping stays in place while the stack lives, has a guard at its lower end, and at least 64 KiB above it.
// Both ends are page-aligned.
unsafe impl corosensei::stack::Stack for Stack {
    fn base(&self) -> StackPointer {
        self.lowest.addr().saturating_add(self.len)
    }

    fn limit(&self) -> StackPointer {
        self.lowest.addr()
    }
}
