//! Power cuts on volumes with `blkzoned` where no write pointer tells of the writes after a checkpoint: in an
//! image, which has no zones, and in those zones of the main area that can be written anywhere.

use crate::common::image::Image;
use crate::common::volume::mount_with;
use std::sync::Arc;
use tidegate_block::zones::Zones;
use tidegate_block::{
    Device, Errno, Fault, Faulty, MemoryDevice, Op, QueueLimits, RequestQueue, Rule, ZoneSpec, ZonedDevice,
};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::raw::Features;
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const MIB: u64 = 1 << 20;
const SIZE: u64 = 160 * MIB;

struct Bed {
    memory: Arc<MemoryDevice>,
    zoned: Option<(ZoneSpec, Arc<ZonedDevice>)>,
}

impl Bed {
    fn new(spec: Option<ZoneSpec>) -> Bed {
        let memory = Arc::new(MemoryDevice::new(SIZE));
        let zoned = spec.map(|s| (s, Arc::new(ZonedDevice::new(memory.clone(), s))));
        let bed = Bed { memory, zoned };
        let segs_per_sec = 2;
        let options = MkfsOptions { features: Features::BLKZONED, segs_per_sec, ..Default::default() };
        mkfs(&bed.queue(), &options).unwrap();
        bed
    }

    fn device(&self) -> Arc<dyn Device> {
        match &self.zoned {
            Some((_, zoned)) => zoned.clone(),
            None => self.memory.clone(),
        }
    }

    fn queue(&self) -> RequestQueue {
        RequestQueue::new(self.device(), QueueLimits::default())
    }

    fn mount(&self) -> Arc<Vfs> {
        Self::mount_on(self.device()).1
    }

    fn mount_on(device: Arc<dyn Device>) -> (Arc<F2fs>, Arc<Vfs>) {
        Self::mount_with(device, "")
    }

    fn mount_with(device: Arc<dyn Device>, options: &str) -> (Arc<F2fs>, Arc<Vfs>) {
        let mut o = F2fsOptions::default();
        o.parse("background_gc=off").unwrap();
        o.parse(options).unwrap();
        mount_with(device, MemoryLimits::default(), o, MountOptions::default()).unwrap()
    }

    /// A copy of the device now.
    fn cut(&self) -> Bed {
        self.cut_with(0)
    }

    /// The device after a cut, where `begun` bytes were written to each empty zone.
    fn cut_with(&self, begun: u64) -> Bed {
        let memory = Image::of(&self.memory).device();
        let zoned = self.zoned.as_ref().map(|(spec, old)| {
            let mut zones = Zones::new(*spec, SIZE);
            for (n, z) in old.report_zones().unwrap().iter().enumerate().skip(spec.conventional) {
                zones.set_pointer(n, z.pointer.max(z.start + begun));
            }
            (*spec, Arc::new(ZonedDevice::with_zones(memory.clone(), zones)))
        });
        Bed { memory, zoned }
    }
}

fn file(v: &Arc<Vfs>, n: usize) -> File {
    v.open_path(ROOT, format!("/f{n}").as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap()
}

fn content(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (n * 31 + i / 4096 * 7 + i % 251) as u8).collect()
}

/// The lengths are so large that logs leave sections.
const LENGTHS: [usize; 4] = [3 << 20, 40 << 12, 5 << 20, 1 << 12];

fn fsync_all(v: &Arc<Vfs>) {
    for (n, len) in LENGTHS.into_iter().enumerate() {
        let f = file(v, n);
        f.write_at(0, &content(n, len)).unwrap();
        f.fsync(false).unwrap();
    }
}

fn look(v: &Arc<Vfs>) {
    for (n, len) in LENGTHS.into_iter().enumerate() {
        let f = v.open_path(ROOT, format!("/f{n}").as_bytes(), OpenFlags::READ, 0).unwrap();
        let mut bytes = vec![0; len];
        assert_eq!(f.read_at(0, &mut bytes).unwrap(), len, "file {n}");
        assert!(bytes == content(n, len), "file {n}");
    }
}

fn fsynced_files_stay_where_recovery_finds_them(spec: Option<ZoneSpec>) {
    let bed = Bed::new(spec);
    let v = bed.mount();
    file(&v, 9).write_at(0, &content(9, 9000)).unwrap();
    v.sync().unwrap();
    fsync_all(&v);
    let again = bed.cut();
    v.unmount().unwrap();
    let v = again.mount();
    look(&v);
    // Later writes go nowhere near.
    for n in 20..24 {
        file(&v, n).write_at(0, &content(n, 3 << 20)).unwrap();
    }
    v.sync().unwrap();
    v.unmount().unwrap();
    drop(v);
    let report = check(&again.queue(), CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.problems);
    if let Some((_, zoned)) = &again.zoned {
        assert_eq!(zoned.refused(), 0);
    }
    look(&again.mount());
}

#[test]
fn fsynced_files_are_kept_in_an_image() {
    fsynced_files_stay_where_recovery_finds_them(None);
}

#[test]
fn fsynced_files_are_kept_in_zones_that_can_be_written_anywhere() {
    for conventional in [8, 12, 16] {
        let spec = ZoneSpec { size: 4 * MIB, capacity: 4 * MIB, conventional, max_open: 8, max_active: 10 };
        fsynced_files_stay_where_recovery_finds_them(Some(spec));
    }
}

/// Some zones of the main area can be written anywhere, and logs are in them.
fn mixed() -> Option<ZoneSpec> {
    Some(ZoneSpec { size: 4 * MIB, capacity: 4 * MIB, conventional: 12, max_open: 40, max_active: 40 })
}

#[test]
fn only_those_logs_move_that_are_in_the_way() {
    let bed = Bed::new(mixed());
    let (fs, v) = Bed::mount_on(bed.device());
    file(&v, 9).write_at(0, &content(9, 9000)).unwrap();
    v.sync().unwrap();
    let before = fs.info().unwrap().logs;
    fsync_all(&v);
    let again = bed.cut();
    let (fs, v) = Bed::mount_on(again.device());
    look(&v);
    let after = fs.info().unwrap().logs;
    let moved: Vec<&str> = before.iter().zip(&after).filter(|(a, b)| a.1 != b.1).map(|(a, _)| a.0).collect();
    assert_eq!(moved, ["warm data", "warm node"], "{before:?} {after:?}");
}

/// Each free section was begun by writes that no checkpoint knows of: none is ready for a log before its zone
/// is reset.
#[test]
fn logs_find_sections_that_a_power_cut_left_begun() {
    for spec in [mixed(), mixed().map(|s| ZoneSpec { conventional: 8, ..s })] {
        let bed = Bed::new(spec);
        let v = bed.mount();
        v.sync().unwrap();
        fsync_all(&v);
        let again = bed.cut_with(8192);
        let (fs, v) = Bed::mount_on(again.device());
        assert!(FileSystem::read_only(&*fs).is_none());
        look(&v);
        file(&v, 20).write_at(0, &content(20, 3 << 20)).unwrap();
        v.unmount().unwrap();
        assert_eq!(again.zoned.as_ref().unwrap().1.refused(), 0);
        let report = check(&again.queue(), CheckOptions::default()).unwrap();
        assert!(report.is_clean(), "{:?}", report.problems);
        look(&again.mount());
    }
}

/// The free sections were begun, and no zone can be reset.
#[test]
fn without_a_section_for_its_logs_a_volume_is_read() {
    let bed = Bed::new(mixed().map(|s| ZoneSpec { conventional: 8, ..s }));
    let v = bed.mount();
    v.sync().unwrap();
    fsync_all(&v);
    let again = bed.cut_with(8192);
    let before = Image::of(&again.memory).parts;
    let faulty = Faulty::new(again.device(), [Rule::new(Fault::Fail(Errno::IO)).op(Op::ZoneReset)]);
    let (fs, v) = Bed::mount_on(faulty.clone());
    let why = FileSystem::read_only(&*fs).unwrap().to_string();
    assert!(why.contains("no section is free for its logs"), "{why}");
    look(&v);
    assert!(v.open_path(ROOT, b"/new", RW | OpenFlags::CREATE, 0o644).is_err());
    v.unmount().unwrap();
    assert!(faulty.failed() > 0 && Image::of(&again.memory).parts == before);
    // Without the files, readers are told that files are missing.
    let (fs, v) = Bed::mount_with(faulty, "disable_roll_forward");
    let why = FileSystem::read_only(&*fs).unwrap().to_string();
    assert!(why.contains("no section is free for its logs") && why.contains("fsynced"), "{why}");
    v.unmount().unwrap();
    drop((fs, v));
    look(&again.mount());
}
