//! Stackful coroutines: computations that can suspend themselves at any depth of calls.
//!
//! A coroutine stays on the thread that made it. Its stack is as large as was asked for, and an overflow is reported
//! with the coroutine's name, as the standard library does for threads.

mod overflow;
mod stack;

pub use stack::Stack;

use corosensei::Yielder;
use std::cell::Cell;
use std::ops::Range;
use std::ptr::{from_ref, null};
use std::rc::Rc;

type Inner = corosensei::Coroutine<(), (), (), Stack>;

thread_local!(
    /// The coroutine that runs on this thread; null while none does.
    static MOVING: Cell<*const Moving> = const { Cell::new(null()) }
);

/// Facts about a running coroutine.
struct Moving {
    name: String,
    guard: Range<usize>,
    /// Set when the coroutine begins, and valid until it ends.
    yielder: Cell<*const Yielder<(), ()>>,
}

/// Makes the outer coroutine the running one again, also in a panic.
struct Outer(*const Moving);

impl Drop for Outer {
    fn drop(&mut self) {
        MOVING.set(self.0);
    }
}

/// A computation with a stack of its own.
///
/// If it is dropped while suspended, its stack and everything on the stack are leaked.
pub struct Coroutine {
    /// `None` once its stack was taken.
    inner: Option<Inner>,
    moving: Rc<Moving>,
}

impl Coroutine {
    /// A coroutine that will run `f` on `stack`. The name is for the report of an overflow.
    pub fn new(name: &str, stack: Stack, f: impl FnOnce() + 'static) -> Coroutine {
        overflow::tell();
        let (guard, name) = (stack.guard(), name.to_owned());
        let moving = Rc::new(Moving { name, guard, yielder: Cell::new(null()) });
        let mine = moving.clone();
        let body = move |yielder: &Yielder<(), ()>, ()| {
            mine.yielder.set(from_ref(yielder));
            f();
        };
        Coroutine { inner: Some(Inner::with_stack(stack, body)), moving }
    }

    /// Runs the coroutine until it suspends itself or ends. Returns whether it has ended. A panic in it continues in
    /// the caller.
    pub fn resume(&mut self) -> bool {
        let _outer = Outer(MOVING.replace(Rc::as_ptr(&self.moving)));
        match self.inner.as_mut().filter(|i| !i.done()) {
            Some(inner) => inner.resume(()).as_return().is_some(),
            None => true,
        }
    }

    /// The stack of a coroutine that has ended, for the next one. `None` if it has not ended.
    pub fn into_stack(mut self) -> Option<Stack> {
        self.inner.take_if(|i| i.done()).map(Inner::into_stack)
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        // Unwinding would run code on this stack that may wait for other coroutines for ever.
        let suspended = self.inner.take_if(|i| i.started() && !i.done());
        std::mem::forget(suspended);
    }
}

/// Suspends the calling coroutine until it is resumed. Outside a coroutine it does nothing and returns false.
pub fn suspend() -> bool {
    // SAFETY: not null only while `resume` is running, which borrows the coroutine that owns it.
    let Some(moving) = (unsafe { MOVING.get().as_ref() }) else { return false };
    // SAFETY: the coroutine sets it before any other code of it runs, and it is valid until the coroutine ends. The
    // caller runs on the stack of this coroutine: any other would have made itself the running one.
    let yielder = unsafe { &*moving.yielder.get() };
    yielder.suspend(());
    true
}

#[cfg(test)]
mod tests;
