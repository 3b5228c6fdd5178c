//! Stack overflow of a coroutine: reports its name, and ends the process.
//!
//! The standard library reports it for threads. Its handler knows nothing of other stacks, so this handler comes before
//! it, on the same signal stack, and passes on all other faults.

use super::MOVING;
use std::sync::OnceLock;

/// The previous handler.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler, so that overflows of coroutines are reported from now on.
pub(super) fn tell() {
    BEFORE.get_or_init(|| {
        // SAFETY: plain data of which all zeros are a value, and mean no handler.
        let (mut ours, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        ours.sa_sigaction = on_fault as *const () as usize;
        // SAFETY: both live until the call returns; the handler only does what is allowed in a signal
        // handler.
        unsafe { libc::sigaction(libc::SIGSEGV, &raw const ours, &raw mut before) };
        before
    });
}

/// The name of the running coroutine if the address belongs to its guard.
fn overflown(at: usize) -> Option<&'static str> {
    // SAFETY: the pointer is not null only while `resume` is running on this thread and owns it. The process ends
    // before `resume` returns.
    let moving = unsafe { MOVING.get().as_ref() }?;
    moving.guard.contains(&at).then_some(moving.name.as_str())
}

extern "C" fn on_fault(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a record of the fault with its address.
    let at = unsafe { (*info).si_addr() }.addr();
    if let Some(name) = overflown(at) {
        for part in ["\ntask '", name, "' has overflowed its stack\n"] {
            // SAFETY: the bytes are static; the call is allowed in a handler.
            unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
        }
        // SAFETY: allowed in a handler, and does not return.
        unsafe { libc::abort() };
    }
    let before = BEFORE.get();
    match before.map_or(libc::SIG_DFL, |b| b.sa_sigaction) {
        // The fault happens again after this, and ends the process, also if it is ignored.
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: a signal's number; allowed in a handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        theirs if before.is_some_and(|b| b.sa_flags & libc::SA_SIGINFO != 0) => {
            type Handler = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
            // SAFETY: it was set as a handler with three arguments, and is called as the kernel would call
            // it.
            let theirs = unsafe { std::mem::transmute::<usize, Handler>(theirs) };
            theirs(signal, info, context);
        }
        theirs => {
            // SAFETY: it was set as a handler with one argument.
            let theirs = unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(theirs) };
            theirs(signal);
        }
    }
}
