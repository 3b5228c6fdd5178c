//! Checkpoint packs that are cut off at any point: the pack before them counts.

use crate::common::watch::within;
use crate::failing::load::{Model, prepare, run};
use crate::failing::rig::*;
use crate::failing::wanted;
use tidegate_block::{Errno, Fault};
use tidegate_f2fs::mkfs::MkfsOptions;
use tidegate_f2fs::raw::RawSuperblock;
use tidegate_vfs::*;
use zerocopy::FromBytes;

/// Number of blocks of head, payload, orphans and summaries that may be written; more than a pack has.
const BLOCKS: u64 = 9;

/// Fails the next pack after `blocks` of its blocks, or its tail; the volume must stop without loss.
fn broken(rig: FailingVolume, m: &Model, class: Class, fault: Fault, unmount: bool, stock: bool) {
    let name = format!("{class:?} {fault:?} unmount {unmount}");
    rig.faulty.set([rig.rule(class, fault)]);
    let r = if unmount { rig.vfs.unmount() } else { rig.fs.write_checkpoint(true) };
    assert_eq!(r.map_err(|e| e.kind()), Err(ErrorKind::Io), "{name}");
    let names = |e: &Error| e.places().any(|at| matches!(at, At::Part("checkpoint pack", _)));
    assert!(rig.why_stopped().is_some_and(|e| names(&e)), "{name}");
    assert!(rig.faulty.failed() > 0);
    rig.faulty.set([]);
    for (i, image) in rig.images().into_iter().enumerate() {
        let what = format!("{name}, cut {i}");
        reopen(image, stock && i == 0, &what, |v| m.check(v, &what));
    }
}

#[test]
fn packs_that_break_off() {
    let mut all = vec![(Class::Tail, Fault::Short(512, Errno::IO)), (Class::Tail, Fault::Fail(Errno::NOSPC))];
    all.extend((0..BLOCKS).map(|n| (Class::Pack, Fault::Short(n * PAGE as u64, Errno::IO))));
    for (i, (class, fault)) in all.into_iter().enumerate() {
        for unmount in [false, true] {
            if wanted(&format!("{class:?} {fault:?} unmount {unmount}")) {
                within(LIMIT, "a broken pack", move || {
                    let rig = FailingVolume::new(72, "");
                    let m = prepare(&rig);
                    // There are orphans among them, and fsynced nodes.
                    let m = run(&rig, m, i as u64, 40, []);
                    assert!(m.errors.is_empty());
                    broken(rig, &m, class, fault, unmount, i % 3 == 0);
                });
            }
        }
    }
}

/// The volume is so large that its SIT bitmap fills blocks behind the head.
#[test]
fn packs_with_payload_that_break_off() {
    let make = || FailingVolume::make(4 << 20, &MkfsOptions { discard: false, ..Default::default() });
    let memory = make();
    let mut block = vec![0; PAGE];
    memory.read_at(0, &mut block);
    let (sb, _) = RawSuperblock::ref_from_prefix(&block[1024..]).unwrap();
    let payload = sb.cp_payload.get() as u64;
    assert!(payload > 0);
    for blocks in [0, 1, payload, payload + 1] {
        let memory = std::sync::Arc::new(memory.copy());
        within(LIMIT, "a broken pack with payload", move || {
            let rig = FailingVolume::open(memory, MemoryLimits::default(), "");
            let m = prepare(&rig);
            let m = run(&rig, m, blocks, 15, []);
            broken(rig, &m, Class::Pack, Fault::Short(blocks * PAGE as u64, Errno::IO), false, false);
        });
    }
}
