//! Stackful coroutines: computations that give way to their resumer from any depth of calls.
//!
//! A coroutine stays on the thread that made it. Its stack is as large as was asked for, and an overflow is told with
//! the coroutine's name, as the standard library tells one of a thread.

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
    /// The coroutine that moves on this thread; null while none does.
    static MOVING: Cell<*const Moving> = const { Cell::new(null()) }
);

/// Facts about a coroutine that moves.
struct Moving {
    name: String,
    guard: Range<usize>,
    /// Set when the coroutine begins, and valid until it ends.
    yielder: Cell<*const Yielder<(), ()>>,
}

/// Makes the outer coroutine the one that moves again, in a panic as well.
struct Outer(*const Moving);

impl Drop for Outer {
    fn drop(&mut self) {
        MOVING.set(self.0);
    }
}

/// A computation with a stack of its own.
///
/// One that is dropped while it is suspended stays as it is for good, with its stack and with all that this holds.
pub struct Coroutine {
    /// None once its stack was taken.
    inner: Option<Inner>,
    moving: Rc<Moving>,
}

impl Coroutine {
    /// A coroutine that does `f` on `stack`; it has not begun. Its name is for the report of an overflow.
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

    /// Goes on in it until it suspends itself or ends; whether it has ended. A panic in it goes on in the caller.
    pub fn resume(&mut self) -> bool {
        let _outer = Outer(MOVING.replace(Rc::as_ptr(&self.moving)));
        match self.inner.as_mut().filter(|i| !i.done()) {
            Some(inner) => inner.resume(()).as_return().is_some(),
            None => true,
        }
    }

    /// The stack of a coroutine that has ended, for the next one; none of another.
    pub fn into_stack(mut self) -> Option<Stack> {
        self.inner.take_if(|i| i.done()).map(Inner::into_stack)
    }
}

impl Drop for Coroutine {
    fn drop(&mut self) {
        // Unwinding would run code on this stack that waits for others which never come.
        let suspended = self.inner.take_if(|i| i.started() && !i.done());
        std::mem::forget(suspended);
    }
}

/// Suspends the coroutine that calls, until it is resumed; false outside of one, where it does nothing.
pub fn suspend() -> bool {
    // SAFETY: not null only while `resume` is running, which borrows the coroutine that owns it.
    let Some(moving) = (unsafe { MOVING.get().as_ref() }) else { return false };
    // SAFETY: set by the coroutine before any other code of it, and valid until that ends. The caller runs on its
    // stack: another coroutine's would have made itself the moving one.
    let yielder = unsafe { &*moving.yielder.get() };
    yielder.suspend(());
    true
}

#[cfg(test)]
mod tests;
