//! Repairs that are killed and run again: the result is that of a repair that was not killed.
//!
//! `TIDEGATE_SEED` is the first seed, `TIDEGATE_SEEDS` the number of seeds.

use crate::agree::rig::*;
use crate::common::volume::{FEATURES, Image, template};
use std::sync::Arc;
use tidegate_block::{BioFlags, MemoryDevice, Op, Record, Recorder};
use tidegate_f2fs::gate::Superblock;
use tidegate_f2fs::raw::*;
use tidegate_f2fs::repair::Outcome;
use tidegate_testing::fill::Rng;
use tidegate_vfs::*;

const LINKS: usize = std::mem::offset_of!(RawInode, i_links);
const BLOCKS: usize = std::mem::offset_of!(RawInode, i_blocks);
/// Cuts of each repair at random points, besides the cuts at flushes.
const CUTS: usize = 4;

fn number(name: &str, or: u64) -> u64 {
    std::env::var(name).map_or(or, |v| v.parse().expect("a number"))
}

/// Directories, links, attributes, small and large files; with `fsynced`, power was lost after some fsyncs.
fn scene(features: &'static str, fsynced: bool) -> Arc<MemoryDevice> {
    let device = template(64, features).device();
    let v = mount(device.clone()).unwrap();
    let top = v.root().unwrap();
    for d in 0..6 {
        let dir = v.mkdir(ROOT, &top, format!("dir-{d}").as_bytes(), 0o755).unwrap();
        for n in 0..[3, 250, 20, 60, 1, 120][d] {
            let inode = v.create(ROOT, &dir, format!("name-of-file-{n:05}").as_bytes(), 0o644).unwrap();
            let text = format!("{d}/{n} ").repeat(1 + n * 37 % 2500);
            v.open(ROOT, &inode, RW).unwrap().write_at(0, text.as_bytes()).unwrap();
            if n % 10 == 0 {
                v.link(ROOT, &inode, &top, format!("link-{d}-{n}").as_bytes()).unwrap();
                v.symlink(ROOT, &dir, format!("symlink-{n}").as_bytes(), b"somewhere").unwrap();
                v.setxattr(ROOT, &inode, b"user.long", Some(&[7; 3000]), XattrFlags::empty()).unwrap();
                v.setxattr(ROOT, &inode, b"user.short", Some(b"x"), XattrFlags::empty()).unwrap();
            }
        }
    }
    let f = v.open_path(ROOT, b"sparse", RW | OpenFlags::CREATE, 0o600).unwrap();
    for n in 0..6 {
        f.write_at(n * (700 << 12), &[n as u8 + 1; 5000]).unwrap();
    }
    if !fsynced {
        v.unmount().unwrap();
        return Image::of(&device).device();
    }
    v.sync().unwrap();
    for n in 0..10 {
        let path = format!("dir-{}/fsynced-{n}", n % 3);
        let f = v.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o600).unwrap();
        f.write_at(0, &[n as u8; 9000]).unwrap();
        f.fsync(false).unwrap();
    }
    let cut = Image::of(&device).device();
    drop(f);
    v.unmount().unwrap();
    cut
}

/// The structures that a repair works with, for random damage to them.
struct Victim<'a> {
    device: &'a MemoryDevice,
    sb: &'a Superblock,
    rng: Rng,
}

impl Victim<'_> {
    fn below(&mut self, n: usize) -> usize {
        let mut b = [0; 8];
        self.rng.fill(&mut b);
        (u64::from_le_bytes(b) % n as u64) as usize
    }

    fn find(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<u32> {
        let end = self.sb.main_blkaddr + self.sb.main_segments * BLOCKS_PER_SEG;
        (self.sb.main_blkaddr..end).filter(|n| wanted(&block(self.device, *n))).collect()
    }

    fn inodes(&self) -> Vec<u32> {
        self.find(|b| {
            let (nid, ino) = (get32(b, FOOTER_OFFSET), get32(b, FOOTER_OFFSET + 4));
            nid == ino && nid > 3 && nid < 5000 && b[LINKS..LINKS + 4] != [0; 4]
        })
    }

    fn nodes(&self) -> Vec<u32> {
        self.find(|b| {
            let (nid, ino) = (get32(b, FOOTER_OFFSET), get32(b, FOOTER_OFFSET + 4));
            nid > 3 && nid < 5000 && ino > 3 && ino <= nid
        })
    }

    fn entries(&self) -> Vec<u32> {
        self.find(|b| b[30 + 11 * 214..].windows(10).filter(|w| w == b"me-of-file").count() > 10)
    }

    fn garbage(&mut self, n: u32) {
        let mut b = vec![0; BLOCK_SIZE];
        self.rng.fill(&mut b);
        set_block(self.device, n, &b);
    }

    fn some(&mut self, of: Vec<u32>, n: usize) -> Vec<u32> {
        if of.is_empty() { of } else { (0..n).map(|_| of[self.below(of.len())]).collect() }
    }

    fn wipe(&self, blocks: std::ops::Range<u32>) {
        blocks.for_each(|n| set_block(self.device, n, &[0; BLOCK_SIZE]));
    }

    fn change(&self, n: u32, f: impl FnOnce(&mut [u8])) {
        let mut b = block(self.device, n);
        f(&mut b);
        sign(self.sb, &mut b);
        set_block(self.device, n, &b);
    }

    /// Does one kind of damage and returns its name.
    fn damage(&mut self) -> &'static str {
        match self.below(11) {
            0 => {
                self.wipe(self.sb.nat_blkaddr..self.sb.ssa_blkaddr);
                "no NAT"
            }
            1 => {
                self.wipe(self.sb.sit_blkaddr..self.sb.nat_blkaddr);
                "no SIT"
            }
            2 => {
                self.wipe(self.sb.ssa_blkaddr..self.sb.main_blkaddr);
                "no SSA"
            }
            3 => {
                let all = self.entries();
                self.some(all, 2).into_iter().for_each(|n| self.garbage(n));
                "garbage for entries"
            }
            4 => {
                let all = self.entries();
                let two = self.some(all, 2);
                if let [a, b] = two[..] {
                    let (x, y) = (block(self.device, a), block(self.device, b));
                    set_block(self.device, a, &y);
                    set_block(self.device, b, &x);
                }
                "blocks of entries exchanged"
            }
            5 => {
                let all = self.inodes();
                self.some(all, 100).into_iter().for_each(|n| self.change(n, |b| put32(b, LINKS, 9)));
                "wrong link counts"
            }
            6 => {
                let all = self.inodes();
                self.some(all, 100).into_iter().for_each(|n| self.change(n, |b| put32(b, BLOCKS, 77)));
                "wrong block counts"
            }
            7 => {
                let all = self.nodes();
                self.some(all, 4).into_iter().for_each(|n| self.garbage(n));
                "garbage for nodes"
            }
            8 => {
                // Every other entry of both copies is damaged.
                let blocks = self.sb.sit_blkaddr..self.sb.nat_blkaddr;
                for n in blocks.step_by(BLOCKS_PER_SEG as usize / 2) {
                    self.change(n, |b| b.chunks_exact_mut(74).step_by(2).for_each(|e| e.fill(0)));
                }
                "half a SIT"
            }
            9 => {
                let all = self.inodes();
                let two = self.some(all, 2);
                if let [a, b] = two[..] {
                    let at = block(self.device, b);
                    let to = get32(&at, addrs_at(&at));
                    self.change(a, |b| put32(b, addrs_at(b), to));
                }
                "an address of another file's"
            }
            _ => {
                let area = self.sb.sit_blkaddr..self.sb.main_blkaddr;
                let all: Vec<u32> = area.filter(|n| block(self.device, *n).iter().any(|b| *b != 0)).collect();
                self.some(all, 3).into_iter().for_each(|n| self.garbage(n));
                "garbage in the metadata"
            }
        }
    }
}

/// Repairs the volume; returns its content.
fn finish(device: &Arc<MemoryDevice>) -> std::result::Result<Tree, String> {
    let r = run_repair(device.clone()).map_err(|e| format!("refused: {e}"))?;
    if r.outcome == Outcome::Left {
        return Err(format!("left: {:?}", r.check.problems.first()));
    }
    let v = mount(device.clone()).map_err(|e| format!("opening: {e}"))?;
    let tree = walk(&v);
    v.unmount().map_err(|e| format!("unmounting: {e}"))?;
    tree
}

/// The points at which the record is cut: behind each flush, just before it, and at random.
fn cuts(records: &[Record], v: &mut Victim<'_>) -> Vec<usize> {
    let flushes = |r: &Record| r.op == Op::Flush || r.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA);
    let at = (0..records.len()).filter(|i| flushes(&records[*i]));
    let mut all: Vec<usize> = at.flat_map(|i| [i, i + 1]).collect();
    // If there are many flushes, a few of them are enough.
    while all.len() > 8 {
        all.remove(v.below(all.len()));
    }
    all.extend((0..CUTS).map(|_| v.below(records.len() + 1)));
    all.sort_unstable();
    all.dedup();
    all
}

fn brief(a: &Tree, b: &Tree) -> String {
    let only = |x: &Tree, y: &Tree| {
        let names: Vec<_> =
            x.iter().filter(|(p, t)| y.get(*p) != Some(*t)).map(|(p, t)| format!("{p} {t}")).collect();
        format!(
            "{}: {:?}",
            names.len(),
            names.iter().take(3).map(|n| &n[..n.len().min(130)]).collect::<Vec<_>>()
        )
    };
    format!("without a cut {}; after it {}", only(a, b), only(b, a))
}

/// Judges one seed; returns the faults, and the number of cuts tried.
fn one(base: &Image, sb: &Superblock, seed: u64) -> (Vec<String>, usize) {
    let device = base.device();
    let mut v = Victim { device: &device, sb, rng: Rng::new(seed) };
    let kinds: Vec<_> = (0..1 + v.below(3)).map(|_| v.damage()).collect();
    let damaged = Image::of(&device);
    let recorder = Arc::new(Recorder::new(damaged.device()));
    let whole = match run_repair(recorder.clone()) {
        Err(_) => return (Vec::new(), 0),
        Ok(r) if r.outcome != Outcome::Corrected => return (Vec::new(), 0),
        Ok(_) => recorder.take(),
    };
    let said = |what: String| format!("seed {seed} ({}), {what}", kinds.join(", "));
    let want = match caught("repair", || finish(&damaged.device())) {
        Ok(tree) => tree,
        Err(e) => return (vec![said(format!("without a cut: {e}"))], 0),
    };
    match caught("repair", || finish(&damaged.device())) {
        Ok(again) if again == want => {}
        Ok(again) => return (vec![said(format!("twice without a cut: {}", brief(&want, &again)))], 0),
        Err(e) => return (vec![said(format!("the second time without a cut: {e}"))], 0),
    }
    let (mut bad, mut tried) = (Vec::new(), 0);
    for cut in cuts(&whole, &mut v) {
        for some in [false, true] {
            tried += 1;
            let device = cut_off(&damaged, &whole[..cut], &mut || !some || v.below(2) == 0);
            let how = if some { ", of what was not flushed some" } else { "" };
            let what = format!("cut after {cut} of {} requests{how}", whole.len());
            match caught("repair", || finish(&device)) {
                Ok(tree) if tree == want => {}
                Ok(tree) => bad.push(said(format!("{what}: {}", brief(&want, &tree)))),
                Err(e) => bad.push(said(format!("{what}: {e}"))),
            }
        }
    }
    (bad, tried)
}

fn all(features: &'static str, fsynced: bool) {
    if crate::agree::skip() {
        return;
    }
    let base = scene(features, fsynced);
    let (image, sb) = (Image::of(&base), superblock(&base));
    let (mut bad, mut tried, mut repairs) = (Vec::new(), 0, 0);
    let from = number("TIDEGATE_SEED", 100);
    for seed in from..from + number("TIDEGATE_SEEDS", 72) {
        let (wrong, n) = one(&image, &sb, seed);
        bad.extend(wrong);
        tried += n;
        repairs += usize::from(n > 0);
    }
    println!("{repairs} repairs, {tried} cuts");
    assert!(bad.is_empty(), "{} of {tried} cuts of {repairs} repairs:\n{}", bad.len(), bad.join("\n"));
    assert!(tried > 0 || std::env::var_os("TIDEGATE_SEEDS").is_some(), "nothing was cut");
}

#[test]
fn a_repair_that_was_killed_ends_as_one_that_was_not() {
    all("", false);
}

#[test]
fn a_repair_that_was_killed_ends_as_one_that_was_not_with_features() {
    all(FEATURES, false);
}

#[test]
fn a_repair_that_was_killed_recovers_what_was_fsynced() {
    all("", true);
}
