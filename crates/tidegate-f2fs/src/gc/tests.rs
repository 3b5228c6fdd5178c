use super::victim::{Policy, Victims};
use crate::format::raw::RawSummary;
use crate::format::units::SegNo;
use crate::offline::mkfs::MkfsOptions;
use crate::segment::log::{Log, LogId};
use crate::segment::policy::Reserve;
use crate::testing::{fill_segments, new_volume, new_volume_of, new_volume_on_zones};

use std::sync::atomic::Ordering::Relaxed;
use tidegate_rt::rng::Rng;
use tidegate_vfs::{Cred, OpenFlags, VolumeOps};
use zerocopy::FromZeros;

/// Cleaning is short of segments before any log asks for one, and it gained nothing the last time.
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

/// More segments than one hold of the lock looks at lie in front of the segment with stale blocks.
#[test]
fn a_section_is_found_behind_many_that_are_full() {
    let open = new_volume_of(20 << 30, &MkfsOptions::default());
    let (fs, sit) = (&open.fs, &open.fs.sit);
    fill_segments(fs, |_| true);
    let mut victims = Victims::default();
    let mut pick = |policy| {
        let found = victims.pick(sit, policy).unwrap();
        found.iter().for_each(|s| sit.release(s));
        found.map(|s| s.start)
    };
    assert_eq!(pick(Policy::Greedy), None);
    let stale = |segno, n: std::ops::Range<u32>| {
        let blocks: Vec<_> = n.map(|n| sit.segment_start(SegNo(segno)).plus(n)).collect();
        sit.invalidate(&blocks).unwrap();
    };
    // The section is worth cleaning where a thread waits, but not in the background.
    stale(9000, 0..10);
    assert_eq!(pick(Policy::Greedy), Some(9000));
    assert_eq!(pick(Policy::CostBenefit), None);
    // The search is repeated only once enough blocks were freed since.
    stale(9000, 10..300);
    assert_eq!(pick(Policy::CostBenefit), None);
    stale(2000, 0..250);
    assert!([Some(9000), Some(2000)].contains(&pick(Policy::CostBenefit)));
}

/// Half of the volume is files that do not change, and a search looks at few sections at a time.
#[test]
fn overwrites_find_room_behind_sections_that_stay_as_they_are() {
    let (open, device) = new_volume_on_zones(12);
    let (fs, v) = (&open.fs, &open.vfs);
    fs.gc.lock.lock().scan = (2, 1);
    let how = OpenFlags::READ | OpenFlags::WRITE | OpenFlags::CREATE;
    let create = |name: &[u8], pages: u64| {
        let f = v.open_path(&Cred::ROOT, name, how, 0o644).unwrap();
        f.write_at(0, &vec![1; (pages as usize) << 12]).unwrap();
        f.fsync(false).unwrap();
        f
    };
    let pages = v.statfs().blocks_available;
    drop(create(b"/stays", pages / 2));
    let moving = pages * 3 / 10;
    let f = create(b"/moves", moving);
    let mut rng = Rng::new(7);
    for n in 0..8 * moving {
        f.write_at(rng.below(moving) << 12, &[n as u8; 4096]).unwrap();
        if n % 100 == 0 {
            f.fsync(false).unwrap_or_else(|e| panic!("write {n} of {moving} pages: {e}"));
        }
    }
    drop(f);
    v.unmount().unwrap();
    assert_eq!((device.refused(), fs.queue_stats().zone_refused), (0, 0));
}
