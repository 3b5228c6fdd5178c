//! Chains of fsynced nodes that no correct writer leaves: opening ends with an error that says what to do, or
//! recovers what can be recovered. It never panics, hangs, or leaves a volume that is not clean.

use crate::common::volume;
use crate::common::watch;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};
use tidegate_f2fs::F2fsOptions;
use tidegate_f2fs::open::{load_checkpoint, load_superblock};
use tidegate_f2fs::raw::*;
use tidegate_vfs::*;
use volume::{FEATURES, Image, fsck, mount_with, template};

const ROOT: &Cred = &Cred::ROOT;
const RW: OpenFlags = OpenFlags::READ.union(OpenFlags::WRITE);
const FLAG: usize = FOOTER_OFFSET + 8;
const NEXT: usize = FOOTER_OFFSET + 20;
const PINO: usize = std::mem::offset_of!(RawInode, i_pino);
const NAMELEN: usize = PINO + 4;

fn open(device: Arc<MemoryDevice>, list: &str) -> Result<Arc<Vfs>> {
    let mut o = F2fsOptions::default();
    o.parse(list).unwrap();
    let mount = MountOptions { no_periodic_writeback: true, ..Default::default() };
    mount_with(device, MemoryLimits::default(), o, mount).map(|v| v.1)
}

/// A volume that lost power after some fsyncs, and its chain.
#[derive(Clone)]
struct Crashed {
    device: Arc<MemoryDevice>,
    chain: Vec<u32>,
    main: u32,
    end: u32,
    /// A block with a valid node, and a block with valid data.
    node: u32,
    data: u32,
    /// Inode numbers of a directory and of a file that were not fsynced.
    dir: u32,
    bystander: u32,
}

/// An old file with direct nodes, then fsyncs: of new files `a` and `b`, of the old file, of the new file `c`
/// in `d`.
fn crashed(features: &'static str) -> Crashed {
    let device = template(64, features).device();
    let v = open(device.clone(), "").unwrap();
    let file = |path: &str| v.open_path(ROOT, path.as_bytes(), RW | OpenFlags::CREATE, 0o644).unwrap();
    let dir = v.mkdir(ROOT, &v.root().unwrap(), b"d", 0o755).unwrap().ino.0 as u32;
    let (old, bystander) = (file("/old"), file("/bystander"));
    old.write_at(0, &[1; 4096 * 1500]).unwrap();
    bystander.write_at(0, &[2; 4096 * 30]).unwrap();
    v.sync().unwrap();
    for (i, path) in ["/a", "/b", "/old", "/d/c"].into_iter().enumerate() {
        let f = file(path);
        f.write_at(0, &[3; 4096 * 20]).unwrap();
        f.write_at(4096 * 1000, &vec![4; 4096 * (i + 1)]).unwrap();
        f.fsync(false).unwrap();
    }
    let bystander = bystander.inode().ino.0 as u32;
    let image = Image::of(&device).device();
    let queue = RequestQueue::new(image.clone(), QueueLimits::default());
    let sb = load_superblock(&queue).unwrap();
    let cp = load_checkpoint(&queue, &sb).unwrap();
    let at = |seg: u32, off: u16| sb.main_blkaddr + seg * BLOCKS_PER_SEG + u32::from(off);
    let mut c = Crashed {
        chain: Vec::new(),
        main: sb.main_blkaddr,
        end: sb.main_blkaddr + sb.main_segments * BLOCKS_PER_SEG,
        node: at(cp.raw.cur_node_segno[1].get(), 0),
        data: at(cp.raw.cur_data_segno[1].get(), 0),
        device: image,
        dir,
        bystander,
    };
    let mut next = at(cp.raw.cur_node_segno[1].get(), cp.raw.cur_node_blkoff[1].get());
    let stamp = c.block(next)[FOOTER_OFFSET + 12..NEXT].to_vec();
    while c.block(next)[FOOTER_OFFSET + 12..NEXT] == stamp {
        c.chain.push(next);
        next = c.word(next, NEXT);
    }
    assert_eq!(c.chain.len(), 8, "a direct node and an inode for each fsync");
    v.unmount().unwrap();
    c
}

impl Crashed {
    /// A copy of this crash on a separate device.
    fn copy(&self) -> Crashed {
        Crashed { device: Image::of(&self.device).device(), ..self.clone() }
    }

    fn block(&self, n: u32) -> Vec<u8> {
        let mut b = vec![0; BLOCK_SIZE];
        self.device.read_at(u64::from(n) * BLOCK_SIZE as u64, &mut b);
        b
    }

    fn word(&self, n: u32, at: usize) -> u32 {
        u32::from_le_bytes(self.block(n)[at..at + 4].try_into().unwrap())
    }

    fn change(&self, n: u32, f: impl FnOnce(&mut [u8])) {
        let mut b = self.block(n);
        f(&mut b);
        if b[3] & inline::EXTRA_ATTR != 0 && ofs(&b) == 0 {
            self.sign(&mut b);
        }
        self.device.write_at(u64::from(n) * BLOCK_SIZE as u64, &b);
    }

    /// Corrects the checksum of an inode.
    fn sign(&self, b: &mut [u8]) {
        let queue = RequestQueue::new(self.device.clone(), QueueLimits::default());
        let sb = load_superblock(&queue).unwrap();
        let generation = std::mem::offset_of!(RawInode, i_generation);
        let mut c = f2fs_chksum(u32::MAX, &sb.raw.uuid);
        c = f2fs_chksum(c, &b[FOOTER_OFFSET + 4..FOOTER_OFFSET + 8]);
        c = f2fs_chksum(c, &b[generation..generation + 4]);
        c = f2fs_chksum(c, &b[..I_CHKSUM_OFFSET]);
        c = f2fs_chksum(c, &[0; 4]);
        c = f2fs_chksum(c, &b[I_CHKSUM_OFFSET + 4..]);
        b[I_CHKSUM_OFFSET..I_CHKSUM_OFFSET + 4].copy_from_slice(&c.to_le_bytes());
    }

    fn set(&self, n: u32, at: usize, v: u32) {
        self.change(n, |b| put(b, at, v));
    }

    /// The block of the `i`-th direct node in the chain; below, of an inode.
    fn dnode(&self, i: usize) -> u32 {
        self.chain[i * 2]
    }

    fn inode(&self, i: usize) -> u32 {
        self.chain[i * 2 + 1]
    }

    /// First word of an inode's addresses.
    fn addrs(&self, n: u32) -> usize {
        let b = self.block(n);
        let extra = if b[3] & inline::EXTRA_ATTR != 0 { b[I_ADDR_OFFSET] as usize } else { 0 };
        I_ADDR_OFFSET + extra
    }
}

fn put(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}

fn ofs(b: &[u8]) -> u32 {
    u32::from_le_bytes(b[FLAG..FLAG + 4].try_into().unwrap()) >> OFFSET_BIT_SHIFT
}

fn set_ofs(b: &mut [u8], to: u32) {
    let flag = u32::from_le_bytes(b[FLAG..FLAG + 4].try_into().unwrap());
    put(b, FLAG, flag & ((1 << OFFSET_BIT_SHIFT) - 1) | to << OFFSET_BIT_SHIFT);
}

/// The outcome that opening must have.
#[derive(Clone, Copy, PartialEq)]
enum Want {
    /// An error that says what to do.
    Error,
    /// The volume opens.
    Opens,
    /// Either outcome.
    Any,
}

type Damage = (&'static str, Want, fn(&Crashed));

const DAMAGES: &[Damage] = &[
    ("none", Want::Opens, |_| ()),
    ("loop to the start", Want::Error, |c| c.set(c.inode(2), NEXT, c.chain[0])),
    ("a block that follows itself", Want::Error, |c| c.set(c.inode(1), NEXT, c.inode(1))),
    ("stale node in the middle", Want::Opens, |c| {
        c.change(c.dnode(2), |b| b[FOOTER_OFFSET + 12] = b[FOOTER_OFFSET + 12].wrapping_sub(1))
    }),
    ("next is 0", Want::Opens, |c| c.set(c.inode(1), NEXT, 0)),
    ("next below the main area", Want::Opens, |c| c.set(c.inode(1), NEXT, c.main - 1)),
    ("next past the end", Want::Opens, |c| c.set(c.inode(1), NEXT, c.end)),
    ("next is the largest number", Want::Opens, |c| c.set(c.inode(1), NEXT, u32::MAX)),
    ("garbage inode", Want::Any, |c| c.change(c.inode(1), |b| garbage(&mut b[..FOOTER_OFFSET]))),
    ("garbage direct node", Want::Error, |c| c.change(c.dnode(1), |b| garbage(&mut b[..FOOTER_OFFSET]))),
    ("garbage inode of an old file", Want::Any, |c| {
        c.change(c.inode(2), |b| garbage(&mut b[..FOOTER_OFFSET]))
    }),
    ("garbage numbers", Want::Any, |c| c.change(c.dnode(1), |b| garbage(&mut b[FOOTER_OFFSET..FLAG]))),
    ("garbage flags", Want::Any, |c| c.change(c.dnode(1), |b| garbage(&mut b[FLAG..FLAG + 4]))),
    ("parent is gone", Want::Error, |c| c.set(c.inode(1), PINO, 5000)),
    ("parent is no directory", Want::Error, |c| c.set(c.inode(1), PINO, c.bystander)),
    ("parent out of range", Want::Error, |c| c.set(c.inode(1), PINO, u32::MAX)),
    ("no name", Want::Error, |c| c.set(c.inode(1), NAMELEN, 0)),
    ("name too long", Want::Error, |c| c.set(c.inode(1), NAMELEN, 256)),
    ("name with a slash", Want::Error, |c| c.change(c.inode(1), |b| b[NAMELEN + 4] = b'/')),
    ("name is a dot", Want::Error, |c| c.change(c.inode(1), |b| b[NAMELEN + 4] = b'.')),
    ("name of a directory in use", Want::Error, |c| c.change(c.inode(1), |b| b[NAMELEN + 4] = b'd')),
    ("name of the file before it", Want::Opens, |c| c.change(c.inode(1), |b| b[NAMELEN + 4] = b'a')),
    ("dentry mark of an old file", Want::Opens, |c| c.change(c.inode(2), |b| b[FLAG] |= DENT_BIT_MASK as u8)),
    ("dentry mark of an old file that says another name", Want::Opens, |c| {
        c.change(c.inode(2), |b| {
            b[FLAG] |= DENT_BIT_MASK as u8;
            b[NAMELEN + 4] = b'X';
        })
    }),
    ("direct node where an indirect one belongs", Want::Any, |c| c.change(c.dnode(1), |b| set_ofs(b, 3))),
    ("direct node out of place", Want::Any, |c| c.change(c.dnode(1), |b| set_ofs(b, 2))),
    ("direct node behind the largest file", Want::Error, |c| {
        c.change(c.dnode(1), |b| set_ofs(b, XATTR_NODE_OFFSET - 1))
    }),
    ("direct node says it holds attributes", Want::Any, |c| {
        c.change(c.dnode(1), |b| set_ofs(b, XATTR_NODE_OFFSET))
    }),
    ("direct node of a directory", Want::Any, |c| {
        c.change(c.dnode(1), |b| {
            put(b, FOOTER_OFFSET + 4, c.dir);
            b[FLAG] |= FSYNC_BIT_MASK as u8;
        })
    }),
    ("address below the main area", Want::Error, |c| c.set(c.dnode(2), 40, c.main - 7)),
    ("address past the end", Want::Error, |c| c.set(c.dnode(2), 40, c.end)),
    ("address of a node", Want::Error, |c| c.set(c.dnode(2), 40, c.node)),
    ("address of the chain", Want::Any, |c| c.set(c.dnode(2), 40, c.chain[0])),
    ("address of another file's data", Want::Any, |c| c.set(c.dnode(2), 40, c.data)),
    ("inode with an address of another file's data", Want::Any, |c| {
        c.set(c.inode(1), c.addrs(c.inode(1)) + 100, c.data)
    }),
    ("one address twice", Want::Any, |c| c.set(c.dnode(1), 40, c.word(c.inode(1), c.addrs(c.inode(1))))),
    ("one address twice in a node", Want::Any, |c| {
        let at = c.addrs(c.inode(1));
        c.set(c.inode(1), at + 200, c.word(c.inode(1), at))
    }),
    ("addresses exchanged", Want::Opens, |c| {
        let at = c.addrs(c.inode(2));
        let (x, y) = (c.word(c.inode(2), at), c.word(c.inode(2), at + 300 * 4));
        c.set(c.inode(2), at, y);
        c.set(c.inode(2), at + 300 * 4, x);
    }),
    ("inline data longer than an inode", Want::Error, |c| {
        c.change(c.inode(1), |b| b[3] |= inline::DATA | inline::DATA_EXIST)
    }),
    ("size above the largest", Want::Error, |c| c.set(c.inode(1), 16 + 4, u32::MAX)),
    ("inode is a directory", Want::Any, |c| {
        c.change(c.inode(1), |b| b[..2].copy_from_slice(&0o40755u16.to_le_bytes()))
    }),
    ("inode number 1", Want::Any, |c| number(c, 1)),
    ("inode number 3", Want::Any, |c| number(c, 3)),
    ("number of a file in use", Want::Any, |c| number(c, c.bystander)),
    ("number of a directory in use", Want::Any, |c| number(c, c.dir)),
];

fn number(c: &Crashed, ino: u32) {
    for n in [c.dnode(1), c.inode(1)] {
        c.change(n, |b| put(b, FOOTER_OFFSET + 4, ino));
    }
    c.set(c.inode(1), FOOTER_OFFSET, ino);
}

fn garbage(b: &mut [u8]) {
    tidegate_testing::fill::Rng::new(b.len() as u64).fill(b);
}

/// Opens a copy with the options `list`, and judges the outcome.
fn try_open(c: &Crashed, list: &str, want: Want) -> std::result::Result<(), String> {
    let device = Image::of(&c.device).device();
    let v = match open(device.clone(), list) {
        Ok(v) => v,
        Err(_) if want == Want::Opens => return Err("it does not open".into()),
        Err(e) => {
            let text = e.to_string();
            let advice = text.contains("fsck.f2fs") && text.contains("disable_roll_forward");
            return if advice { Ok(()) } else { Err(format!("no advice: {text}")) };
        }
    };
    if want == Want::Error {
        return Err("it opens".into());
    }
    read_all(&v)?;
    v.unmount().map_err(|e| format!("unmount: {e}"))?;
    if list == "ro" { Ok(()) } else { fsck(&device).map_err(|e| e.chars().take(500).collect()) }
}

/// Reads every file that a name leads to.
fn read_all(v: &Arc<Vfs>) -> std::result::Result<(), String> {
    let mut dirs = vec![v.root().unwrap()];
    while let Some(dir) = dirs.pop() {
        for e in v.entries(&dir).map_err(|e| e.to_string())? {
            let what = |x: Error| format!("{}: {x}", String::from_utf8_lossy(&e.name));
            let inode = v.lookup(&dir, &e.name).map_err(what)?;
            if inode.is_dir() {
                dirs.push(inode);
                continue;
            }
            let f = v.open(ROOT, &inode, OpenFlags::READ).map_err(what)?;
            let mut buf = vec![0; f.size().min(16 << 20) as usize];
            f.read_at(0, &mut buf).map_err(what)?;
        }
    }
    Ok(())
}

fn all(features: &'static str) {
    if ["mkfs.f2fs", "fsck.f2fs"].iter().any(|o| tidegate_testing::oracle::skip_or_fail(o)) {
        return;
    }
    let mut bad = Vec::new();
    let crashed = crashed(features);
    for (name, want, damage) in DAMAGES {
        let c = crashed.copy();
        damage(&c);
        for (list, want) in [("", *want), ("ro", *want), ("disable_roll_forward", Want::Opens)] {
            let c = c.clone();
            let tried = watch::within(Duration::from_secs(30), name, move || {
                std::panic::catch_unwind(AssertUnwindSafe(|| try_open(&c, list, want)))
            });
            match tried {
                Ok(Ok(())) => {}
                Ok(Err(e)) => bad.push(format!("{name} ({list}): {e}")),
                Err(_) => bad.push(format!("{name} ({list}): panic")),
            }
        }
    }
    assert!(bad.is_empty(), "{} of them:\n{}", bad.len(), bad.join("\n"));
}

#[test]
fn no_chain_does_harm() {
    all("");
}

#[test]
fn no_chain_does_harm_with_features() {
    all(FEATURES);
}
