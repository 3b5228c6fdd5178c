use crate::offline::check::{CheckOptions, check};
use crate::segment::log::Log;
use crate::testing::new_volume;
use tidegate_block::{Errno, Fault, Op, QueueLimits, RequestQueue, Rule};
use tidegate_vfs::{Cred, FallocateFlags, OpenFlags};

const PAGE: u64 = 4096;

/// A log that cannot learn what is in a segment with holes stays where it is, for the SIT as for itself: others would
/// take the segment that it is in.
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
        open.device.set([]);
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
