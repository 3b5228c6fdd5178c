use crate::format::raw::RawSummary;
use crate::format::units::SegNo;
use crate::segment::log::{Log, LogId};
use crate::segment::policy::Reserve;
use crate::testing::new_volume;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_vfs::VolumeOps;
use zerocopy::FromZeros;

/// Cleaning is short of segments before any log asks for one, and led nowhere the last time.
#[test]
fn cleaning_closes_streams_and_tries_anew() {
    let open = new_volume();
    let fs = &open.fs;
    VolumeOps::remount(&**fs, "warm_streams=2").unwrap();
    let stream = LogId { kind: Log::WarmData, stream: 1 };
    {
        let _op = fs.cp_rwsem.read();
        fs.allocate_extents(stream, Reserve::Data, 1, |_| RawSummary::new_zeroed()).unwrap();
    }
    assert!(fs.cursegs.open_streams().eq([stream]));
    let free: Vec<u32> = (0..fs.sb.main_segments).filter(|n| !fs.sit.with(|s| s.is_current(*n))).collect();
    for segno in free {
        if fs.is_short(0) {
            break;
        }
        fs.sit.claim(fs.sit.segment_start(SegNo(segno)), Log::WarmData).unwrap();
    }
    let mut victims = fs.gc.lock.lock();
    victims.futile = Some(fs.prospects());
    drop(victims);
    fs.make_room().unwrap();
    assert_eq!(fs.cursegs.open_streams().count(), 0);
    assert_eq!(fs.stats.gc_foreground.load(Relaxed), 1);
}
