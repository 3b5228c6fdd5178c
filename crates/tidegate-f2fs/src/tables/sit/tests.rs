use crate::format::raw::BLOCKS_PER_SEG;
use crate::segment::log::Log;
use crate::testing::new_volume;

/// Where segments are short, a log fills holes of one that the chain of another log's file leads to.
#[test]
fn a_block_that_is_claimed_leaves_its_segment_to_the_log_in_it() {
    let open = new_volume();
    let (fs, sit) = (&open.fs, &open.fs.sit);
    let (segno, last) = {
        let c = fs.cursegs.lock(Log::WarmData);
        (c.segno, sit.segment_start(c.segno).plus(BLOCKS_PER_SEG - 1))
    };
    sit.claim(last, Log::HotData).unwrap();
    assert_eq!(sit.get(segno).unwrap().log, Log::WarmData);
    // One in a segment that is empty takes it.
    let free = (0..sit.main_segments).rev().find(|n| !sit.with(|s| s.is_current(*n))).unwrap();
    let first = sit.segment_start(crate::format::units::SegNo(free));
    for (i, log) in [Log::HotData, Log::ColdData].into_iter().enumerate() {
        sit.claim(first.plus(i as u32), log).unwrap();
        assert_eq!(sit.get(crate::format::units::SegNo(free)).unwrap().log, Log::HotData);
    }
}
