//! Zones that are finished and reset, beside writes and their failures.

use crate::common::volume::mount_with;
use crate::common::zoned::{Bed, MIB, ROOT, content, file, spec};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate_block::{Device, DeviceInfo, Errno, Fault, Faulty, Op, Request, Rule, Zone, ZoneSpec};
use tidegate_f2fs::F2fsOptions;
use tidegate_rt::{LockClass, Mutex};
use tidegate_vfs::*;

/// The start of the zone that holds a page.
fn zone_of(bed: &Bed, page: &[u8]) -> u64 {
    let mut block = vec![0; 4096];
    let blocks = bed.memory.size() / 4096;
    let found = (0..blocks).find(|n| {
        bed.memory.read_at(n * 4096, &mut block);
        block == page[..4096]
    });
    found.unwrap() * 4096 / (4 * MIB) * (4 * MIB)
}

/// A zone that a log has left is reset, and another log goes there, while zones are being finished.
#[test]
fn no_zone_is_finished_that_another_log_is_in() {
    let bed = Bed::new(ZoneSpec { max_open: 12, max_active: 12, ..spec(4 * MIB) }, 160);
    let faulty = Faulty::new(bed.device.clone(), []);
    let mut options = F2fsOptions::default();
    options.parse("warm_streams=3,stream_policy=spf,nocheckpoint_merge,background_gc=off").unwrap();
    let (limits, mount) = (MemoryLimits::default(), MountOptions::default());
    let (fs, v) = mount_with(faulty.clone(), limits, options.clone(), mount).unwrap();
    let files: Vec<File> = (0..3).map(|n| file(&v, &format!("/f{n}"))).collect();
    for (n, f) in (0..).zip(&files) {
        f.write_at(0, &content(n, 1 << 20)).unwrap();
        f.fsync(false).unwrap();
    }
    v.sync().unwrap();
    let mut zones: Vec<(u64, u64)> = (0..3).map(|n| (zone_of(&bed, &content(n, 4096)), n)).collect();
    zones.sort_unstable();
    // The first zone is that of the log that a checkpoint names; the zones of the other logs are left.
    let ((_, stays), (_, last)) = (zones[0], zones[2]);
    options.parse("warm_streams=1").unwrap();
    fs.turn(&options);
    faulty.set([Rule::new(Fault::Late(Duration::from_secs(1))).op(Op::ZoneFinish).which(0..1)]);
    files[stays as usize].write_at(1 << 20, &content(9, 4096)).unwrap();
    let theirs = v.clone();
    let finishing = tidegate_rt::thread::spawn("sync", move || theirs.sync().unwrap()).unwrap();
    while faulty.late() == 0 {
        tidegate_rt::thread::sleep(Duration::from_millis(1));
    }
    v.unlink(ROOT, &v.root().unwrap(), format!("f{last}").as_bytes()).unwrap();
    drop(files);
    v.sync().unwrap();
    let f = file(&v, &format!("/f{stays}"));
    for n in 0..8 {
        f.write_at(n * MIB, &content(n, 1 << 20)).unwrap();
        f.fsync(false).unwrap();
    }
    finishing.join();
    for n in 0..8 {
        f.write_at(n * MIB, &content(n, 1 << 20)).unwrap();
        f.fsync(false).unwrap();
    }
    v.sync().unwrap();
    v.unmount().unwrap();
    assert_eq!(bed.device.refused(), 0);
}

/// The device allows only as many active zones as a volume needs.
#[test]
fn zones_that_fail_are_not_too_many() {
    let bed = Bed::new(ZoneSpec { max_open: 7, max_active: 7, ..spec(4 * MIB) }, 160);
    let faulty = Faulty::new(bed.device.clone(), []);
    let (limits, mount) = (MemoryLimits::default(), MountOptions::default());
    let (_, v) = mount_with(faulty.clone(), limits, F2fsOptions::default(), mount).unwrap();
    let f = file(&v, "/f");
    f.write_at(0, &content(1, 1 << 20)).unwrap();
    f.fsync(false).unwrap();
    let data = |rq: &Request| rq.bytes >= 65536 && rq.sector.bytes() >= 32 * MIB;
    faulty.set([Rule::new(Fault::Fail(Errno::IO)).op(Op::Write).when(data).which(0..12)]);
    let mut bad = 0;
    f.write_at(0, &content(2, 1 << 20)).unwrap();
    while f.fsync(false).is_err() {
        bad += 1;
        assert!(bad < 20);
    }
    assert!(faulty.failed() > 3);
    v.sync().unwrap();
    v.unmount().unwrap();
    assert_eq!(bed.device.refused(), 0);
    let (_, v) = bed.mount("");
    let mut bytes = vec![0; 1 << 20];
    file(&v, "/f").read_at(0, &mut bytes).unwrap();
    assert!(bytes == content(2, 1 << 20));
    v.unmount().unwrap();
}

/// Held to keep a request, or to take all requests.
static KEPT: LockClass = LockClass::new("test->kept", 983);

/// A device that resets no zone until the test allows it.
struct SlowResets {
    below: Arc<dyn Device>,
    held: AtomicBool,
    kept: Mutex<Vec<Request>>,
}

impl SlowResets {
    fn go_on(&self) {
        self.held.store(false, SeqCst);
        let kept = std::mem::take(&mut *self.kept.lock());
        kept.into_iter().for_each(|rq| self.below.submit(rq));
    }
}

impl Device for SlowResets {
    fn info(&self) -> DeviceInfo<'_> {
        self.below.info()
    }
    fn report_zones(&self) -> std::result::Result<Vec<Zone>, Errno> {
        self.below.report_zones()
    }
    fn report_zone(&self, pos: u64) -> std::result::Result<Option<Zone>, Errno> {
        self.below.report_zone(pos)
    }
    fn is_quick(&self, _: &Request) -> bool {
        false
    }
    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        self.below.execute(rq)
    }
    fn submit(&self, rq: Request) {
        match rq.op == Op::ZoneReset && self.held.load(SeqCst) {
            true => self.kept.lock().push(rq),
            false => self.below.submit(rq),
        }
    }
}

/// The reset of a large zone takes milliseconds, as in Linux since 6.5, and a finish up to a second.
#[test]
fn nobody_waits_for_the_reset_of_what_a_checkpoint_freed() {
    let bed = Bed::new(spec(4 * MIB), 160);
    let (held, kept) = (AtomicBool::new(false), Mutex::new(&KEPT, Vec::new()));
    let device = Arc::new(SlowResets { below: bed.device.clone(), held, kept });
    for options in ["checkpoint_merge", "nocheckpoint_merge"] {
        let mut o = F2fsOptions::default();
        o.parse(&format!("{options},background_gc=off")).unwrap();
        let (limits, mount) = (MemoryLimits::default(), MountOptions::default());
        let (_, v) = mount_with(device.clone(), limits, o, mount).unwrap();
        let f = file(&v, "/f");
        f.write_at(0, &content(1, 12 << 20)).unwrap();
        v.sync().unwrap();
        drop(f);
        device.held.store(true, SeqCst);
        v.unlink(ROOT, &v.root().unwrap(), b"f").unwrap();
        v.sync().unwrap();
        // The checkpoint was answered while no zone was reset: another change finds the volume unchanged.
        file(&v, "/g").write_at(0, b"g").unwrap();
        v.sync().unwrap();
        while device.kept.lock().is_empty() {
            tidegate_rt::thread::sleep(Duration::from_millis(1));
        }
        device.go_on();
        v.unmount().unwrap();
        let zones = bed.device.report_zones().unwrap();
        let written = zones.iter().filter(|z| z.is_sequential() && z.pointer > z.start).count();
        assert!(written <= 8, "{options}: those of logs alone: {written}");
    }
    assert_eq!(bed.device.refused(), 0);
    bed.fsck();
}
