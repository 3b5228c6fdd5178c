//! Devices that fail.

use crate::fuzz_body::{clean, exercise};
use crate::runner::{growth, guarded, keep_panics, report, wanted};
use std::sync::Arc;
use tidegate_block::{Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_vfs::ErrorKind;

/// The requests that fail.
#[derive(Clone, Copy, Debug)]
enum Fails {
    /// One request of its kind.
    One(Op, u64),
    /// All requests of its kind from this one on.
    From(Op, u64),
}

impl Fails {
    /// A device that fails these requests.
    fn on(self, inner: Arc<MemoryDevice>) -> Arc<Faulty> {
        let (op, which) = match self {
            Fails::One(op, n) => (op, n..n + 1),
            Fails::From(op, n) => (op, n..u64::MAX),
        };
        Faulty::new(inner, [Rule::new(Fault::Fail(Errno::IO)).op(op).which(which)])
    }
}

/// Runs [`exercise`] on a device that fails. When requests failed, either an error is returned, or their
/// purpose was reached in another way and the volume is good.
fn faulty(fails: Fails) -> Result<(), String> {
    let inner = clean().device();
    let device = fails.on(inner.clone());
    let name = format!("faulty device {fails:?}");
    let used = device.clone();
    let seen = guarded(&name, move || exercise(used))?;
    let failed = device.failed();
    if failed == 0 || seen.errors.contains(&ErrorKind::Io) || is_clean(inner) {
        return Ok(());
    }
    Err(format!("{name}: {failed} requests failed and nobody was told: {:?}", seen.errors))
}

fn is_clean(device: Arc<MemoryDevice>) -> bool {
    let queue = RequestQueue::new(device, QueueLimits::default());
    check(&queue, CheckOptions::default()).is_ok_and(|report| report.is_clean())
}

/// Requests fail one at a time, or from one on: the only result is errors that say so.
#[test]
fn failing_devices() {
    keep_panics();
    growth();
    let mut failures = Vec::new();
    for op in [Op::Read, Op::Write, Op::Flush] {
        for n in (0..24).chain((24..200).step_by(8)) {
            for fails in [Fails::One(op, n), Fails::From(op, n)] {
                if wanted(&format!("faulty device {fails:?}")) {
                    failures.extend(faulty(fails).err());
                }
            }
        }
    }
    report(&failures);
}

/// When nothing can be read, or nothing written, the error is the device's.
#[test]
fn dead_devices() {
    for op in [Op::Read, Op::Write] {
        let seen = exercise(Fails::From(op, 0).on(clean().device()));
        assert_eq!(seen.mounted, op == Op::Write);
        let kind = if op == Op::Read {
            seen.errors.first()
        } else {
            seen.errors.iter().find(|k| **k == ErrorKind::Io)
        };
        assert_eq!(kind, Some(&ErrorKind::Io), "{op:?}: {:?}", seen.errors);
    }
}
