//! Whether the calling thread is in the completion of a bio. Such a thread must not wait for requests to end.

use std::cell::Cell;
use tidegate_rt::thread;

thread::local!(static DEPTH: Cell<u32> = const { Cell::new(0) });

/// Ends a bio by `f`. [`within`] holds in `f` and in all functions that it calls.
pub(crate) fn run(f: impl FnOnce()) {
    DEPTH.with(|d| d.set(d.get() + 1));
    let _over = Over;
    f();
}

/// Whether the calling thread is in a completion. It may be the thread in which a device ends its requests.
pub(crate) fn within() -> bool {
    DEPTH.try_with(|d| d.get() > 0).unwrap_or(false)
}

struct Over;

impl Drop for Over {
    fn drop(&mut self) {
        DEPTH.with(|d| d.set(d.get() - 1));
    }
}
