//! Volumes nearly or wholly full, overwritten many times over: cleaning makes room, nobody sees an error,
//! nothing is lost, and the stock checker and our own find nothing.

#[path = "common/volume.rs"]
#[allow(dead_code)] // shared with other tests, which use more of it
mod volume;

use std::sync::Arc;
use tidegate_block::{Device, MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::check::{CheckOptions, check};
use tidegate_f2fs::mkfs::{MkfsOptions, mkfs};
use tidegate_f2fs::{F2fs, F2fsOptions, FsStats};
use tidegate_rt::thread;
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
        let bdi = Bdi::new(TIGHT);
        let fs = F2fs::open(queue(&device), bdi.clone(), options(list)).unwrap();
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

    /// Unmounts, and has both checkers look.
    fn finish(self) -> (Arc<MemoryDevice>, FsStats) {
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
    if !xtask::oracle::skip_or_fail("fsck.f2fs") {
        volume::fsck(device).unwrap();
    }
}

/// A small generator; its seed is printed with what fails.
#[derive(Clone)]
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// What page `page` of file `file` holds in its `version`.
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
        // Nodes take some.
        let pages = v.free_pages() * percent / 100 / n;
        let pages = pages - pages / 900 - 3;
        let files = (0..n).map(|i| {
            let f = v.file(&format!("/f{i}"));
            (0..pages).for_each(|p| drop(f.write_at(p * PAGE, &content(i, p, 0)).unwrap()));
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

    /// Lets go of the files: what each page must hold.
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

fn report(what: &str, s: &FsStats) {
    println!(
        "{what}: write amplification {:.2} ({} user, {} data, {} node, {} meta blocks), {} cleanings, {} segments, \
         {} data and {} node blocks moved, {} segments filled by holes, {} in place, {} checkpoints, {} MiB discarded",
        s.write_amplification(),
        s.user_data_blocks,
        s.data_blocks,
        s.node_blocks,
        s.meta_blocks,
        s.gc_foreground,
        s.gc_segments,
        s.gc_data_blocks,
        s.gc_node_blocks,
        s.ssr_segments,
        s.in_place_blocks,
        s.checkpoints,
        s.discarded_bytes >> 20,
    );
}

fn random_overwrites(list: &str, percent: u64, o: &MkfsOptions, mib: u64) -> FsStats {
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
    assert_eq!(s.in_place_blocks, 0);
    assert!(s.gc_data_blocks > 0 && s.gc_segments > 0);
}

#[test]
fn random_overwrites_of_a_full_volume() {
    random_overwrites("mode=lfs", 100, &MkfsOptions::default(), 64);
}
