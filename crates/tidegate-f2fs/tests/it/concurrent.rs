//! Several threads on one volume, each in a directory of its own, all renaming through a shared one, with
//! syncs beside them and little memory. Each thread must find what it wrote; fsck.f2fs must find nothing.

use crate::util;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use tidegate_rt::thread;
use tidegate_vfs::*;
use util::{fsck, make_image, mount_with};

const ROOT: &Cred = &Cred::ROOT;
const THREADS: u64 = 4;
const ROUNDS: u64 = 1500;

/// A small generator; the seed is the thread's number, so the operations of a run are reproducible.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

fn content(thread: u64, file: u64, version: u64, len: usize) -> Vec<u8> {
    let mut r = Rng(thread << 40 ^ file << 20 ^ version);
    (0..len).map(|_| r.below(256) as u8).collect()
}

/// A thread's knowledge of its files: version and length by number.
type Known = std::collections::BTreeMap<u64, (u64, usize)>;

fn work(v: &Arc<Vfs>, t: u64) -> Known {
    let (mut r, mut known) = (Rng(t), Known::new());
    let top = v.root().unwrap();
    let shared = v.lookup(&top, b"shared").unwrap();
    let dir = v.mkdir(ROOT, &top, format!("t{t}").as_bytes(), 0o755).unwrap();
    for round in 0..ROUNDS {
        let n = r.below(60);
        let name = format!("f{n}");
        match r.below(10) {
            0..6 => {
                let len = [10, 3000, 5000, 70_000, 400_000][r.below(5) as usize];
                let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNC;
                let f = v.open_path(ROOT, format!("/t{t}/{name}").as_bytes(), flags, 0o644).unwrap();
                f.write_at(0, &content(t, n, round, len)).unwrap();
                known.insert(n, (round, len));
                if r.below(50) == 0 {
                    f.fsync(false).unwrap();
                }
            }
            6 | 7 => {
                let gone = v.unlink(ROOT, &dir, name.as_bytes()).is_ok();
                assert_eq!(gone, known.remove(&n).is_some(), "thread {t}, round {round}");
            }
            8 if known.contains_key(&n) => {
                let there = format!("t{t}-{name}");
                let (here, there) = ((&dir, name.as_bytes()), (&shared, there.as_bytes()));
                v.rename(ROOT, here, there, RenameFlags::empty()).unwrap();
                v.rename(ROOT, there, here, RenameFlags::NOREPLACE).unwrap();
            }
            _ => {
                if let Some((version, len)) = known.get(&n) {
                    let f =
                        v.open_path(ROOT, format!("/t{t}/{name}").as_bytes(), OpenFlags::READ, 0).unwrap();
                    let mut b = vec![0; f.size() as usize];
                    f.read_at(0, &mut b).unwrap();
                    assert!(b == content(t, n, *version, *len), "thread {t}, round {round}, file {n}");
                }
            }
        }
    }
    known
}

#[test]
fn threads_keep_out_of_each_others_way() {
    if tidegate_testing::oracle::skip_or_fail("mkfs.f2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = make_image(dir.path(), 400 << 20, "");
    let tight = MemoryLimits { cache: 12 << 20, dirty: 4 << 20, background: 1 << 20, inodes: 64 };
    let v = mount_with(&path, tight);
    v.mkdir(ROOT, &v.root().unwrap(), b"shared", 0o755).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let syncer = {
        let (v, stop) = (v.clone(), stop.clone());
        thread::spawn("syncer", move || {
            while !stop.load(SeqCst) {
                v.sync().unwrap();
                thread::sleep(std::time::Duration::from_millis(15));
            }
        })
        .unwrap()
    };
    let workers: Vec<_> = (0..THREADS)
        .map(|t| {
            let v = v.clone();
            thread::spawn("worker", move || work(&v, t)).unwrap()
        })
        .collect();
    let known: Vec<Known> = workers.into_iter().map(|w| w.join()).collect();
    stop.store(true, SeqCst);
    syncer.join();
    v.unmount().unwrap();
    drop(v);
    fsck(&path);

    let v = mount_with(&path, tight);
    for (t, files) in known.iter().enumerate() {
        let dir = v.resolve(ROOT, format!("/t{t}").as_bytes(), true).unwrap();
        assert_eq!(v.entries(&dir).unwrap().len(), files.len());
        for (n, (version, len)) in files {
            let f = v.open_path(ROOT, format!("/t{t}/f{n}").as_bytes(), OpenFlags::READ, 0).unwrap();
            let mut b = vec![0; f.size() as usize];
            f.read_at(0, &mut b).unwrap();
            assert!(b == content(t as u64, *n, *version, *len), "thread {t}, file {n}");
        }
    }
    v.unmount().unwrap();
}
