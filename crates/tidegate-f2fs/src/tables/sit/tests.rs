use super::Sit;
use crate::format::raw::BLOCKS_PER_SEG;
use crate::format::units::SegNo;
use crate::offline::mkfs::MkfsOptions;
use crate::segment::log::{Log, LogId};
use crate::testing::{Open, fill_segments, new_volume, new_volume_of, new_volume_on_zones_of};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_vfs::{Error, ErrorKind};

/// When segments are short, a log fills holes of a segment that the chain leads to for a file of another log.
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
    // A block in an empty segment gives the segment its log type.
    let free = (0..sit.main_segments).rev().find(|n| !sit.with(|s| s.is_current(*n))).unwrap();
    let first = sit.segment_start(SegNo(free));
    for (i, log) in [Log::HotData, Log::ColdData].into_iter().enumerate() {
        sit.claim(first.plus(i as u32), log).unwrap();
        assert_eq!(sit.get(SegNo(free)).unwrap().log, Log::HotData);
    }
}

fn stream(stream: u8) -> LogId {
    LogId { kind: Log::WarmData, stream }
}

/// Sections of four segments.
fn sectioned() -> Open {
    new_volume_of(256 << 20, &MkfsOptions { segs_per_sec: 4, ..Default::default() })
}

#[test]
fn a_stream_has_a_section_to_itself_and_goes_on_there() {
    let open = sectioned();
    let sit = &open.fs.sit;
    let take = |n| sit.take_free_segment(stream(n), true).unwrap().unwrap().0;
    let (one, two) = (take(1), take(2));
    let logs: Vec<u32> = sit.with(|s| s.current[..6].to_vec());
    assert!(logs.iter().all(|n| ![one / 4, two / 4].contains(&(n / 4))) && one / 4 != two / 4);
    assert_eq!((one % 4, two % 4), (0, 0));
    assert_eq!((take(1), take(2)), (one + 1, two + 1));
    // A stream that was closed goes on in its section; other streams begin elsewhere.
    sit.close(stream(1)).unwrap();
    assert!(![one / 4, two / 4].contains(&(take(3) / 4)));
    assert_eq!(sit.take_free_segment(stream(1), false).unwrap(), Some(SegNo(one + 2)));
    assert_eq!((take(1), take(1) / 4 == one / 4), (one + 3, false));
    assert_eq!(sit.take_free_segment(stream(4), false).unwrap(), None);
}

#[test]
fn a_stream_leaves_its_section_to_a_log_that_got_in_there() {
    let open = sectioned();
    let sit = &open.fs.sit;
    let take = |n| sit.take_free_segment(stream(n), true).unwrap().unwrap().0;
    let one = take(1);
    sit.close(stream(1)).unwrap();
    // The free segments are fragmented: no section is whole, and the first free segment is the next one of
    // stream 1's section.
    let free = |n: &u32| sit.with(|s| !s.is_current(*n)) && sit.get(SegNo(*n)).unwrap().valid == 0;
    for first in (0..sit.main_segments).step_by(4).filter(|n| n / 4 != one / 4) {
        (first..first + 4).filter(free).for_each(|n| {
            sit.claim(sit.segment_start(SegNo(n)), Log::WarmData).unwrap();
        });
    }
    assert_eq!(take(2), one + 1);
    assert_eq!(sit.take_free_segment(stream(1), false).unwrap(), None);
    assert_eq!(take(1) / 4, one / 4, "a segment rather than none");
}

#[test]
fn without_a_whole_section_a_stream_takes_a_segment() {
    let open = sectioned();
    let (fs, sit) = (&open.fs, &open.fs.sit);
    let last = (0..sit.main_segments).rev().step_by(4);
    let idle = |n: &u32| sit.with(|s| !(n - 3..=*n).any(|n| s.is_current(n)));
    let used: Vec<u32> = last.filter(idle).collect();
    for n in &used {
        sit.claim(sit.segment_start(SegNo(*n)), Log::ColdData).unwrap();
    }
    let n = sit.take_free_segment(stream(1), true).unwrap().unwrap().0;
    assert!(used.contains(&(n / 4 * 4 + 3)), "{n}");
    // Segments of whole sections are counted only for streams.
    assert!(fs.streams_to_spare().unwrap() > 0);
}

#[test]
fn a_log_keeps_its_segment_where_the_sit_cannot_be_read() {
    let open = new_volume();
    let (fs, fails) = (open.fs.clone(), Arc::new(AtomicBool::new(false)));
    let cp = fs.ckpt.lock().cp.clone();
    let (reader, failing) = (fs.clone(), fails.clone());
    let read = move |at| match failing.load(SeqCst) {
        true => Err(Error::new(ErrorKind::Io, "as the test wants it")),
        false => reader.meta.read(at),
    };
    let sit = Sit::new(&fs.sb, &cp, BTreeMap::new(), Arc::new(read), true, None);
    let segno = sit.take_free_segment(stream(1), true).unwrap().unwrap();
    let free = sit.free_segments();
    for again in [false, true] {
        sit.state.lock().blocks.clear();
        fails.store(!again, SeqCst);
        assert_eq!(sit.close(stream(1)).is_ok(), again);
        assert_eq!(sit.with(|s| s.is_current(segno.0)), !again);
        assert_eq!(sit.free_segments().after(), free.after() + u32::from(again));
    }
}

/// More segments than one hold of the lock looks at lie in front of the segment with room, and all others are
/// full.
#[test]
fn holes_are_found_wherever_they_are() {
    let open = new_volume_of(20 << 30, &MkfsOptions::default());
    let (fs, sit) = (&open.fs, &open.fs.sit);
    fill_segments(fs, |_| true);
    let holes: Vec<_> = (0..9).map(|n| sit.segment_start(SegNo(9000)).plus(n * 2)).collect();
    sit.invalidate(&holes).unwrap();
    let log = stream(0);
    // The freed blocks are holes only after a checkpoint.
    assert_eq!(sit.hold_victim(log).unwrap(), None);
    sit.checkpointed().unwrap();
    assert_eq!(sit.hold_victim(Log::WarmNode.into()).unwrap(), None);
    assert_eq!(sit.hold_victim(log).unwrap(), Some(SegNo(9000)));
    assert_eq!(sit.hold_victim(log).unwrap(), None, "it is held");
    sit.release_victim(SegNo(9000));
    assert_eq!(sit.hold_victim(log).unwrap(), Some(SegNo(9000)));
    sit.release_victim(SegNo(9000));
    // Full segments are passed over many at a time.
    let settled = sit.with(|s| (0..9000).filter(|n| s.stale.settled_from(*n) > 0).count());
    assert!(settled >= 8990, "{settled}");
    sit.invalidate(&[sit.segment_start(SegNo(100))]).unwrap();
    sit.checkpointed().unwrap();
    sit.pass_over_victim(SegNo(9000));
    assert_eq!(sit.hold_victim(log).unwrap(), Some(SegNo(100)));
}

/// Half of a zone can be written, and all of a section that is not in a zone.
#[test]
fn a_section_that_can_be_written_anywhere_counts_as_one() {
    let (open, _) = new_volume_on_zones_of(12, 2 << 20);
    let (fs, sit) = (&open.fs, &open.fs.sit);
    // Nothing was written to the section.
    let free = fs.cursegs.lock(Log::WarmNode).segno.0 / sit.segs_per_sec;
    assert!(!sit.zones.as_ref().unwrap().is_sequential(free));
    fs.leave_segment(Log::WarmNode).unwrap();
    fs.checkpoint(false).unwrap();
    fill_segments(fs, |n| n / sit.segs_per_sec != free);
    assert_eq!(sit.free_segments().free, sit.segments_of_section());
}
