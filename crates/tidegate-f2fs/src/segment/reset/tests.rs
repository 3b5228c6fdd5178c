//! Zones whose reset or finish fails.

use crate::format::units::SegNo;
use crate::segment::log::{Log, LogId};
use crate::testing::{Open, fill_segments, hold::a_while, new_volume_on_zones};
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{Device, Errno, Fault, Op, Rule, ZoneState, ZonedDevice};
use tidegate_rt::thread;
use tidegate_vfs::{Cred, OpenFlags};

/// Makes the log of file data leave its section, and returns the section.
fn leave(open: &Open) -> u32 {
    let fs = &open.fs;
    let section = fs.cursegs.lock(Log::WarmData).segno.0 / fs.sb.segs_per_sec;
    fs.leave_segment(Log::WarmData).unwrap();
    section
}

/// The state of a section's zone.
fn state(open: &Open, device: &Arc<ZonedDevice>, section: u32) -> ZoneState {
    let start = open.fs.sit.segment_start(SegNo(section * open.fs.sb.segs_per_sec)).sector().bytes();
    device.report_zones().unwrap().iter().find(|z| z.start == start).unwrap().state
}

fn write(open: &Open) {
    let how = OpenFlags::WRITE | OpenFlags::CREATE;
    let f = open.vfs.open_path(&Cred::ROOT, b"/f", how, 0o644).unwrap();
    f.write_at(0, &vec![7; 100 << 12]).unwrap();
    open.vfs.sync().unwrap();
}

/// A log was in the zone when the volume was opened, and had written nothing there.
#[test]
fn a_zone_is_reset_that_a_log_began_in() {
    let (open, device) = new_volume_on_zones(12);
    let section = open.fs.cursegs.lock(Log::WarmData).segno.0 / open.fs.sb.segs_per_sec;
    assert_eq!(state(&open, &device, section), ZoneState::Empty);
    write(&open);
    assert_eq!(leave(&open), section);
    open.vfs.unlink(&Cred::ROOT, &open.vfs.root().unwrap(), b"f").unwrap();
    assert!(state(&open, &device, section).is_active());
    open.vfs.sync().unwrap();
    assert_eq!(state(&open, &device, section), ZoneState::Empty);
    open.vfs.unmount().unwrap();
}

/// The zone counts as active until it is finished.
#[test]
fn a_zone_that_cannot_be_reset_is_finished() {
    let (open, device) = new_volume_on_zones(12);
    write(&open);
    let section = leave(&open);
    open.vfs.unlink(&Cred::ROOT, &open.vfs.root().unwrap(), b"f").unwrap();
    assert!(state(&open, &device, section).is_active());
    open.device.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::ZoneReset)]);
    open.vfs.sync().unwrap();
    assert_eq!(state(&open, &device, section), ZoneState::Full);
    assert_eq!(open.fs.sit.unfinished(), 0);
    open.device.set([]);
    open.fs.reset_zones();
    assert_eq!(state(&open, &device, section), ZoneState::Empty);
    open.vfs.unmount().unwrap();
}

/// A stream has gone to a zone and left it without a write, and the device has no room to finish an empty
/// zone.
#[test]
fn an_empty_zone_that_the_device_does_not_finish_is_done_with() {
    let (open, device) = new_volume_on_zones(12);
    let fs = &open.fs;
    write(&open);
    let log = LogId { kind: Log::WarmData, stream: 1 };
    let section = {
        let mut c = fs.cursegs.lock(log);
        fs.next_of_stream(&mut c, log).unwrap();
        let section = c.segno.0 / fs.sb.segs_per_sec;
        fs.close_stream(&mut c, log).unwrap();
        section
    };
    assert_eq!(state(&open, &device, section), ZoneState::Empty);
    assert_eq!(fs.sit.unfinished(), 1);
    open.device.set([Rule::new(Fault::Fail(Errno::OVERFLOW)).op(Op::ZoneFinish)]);
    fs.finish_zones(true);
    assert_eq!((open.device.failed(), fs.sit.unfinished()), (1, 0));
    open.vfs.unmount().unwrap();
}

/// Another thread is finishing zones. A checkpoint frees the only section that is left; the checkpoint's
/// thread is to reset the section's zone.
#[test]
fn a_log_waits_for_a_zone_that_is_to_be_reset() {
    let (open, device) = new_volume_on_zones(12);
    write(&open);
    let section = leave(&open);
    let fs = &open.fs;
    open.vfs.unlink(&Cred::ROOT, &open.vfs.root().unwrap(), b"f").unwrap();
    fill_segments(fs, |n| n / fs.sb.segs_per_sec != section);
    assert_eq!(fs.sit.free_segments().free, 0);
    let finishing = fs.zone_mgmt.lock();
    let theirs = fs.clone();
    let checkpoint = thread::spawn("checkpoint", move || theirs.checkpoint(false).unwrap()).unwrap();
    while fs.sit.with(|s| s.free().prefree) > 0 {
        thread::sleep(Duration::from_millis(1));
    }
    let theirs = fs.clone();
    let log = thread::spawn("log", move || theirs.leave_segment(Log::WarmData)).unwrap();
    a_while();
    drop(finishing);
    log.join().unwrap();
    checkpoint.join();
    assert_eq!(fs.cursegs.lock(Log::WarmData).segno.0 / fs.sb.segs_per_sec, section);
    assert_eq!(device.refused(), 0);
}
