//! Signals that end a command: it prints a line on what remains.

use crate::out;
use nix::sys::signal::{SigSet, Signal, raise};
use std::sync::Arc;
use tidegate::{Error, Result, Unfinished};
use tidegate_fuse::session::ignored;

/// From now on the signals that end a program first remove what is unfinished, and print that. To be called
/// before threads are started, since they inherit the blocked signals.
///
/// # Errors
/// The operating system's.
pub fn tell(unfinished: &Arc<Unfinished>) -> Result<()> {
    let ends = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];
    let signals: SigSet = ends.into_iter().filter(|s| !ignored(*s)).collect();
    signals.thread_block().map_err(|e| Error::Os("signals".into(), e.into()))?;
    let unfinished = unfinished.clone();
    let wait = move || {
        let Ok(signal) = signals.wait() else { return };
        unfinished.interrupted(|said| {
            if let Some(said) = said {
                out::say(said);
            }
            let _ = signals.thread_unblock();
            let _ = raise(signal);
        });
    };
    tidegate_rt::thread::spawn("tg-signals", wait).map_err(|e| Error::Os("signal thread".into(), e))?;
    Ok(())
}
