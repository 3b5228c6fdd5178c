use crate::durable::checkpoint::CpReason;
use crate::offline::check::{CheckOptions, check};
use crate::segment::log::Log;
use crate::testing::{Open, new_volume};
use tidegate_block::{Errno, Fault, Op, QueueLimits, RequestQueue, Rule};
use tidegate_vfs::{Cred, FallocateFlags, OpenFlags};

const PAGE: u64 = 4096;

/// A volume that has segments with holes, and whose metadata is not in memory.
fn with_holes(pages: usize) -> Open {
    let open = new_volume();
    let v = &open.vfs;
    let f = v.open_path(&Cred::ROOT, b"/f", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    f.write_at(0, &vec![7; pages << 12]).unwrap();
    v.sync().unwrap();
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    // Some pages get more holes than others, so that one segment is the best.
    (0..500).for_each(|n| f.fallocate(holes, n * 2 * PAGE, PAGE).unwrap());
    (250..500).for_each(|n| f.fallocate(holes, n * 4 * PAGE, PAGE).unwrap());
    v.sync().unwrap();
    open.fs.meta.inode.mapping.remove(0, u64::MAX);
    open
}

/// The segment with the most holes cannot be read: logs take other segments instead, and do not try it again.
#[test]
fn a_segment_that_cannot_be_read_is_passed_over_until_a_checkpoint() {
    let open = with_holes(2000);
    let fs = &open.fs;
    let log = Log::WarmData.into();
    let best = fs.sit.hold_victim(log).unwrap().unwrap();
    fs.sit.release_victim(best);
    let at = u64::from(fs.sb.ssa_blkaddr + best.0) * PAGE;
    open.device.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(at..at + PAGE)]);
    {
        let mut c = fs.cursegs.lock(log);
        for _ in 0..2 {
            assert!(fs.fill_holes(&mut c, log).unwrap());
            assert_ne!(c.segno, best);
        }
    }
    assert_eq!(open.device.failed(), 1);
    open.device.set([]);
    fs.checkpoint_for(CpReason::Force).unwrap();
    let again = fs.sit.hold_victim(log).unwrap().unwrap();
    fs.sit.release_victim(again);
    assert_eq!(again, best);
    open.vfs.unmount().unwrap();
}

/// No segment with holes can be read, and other segments are free.
#[test]
fn a_log_goes_to_a_free_segment_where_holes_cannot_be_read() {
    let open = with_holes(4000);
    let fs = &open.fs;
    let ssa = u64::from(fs.sb.ssa_blkaddr) * PAGE..u64::from(fs.sb.main_blkaddr) * PAGE;
    while fs.sit.free_segments().free > fs.ssr_threshold() {
        fs.leave_segment(Log::ColdData).unwrap();
    }
    open.device.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(ssa)]);
    let free = fs.sit.free_segments().free;
    assert!((1..=fs.ssr_threshold()).contains(&free), "{free}");
    fs.leave_segment(Log::WarmData).unwrap();
    assert!(open.device.failed() > 0);
    assert_eq!(fs.sit.free_segments().free, free - 1);
    open.device.set([]);
    open.vfs.unmount().unwrap();
}

/// A log that cannot read the owners in a segment with holes stays where it is, also in the SIT: otherwise
/// another log would take the segment that it is in.
#[test]
fn a_log_whose_victim_cannot_be_read_stays_where_it_is() {
    let open = new_volume();
    let (fs, v) = (&open.fs, &open.vfs);
    let f = v.open_path(&Cred::ROOT, b"/f", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).unwrap();
    f.write_at(0, &vec![7; 1000 << 12]).unwrap();
    v.sync().unwrap();
    let holes = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    (0..500).for_each(|n| f.fallocate(holes, n * 2 * PAGE, PAGE).unwrap());
    v.sync().unwrap();
    fs.meta.inode.mapping.remove(0, u64::MAX);
    let ssa = u64::from(fs.sb.ssa_blkaddr) * PAGE..u64::from(fs.sb.main_blkaddr) * PAGE;
    open.device.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Read).within(ssa)]);
    {
        let log = Log::WarmData.into();
        let mut c = fs.cursegs.lock(log);
        let (segno, at) = (c.segno, c.next_blkoff);
        assert!(fs.fill_holes(&mut c, log).unwrap_err().errno().is_some());
        assert_eq!((c.segno, c.next_blkoff), (segno, at));
        assert!(fs.sit.with(|s| s.is_current(segno.0)));
    }
    open.device.set([]);
    fs.checkpoint_for(CpReason::Force).unwrap();
    {
        let log = Log::WarmData.into();
        let mut c = fs.cursegs.lock(log);
        let segno = c.segno;
        assert!(fs.fill_holes(&mut c, log).unwrap());
        assert!(fs.sit.with(|s| s.is_current(c.segno.0) && !s.is_current(segno.0)));
    }
    f.write_at(1000 * PAGE, &vec![8; 400 << 12]).unwrap();
    drop(f);
    v.unmount().unwrap();
    let queue = RequestQueue::new(open.device.clone(), QueueLimits::default());
    let report = check(&queue, CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
}
