//! Reads that fail or end short: the reader gets the error, a partial read counts as nothing, and the volume
//! stays good.

use crate::common::watch::within;
use crate::failing::load::{prepare, run};
use crate::failing::names::push_out;
use crate::failing::rig::*;
use crate::failing::wanted;
use std::sync::Arc;
use tidegate_block::*;
use tidegate_f2fs::open::{load_checkpoint, load_superblock};
use tidegate_f2fs::raw::BLOCKS_PER_SEG;
use tidegate_f2fs::repair::{RepairOptions, repair};
use tidegate_vfs::*;

/// Reads of pages, nodes and metadata fail now and then, under threads that do everything.
#[test]
fn reads_fail_now_and_then() {
    let faults = [Fault::Fail(Errno::IO), Fault::Short(512, Errno::IO), Fault::Short(4096, Errno::TIMEDOUT)];
    let mut failed = 0;
    for seed in 0..12 {
        let name = format!("reads, seed {seed}");
        if !wanted(&name) {
            continue;
        }
        let what = name.clone();
        failed += within(LIMIT, &what, move || {
            let rig = FailingVolume::new(72, "");
            let mut m = prepare(&rig);
            let memory = rig.memory.clone();
            rig.vfs.unmount().unwrap();
            drop(rig);
            let rig = FailingVolume::open(memory, TIGHT, "");
            let fault = faults[seed as usize % 3];
            m = run(&rig, m, seed, 80, [Rule::new(fault).op(Op::Read).chance(500, seed)]);
            rig.faulty.set([]);
            let failed = rig.faulty.failed();
            if rig.why_stopped().is_none() {
                rig.vfs.sync().unwrap();
                m.promise_all();
                m.check(&rig.vfs, &name);
            }
            for (i, image) in rig.images().into_iter().enumerate() {
                let what = format!("{name}, cut {i}");
                reopen(image, i == 1, &what, |v| m.check(v, &what));
            }
            failed
        });
    }
    assert!(failed > 20 || std::env::var_os("TIDEGATE_CASE").is_some(), "{failed} reads failed");
}

/// One page cannot be read: its reader gets the error each time, others do not, and later the page can be
/// read.
#[test]
fn a_failed_read_leaves_nothing_behind() {
    let memory = {
        let rig = FailingVolume::new(64, "");
        let f = rig.file("/f");
        (0..600).for_each(|p| _ = f.write_at(p * PAGE as u64, &page(7, p, 1)).unwrap());
        drop(f);
        rig.vfs.unmount().unwrap();
        rig.memory.clone()
    };
    for fault in [Fault::Fail(Errno::IO), Fault::Short(100 * 512, Errno::IO)] {
        let rig = FailingVolume::open(memory.clone(), MemoryLimits::default(), "");
        let f = rig.file("/f");
        read_page(&f, 0).unwrap();
        rig.faulty.set([Rule::new(fault).op(Op::Read).which(0..2)]);
        for _ in 0..2 {
            assert_eq!(read_page(&f, 500).unwrap_err().kind(), ErrorKind::Io);
        }
        assert!(rig.why_stopped().is_none());
        assert_eq!(read_page(&f, 500).unwrap(), page(7, 500, 1));
        f.fsync(false).unwrap();
    }
}

/// A write needs a page or a node that cannot be read: the file is unchanged.
#[test]
fn a_write_that_breaks_off_leaves_the_file_as_it_was() {
    const END: usize = 3 * PAGE + 100;
    let memory = {
        let rig = FailingVolume::new(64, "");
        (0..4000).for_each(|p| _ = rig.file("/big").write_at(p * PAGE as u64, &page(8, p, 1)).unwrap());
        rig.file("/f").write_at(0, &[7; END]).unwrap();
        rig.vfs.unmount().unwrap();
        rig.memory.clone()
    };
    let whole = |v: &Arc<Vfs>| {
        let f = v.open_path(ROOT, b"/f", OpenFlags::READ, 0).unwrap();
        let mut bytes = vec![0; 100 * PAGE];
        let n = f.read_at(0, &mut bytes).unwrap();
        bytes.truncate(n);
        bytes
    };
    for (what, pos, len) in
        [("end", END, 10), ("middle", 5000, 100), ("gap", END + 50_000, 100), ("both", 8000, 9000)]
    {
        let mut failed = 0;
        for k in 0.. {
            let rig = FailingVolume::open(Arc::new(memory.copy()), TIGHT, "");
            let f = rig.file("/f");
            // The places of the file's blocks are known, but neither the blocks nor the inode are in memory.
            assert!(whole(&rig.vfs) == [7; END]);
            rig.vfs.sync().unwrap();
            push_out(&rig.vfs);
            f.inode().mapping.reclaim(false);
            rig.faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).which(k..u64::MAX)]);
            let wrote = f.write_at(pos as u64, &vec![9; len]);
            rig.faulty.set([]);
            if wrote.is_ok() {
                break;
            }
            failed += 1;
            assert!(rig.why_stopped().is_none(), "{what}, read {k}");
            assert!(whole(&rig.vfs) == [7; END], "{what}, read {k}");
            rig.vfs.sync().unwrap();
            for image in rig.images() {
                reopen(image, true, what, |v| assert!(whole(v) == [7; END], "{what}, read {k}"));
            }
        }
        assert!(failed > 0, "{what}");
    }
}

/// When roll-forward fails for a reason that may pass, repair must not give up what it would recover.
#[test]
fn repair_gives_up_no_file_for_a_read_that_fails() {
    let rig = FailingVolume::new(64, "");
    rig.file("/first").fsync(false).unwrap();
    let f = rig.file("/f");
    f.write_at(0, &page(7, 0, 1)).unwrap();
    f.fsync(false).unwrap();
    drop(f);
    let memory = Arc::new(rig.memory.copy());
    rig.vfs.unmount().unwrap();
    let faulty = Faulty::new(memory.clone(), []);
    let queue = Arc::new(RequestQueue::new(faulty.clone(), QueueLimits::default()));
    let sb = load_superblock(&queue).unwrap();
    let cp = load_checkpoint(&queue, &sb).unwrap();
    let (segno, off) = (cp.raw.cur_node_segno[1].get(), cp.raw.cur_node_blkoff[1].get());
    let chain = u64::from(sb.main_blkaddr + segno * BLOCKS_PER_SEG + u32::from(off)) * PAGE as u64;
    let contents = || {
        let mut all = vec![0; memory.size() as usize];
        memory.read_at(0, &mut all);
        all
    };
    let before = contents();
    // The check reads the block, too, but does not read on from there.
    let rule = Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).when(move |rq| rq.sector.bytes() == chain);
    faulty.set([rule]);
    let e = repair(&queue, RepairOptions::default(), &mut |_| ()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Io, "{e}");
    assert!(e.places().any(|at| *at == At::Block(chain / PAGE as u64)), "{e}");
    assert!(contents() == before, "something was written");
    faulty.set([]);
    repair(&queue, RepairOptions::default(), &mut |_| ()).unwrap();
    let up = FailingVolume::open(memory, MemoryLimits::default(), "");
    assert_eq!(up.file("/f").size(), PAGE as u64);
    up.vfs.unmount().unwrap();
}
