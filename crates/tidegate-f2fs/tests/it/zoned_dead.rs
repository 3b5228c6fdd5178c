//! Volumes with dead zones: read-only or offline.

use crate::common::zoned::{self, Bed, MIB, ROOT, content, file};
use std::collections::BTreeSet;
use std::sync::Arc;
use tidegate_block::{
    Device, DeviceInfo, Errno, QueueLimits, Request, RequestQueue, Zone, ZoneSpec, ZoneState, ZonedDevice,
};
use tidegate_f2fs::check::{CheckOptions, CheckReport, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::repair::{Outcome, RepairOptions, RepairReport, repair};
use tidegate_vfs::*;

const SIZE: usize = 1 << 20;
const FILES: u64 = 20;

/// Zones behind 20 MiB for the metadata: the whole main area is written in order.
fn spec() -> ZoneSpec {
    ZoneSpec { conventional: 5, ..zoned::spec(4 * MIB) }
}

fn name(n: u64) -> String {
    format!("/f{n}")
}

fn write(v: &Arc<Vfs>, n: u64, fsync: bool) {
    let f = file(v, &name(n));
    f.write_at(0, &content(n, SIZE)).unwrap();
    if fsync {
        f.fsync(false).unwrap();
    }
}

/// A volume with files that lie in several zones, and room behind them.
fn filled() -> Bed {
    let bed = Bed::new(spec(), 160);
    let (_, v) = bed.mount("");
    (0..FILES).for_each(|n| write(&v, n, false));
    v.unmount().unwrap();
    bed
}

/// The numbers of the zones that were written to.
fn written(d: &ZonedDevice) -> Vec<usize> {
    let all = d.report_zones().unwrap();
    (0..all.len()).filter(|n| all[*n].is_sequential() && all[*n].pointer > all[*n].start).collect()
}

/// The unchanged files among the first `files`; reads of the others must fail with an I/O error.
fn intact(v: &Arc<Vfs>, files: u64) -> BTreeSet<u64> {
    let is_intact = |n: &u64| {
        let mut bytes = vec![0; SIZE];
        let f = v.open_path(ROOT, name(*n).as_bytes(), OpenFlags::READ, 0);
        match f.and_then(|f| f.read_at(0, &mut bytes)) {
            Ok(_) => {
                assert!(bytes == content(*n, SIZE), "file {n}");
                true
            }
            Err(e) => {
                assert_eq!(e.errno(), Some(Errno::IO), "file {n}: {e}");
                false
            }
        }
    };
    (0..files).filter(is_intact).collect()
}

fn queue(bed: &Bed) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(bed.device.clone(), QueueLimits::default()))
}

fn checked(bed: &Bed) -> CheckReport {
    let report = check(&queue(bed), CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    report
}

fn repaired(bed: &Bed) -> RepairReport {
    repair(&queue(bed), RepairOptions::default(), &mut |_| {}).unwrap()
}

/// Mounts the volume, which must be read-only because of the zone, and returns the intact files.
fn read(bed: &Bed, zone: usize, state: &str, files: u64) -> (BTreeSet<u64>, bool) {
    let (fs, v) = bed.mount("");
    let (why, unseen) = match FileSystem::read_only(&*fs) {
        Some(ReadOnly::Without(why, Unseen::Fsynced)) => (*why, true),
        why => (why.unwrap(), false),
    };
    let sector = zone as u64 * 4 * MIB / 512;
    assert_eq!(why, ReadOnly::Zones(format!("the zone at sector {sector:#x} is {state}")));
    let e = v.open_path(ROOT, b"/new", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).err().unwrap();
    assert_eq!(e.kind(), ErrorKind::ReadOnly);
    let found = intact(&v, files);
    v.unmount().unwrap();
    assert_eq!(bed.device.refused(), 0);
    (found, unseen)
}

#[test]
fn a_volume_with_a_read_only_zone_is_read() {
    let whole = filled();
    let zones = written(&whole.device);
    assert!(zones.len() >= 6, "{zones:?}");
    for zone in zones {
        let bed = whole.copy();
        bed.device.give_up(zone, ZoneState::ReadOnly);
        assert_eq!(read(&bed, zone, "read-only", FILES), ((0..FILES).collect(), false));
        let report = checked(&bed);
        assert!(report.notes[0].ends_with("is read-only: the volume opens read-only"), "{:?}", report.notes);
        assert_eq!(repaired(&bed).outcome, Outcome::Clean);
        assert_eq!(bed.device.refused(), 0);
    }
}

#[test]
fn the_rest_of_a_volume_with_an_offline_zone_is_read() {
    let whole = filled();
    let (mut lost, mut unreadable) = (BTreeSet::new(), 0);
    for zone in written(&whole.device) {
        let bed = whole.copy();
        bed.device.give_up(zone, ZoneState::Offline);
        let why = format!("the zone at sector {:#x} is offline", zone as u64 * 4 * MIB / 512);
        match check(&queue(&bed), CheckOptions::default()) {
            Ok(report) => {
                assert!(report.is_clean(), "{:?}", report.problems);
                let (found, unseen) = read(&bed, zone, "offline", FILES);
                assert!(!unseen);
                let gone: BTreeSet<u64> = (0..FILES).filter(|n| !found.contains(n)).collect();
                assert_eq!(report.notes[0], format!("{why}: the volume opens read-only"));
                assert_eq!(report.notes.len(), 1 + usize::from(!gone.is_empty()), "{:?}", report.notes);
                lost.extend(gone);
                assert_eq!(repaired(&bed).outcome, Outcome::Clean);
            }
            // The zone has the root, or its names, or inodes.
            Err(e) => {
                unreadable += 1;
                assert_eq!((e.errno(), e.to_string().starts_with(&why)), (Some(Errno::IO), true), "{e}");
                let e = repair(&queue(&bed), RepairOptions::default(), &mut |_| {}).unwrap_err();
                assert!(e.to_string().starts_with(&why), "{e}");
            }
        }
        assert_eq!(bed.device.refused(), 0);
    }
    assert!(lost.len() >= 15, "{lost:?}");
    assert_eq!(unreadable, 3);
}

/// The volume after a power cut that loses nothing: all files are there; some of them were fsynced after the
/// last checkpoint.
fn cut(whole: &Bed, files: std::ops::Range<u64>) -> Bed {
    let (_, v) = whole.mount("");
    files.for_each(|n| write(&v, n, true));
    let cut = whole.copy();
    v.unmount().unwrap();
    cut
}

/// The files are recovered in memory, as on any read-only volume. A repair writes them, but not to the dead
/// zone.
#[test]
fn fsynced_files_come_back_beside_a_read_only_zone() {
    let all: BTreeSet<u64> = (0..FILES + 8).collect();
    let whole = cut(&filled(), FILES..FILES + 8);
    for zone in written(&whole.device) {
        let bed = whole.copy();
        bed.device.give_up(zone, ZoneState::ReadOnly);
        assert_eq!(read(&bed, zone, "read-only", FILES + 8), (all.clone(), false));
        repaired(&bed);
        assert_eq!(bed.device.refused(), 0, "zone {zone}");
        assert!(!checked(&bed).unclean);
        assert_eq!(read(&bed, zone, "read-only", FILES + 8), (all.clone(), false), "zone {zone}");
    }
}

/// Only fsynced nodes know of the files. Their zone is lost, and the reason says so.
#[test]
fn a_volume_opens_without_files_that_an_offline_zone_had() {
    let empty = Bed::new(spec(), 160);
    let (_, v) = empty.mount("");
    // The first fsync of a mount makes a checkpoint.
    write(&v, 0, true);
    v.unlink(ROOT, &v.root().unwrap(), b"f0").unwrap();
    v.sync().unwrap();
    (0..8).for_each(|n| write(&v, n, true));
    let whole = empty.copy();
    v.unmount().unwrap();
    let mut without = 0;
    for zone in written(&whole.device) {
        let bed = whole.copy();
        bed.device.give_up(zone, ZoneState::Offline);
        if check(&queue(&bed), CheckOptions::default()).is_err() {
            // The root or its names were in the zone.
            continue;
        }
        let (fs, v) = bed.mount("");
        let unseen = matches!(FileSystem::read_only(&*fs), Some(ReadOnly::Without(_, Unseen::Fsynced)));
        let found = v.open_path(ROOT, name(0).as_bytes(), OpenFlags::READ, 0);
        assert_eq!(found.err().map(|e| e.kind()), unseen.then_some(ErrorKind::NotFound), "zone {zone}");
        v.unmount().unwrap();
        without += usize::from(unseen);
        repaired(&bed);
        assert!(!checked(&bed).unclean);
        assert_eq!(bed.device.refused(), 0, "zone {zone}");
    }
    assert_eq!(without, 1);
}

/// Zones of which one that can be written anywhere lies behind the others.
struct Late(Arc<ZonedDevice>);

impl Device for Late {
    fn info(&self) -> DeviceInfo<'_> {
        self.0.info()
    }
    fn report_zones(&self) -> std::result::Result<Vec<Zone>, Errno> {
        let mut all = self.0.report_zones()?;
        if let Some(last) = all.last_mut() {
            *last = Zone::conventional(last.start, last.len);
        }
        Ok(all)
    }
    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        self.0.execute(rq)
    }
}

/// mkfs makes no volume on such zones, and the old volume stays.
#[test]
fn mkfs_looks_at_the_zones_before_it_writes() {
    let attempt = |device: Arc<dyn Device>| {
        let queue = RequestQueue::new(device, QueueLimits::default());
        let options = MkfsOptions { features: Features::BLKZONED, ..Default::default() };
        mkfs(&queue, &options).unwrap_err().to_string()
    };
    for (state, said) in [(ZoneState::ReadOnly, "read-only"), (ZoneState::Offline, "offline")] {
        let bed = filled();
        let last = bed.device.report_zones().unwrap().len() - 1;
        bed.device.give_up(last, state);
        let e = attempt(bed.device.clone());
        let place = format!("the zone at sector {:#x} is {said}", last as u64 * 4 * MIB / 512);
        assert!(e.starts_with(&place), "{e}");
        assert_eq!(read(&bed, last, said, FILES).0.len() as u64, FILES);
    }
    let bed = filled();
    let e = attempt(Arc::new(Late(bed.device.clone())));
    assert!(e.contains("can be written anywhere, and lies behind others"), "{e}");
    checked(&bed);
}
