//! The owner of I/O: the thread or group on whose behalf it is done.

use std::cell::Cell;
use std::marker::PhantomData;
use tidegate_rt::thread;

thread::local!(static CURRENT: Cell<IoContext> = const { Cell::new(IoContext::DEFAULT) });

/// The owner of a bio, as cgroup and ioprio of a Linux task.
///
/// Each thread has a current context, and the bios that it makes take this context. A thread starts with the
/// default; it does not inherit the context of its creator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IoContext {
    /// I/O group, 0 for the root group.
    pub group: u32,
    /// Priority class: 1 real-time, 2 best-effort, 3 idle (`IOPRIO_CLASS_*`).
    pub class: u8,
    /// Level in the class, 0 (first) to 7.
    pub level: u8,
}

impl IoContext {
    const DEFAULT: IoContext = IoContext { group: 0, class: 2, level: 4 };

    /// The context of the calling thread.
    #[inline]
    pub fn current() -> Self {
        CURRENT.get()
    }

    /// Makes this the context of the calling thread until the guard is dropped. Then the earlier context is
    /// current again.
    #[must_use = "the context lasts as long as the guard"]
    pub fn enter(self) -> IoContextGuard {
        IoContextGuard { earlier: CURRENT.replace(self), here: PhantomData }
    }
}

impl Default for IoContext {
    /// The root group, best-effort, level 4.
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Restores the thread's earlier [`IoContext`] when dropped. Guards are dropped in the reverse order of entry.
pub struct IoContextGuard {
    earlier: IoContext,
    /// Keeps the guard on its thread.
    here: PhantomData<*const ()>,
}

impl Drop for IoContextGuard {
    fn drop(&mut self) {
        CURRENT.set(self.earlier);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bio;

    #[test]
    fn bios_take_the_context_they_are_made_in() {
        let outer = IoContext { group: 7, class: 1, level: 0 };
        let inner = IoContext { group: 9, class: 3, level: 7 };
        let g = outer.enter();
        assert_eq!(Bio::flush().ctx, outer);
        {
            let _g = inner.enter();
            assert_eq!(Bio::flush().ctx, inner);
            assert_eq!(Bio::flush().with_ctx(outer).ctx, outer);
            let other = thread::spawn("other", IoContext::current).unwrap().join();
            assert_eq!(other, IoContext::default());
        }
        assert_eq!(IoContext::current(), outer);
        drop(g);
        assert_eq!(Bio::flush().ctx, IoContext::default());
    }
}
