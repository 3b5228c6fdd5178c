//! Completions that come late and in another order: the final tree is the same, and each power cut leaves
//! what was promised.

use crate::common::watch::within;
use crate::failing::load::{prepare, run};
use crate::failing::rig::*;
use crate::failing::wanted;
use std::time::Duration;
use tidegate_block::*;

/// The longest delay of a request of any kind.
const MOST: Duration = Duration::from_millis(3);

fn shuffled(seed: u64, op: Op) -> Rule {
    Rule::new(Fault::Shuffled(MOST)).op(op).chance(400, seed)
}

/// Threads work on a device that reorders its requests. Then the power fails while some requests are still
/// under way.
#[test]
fn the_order_of_completions_does_not_matter() {
    for (seed, list) in
        (0..8).zip(["", "mode=lfs", "writepages=unlocked", "nocheckpoint_merge"].iter().cycle())
    {
        let name = format!("late, seed {seed}, {list}");
        if !wanted(&name) {
            continue;
        }
        let what = name.clone();
        within(LIMIT, &what, move || {
            let rig = FailingVolume::new(72, "");
            let mut m = prepare(&rig);
            let memory = rig.memory.clone();
            rig.vfs.unmount().unwrap();
            drop(rig);
            let rig = FailingVolume::open(memory, TIGHT, list);
            m = run(&rig, m, seed, 60, [Op::Read, Op::Write, Op::Flush].map(|op| shuffled(seed, op)));
            assert!(m.errors.is_empty(), "{name}: {:?}", m.errors);
            assert!(rig.faulty.late() > 30, "{name}");
            assert_eq!(rig.faulty.overlaps(), 0, "{name}: bytes were written that were still being written");
            for (i, image) in rig.images().into_iter().enumerate() {
                let what = format!("{name}, cut {i}");
                reopen(image, i == 1, &what, |v| m.check(v, &what));
            }
            rig.vfs.sync().unwrap();
            m.promise_all();
            m.check(&rig.vfs, &format!("{name}, at the end"));
            rig.vfs.unmount().unwrap();
            assert_eq!(rig.faulty.overlaps(), 0, "{name}: bytes were written that were still being written");
            let [_, flushed] = rig.images();
            reopen(flushed, false, &name, |v| m.check(v, &name));
        });
    }
}

/// Requests are late, and some fail.
#[test]
fn late_requests_may_fail() {
    for seed in 0..12 {
        let name = format!("late and failing, seed {seed}");
        if !wanted(&name) {
            continue;
        }
        let what = name.clone();
        within(LIMIT, &what, move || {
            let rig = FailingVolume::new(72, "");
            let mut m = prepare(&rig);
            let fails = [Fault::Fail(Errno::IO), Fault::Short(4096, Errno::IO), Fault::Fail(Errno::NOSPC)];
            let fault = fails[seed as usize % 3];
            // With every second seed, metadata fails, too.
            let writes = match seed % 2 {
                0 => rig.rule(Class::Data, fault).chance(100, seed),
                _ => Rule::new(fault).op(Op::Write).chance(3, seed),
            };
            let reads = Rule::new(fault).op(Op::Read).chance(20, seed);
            let late = [shuffled(seed, Op::Write), shuffled(seed + 1, Op::Flush)];
            m = run(&rig, m, seed, 80, [writes, reads].into_iter().chain(late));
            let _ = rig.vfs.sync();
            rig.faulty.set([]);
            if rig.why_stopped().is_none() {
                rig.vfs.sync().unwrap();
                m.promise_all();
            }
            for (i, image) in rig.images().into_iter().enumerate() {
                let what = format!("{name}, cut {i}");
                reopen(image, i == 1, &what, |v| m.check(v, &what));
            }
        });
    }
}
