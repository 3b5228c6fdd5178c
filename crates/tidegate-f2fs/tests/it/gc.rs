//! Volumes nearly or wholly full, overwritten many times: cleaning makes room, no thread sees an error,
//! nothing is lost, and the stock checker and our own find nothing.

use crate::common::volume;
use std::sync::Arc;
use tidegate_block::{Device, DeviceInfo, Errno, MemoryDevice, Op, QueueLimits, Request, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::{F2fs, F2fsOptions};
use tidegate_rt::{LockClass, Mutex, thread};
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const PAGE: u64 = 4096;
const TIGHT: MemoryLimits = MemoryLimits { cache: 8 << 20, dirty: 4 << 20, background: 1 << 20, inodes: 64 };

struct Volume {
    device: Arc<MemoryDevice>,
    fs: Arc<F2fs>,
    v: Arc<Vfs>,
}

fn queue(device: &Arc<MemoryDevice>) -> Arc<RequestQueue> {
    Arc::new(RequestQueue::new(device.clone(), QueueLimits::default()))
}

fn options(list: &str) -> F2fsOptions {
    let mut o = F2fsOptions::default();
    o.parse(list).unwrap();
    o
}

impl Volume {
    fn make(mib: u64, o: &MkfsOptions, list: &str) -> Volume {
        let device = Arc::new(MemoryDevice::new(mib << 20));
        mkfs(&queue(&device), o).unwrap();
        Self::open(device, list)
    }

    fn open(device: Arc<MemoryDevice>, list: &str) -> Volume {
        Self::open_through(device.clone(), device, list)
    }

    fn open_through(device: Arc<MemoryDevice>, top: Arc<dyn Device>, list: &str) -> Volume {
        let bdi = Bdi::new(TIGHT);
        let queue = Arc::new(RequestQueue::new(top, QueueLimits::default()));
        let fs = F2fs::open(queue, bdi.clone(), options(list)).unwrap();
        assert_eq!(FileSystem::read_only(&*fs), None);
        let v = Vfs::mount(fs.clone(), bdi, MountOptions::default()).unwrap();
        Volume { device, fs, v }
    }

    fn file(&self, name: &str) -> File {
        self.v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap()
    }

    fn free_pages(&self) -> u64 {
        self.v.statfs().blocks_free
    }

    /// Unmounts, and runs both checkers.
    fn finish(self) -> (Arc<MemoryDevice>, VolumeStats) {
        self.v.unmount().unwrap();
        let stats = self.fs.stats();
        let Volume { device, fs, v } = self;
        drop((fs, v));
        judge(&device);
        (device, stats)
    }
}

fn judge(device: &Arc<MemoryDevice>) {
    let report = check(&queue(device), CheckOptions::default()).unwrap();
    assert!(report.is_clean(), "{:#?}", report.problems);
    if !tidegate_testing::oracle::skip_or_fail("fsck.f2fs") {
        volume::fsck(device).unwrap();
    }
}

/// A small generator; a failure prints its seed.
#[derive(Clone)]
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// The content of page `page` of file `file` in its `version`.
fn content(file: u64, page: u64, version: u32) -> Vec<u8> {
    let word = (file << 48 ^ page << 20 ^ version as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes().repeat(512)
}

/// Files of whole pages, with the version of each page.
struct Model {
    files: Vec<(File, Vec<u32>)>,
}

impl Model {
    /// Fills the volume to `percent` with `n` files.
    fn fill(v: &Volume, n: u64, percent: u64) -> Model {
        // Nodes need some of the pages.
        let pages = v.free_pages() * percent / 100 / n;
        let pages = pages - pages / 900 - 3;
        let files = (0..n).map(|i| {
            let f = v.file(&format!("/f{i}"));
            (0..pages).for_each(|p| _ = f.write_at(p * PAGE, &content(i, p, 0)).unwrap());
            (f, vec![0; pages as usize])
        });
        Model { files: files.collect() }
    }

    fn overwrite(&mut self, r: &mut Rng, writes: u64) {
        let n = self.files.len() as u64;
        for w in 0..writes {
            let i = r.below(n);
            let (f, versions) = &mut self.files[i as usize];
            let p = r.below(versions.len() as u64);
            let version = &mut versions[p as usize];
            *version += 1;
            f.write_at(p * PAGE, &content(i, p, *version)).unwrap_or_else(|e| panic!("write {w}: {e}"));
            if r.below(500) == 0 {
                f.fsync(false).unwrap_or_else(|e| panic!("fsync after write {w}: {e}"));
            }
        }
    }

    /// Closes the files; returns the version of each page.
    fn close(self) -> Vec<Vec<u32>> {
        self.files.into_iter().map(|f| f.1).collect()
    }
}

fn compare(v: &Volume, expected: &[Vec<u32>]) {
    for (i, versions) in expected.iter().enumerate() {
        let f = v.file(&format!("/f{i}"));
        assert_eq!(f.size(), versions.len() as u64 * PAGE);
        for (p, version) in versions.iter().enumerate() {
            let mut b = vec![0; PAGE as usize];
            f.read_at(p as u64 * PAGE, &mut b).unwrap();
            assert!(b == content(i as u64, p as u64, *version), "file {i}, page {p}, version {version}");
        }
    }
}

fn report(what: &str, s: &VolumeStats) {
    println!(
        "{what}: write amplification {:.2} ({} user, {} data, {} node, {} meta blocks), {} cleanings, {} segments, \
         {} data and {} node blocks moved, {} segments filled by holes, {} in place, {} checkpoints, {} MiB discarded",
        s.write_amplification(),
        s.user_data_blocks,
        s.data.blocks,
        s.metadata.blocks,
        s.log.blocks,
        s.own("gc_foreground"),
        s.own("gc_segments"),
        s.own("gc_data_blocks"),
        s.own("gc_node_blocks"),
        s.own("ssr_segments"),
        s.own("in_place_blocks"),
        s.commits,
        s.discarded_bytes >> 20,
    );
}

fn random_overwrites(list: &str, percent: u64, o: &MkfsOptions, mib: u64) -> VolumeStats {
    let mut r = Rng(11);
    println!("{list}: seed {}", r.0);
    let v = Volume::make(mib, o, list);
    let mut m = Model::fill(&v, 7, percent);
    m.overwrite(&mut r, 3 * (mib << 20) / PAGE);
    let expected = m.close();
    compare(&v, &expected);
    let (device, stats) = v.finish();
    report(list, &stats);
    let v = Volume::open(device, list);
    compare(&v, &expected);
    stats
}

#[test]
fn random_overwrites_adaptive() {
    random_overwrites("mode=adaptive", 95, &MkfsOptions::default(), 64);
}

#[test]
fn random_overwrites_lfs() {
    let s = random_overwrites("mode=lfs", 95, &MkfsOptions::default(), 64);
    assert_eq!(s.own("in_place_blocks"), 0);
    assert!(s.own("gc_data_blocks") > 0 && s.own("gc_segments") > 0);
}

#[test]
fn random_overwrites_of_a_full_volume() {
    random_overwrites("mode=lfs", 100, &MkfsOptions::default(), 64);
}

#[test]
fn random_overwrites_in_sections() {
    let o = MkfsOptions { segs_per_sec: 2, ..MkfsOptions::default() };
    let s = random_overwrites("mode=lfs", 95, &o, 128);
    assert!(s.own("gc_segments") > 0);
}

/// Writes files of all sizes until one does not fit; returns their names.
fn fill_with_files(v: &Volume, r: &mut Rng) -> Vec<String> {
    let mut names = Vec::new();
    loop {
        let name = format!("/n{}", names.len());
        let open = v.v.open_path(ROOT, name.as_bytes(), RW | OpenFlags::CREATE, 0o644);
        let f = match open {
            Ok(f) => f,
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
                return names;
            }
        };
        names.push(name);
        let len = [100, 3000, 5000, 20_000, 90_000][r.below(5) as usize];
        if let Err(e) = f.write_at(0, &vec![names.len() as u8; len]) {
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            return names;
        }
        if r.below(40) == 0 {
            f.fsync(false).unwrap();
        }
    }
}

fn remove(v: &Volume, name: &str) {
    let top = v.v.root().unwrap();
    v.v.unlink(ROOT, &top, &name.as_bytes()[1..]).unwrap_or_else(|e| panic!("{name}: {e}"));
}

fn fill_and_empty(list: &str) {
    let mut r = Rng(5);
    println!("{list}: seed {}", r.0);
    let mut device = Arc::new(MemoryDevice::new(64 << 20));
    mkfs(&queue(&device), &MkfsOptions::default()).unwrap();
    let mut least = u64::MAX;
    for round in 0..5 {
        let v = Volume::open(device, list);
        let free = v.free_pages();
        least = least.min(free);
        let names = fill_with_files(&v, &mut r);
        let left = v.free_pages();
        assert!(left < 30, "round {round}: NoSpace with {left} of {free} blocks free");
        // Each removed file makes room for others.
        for _ in 0..300 {
            let i = r.below(names.len() as u64) as usize;
            remove(&v, &names[i]);
            let f = v.file(&names[i]);
            // Each file had a node and at most this many blocks; a few blocks may have gone to other uses.
            if let Err(e) = f.write_at(0, &[7; 3000]) {
                assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
            }
        }
        names.iter().for_each(|n| remove(&v, n));
        assert!(v.free_pages() + 40 > free, "round {round}: {} of {free} blocks came back", v.free_pages());
        let (d, stats) = v.finish();
        report(list, &stats);
        device = d;
    }
}

#[test]
fn filling_and_emptying_adaptive() {
    fill_and_empty("mode=adaptive");
}

#[test]
fn filling_and_emptying_lfs() {
    fill_and_empty("mode=lfs");
}

/// One of several writers, with files and a directory of its own.
fn work(v: &Arc<Vfs>, t: u64, pages: u64, rounds: u64) -> Vec<u32> {
    let mut r = Rng(t + 100);
    let f = v.open_path(ROOT, format!("/f{t}").as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
    let mut versions = vec![0; pages as usize];
    (0..pages).for_each(|p| _ = f.write_at(p * PAGE, &content(t, p, 0)).unwrap());
    let dir = v.mkdir(ROOT, &v.root().unwrap(), format!("d{t}").as_bytes(), 0o755).unwrap();
    for n in 0..rounds {
        let p = r.below(pages);
        versions[p as usize] += 1;
        f.write_at(p * PAGE, &content(t, p, versions[p as usize])).unwrap();
        match r.below(100) {
            0 => f.fsync(false).unwrap(),
            1..20 => {
                let name = format!("s{}", r.below(40));
                let path = format!("/d{t}/{name}");
                let flags = RW | OpenFlags::CREATE | OpenFlags::TRUNC;
                let s = v.open_path(ROOT, path.as_bytes(), flags, 0o644).unwrap();
                s.write_at(0, &vec![n as u8; r.below(9000) as usize + 1]).unwrap();
                drop(s);
                if r.below(2) == 0 {
                    v.unlink(ROOT, &dir, name.as_bytes()).unwrap();
                }
            }
            20..30 => {
                let p = r.below(pages);
                let mut b = vec![0; PAGE as usize];
                f.read_at(p * PAGE, &mut b).unwrap();
                assert!(b == content(t, p, versions[p as usize]), "thread {t}, round {n}, page {p}");
            }
            _ => {}
        }
    }
    versions
}

fn writers(list: &str) {
    println!("{list}: seeds 100 to 103");
    let v = Volume::make(100, &MkfsOptions::default(), list);
    let pages = (v.free_pages() - 400) / 4 * 94 / 100;
    let threads: Vec<_> = (0..4)
        .map(|t| {
            let v = v.v.clone();
            thread::spawn("writer", move || work(&v, t, pages, 8000)).unwrap()
        })
        .collect();
    let expected: Vec<_> = threads.into_iter().map(|t| t.join()).collect();
    compare(&v, &expected);
    let (device, stats) = v.finish();
    report(list, &stats);
    compare(&Volume::open(device, list), &expected);
}

#[test]
fn writers_at_once_adaptive() {
    writers("mode=adaptive");
}

#[test]
fn writers_at_once_lfs() {
    writers("mode=lfs");
}

static CAMERA: LockClass = LockClass::new("camera", 985);

/// Copies the device before one of the coming writes: the state after a power cut there.
struct Camera {
    inner: Arc<MemoryDevice>,
    /// Number of writes until the copy, and the copy.
    state: Mutex<(u64, Option<volume::Image>)>,
}

impl Device for Camera {
    fn info(&self) -> DeviceInfo<'_> {
        DeviceInfo {
            name: "camera",
            size: self.inner.size(),
            read_only: false,
            backend: "memory",
            zones: None,
        }
    }

    fn execute(&self, rq: &mut Request) -> std::result::Result<(), Errno> {
        if rq.op == Op::Read {
            return self.inner.execute(rq);
        }
        let mut s = self.state.lock();
        s.0 = s.0.saturating_sub(1);
        if s.0 == 0 && s.1.is_none() {
            s.1 = Some(volume::Image::of(&self.inner));
        }
        self.inner.execute(rq)
    }
}

/// After a power cut everything is as synced or newer, wherever cleaning was.
#[test]
fn a_power_cut_amid_cleaning() {
    let list = "mode=lfs";
    for seed in 1..=8 {
        println!("seed {seed}");
        let mut r = Rng(seed);
        let inner = Arc::new(MemoryDevice::new(64 << 20));
        mkfs(&queue(&inner), &MkfsOptions::default()).unwrap();
        let state = Mutex::new(&CAMERA, (u64::MAX, None));
        let camera = Arc::new(Camera { inner: inner.clone(), state });
        let v = Volume::open_through(inner, camera.clone(), list);
        let mut m = Model::fill(&v, 5, 97);
        m.overwrite(&mut r, 8000);
        v.v.sync().unwrap();
        let synced: Vec<_> = m.files.iter().map(|f| f.1.clone()).collect();
        let moved = v.fs.stats().own("gc_data_blocks");
        camera.state.lock().0 = 1 + r.below(120);
        m.overwrite(&mut r, 8000);
        let newest = m.close();
        let stats = v.fs.stats();
        assert!(stats.own("gc_data_blocks") > moved);
        drop(v);
        let image = camera.state.lock().1.take().expect("fewer writes than thought");
        let v = Volume::open(image.device(), list);
        for (i, (old, new)) in synced.iter().zip(&newest).enumerate() {
            let f = v.file(&format!("/f{i}"));
            for (p, (old, new)) in old.iter().zip(new).enumerate() {
                let mut b = vec![0; PAGE as usize];
                f.read_at(p as u64 * PAGE, &mut b).unwrap();
                let known = (*old..=*new).any(|x| b == content(i as u64, p as u64, x));
                assert!(
                    known,
                    "seed {seed}: file {i}, page {p}: neither version {old} nor later, up to {new}"
                );
            }
        }
        v.finish();
    }
}

/// The device zeroes discarded blocks, so that a discard of a block in use would show.
#[test]
fn discards_and_trim_spare_what_is_in_use() {
    let v = Volume::make(64, &MkfsOptions::default(), "mode=lfs");
    let mut m = Model::fill(&v, 6, 90);
    let mut r = Rng(3);
    m.overwrite(&mut r, 6000);
    v.v.sync().unwrap();
    let trimmed = v.fs.trim(0..u64::MAX, 0).unwrap();
    assert!(trimmed >= 4 << 20, "{trimmed}");
    assert_eq!(v.fs.trim(0..4096, 0).unwrap(), 0, "nothing is free before the main area");
    let all = v.fs.trim(0..u64::MAX, 0).unwrap();
    assert!(v.fs.trim(0..u64::MAX, 1 << 20).unwrap() <= all);
    m.overwrite(&mut r, 6000);
    let expected = m.close();
    let (device, stats) = v.finish();
    assert!(stats.discarded_bytes > trimmed);
    compare(&Volume::open(device, "mode=lfs"), &expected);
}

#[test]
fn nodiscard_means_none() {
    let s = random_overwrites("mode=lfs,nodiscard", 80, &MkfsOptions::default(), 64);
    assert_eq!(s.discarded_bytes, 0);
}

/// The background thread's work, started by hand: stale segments are emptied, content stays.
#[test]
fn cleaning_on_request() {
    for sync in [false, true] {
        let v = Volume::make(64, &MkfsOptions::default(), "background_gc=off");
        let mut m = Model::fill(&v, 4, 90);
        // Every third page is written elsewhere, which leaves holes everywhere.
        for (i, (f, versions)) in m.files.iter_mut().enumerate() {
            for p in (0..versions.len()).step_by(3) {
                versions[p] = 1;
                f.write_at(p as u64 * PAGE, &content(i as u64, p as u64, 1)).unwrap();
            }
        }
        let names = fill_directory(&v);
        v.v.sync().unwrap();
        let before = v.fs.info().unwrap();
        let mut cleaned = 0;
        while cleaned < 100 && v.fs.garbage_collect(sync).unwrap() {
            cleaned += 1;
        }
        let after = v.fs.info().unwrap();
        assert!(cleaned > 0 && v.fs.stats().own("gc_segments") > 0);
        assert!(after.dirty_segments < before.dirty_segments, "{before:?} {after:?}");
        assert!(after.free_segments > before.free_segments, "{before:?} {after:?}");
        assert_eq!(after.valid_blocks, before.valid_blocks);
        let expected = m.close();
        compare(&v, &expected);
        assert_eq!(names_in(&v), names);
        let (device, _) = v.finish();
        let v = Volume::open(device, "");
        compare(&v, &expected);
        assert_eq!(names_in(&v), names);
        let link = v.v.resolve(ROOT, b"/link", false).unwrap();
        assert_eq!(v.v.readlink(&link).unwrap(), [b'x'; 4000]);
    }
}

/// Makes many names, of which a few stay, and a symbolic link whose target has a block of its own; returns
/// the names.
fn fill_directory(v: &Volume) -> Vec<Vec<u8>> {
    let top = v.v.root().unwrap();
    v.v.symlink(ROOT, &top, b"link", &[b'x'; 4000]).unwrap();
    let dir = v.v.mkdir(ROOT, &top, b"dir", 0o755).unwrap();
    let linked = v.v.lookup(&top, b"f0").unwrap();
    let name = |n: u32| format!("{n:0100}").into_bytes();
    (0..2000).for_each(|n| v.v.link(ROOT, &linked, &dir, &name(n)).unwrap());
    v.v.sync().unwrap();
    (0..2000).filter(|n| n % 7 > 0).for_each(|n| v.v.unlink(ROOT, &dir, &name(n)).unwrap());
    (0..2000).step_by(7).map(name).collect()
}

fn names_in(v: &Volume) -> Vec<Vec<u8>> {
    let dir = v.v.resolve(ROOT, b"/dir", true).unwrap();
    let mut names: Vec<_> = v.v.entries(&dir).unwrap().into_iter().map(|e| e.name).collect();
    names.sort();
    names
}
