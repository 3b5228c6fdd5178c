//! Every class of write with every fault, under threads that write and fsync.

use crate::common::watch::within;
use crate::failing::load::{prepare, run};
use crate::failing::rig::*;
use crate::failing::wanted;
use std::ops::Range;
use tidegate_block::{Errno, Fault};
use tidegate_vfs::*;

const STEPS: u64 = 120;

const FAULTS: [Fault; 5] = [
    Fault::Fail(Errno::IO),
    Fault::Fail(Errno::NOSPC),
    Fault::Fail(Errno::ROFS),
    Fault::Short(512, Errno::IO),
    Fault::Short(3 * 4096, Errno::TIMEDOUT),
];

/// One class, one fault, and the writes of the class that fail.
#[derive(Clone, Debug)]
struct Case {
    class: Class,
    fault: Fault,
    which: Range<u64>,
    seed: u64,
}

impl Case {
    /// Runs the case; returns the number of requests that failed.
    fn run(self, stock: bool) -> u64 {
        let name = format!("{self:?}");
        if !wanted(&name) {
            return 0;
        }
        let what = name.clone();
        within(LIMIT, &what, move || self.run_here(&name, stock))
    }

    fn run_here(self, name: &str, stock: bool) -> u64 {
        let rig = FailingVolume::new(72, "");
        let mut m = prepare(&rig);
        let rule = rig.rule(self.class, self.fault).which(self.which.clone());
        m = run(&rig, m, self.seed, STEPS, [rule]);
        let synced = rig.vfs.sync();
        let failed = rig.faulty.failed();
        rig.faulty.set([]);
        match (self.class, rig.why_stopped()) {
            (_, None) if failed == 0 => assert!(m.errors.is_empty(), "{name}: {:?}", m.errors),
            (Class::Data, None) => {
                // The content was in memory all along, and now it can be written.
                rig.vfs.sync().unwrap_or_else(|e| panic!("{name}: {e}"));
                m.promise_all();
            }
            (Class::Data, Some(why)) => {
                assert!(self.which.end - self.which.start > 1, "{name}: stopped by one failure: {why}");
                refuses(&rig, &why, name);
            }
            (_, None) => panic!("{name}: {failed} failed and the volume goes on; sync says {synced:?}"),
            (_, Some(why)) => {
                assert!(synced.is_err(), "{name}: synced a stopped volume");
                refuses(&rig, &why, name);
            }
        }
        if failed > 0 && self.class != Class::Data {
            assert!(!m.errors.is_empty() || synced.is_err(), "{name}: nobody was told");
        }
        for (i, image) in rig.images().into_iter().enumerate() {
            let what = format!("{name}, {}", ["all written", "only what was flushed"][i]);
            reopen(image, stock && i == 0, &what, |v| m.check(v, &what));
        }
        // An unmount changes nothing.
        let _ = rig.vfs.unmount();
        let what = format!("{name}, unmounted");
        reopen(rig.images()[0].clone(), false, &what, |v| m.check(v, &what));
        failed
    }
}

/// A stopped volume refuses every change, with the reason.
fn refuses(rig: &FailingVolume, why: &Error, name: &str) {
    let top = rig.vfs.root().unwrap();
    let refused = [
        rig.vfs.mkdir(ROOT, &top, b"later", 0o755).map(drop),
        rig.vfs.unlink(ROOT, &top, b"t0"),
        rig.vfs.open_path(ROOT, b"/t0/f0", OpenFlags::WRITE, 0).map(drop),
        rig.fs.write_checkpoint(true),
    ];
    for r in refused {
        let e = r.expect_err(name);
        assert_eq!(e.kind(), ErrorKind::ReadOnly, "{name}: {e}");
        assert_eq!(e.what(), ReadOnly::Stopped(why.clone()).to_string(), "{name}");
        assert_eq!(e.stopped_by(), why.errno(), "{name}");
    }
    assert!(["writing", "written", "flushing"].iter().any(|w| why.what().contains(w)), "{why}");
    // Existing files can still be read.
    rig.vfs.entries(&top).unwrap();
}

/// Each fault once early, once late, and from some write on.
fn all(class: Class) {
    let mut failed = 0;
    for (i, fault) in FAULTS.into_iter().enumerate() {
        for (k, which) in [0..1, 3..4, 2..u64::MAX].into_iter().enumerate() {
            let seed = (i * 3 + k) as u64;
            failed += Case { class, fault, which, seed }.run(i == k);
        }
    }
    assert!(failed > 5 || std::env::var_os("TIDEGATE_CASE").is_some(), "{class:?}: hardly a write failed");
}

#[test]
fn data_writes() {
    all(Class::Data);
}

#[test]
fn directory_writes() {
    all(Class::Dir);
}

#[test]
fn node_writes() {
    all(Class::Node);
}

#[test]
fn sit_writes() {
    all(Class::Sit);
}

#[test]
fn nat_writes() {
    all(Class::Nat);
}

#[test]
fn ssa_writes() {
    all(Class::Ssa);
}

#[test]
fn checkpoint_packs() {
    all(Class::Pack);
}

#[test]
fn checkpoint_tails() {
    all(Class::Tail);
}

#[test]
fn flushes() {
    all(Class::Flush);
}
