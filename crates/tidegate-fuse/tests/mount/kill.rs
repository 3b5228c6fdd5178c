//! kill -9 of the serving process in the middle of a load. The mount answers at once, the image is recovered,
//! stock fsck finds nothing, and every fsynced byte is there.

use crate::rig::{Rig, Rng, cannot_mount, fsck, number, seed};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const THREADS: u64 = 4;
const SLOT: usize = 1500;
const SLOTS: u64 = 60;

/// What a slot of a file holds in its version `v`.
fn slot(file: u64, slot: u64, v: u64) -> Vec<u8> {
    let stamp = format!("[{file} {slot} {v}]");
    stamp.bytes().cycle().take(SLOT).collect()
}

#[derive(Default, Clone)]
struct Model {
    /// Version last written, and version last fsynced, of each slot (0: never).
    written: BTreeMap<u64, u64>,
    promised: BTreeMap<u64, u64>,
    /// The file is promised to exist; it is promised to be gone.
    there: bool,
    gone: bool,
    touched_since: bool,
}

/// Works until the mount dies; what was promised of each file.
fn load(dir: &Path, thread: u64, rng: &mut Rng) -> BTreeMap<u64, Model> {
    let mut models = BTreeMap::new();
    let mut open: Vec<(u64, File)> = Vec::new();
    let mut next = thread * 1_000_000 + 1;
    // An error is the end of the mount: no promise is made after it.
    let _ = (|| -> io::Result<()> {
        loop {
            if open.len() < 3 || rng.below(40) == 0 {
                let f = OpenOptions::new()
                    .read(true)
                    .write(true)
                    .create_new(true)
                    .open(dir.join(next.to_string()))?;
                models.insert(next, Model::default());
                open.push((next, f));
                next += 1;
            }
            let at = rng.below(open.len() as u64) as usize;
            step(dir, &mut open, at, &mut models, rng)?;
        }
    })();
    models
}

fn step(
    dir: &Path,
    open: &mut Vec<(u64, File)>,
    at: usize,
    models: &mut BTreeMap<u64, Model>,
    rng: &mut Rng,
) -> io::Result<()> {
    let id = open[at].0;
    let Some(m) = models.get_mut(&id) else { return Ok(()) };
    match rng.below(20) {
        0..14 => {
            let s = rng.below(SLOTS);
            let v = m.written.get(&s).copied().unwrap_or(0) + 1;
            m.written.insert(s, v);
            open[at].1.write_all_at(&slot(id, s, v), s * SLOT as u64)?;
        }
        14..17 => {
            if rng.below(2) == 0 {
                open[at].1.sync_all()?
            } else {
                open[at].1.sync_data()?
            }
            m.promised = m.written.clone();
            m.there = true;
        }
        17 => File::open(dir)?
            .sync_all()
            .map(|()| models.values_mut().for_each(|m| m.there |= !m.touched_since))?,
        18 if rng.below(3) == 0 => {
            m.touched_since = true;
            (m.there, m.promised) = (false, BTreeMap::new());
            fs::remove_file(dir.join(id.to_string()))?;
            open.remove(at);
            File::open(dir)?.sync_all()?;
            models.entry(id).and_modify(|m| m.gone = true);
        }
        _ => {
            let s = rng.below(SLOTS);
            let mut b = vec![0; SLOT];
            if let Some(v) = m.written.get(&s) {
                open[at].1.read_exact_at(&mut b, s * SLOT as u64)?;
                assert!(b == slot(id, s, *v), "file {id} slot {s} is not what was written");
            }
        }
    }
    Ok(())
}

/// Compares what the recovered volume has with what was promised.
fn judge(dir: &Path, models: &BTreeMap<u64, Model>) {
    for (id, m) in models {
        let path = dir.join(id.to_string());
        let Ok(data) = fs::read(&path) else {
            assert!(!m.there, "file {id} was fsynced and is gone");
            continue;
        };
        assert!(!m.gone, "file {id} was removed for good and is there");
        for (s, promised) in &m.promised {
            let from = *s as usize * SLOT;
            let found = data.get(from..from + SLOT).unwrap_or_default();
            // Between a promise and the last write any version may be there; torn at page borders.
            let last = m.written[s];
            let whole = (*promised..=last).any(|v| found == slot(*id, *s, v));
            let pieces = || {
                let border = 4096 - from % 4096;
                let (a, b) = found.split_at(border.min(found.len()));
                let fits = |piece: &[u8], at: usize| {
                    (*promised..=last).any(|v| slot(*id, *s, v).get(at..at + piece.len()) == Some(piece))
                };
                found.len() == SLOT && fits(a, 0) && fits(b, a.len())
            };
            assert!(whole || pieces(), "file {id} slot {s}: version {promised} to {last} was promised");
        }
    }
}

#[test]
fn what_was_fsynced_survives_kill_9() {
    if cannot_mount() {
        return;
    }
    let seed = seed();
    let mut rng = Rng(seed);
    let mut rig = Rig::unmounted(512);
    let mut promised = 0;
    for round in 0..number("TIDEGATE_FUSE_KILLS", 5) {
        rig.mount("cache=16M").unwrap();
        let dir = rig.dir.join(format!("round{round}"));
        fs::create_dir(&dir).unwrap();
        File::open(&rig.dir).unwrap().sync_all().unwrap();
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                let (dir, mut rng): (PathBuf, _) = (dir.clone(), Rng(rng.next() | 1));
                std::thread::spawn(move || load(&dir, t, &mut rng))
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300 + rng.below(1500)));
        rig.kill();
        let mut models = BTreeMap::new();
        for t in threads {
            models.extend(t.join().unwrap());
        }
        promised += models.values().map(|m| m.promised.len()).sum::<usize>();
        rig.mount("").unwrap();
        judge(&dir, &models);
        fs::remove_dir_all(&dir).unwrap();
        assert!(rig.unmount());
        fsck(&rig.image);
    }
    assert!(promised > 0, "the load promised nothing");
}
