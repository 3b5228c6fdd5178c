//! One file is changed in every way except by mappings, beside a model in memory: written cached and directly,
//! truncated, punched, zeroed, copied within itself, synced, reopened, remounted.

use crate::rig::{Rig, Rng, cannot_mount, number, seed};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use std::os::fd::OwnedFd;
use std::path::Path;

const LARGEST: u64 = 300_000;

/// Memory for direct I/O: a page boundary lies within.
struct Aligned(Vec<u8>);

impl Aligned {
    fn new(len: usize) -> Aligned {
        Aligned(vec![0; len + 4096])
    }

    fn get(&mut self, len: usize) -> &mut [u8] {
        let skip = self.0.as_ptr().align_offset(4096);
        &mut self.0[skip..skip + len]
    }
}

struct Exercise {
    cached: OwnedFd,
    direct: OwnedFd,
    model: Vec<u8>,
    buf: Aligned,
}

fn open(path: &Path, more: OFlags) -> OwnedFd {
    rustix::fs::open(path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | more, Mode::RUSR | Mode::WUSR)
        .unwrap()
}

impl Exercise {
    fn new(path: &Path, model: Vec<u8>) -> Exercise {
        let (cached, direct) = (open(path, OFlags::empty()), open(path, OFlags::DIRECT));
        Exercise { cached, direct, model, buf: Aligned::new(1 << 19) }
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        let end = at as usize + data.len();
        if self.model.len() < end {
            self.model.resize(end, 0);
        }
        self.model[at as usize..end].copy_from_slice(data);
    }

    fn zero(&mut self, at: u64, len: u64, grow: bool) {
        let end = (at + len) as usize;
        if grow && self.model.len() < end {
            self.model.resize(end, 0);
        }
        let (a, b) = ((at as usize).min(self.model.len()), end.min(self.model.len()));
        self.model[a..b].fill(0);
    }

    /// Does one change or check. Returns its description.
    fn step(&mut self, rng: &mut Rng) -> String {
        let at = rng.below(LARGEST);
        let len = 1 + rng.below(40_000).min(rng.below(40_000));
        let size = self.model.len() as u64;
        match rng.below(14) {
            0..3 => {
                let data: Vec<u8> = (0..len).map(|i| (i as u8) ^ rng.0 as u8).collect();
                assert_eq!(rustix::io::pwrite(&self.cached, &data, at), Ok(data.len()));
                self.put(at, &data);
                format!("write {len} at {at}")
            }
            3 => {
                let (at, len) = (at / 4096 * 4096, len.next_multiple_of(4096));
                let fill = rng.next() as u8;
                let b = self.buf.get(len as usize);
                b.fill(fill);
                assert_eq!(rustix::io::pwrite(&self.direct, &*b, at), Ok(len as usize));
                self.put(at, &vec![fill; len as usize]);
                format!("direct write {len} at {at}")
            }
            4..7 => {
                self.look(at, len);
                format!("read {len} at {at}")
            }
            7 => {
                let (at, len) = (at / 4096 * 4096, len.next_multiple_of(4096));
                let b = self.buf.get(len as usize);
                let n = rustix::io::pread(&self.direct, &mut *b, at).unwrap();
                let want = &self.model[(at.min(size)) as usize..(at + len).min(size) as usize];
                assert!(b[..n] == *want, "direct read {len} at {at} of {size}");
                format!("direct read {len} at {at}")
            }
            8 => {
                let to = rng.below(LARGEST);
                rustix::fs::ftruncate(&self.cached, to).unwrap();
                self.model.resize(to as usize, 0);
                format!("truncate {to}")
            }
            9 => {
                let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                rustix::fs::fallocate(&self.cached, how, at, len).unwrap();
                self.zero(at, len, false);
                format!("punch {len} at {at}")
            }
            10 => {
                let keep = rng.below(2) == 0;
                let more = if keep { FallocateFlags::KEEP_SIZE } else { FallocateFlags::empty() };
                rustix::fs::fallocate(&self.cached, FallocateFlags::ZERO_RANGE | more, at, len).unwrap();
                self.zero(at, len, !keep);
                format!("zero {len} at {at}, keep {keep}")
            }
            11 => {
                rustix::fs::fallocate(&self.cached, FallocateFlags::empty(), at, len).unwrap();
                self.model.resize((at + len).max(size) as usize, 0);
                format!("allocate {len} at {at}")
            }
            12 if size > 2 => {
                let from = rng.below(size / 2);
                let len = len.min(size / 2 - from).max(1);
                let to = size / 2 + rng.below(LARGEST / 2);
                let n = rustix::fs::copy_file_range(
                    &self.cached,
                    Some(&mut from.clone()),
                    &self.cached,
                    Some(&mut to.clone()),
                    len as usize,
                );
                let n = n.unwrap();
                let data = self.model[from as usize..from as usize + n].to_vec();
                self.put(to, &data);
                format!("copy {n} of {len} from {from} to {to}")
            }
            _ => {
                rustix::fs::fsync(&self.cached).unwrap();
                "fsync".to_string()
            }
        }
    }

    fn look(&mut self, at: u64, len: u64) {
        let size = self.model.len() as u64;
        assert_eq!(rustix::fs::fstat(&self.cached).unwrap().st_size as u64, size);
        let mut b = vec![0; len as usize];
        let n = rustix::io::pread(&self.cached, &mut b, at).unwrap();
        let want = &self.model[at.min(size) as usize..(at + len).min(size) as usize];
        let differs = b[..n].iter().zip(want).position(|(a, b)| a != b);
        assert!(b[..n] == *want, "read {len} at {at} of {size}: {n} bytes, the first wrong at {differs:?}");
    }
}

fn exercise(transport: &str) {
    if cannot_mount() {
        return;
    }
    let mut rng = Rng(seed());
    let words = format!("cache=8M,transport={transport}");
    let mut rig = Rig::new(256, &words);
    let mut model = Vec::new();
    for _ in 0..number("TIDEGATE_FUSE_ROUNDS", 6) {
        let mut x = Exercise::new(&rig.dir.join("f"), model);
        let mut done = Vec::new();
        for _ in 0..200 {
            let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| x.step(&mut rng)));
            match looked {
                Ok(what) => done.push(what),
                Err(p) => {
                    println!("after:\n{}", done[done.len().saturating_sub(25)..].join("\n"));
                    std::panic::resume_unwind(p);
                }
            }
        }
        x.look(0, LARGEST * 2);
        model = x.model;
        drop((x.cached, x.direct));
        assert!(rig.unmount());
        rig.mount(&words).unwrap();
        Exercise::new(&rig.dir.join("f"), model.clone()).look(0, LARGEST * 2);
    }
    rig.finish();
}

#[test]
fn a_file_is_what_was_done_to_it() {
    exercise("dev");
}

#[test]
fn a_file_is_what_was_done_to_it_by_the_best_transport() {
    exercise("best");
}
