//! A volume made by the stock tools, with helpers that find structures in it and damage them.

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::offline::check::{CheckOptions, CheckReport, check};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, QueueLimits, RequestQueue};

pub const ALL_FEATURES: &str =
    "extra_attr,inode_checksum,flexible_inline_xattr,inode_crtime,sb_checksum,lost_found";
/// Regular files in the tree; the hard-linked file counts once.
pub const FILES: u64 = MANY as u64 + 4;
/// Directories in the tree, the root included.
pub const DIRECTORIES: u64 = 5;
const MANY: usize = 700;
const SIZE: u64 = 128 << 20;

/// Bytes to write at a byte offset.
pub type Edits = [(usize, Vec<u8>)];

/// Names in `/many`; the longer names take three slots.
pub fn many_names() -> impl Iterator<Item = String> {
    (0..MANY).map(|n| format!("name-of-file-{n:04}"))
}

pub struct Volume {
    pub bytes: Vec<u8>,
    device: Arc<MemoryDevice>,
    pub sb: Superblock,
    pub cp: Checkpoint,
    image: tempfile::TempPath,
}

fn oracle(name: &str) -> Option<Command> {
    let path = ["/usr/sbin", "/sbin", "/usr/local/sbin"].map(|d| Path::new(d).join(name));
    let found = path.into_iter().find(|p| p.exists());
    if found.is_none() {
        assert!(std::env::var_os("CI").is_none_or(|v| v != "true"), "oracle {name} missing");
        println!("SKIPPED: oracle {name} missing");
    }
    found.map(Command::new)
}

fn run(mut command: Command) {
    let out = command.output().unwrap();
    let end = &out.stdout[out.stdout.len().saturating_sub(400)..];
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(end));
}

fn tree(dir: &Path) {
    std::fs::create_dir_all(dir.join("many")).unwrap();
    std::fs::create_dir_all(dir.join("deep/er/est")).unwrap();
    for name in many_names() {
        std::fs::write(dir.join("many").join(&name), &name).unwrap();
    }
    std::fs::write(dir.join("top.txt"), "hello").unwrap();
    std::fs::write(dir.join("mid"), vec![7; 3 << 20]).unwrap();
    // sload.f2fs 1.15 loses 50 blocks of larger files on volumes with flexible_inline_xattr.
    std::fs::write(dir.join("other"), vec![8; 3 << 20]).unwrap();
    std::fs::write(dir.join("linked"), vec![9; 5000]).unwrap();
    std::fs::hard_link(dir.join("linked"), dir.join("deep/linked-too")).unwrap();
    std::os::unix::fs::symlink("top.txt", dir.join("symlink")).unwrap();
}

impl Volume {
    /// A filled volume; none when the tools are missing.
    pub fn build(features: &str) -> Option<Volume> {
        let source = tempfile::tempdir().unwrap();
        tree(source.path());
        Self::make(features, Some(source.path()))
    }

    pub fn build_empty(features: &str) -> Option<Volume> {
        Self::make(features, None)
    }

    fn make(features: &str, source: Option<&Path>) -> Option<Volume> {
        let mut mkfs = oracle("mkfs.f2fs")?;
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(SIZE).unwrap();
        let image = file.into_temp_path();
        if !features.is_empty() {
            mkfs.args(["-O", features]);
        }
        mkfs.arg("-q").arg(&image);
        run(mkfs);
        if let Some(source) = source {
            let mut sload = oracle("sload.f2fs")?;
            sload.arg("-f").arg(source).arg(&image);
            // The exit status reports damage that sload.f2fs itself made and has repaired since.
            sload.output().unwrap();
        }
        let bytes = std::fs::read(&image).unwrap();
        let sb = Superblock::parse(&bytes[..4096], SIZE / 4096).unwrap();
        let cp = Checkpoint::load(&sb, |n| Ok(bytes[n as usize * 4096..][..4096].to_vec())).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&bytes));
        Some(Volume { bytes, device, sb, cp, image })
    }

    pub fn check(&self, edits: &Edits) -> CheckReport {
        self.check_with(edits, CheckOptions::default()).unwrap()
    }

    /// Checks the volume with `edits` made, then undoes them.
    pub fn check_with(&self, edits: &Edits, options: CheckOptions) -> tidegate_vfs::Result<CheckReport> {
        for (at, bytes) in edits {
            self.device.write_at(*at as u64, bytes);
        }
        let queue = RequestQueue::new(self.device.clone(), QueueLimits::default());
        let report = check(&queue, options);
        for (at, bytes) in edits {
            self.device.write_at(*at as u64, &self.bytes[*at..][..bytes.len()]);
        }
        report
    }

    /// Whether `fsck.f2fs --dry-run` reports a problem of the volume with `edits` made.
    pub fn fsck_objects(&self, edits: &Edits) -> bool {
        let file = std::fs::File::options().write(true).open(&self.image).unwrap();
        for (at, bytes) in edits {
            file.write_all_at(bytes, *at as u64).unwrap();
        }
        let out = oracle("fsck.f2fs").unwrap().arg("--dry-run").arg(&self.image).output().unwrap();
        for (at, bytes) in edits {
            file.write_all_at(&self.bytes[*at..][..bytes.len()], *at as u64).unwrap();
        }
        let text = String::from_utf8_lossy(&out.stdout);
        !out.status.success() || text.contains("[Fail]") || text.contains("[ASSERT]")
    }

    pub fn edit(&self, f: impl FnOnce(&mut Editor<'_>)) -> Vec<(usize, Vec<u8>)> {
        let mut e = Editor { vol: self, edits: Vec::new() };
        f(&mut e);
        e.edits
    }

    pub fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(*self.bytes[at..].first_chunk().unwrap())
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(*self.bytes[at..].first_chunk().unwrap())
    }

    /// The first summary block of the pack.
    fn summaries(&self) -> usize {
        (self.cp.start + self.cp.raw.cp_pack_start_sum.get()) as usize * 4096
    }

    /// The byte offset of the journal of the NAT (log 0) or the SIT (log 2).
    pub fn journal(&self, log: usize) -> usize {
        if self.cp.flags.contains(CpFlags::COMPACT_SUM) {
            self.summaries() + log / 2 * SUM_JOURNAL_SIZE
        } else {
            self.summaries() + log * 4096 + ENTRIES_IN_SUM * SUMMARY_SIZE
        }
    }

    /// The byte offset of the NAT entry of `nid`, in the journal or in the table.
    pub fn nat_entry(&self, nid: u32) -> usize {
        let journal = self.journal(0);
        let entries = (0..self.u16(journal) as usize).map(|n| journal + 2 + 13 * n);
        if let Some(at) = entries.into_iter().find(|&at| self.u32(at) == nid) {
            return at + 4;
        }
        let n = nid / 455;
        let second = test_bit_msb(&self.cp.nat_bitmap, n as usize);
        let block = self.sb.nat_blkaddr + n + if second { 512 } else { 0 };
        block as usize * 4096 + (nid % 455) as usize * 9
    }

    /// The byte offset of the SIT entry of `segno`.
    pub fn sit_entry(&self, segno: u32) -> usize {
        let journal = self.journal(2);
        let mut entries = (0..self.u16(journal) as usize).map(|n| journal + 2 + 78 * n);
        if let Some(at) = entries.find(|&at| self.u32(at) == segno) {
            return at + 4;
        }
        let n = segno / 55;
        let second = test_bit_msb(&self.cp.sit_bitmap, n as usize);
        let block = self.sb.sit_blkaddr + n + if second { self.sb.sit_blocks } else { 0 };
        block as usize * 4096 + (segno % 55) as usize * 74
    }

    /// The byte offset of node `nid`.
    pub fn node(&self, nid: u32) -> usize {
        self.u32(self.nat_entry(nid) + 5) as usize * 4096
    }

    /// The block address at `index` of an inode without extra attributes.
    pub fn addr(&self, ino: u32, index: usize) -> u32 {
        self.u32(self.node(ino) + I_ADDR_OFFSET + 4 * index)
    }

    pub fn segno(&self, addr: u32) -> u32 {
        (addr - self.sb.main_blkaddr) / 512
    }

    /// Finds an entry by its name in any dentry block of the main area.
    pub fn dentry(&self, name: &str) -> Dentry {
        for dir in self.directories() {
            let blocks = (0..20).map(|i| self.addr(dir, i)).filter(|a| *a != 0);
            for (index, base) in blocks.map(|a| a as usize * 4096).enumerate() {
                let at = |slot: usize| base + 30 + 11 * slot;
                let text = |slot: usize| base + 30 + 11 * 214 + 8 * slot;
                let found = (0..214).find(|&s| {
                    test_bit_le(&self.bytes[base..base + 27], s)
                        && self.u16(at(s) + 8) as usize == name.len()
                        && self.bytes[text(s)..].starts_with(name.as_bytes())
                });
                if let Some(slot) = found {
                    return Dentry {
                        base,
                        entry: at(slot),
                        name: text(slot),
                        slot,
                        index,
                        ino: self.u32(at(slot) + 4),
                    };
                }
            }
        }
        panic!("no entry {name}")
    }

    fn directories(&self) -> Vec<u32> {
        let nodes = self.sb.main_blkaddr as usize..self.bytes.len() / 4096;
        let inode =
            |at: usize| (self.u32(at + FOOTER_OFFSET) == self.u32(at + FOOTER_OFFSET + 4)).then_some(at);
        let dir = |at: &usize| self.u16(*at) & 0xf000 == 0x4000 && self.u32(at + FOOTER_OFFSET) >= 3;
        let mut found: Vec<u32> = nodes
            .filter_map(|n| inode(n * 4096))
            .filter(dir)
            .map(|at| self.u32(at + FOOTER_OFFSET))
            .filter(|&ino| ino < self.sb.max_nid && self.u32(self.nat_entry(ino) + 5) != 0)
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

/// Byte offsets of an entry's parts.
#[derive(Clone, Copy)]
pub struct Dentry {
    pub base: usize,
    pub entry: usize,
    pub name: usize,
    pub slot: usize,
    /// Index of the entry's block among the directory's mapped blocks.
    pub index: usize,
    pub ino: u32,
}

/// Gathers edits.
pub struct Editor<'v> {
    pub vol: &'v Volume,
    edits: Vec<(usize, Vec<u8>)>,
}

impl Editor<'_> {
    pub fn put(&mut self, at: usize, bytes: &[u8]) {
        self.edits.push((at, bytes.to_vec()));
    }

    pub fn put32(&mut self, at: usize, v: u32) {
        self.put(at, &v.to_le_bytes());
    }

    pub fn put16(&mut self, at: usize, v: u16) {
        self.put(at, &v.to_le_bytes());
    }

    pub fn add32(&mut self, at: usize, n: u32) {
        self.put32(at, self.vol.u32(at).wrapping_add(n));
    }

    pub fn flip(&mut self, at: usize) {
        self.put(at, &[self.vol.bytes[at] ^ 0x10]);
    }

    /// Changes the checkpoint's head and tail, and corrects the checksum.
    pub fn checkpoint(&mut self, f: impl FnOnce(&mut RawCheckpoint)) {
        let total = self.vol.cp.raw.cp_pack_total_block_count.get();
        self.checkpoint_of(total, f);
    }

    fn checkpoint_of(&mut self, total: u32, f: impl FnOnce(&mut RawCheckpoint)) {
        use zerocopy::{FromBytes, IntoBytes};
        let start = self.vol.cp.start as usize * 4096;
        let mut block = self.vol.bytes[start..start + 4096].to_vec();
        let mut raw = RawCheckpoint::read_from_prefix(&block).unwrap().0;
        f(&mut raw);
        block[..CP_BITMAP_OFFSET].copy_from_slice(raw.as_bytes());
        let offset = raw.checksum_offset.get() as usize;
        let crc = checkpoint_crc(&block, offset);
        block[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
        self.put(start, &block);
        self.put(start + (total as usize - 1) * 4096, &block);
    }

    /// Inserts an orphan block into the pack, in front of the summaries.
    pub fn orphans(&mut self, inos: &[u32], count: u32) {
        let (start, total) = (self.vol.cp.start as usize, self.vol.cp.raw.cp_pack_total_block_count.get());
        let first = start + self.vol.cp.raw.cp_pack_start_sum.get() as usize;
        let moved = self.vol.bytes[first * 4096..(start + total as usize - 1) * 4096].to_vec();
        self.put((first + 1) * 4096, &moved);
        let mut block = vec![0; 4096];
        for (n, ino) in inos.iter().enumerate() {
            block[4 * n..4 * n + 4].copy_from_slice(&ino.to_le_bytes());
        }
        block[4084..4086].copy_from_slice(&1u16.to_le_bytes());
        block[4086..4088].copy_from_slice(&1u16.to_le_bytes());
        block[4088..4092].copy_from_slice(&count.to_le_bytes());
        self.put(first * 4096, &block);
        self.checkpoint_of(total + 1, |r| {
            r.cp_pack_total_block_count.set(total + 1);
            r.cp_pack_start_sum.set(r.cp_pack_start_sum.get() + 1);
            r.ckpt_flags.set(r.ckpt_flags.get() | CpFlags::ORPHAN_PRESENT.bits());
        });
    }
}
