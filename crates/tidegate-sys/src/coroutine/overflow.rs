//! A coroutine that needs more stack than it has: told by name, and the end of the process.
//!
//! The standard library tells it of threads. Its handler knows nothing of other stacks, so ours goes before it, on the
//! same stack for signals, and passes on what is none of ours.

use super::MOVING;
use std::sync::OnceLock;

/// The handler that was there before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// From now on overflows of coroutines are told.
pub(super) fn tell() {
    BEFORE.get_or_init(|| {
        // SAFETY: plain data of which all zeros are a value, and mean no handler.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        ours.sa_sigaction = on_fault as *const () as usize;
        // SAFETY: both live until the call returns; the handler does only what is allowed in one.
        unsafe { libc::sigaction(libc::SIGSEGV, &raw const ours, &raw mut before) };
        before
    });
}

/// Whether the address belongs to the guard of the coroutine that moves; its name.
fn overflown(at: usize) -> Option<&'static str> {
    // SAFETY: not null only while `resume` is running, on this thread, which owns it. The process ends before that
    // returns.
    let moving = unsafe { MOVING.get().as_ref() }?;
    moving.guard.contains(&at).then_some(moving.name.as_str())
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel hands over a record of the fault that has its address.
    let at = unsafe { (*info).si_addr() }.addr();
    if let Some(name) = overflown(at) {
        for part in ["\ntask '", name, "' has overflowed its stack\n"] {
            // SAFETY: bytes that live on; a call that is allowed in a handler.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
        // SAFETY: allowed in a handler, and does not return.
        unsafe { libc::abort() };
    }
    let before = BEFORE.get();
    match before.map_or(libc::SIG_DFL, |b| b.sa_sigaction) {
        // The fault happens again after this, and ends the process: one that is ignored does so, too.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: a signal's number; allowed in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        theirs if before.is_some_and(|b| b.sa_flags & libc::SA_SIGINFO != 0) => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: set as a handler with three arguments, and called as the kernel would have.
            let theirs = unsafe { std::mem::transmute::<usize, Handler>(theirs) };
            theirs(signal, info, context);
        }
        theirs => {
            // SAFETY: set as a handler with one argument.
            let theirs = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(theirs) };
            theirs(signal);
        }
    }
}
