//! Power cuts at any moment of a run on a journaled volume: opened again, the volume has everything that was
//! promised, no file shows another file's old content, and e2fsck calls the volume clean.

use crate::rig::*;
use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::sync::Arc;
use tidegate_block::{BioFlags, Device, MemoryDevice, Op, QueueLimits, Record, Recorder, RequestQueue};
use tidegate_ext4::{Ext4, Ext4Options};
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const ROOT: &Cred = &Cred::ROOT;
/// States that are checked after each run.
const STATES: u64 = 40;
/// One state in this many is also given to e2fsck.
const JUDGED: u64 = 4;
const SECTOR: usize = 512;

/// The bytes of a file, which differ from all others'.
fn content(id: u64, len: usize) -> Vec<u8> {
    (0..len).map(|i| (id.wrapping_mul(0x9E37_79B9) >> (8 * (i % 4))) as u8 ^ (i / 512) as u8 | 1).collect()
}

/// The promise of a file: from one event to another it is there as a whole.
struct Promise {
    name: Vec<u8>,
    id: u64,
    len: usize,
    from: u64,
    until: u64,
}

struct Run {
    records: Vec<Record>,
    promises: Vec<Promise>,
    end: u64,
    /// Bytes that reach the device as a whole or not at all: a block, as Linux assumes for the superblock.
    unit: usize,
}

/// The files whose data goes through the journal in a run.
#[derive(Clone, Copy, PartialEq)]
enum Logged {
    Nobody,
    /// All files, by `data=journal`.
    All,
    /// Every second file, by its flag; some files get or lose the flag later.
    Some,
}

/// `FS_JOURNAL_DATA_FL`.
const JOURNAL_DATA: u32 = 0x4000;

/// Sends a file's data through the journal, or not.
fn set_logged(v: &Vfs, inode: &Arc<Inode>, on: bool) {
    let flags = inode.attr().flags;
    let flags = if on { flags | JOURNAL_DATA } else { flags & !JOURNAL_DATA };
    v.setattr(ROOT, inode, &SetAttr { flags: Some(flags), ..SetAttr::default() }).unwrap();
}

fn mount(device: Arc<dyn Device>) -> Result<Arc<Vfs>> {
    mount_with(device, Ext4Options::default())
}

fn mount_with(device: Arc<dyn Device>, options: Ext4Options) -> Result<Arc<Vfs>> {
    let queue = Arc::new(RequestQueue::new(device, QueueLimits::default()));
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = Ext4::open(queue, bdi.clone(), options)?;
    Vfs::mount(fs, bdi, MountOptions { noatime: true, ..Default::default() })
}

/// Makes, renames, truncates and deletes files, and makes some of them durable.
fn run(base: &[u8], seed: u64, steps: u64, unit: usize, logged: Logged) -> Run {
    let recorder = Arc::new(Recorder::new(Arc::new(Late::new(Arc::new(MemoryDevice::from_bytes(base))))));
    let mut options = Ext4Options::default();
    assert!(logged != Logged::All || options.set("data=journal").unwrap());
    let v = mount_with(recorder.clone(), options).unwrap();
    let root = v.root().unwrap();
    let mut rng = Rng::new(seed);
    let (mut live, mut promises) = (BTreeMap::<Vec<u8>, (u64, usize)>::new(), Vec::<Promise>::new());
    let mut held = VecDeque::new();
    let dirs: Vec<Arc<Inode>> =
        (0..3).map(|n| v.mkdir(ROOT, &root, format!("d{n}").as_bytes(), 0o755).unwrap()).collect();
    let dir_of = |name: &[u8]| &dirs[usize::from(name[1] - b'0')];
    for id in 1..=steps {
        let name = format!("d{}/file-{id}-{}", rng.below(3), "n".repeat(rng.below(60) as usize)).into_bytes();
        let dir = dir_of(&name).clone();
        let most = if rng.below(5) == 0 { 400_000 } else { 9_000 };
        let len = 1 + rng.below(most) as usize;
        let inode = v.create(ROOT, &dir, &name[3..], 0o644).unwrap();
        let f = v.open(ROOT, &inode, OpenFlags::WRITE).unwrap();
        if logged == Logged::Some && id % 2 == 0 {
            set_logged(&v, &inode, true);
        }
        f.write_at(0, &content(id, len)).unwrap();
        if logged == Logged::Some && rng.below(20) == 0 {
            set_logged(&v, &inode, id % 2 != 0);
            f.write_at(0, &content(id, len)).unwrap();
        }
        live.insert(name.clone(), (id, len));
        if rng.below(3) == 0 {
            f.fsync(rng.below(2) == 0).unwrap();
            promises.push(Promise { name: name.clone(), id, len, from: recorder.mark(), until: u64::MAX });
        }
        if rng.below(3) == 0 {
            // The pass is like the flusher's: no thread waits for it.
            v.fs().writepages(&inode, &mut WritebackControl::background(u64::MAX)).unwrap();
        }
        // Some files stay open when they have no name any more.
        held.push_back(f);
        if held.len() > 6 {
            held.pop_front();
        }
        if rng.below(2) == 0 && live.len() > 4 {
            let names: Vec<_> = live.keys().cloned().collect();
            let victim = names[rng.below(names.len() as u64) as usize].clone();
            // From here on the file may be gone.
            let at = recorder.mark();
            promises
                .iter_mut()
                .filter(|p| p.name == victim && p.until == u64::MAX)
                .for_each(|p| p.until = at);
            let old = dir_of(&victim).clone();
            if rng.below(4) == 0 {
                let to = format!("d{}/moved-{id}", rng.below(3)).into_bytes();
                v.rename(ROOT, (&old, &victim[3..]), (dir_of(&to), &to[3..]), RenameFlags::empty()).unwrap();
                let was = live.remove(&victim).unwrap();
                live.insert(to, was);
            } else {
                v.unlink(ROOT, &old, &victim[3..]).unwrap();
                live.remove(&victim);
            }
        }
        if rng.below(25) == 0 {
            v.sync().unwrap();
            let from = recorder.mark();
            for (name, (id, len)) in &live {
                promises.push(Promise { name: name.clone(), id: *id, len: *len, from, until: u64::MAX });
            }
        }
    }
    let end = recorder.position();
    let records = recorder.take();
    // Later events are not considered.
    drop(held);
    v.unmount().unwrap();
    Run { records, promises, end, unit }
}

/// The device after a power cut at `at`: everything flushed, and any of the blocks that were on their way. A
/// write with a preceding flush has nothing on the device before that flush is done.
fn cut(base: &[u8], run: &Run, at: u64, rng: &mut Rng) -> Vec<u8> {
    let mut bytes = base.to_vec();
    let done = |r: &Record| r.completed.is_some_and(|c| c < at);
    let flushes = |r: &Record| r.op == Op::Flush || r.flags.contains(BioFlags::PREFLUSH);
    let mut flushed = 0;
    let mut not_begun = Vec::new();
    for (n, r) in run.records.iter().enumerate().filter(|(_, r)| flushes(r) && r.submitted < at) {
        if done(r) || rng.below(2) == 0 {
            flushed = flushed.max(r.submitted);
        } else {
            not_begun.push(n);
        }
    }
    let all = rng.below(4);
    let written = |r: &Record| r.op == Op::Write && r.submitted < at;
    for (_, r) in run.records.iter().enumerate().filter(|(n, r)| written(r) && !not_begun.contains(n)) {
        let durable =
            r.completed.is_some_and(|c| c < flushed) || (r.flags.contains(BioFlags::FUA) && done(r));
        for (n, part) in r.data.chunks(run.unit).enumerate() {
            if durable || all == 0 || (all > 1 && rng.below(2) == 0) {
                let to = r.sector.0 as usize * SECTOR + n * run.unit;
                bytes[to..to + part.len()].copy_from_slice(part);
            }
        }
    }
    bytes
}

/// Opens the state after a cut, and checks all of it.
fn look(what: &str, bytes: &[u8], run: &Run, at: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let v = mount(device.clone()).unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(v.fs().read_only(), None, "{what}");
    let root = v.root().unwrap();
    let find = |name: &[u8]| v.lookup(&v.lookup(&root, &name[..2]).ok()?, &name[3..]).ok();
    for p in run.promises.iter().filter(|p| p.from <= at && at <= p.until) {
        let name = String::from_utf8_lossy(&p.name);
        let inode = find(&p.name).unwrap_or_else(|| panic!("{what}: {name} is gone"));
        let f = v.open(ROOT, &inode, OpenFlags::READ).unwrap();
        let mut found = vec![0; p.len];
        assert_eq!((f.size(), f.read_at(0, &mut found).unwrap()), (p.len as u64, p.len), "{what}: {name}");
        assert!(found == content(p.id, p.len), "{what}: {name} has other bytes");
    }
    for d in v.entries(&root).unwrap().iter().filter(|e| e.name != b"lost+found") {
        let dir = v.lookup(&root, &d.name).unwrap();
        for e in v.entries(&dir).unwrap() {
            let inode = v.lookup(&dir, &e.name).unwrap();
            let f = v.open(ROOT, &inode, OpenFlags::READ).unwrap();
            let mut found = vec![0; f.size() as usize];
            f.read_at(0, &mut found).unwrap();
            let name = String::from_utf8_lossy(&e.name).into_owned();
            let id: u64 = name.split('-').nth(1).unwrap().parse().unwrap();
            // A renamed file has the content of another number, which its bytes tell.
            let own = name.starts_with("file") && found == content(id, found.len());
            let moved = name.starts_with("moved") && (1..=id).any(|n| found == content(n, found.len()));
            assert!(own || moved, "{what}: {name} shows bytes that are not its own");
        }
    }
    v.unmount().unwrap();
    device
}

fn explore(name: &str, args: &[&str], seed: u64, logged: Logged) {
    if skip() {
        return;
    }
    let dir = scratch();
    let image = dir.path().join(format!("{name}.img"));
    mke2fs(&image, args, "24M");
    let base = std::fs::read(&image).unwrap();
    let seed = asked_seed().unwrap_or(seed);
    let states = std::env::var("TIDEGATE_TEST_STATES").ok().and_then(|s| s.parse().ok()).unwrap_or(STATES);
    println!("{name}: TIDEGATE_SEED={seed}");
    let unit = if args.contains(&"1024") { 1024 } else { 4096 };
    let run = run(&base, seed, 160, unit, logged);
    assert!(run.promises.len() > 20 && run.records.len() > 100);
    let mut rng = Rng::new(seed ^ 77);
    for n in 0..states {
        let at = 1 + rng.below(run.end);
        let what = format!("{name}, seed {seed}, state {n}, cut at {at} of {}", run.end);
        let left = cut(&base, &run, at, &mut rng);
        if n % JUDGED == 1 {
            recover_by_e2fsck(&what, &left, &image, &run, at);
        }
        if n % JUDGED == 2 {
            recover_by_kernel(&what, &left, &image, &run, at);
        }
        let device = look(&what, &left, &run, at);
        if n % JUDGED == 0 {
            judge(&what, &device, &image);
        }
    }
}

/// Lets e2fsck replay the journal: all promises hold, and e2fsck has nothing else to do but to correct the
/// superblock's counts of free blocks, which Linux leaves old after a power cut, too.
fn recover_by_e2fsck(what: &str, left: &[u8], image: &Path, run: &Run, at: u64) {
    std::fs::write(image, left).unwrap();
    let path = image.to_str().unwrap();
    let said = mended_by_e2fsck(path);
    let counts = ["Free blocks count wrong (", "Free inodes count wrong ("];
    let counted: usize = counts.iter().map(|c| said.matches(c).count()).sum();
    assert_eq!(said.matches("? yes").count(), counted, "{what}, by e2fsck: {said}");
    let (ok, said) = checked_by_e2fsck(path);
    assert!(ok, "{what}, after e2fsck: {said}");
    let left = std::fs::read(image).unwrap();
    assert_eq!(left[1024 + 0x60] & 4, 0, "{what}: the journal is left to us");
    look(&format!("{what}, after e2fsck"), &left, run, at);
}

/// Lets the host's kernel recover the volume and unmount it: all promises hold.
fn recover_by_kernel(what: &str, left: &[u8], image: &Path, run: &Run, at: u64) {
    std::fs::write(image, left).unwrap();
    drop(
        crate::rig::Mounted::new(image, "rw")
            .unwrap_or_else(|| panic!("{what}: the kernel does not mount it")),
    );
    let (ok, said) = checked_by_e2fsck(image);
    assert!(ok, "{what}, after the kernel: {said}");
    look(&format!("{what}, after the kernel"), &std::fs::read(image).unwrap(), run, at);
}

fn judge(what: &str, device: &MemoryDevice, image: &Path) {
    let mut bytes = vec![0; Device::size(device) as usize];
    device.read_at(0, &mut bytes);
    std::fs::write(image, bytes).unwrap();
    let (ok, said) = checked_by_e2fsck(image);
    assert!(ok, "{what}: {said}");
}

#[test]
fn a_power_cut_loses_nothing_that_was_promised() {
    explore("4k", &["-t", "ext4", "-b", "4096", "-J", "size=4"], 1, Logged::Nobody);
}

#[test]
fn a_power_cut_loses_nothing_that_was_promised_of_small_blocks() {
    explore(
        "1k",
        &["-t", "ext4", "-b", "1024", "-J", "size=2", "-O", "metadata_csum_seed"],
        2,
        Logged::Nobody,
    );
}

#[test]
fn a_power_cut_loses_nothing_that_was_promised_of_ext3() {
    explore("ext3", &["-t", "ext3", "-b", "1024", "-J", "size=2"], 3, Logged::Nobody);
}

#[test]
fn a_power_cut_loses_nothing_that_was_promised_with_data_in_the_journal() {
    explore("logged-4k", &["-t", "ext4", "-b", "4096", "-J", "size=4"], 4, Logged::All);
    explore("logged-1k", &["-t", "ext4", "-b", "1024", "-J", "size=2"], 5, Logged::All);
    explore("logged-ext3", &["-t", "ext3", "-b", "1024", "-J", "size=2"], 6, Logged::All);
}

#[test]
fn a_power_cut_loses_nothing_that_was_promised_with_data_of_some_in_the_journal() {
    explore("flagged-4k", &["-t", "ext4", "-b", "4096", "-J", "size=4"], 7, Logged::Some);
    explore("flagged-1k", &["-t", "ext4", "-b", "1024", "-J", "size=2"], 8, Logged::Some);
    explore("flagged-ext3", &["-t", "ext3", "-b", "1024", "-J", "size=2"], 9, Logged::Some);
}
