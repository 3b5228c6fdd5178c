//! kill -9 of the serving process under load. The mount answers at once, the image is recovered, stock fsck
//! finds nothing, and every fsynced byte is there.

use crate::rig::{Rig, Rng, block, cannot_mount, fsck, is_ext4, number, seed};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const THREADS: u64 = 4;
const SLOT: usize = 1500;
const SLOTS: u64 = 60;

#[derive(Default, Clone)]
struct Model {
    /// The names that the file may have: the name at the last sync of the directory, and each later one.
    names: Vec<String>,
    /// Version last written, and version last fsynced, of each slot (0: never).
    written: BTreeMap<u64, u64>,
    promised: BTreeMap<u64, u64>,
    /// Bytes: the last size, and the range of the sizes since the last fsync.
    size: u64,
    sizes: (u64, u64),
    /// Slots that were truncated or punched, and the versions that this made.
    holes: BTreeSet<(u64, u64)>,
    /// The file is promised to exist; it is promised to be gone.
    there: bool,
    gone: bool,
    touched_since: bool,
}

impl Model {
    /// The content of slot `s` of file `id` in its version `v`.
    fn slot(&self, id: u64, s: u64, v: u64) -> Vec<u8> {
        if v == 0 || self.holes.contains(&(s, v)) {
            return vec![0; SLOT];
        }
        format!("[{id} {s} {v}]").bytes().cycle().take(SLOT).collect()
    }

    /// A new version of a slot.
    fn next(&mut self, s: u64, hole: bool) -> u64 {
        let v = self.written.get(&s).copied().unwrap_or(0) + 1;
        self.written.insert(s, v);
        if hole {
            self.holes.insert((s, v));
        }
        v
    }

    fn resize(&mut self, size: u64) {
        self.size = size;
        self.sizes = (self.sizes.0.min(size), self.sizes.1.max(size));
    }

    fn name(&self) -> &str {
        self.names.last().expect("it has at least its first")
    }
}

/// Works until the mount dies. Returns the promises for each file. An error is the end of the mount: no promise is made
/// after it.
///
/// # Panics
/// An operation failed though the server was not `killed` yet, or with an error that a kill does not cause.
fn load(dir: &Path, thread: u64, rng: &mut Rng, killed: &AtomicBool) -> BTreeMap<u64, Model> {
    let mut models = BTreeMap::new();
    let mut open: Vec<(u64, File)> = Vec::new();
    let mut next = thread * 1_000_000 + 1;
    loop {
        let (what, r) = if open.len() < 3 || rng.below(40) == 0 {
            let new = OpenOptions::new().read(true).write(true).create_new(true).clone();
            let r = new.open(dir.join(next.to_string())).map(|f| {
                models.insert(next, Model { names: vec![next.to_string()], ..Model::default() });
                open.push((next, f));
            });
            next += 1;
            ("create".to_string(), r)
        } else {
            let (at, which) = (rng.below(open.len() as u64) as usize, rng.below(24));
            let what = format!("operation {which} on file {}", open[at].0);
            (what, step(dir, &mut open, at, which, &mut models, rng))
        };
        let Err(e) = r else { continue };
        assert!(killed.load(SeqCst), "{what}, before the kill: {e}");
        let dead = [Errno::NOTCONN, Errno::CONNABORTED, Errno::CANCELED, Errno::IO, Errno::INTR];
        let of_a_dead_mount = Errno::from_io_error(&e).is_some_and(|e| dead.contains(&e));
        assert!(of_a_dead_mount, "{what}, after the kill: {e}");
        return models;
    }
}

fn step(
    dir: &Path,
    open: &mut Vec<(u64, File)>,
    at: usize,
    which: u64,
    models: &mut BTreeMap<u64, Model>,
    rng: &mut Rng,
) -> io::Result<()> {
    let id = open[at].0;
    let Some(m) = models.get_mut(&id) else { return Ok(()) };
    match which {
        0..14 => {
            let s = rng.below(SLOTS);
            let v = m.next(s, false);
            m.resize(m.size.max((s + 1) * SLOT as u64));
            open[at].1.write_all_at(&m.slot(id, s, v), s * SLOT as u64)?;
        }
        14..17 => {
            if rng.below(2) == 0 {
                open[at].1.sync_all()?
            } else {
                open[at].1.sync_data()?
            }
            m.promised = m.written.clone();
            m.sizes = (m.size, m.size);
            m.there = true;
        }
        17 => {
            File::open(dir)?.sync_all()?;
            for m in models.values_mut() {
                m.there |= !m.touched_since;
                m.names.drain(..m.names.len() - 1);
            }
        }
        18 if rng.below(3) == 0 => {
            m.touched_since = true;
            (m.there, m.promised, m.sizes.0) = (false, BTreeMap::new(), 0);
            fs::remove_file(dir.join(m.name()))?;
            open.remove(at);
            File::open(dir)?.sync_all()?;
            models.entry(id).and_modify(|m| m.gone = true);
        }
        19 => {
            let from = m.name().to_string();
            m.names.push(format!("{id}-{}", m.names.len() + rng.below(1000) as usize));
            fs::rename(dir.join(from), dir.join(m.name()))?;
        }
        20 => {
            let first = rng.below(SLOTS);
            let cut: Vec<u64> = m.written.range(first..).map(|(s, _)| *s).collect();
            for s in cut {
                m.next(s, true);
            }
            m.resize(first * SLOT as u64);
            open[at].1.set_len(m.size)?;
        }
        21 => {
            let s = rng.below(SLOTS);
            m.next(s, true);
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            rustix::fs::fallocate(&open[at].1, how, s * SLOT as u64, SLOT as u64)?;
        }
        _ => {
            let s = rng.below(SLOTS);
            let mut b = vec![0; SLOT];
            let mut got = 0;
            while got < SLOT {
                match open[at].1.read_at(&mut b[got..], s * SLOT as u64 + got as u64)? {
                    0 => break,
                    n => got += n,
                }
            }
            let v = m.written.get(&s).copied().unwrap_or(0);
            assert!(b == m.slot(id, s, v), "file {id} slot {s} is not what was written");
        }
    }
    Ok(())
}

/// Compares the recovered volume with the promises.
fn judge(dir: &Path, models: &BTreeMap<u64, Model>, block: usize) {
    for (id, m) in models {
        let found = m.names.iter().find_map(|name| match fs::read(dir.join(name)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            read => Some(read.unwrap_or_else(|e| panic!("file {id}, {name}: {e}"))),
        });
        let Some(data) = found else {
            assert!(!m.there, "file {id} was fsynced and is gone; it was called {:?}", m.names);
            continue;
        };
        assert!(!m.gone, "file {id} was removed for good and is there");
        // A part of what made the file longer may be there.
        let (least, most) = m.sizes;
        let size = data.len() as u64;
        assert!((least..=most).contains(&size), "file {id} has {size} bytes: {least} to {most} may be there");
        for s in 0..SLOTS {
            // A slot without a promise holds zeros, or any version that was written there.
            let promised = m.promised.get(&s).copied().unwrap_or(0);
            let from = s as usize * SLOT;
            // The part past the end of the file counts as zeros.
            let mut found = data.iter().skip(from).take(SLOT).copied().collect::<Vec<u8>>();
            found.resize(SLOT, 0);
            // Any version between the promised one and the last write may be there, torn at block boundaries.
            let last = m.written.get(&s).copied().unwrap_or(0);
            let whole = (promised..=last).any(|v| found == m.slot(*id, s, v));
            let pieces = || {
                let borders = (from..from + SLOT).filter(|at| at % block == 0).map(|at| at - from);
                let ends: Vec<usize> = borders.chain([SLOT]).filter(|at| *at > 0).collect();
                let begins = [0].into_iter().chain(ends.iter().copied());
                let fits = |(begin, end): (usize, usize)| {
                    let piece = Some(&found[begin..end]);
                    (promised..=last).any(|v| m.slot(*id, s, v).get(begin..end) == piece)
                };
                begins.zip(ends.iter().copied()).all(fits)
            };
            assert!(whole || pieces(), "file {id} slot {s}: version {promised} to {last} may be there");
        }
    }
}

#[test]
fn what_was_fsynced_survives_kill_9() {
    if !cannot_mount() {
        survives(Rig::unmounted(512), block() as usize, number("TIDEGATE_KILLS", 5));
    }
}

/// Servers are killed on ext4 with a journal so small that its log wraps. Blocks are pages, so no page is
/// torn.
#[test]
fn what_was_fsynced_on_ext4_survives_kill_9() {
    if cannot_mount() || ["mke2fs", "e2fsck"].into_iter().any(tidegate_testing::oracle::skip_or_fail) {
        return;
    }
    let rig = Rig::unmounted(64);
    crate::rig::make_ext4(&rig.image, 512, &["-t", "ext4", "-b", "4096", "-J", "size=8"]);
    survives(rig, 4096, number("TIDEGATE_KILLS", 3));
}

/// Linux's F2FS recovers what nine writers left in eight streams.
#[test]
fn linux_recovers_what_nine_writers_left() {
    let needed = ["linux.uml", "f2fs.ko", "fsck.f2fs"];
    if cannot_mount() || is_ext4() || needed.into_iter().any(tidegate_testing::oracle::skip_or_fail) {
        return;
    }
    let mut rng = Rng(seed());
    let mut rig = Rig::unmounted(512);
    rig.mount("cache=16M,warm_streams=8,stream_policy=auto").unwrap();
    let models = killed_under_load(&mut rig, "nine", 9, &mut rng);
    assert!(models.values().any(|m| !m.promised.is_empty()), "the load promised nothing");
    let out = rig.scratch.path().join("recovered");
    fs::create_dir(&out).unwrap();
    let guest = tidegate_testing::uml::guest(&rig.image).timeout(Duration::from_secs(300)).env("OUT", &out);
    let body = "mount -t f2fs $DEV $MNT; cp -r $MNT/nine/. $OUT/; umount $MNT";
    guest.run(body).unwrap().check().unwrap();
    judge(&out, &models, 4096);
    fsck(&rig.image);
}

fn survives(mut rig: Rig, block: usize, rounds: u64) {
    let mut rng = Rng(seed());
    let mut promised = 0;
    for round in 0..rounds {
        rig.mount("cache=16M").unwrap();
        let name = format!("round{round}");
        let models = killed_under_load(&mut rig, &name, THREADS, &mut rng);
        promised += models.values().map(|m| m.promised.len()).sum::<usize>();
        rig.mount("").unwrap();
        let dir = rig.dir.join(name);
        judge(&dir, &models, block);
        fs::remove_dir_all(&dir).unwrap();
        assert!(rig.unmount());
        fsck(&rig.image);
    }
    assert!(promised > 0, "the load promised nothing");
}

/// Has `writers` threads work in the directory `name` of the mount until the server is killed. Returns the promises.
fn killed_under_load(rig: &mut Rig, name: &str, writers: u64, rng: &mut Rng) -> BTreeMap<u64, Model> {
    let dir = rig.dir.join(name);
    fs::create_dir(&dir).unwrap();
    File::open(&rig.dir).unwrap().sync_all().unwrap();
    let killed = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..writers)
        .map(|t| {
            let (dir, mut rng): (PathBuf, _) = (dir.clone(), Rng(rng.next() | 1));
            let killed = killed.clone();
            std::thread::spawn(move || load(&dir, t, &mut rng, &killed))
        })
        .collect();
    std::thread::sleep(Duration::from_millis(300 + rng.below(1500)));
    killed.store(true, SeqCst);
    // The threads end before the mount is gone: a path in it would then lead to the directory below.
    let ended = rig.kill_then(|| threads.into_iter().map(|t| t.join()).collect::<Vec<_>>());
    ended.into_iter().flat_map(|of_thread| of_thread.unwrap()).collect()
}
