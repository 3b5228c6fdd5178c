//! A deadline for what must come to an end.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How much slower than an idle machine one that is busy may be before `f` counts as hanging.
const BUSY: u32 = 10;

/// Runs `f`, which an idle machine does within `limit`, in a thread of its own, and fails when it hangs. A
/// panic in it goes on here; a thread that hangs is left behind, since nothing can end it.
pub fn within<T: Send + 'static>(limit: Duration, what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let limit = limit * BUSY;
    let (send, done) = channel();
    let worker = thread::spawn(move || {
        let r = f();
        let _ = send.send(());
        r
    });
    match done.recv_timeout(limit) {
        Ok(()) | Err(RecvTimeoutError::Disconnected) => match worker.join() {
            Ok(r) => r,
            Err(p) => std::panic::resume_unwind(p),
        },
        Err(RecvTimeoutError::Timeout) => panic!("{what} hangs: not done in {limit:?}"),
    }
}
