//! A deadline for code that must end.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// A busy machine may take this many times as long as an idle one before `f` counts as hanging.
const BUSY: u32 = 10;

/// Runs `f`, which takes an idle machine at most `limit`, in a thread of its own, and fails when it hangs. A
/// panic in `f` is passed on; a thread that hangs is left behind, since nothing can end it.
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
