//! The first inodes, and the blocks of the first directories.

use super::MkfsOptions;
use super::geometry::{JOURNAL_INO, resize_inode_bytes};
use super::plan::Plan;
use crate::format::crc::crc32c;
use crate::format::gate::Superblock;
use crate::format::raw::*;
use std::ops::Range;
use zerocopy::{FromZeros, IntoBytes};

/// Index of the doubly indirect block's number in a map without extents.
const DIND: usize = 13;
const S_IFREG: u16 = 0o100_000;
const S_IFDIR: u16 = 0o040_000;
const FT_DIR: u8 = 2;

/// A run of a file's blocks.
pub(super) type Extent = Range<u64>;

/// Makes inodes.
pub(super) struct Inodes<'a> {
    pub sb: &'a Superblock,
    pub options: &'a MkfsOptions,
}

/// A new inode's fields.
struct New {
    mode: u16,
    links: u16,
    size: u64,
    /// Blocks of the volume that the file takes.
    blocks: u64,
    flags: InodeFlags,
    i_block: [u8; I_BLOCK_SIZE],
}

impl Inodes<'_> {
    /// The first blocks of the inode table, up to the last inode in use.
    pub fn table(&self, plan: &Plan) -> Vec<u8> {
        let (size, bs) = (self.sb.inode_size as usize, self.sb.block_size as usize);
        let mut table = vec![0; (plan.inodes() as usize * size).next_multiple_of(bs)];
        let mut put = |ino: u32, inode: RawInode| {
            let at = (ino as usize - 1) * size;
            self.put(ino, inode, &mut table[at..at + size]);
        };
        // Unused inodes have a checksum, too.
        (BAD_INO..self.sb.first_ino).for_each(|ino| put(ino, RawInode::new_zeroed()));
        put(BAD_INO, self.times());
        put(ROOT_INO, self.dir(0o755, 3, std::slice::from_ref(&plan.root), true));
        if self.sb.compat.contains(Compat::RESIZE_INODE) {
            put(RESIZE_INO, self.resize(plan));
        }
        if let Some(journal) = &plan.journal {
            put(JOURNAL_INO, self.file(journal.blocks, journal.index, &journal.extents));
        }
        put(self.sb.first_ino, self.dir(0o700, 2, &plan.lost_found, false));
        if let Some(orphans) = &plan.orphan_file {
            put(self.sb.first_ino + 1, self.file(orphans.blocks, orphans.index, &orphans.extents));
        }
        table
    }

    fn times(&self) -> RawInode {
        let mut inode = RawInode::new_zeroed();
        let seconds = self.options.time.secs as u32;
        (inode.i_atime, inode.i_ctime, inode.i_mtime) = (seconds.into(), seconds.into(), seconds.into());
        inode
    }

    fn new_inode(&self, new: &New) -> RawInode {
        let mut inode = self.times();
        inode.i_mode = new.mode.into();
        inode.i_links_count = new.links.into();
        (inode.i_size_lo, inode.i_size_high) = ((new.size as u32).into(), ((new.size >> 32) as u32).into());
        let sectors = new.blocks * u64::from(self.sb.block_size) / 512;
        (inode.i_blocks_lo, inode.i_blocks_high) = ((sectors as u32).into(), ((sectors >> 32) as u16).into());
        inode.i_flags = new.flags.bits().into();
        inode.i_block = new.i_block;
        if self.sb.inode_size > INODE_BASE as u32 {
            let secs = self.options.time.secs;
            let epoch = ((secs - i64::from(secs as i32)) >> 32) as u32 & 3;
            inode.i_extra_isize = ((size_of::<RawInode>() - INODE_BASE) as u16).into();
            (inode.i_ctime_extra, inode.i_mtime_extra) = (epoch.into(), epoch.into());
            inode.i_atime_extra = epoch.into();
            (inode.i_crtime, inode.i_crtime_extra) = ((secs as u32).into(), epoch.into());
        }
        inode
    }

    fn dir(&self, mode: u16, links: u16, extents: &[Extent], root: bool) -> RawInode {
        let blocks = extents.iter().map(|e| e.end - e.start).sum::<u64>();
        let mut inode = self.new_inode(&New {
            mode: S_IFDIR | mode,
            links,
            size: blocks * u64::from(self.sb.block_size),
            blocks,
            flags: InodeFlags::EXTENTS,
            i_block: extent_root(None, extents),
        });
        if root {
            let (uid, gid) = (self.options.root_uid, self.options.root_gid);
            (inode.i_uid, inode.i_uid_high) = ((uid as u16).into(), ((uid >> 16) as u16).into());
            (inode.i_gid, inode.i_gid_high) = ((gid as u16).into(), ((gid >> 16) as u16).into());
        }
        inode
    }

    fn file(&self, blocks: u64, index: Option<u64>, extents: &[Extent]) -> RawInode {
        self.new_inode(&New {
            mode: S_IFREG | 0o600,
            links: 1,
            size: blocks * u64::from(self.sb.block_size),
            blocks: blocks + u64::from(index.is_some()),
            flags: InodeFlags::EXTENTS,
            i_block: extent_root(index, extents),
        })
    }

    /// The inode whose map leads to the blocks behind all copies of the descriptors; its size is the largest
    /// that such a map allows.
    fn resize(&self, plan: &Plan) -> RawInode {
        let mut i_block = [0; I_BLOCK_SIZE];
        i_block[DIND * 4..DIND * 4 + 4].copy_from_slice(&(plan.resize_map as u32).to_le_bytes());
        let copies = super::groups::desc_copies(self.sb, 0).len() as u64;
        let reserved = u64::from(self.sb.raw.s_reserved_gdt_blocks.get());
        self.new_inode(&New {
            mode: S_IFREG | 0o600,
            links: 1,
            size: resize_inode_bytes(self.sb.block_size.into()),
            blocks: 1 + reserved * copies,
            flags: InodeFlags::empty(),
            i_block,
        })
    }

    /// The seed of an inode's checksums, and of its blocks' checksums.
    pub fn seed(&self, ino: u32) -> u32 {
        crc32c(crc32c(self.sb.csum_seed, &ino.to_le_bytes()), &[0; 4])
    }

    fn put(&self, ino: u32, inode: RawInode, bytes: &mut [u8]) {
        let n = bytes.len().min(size_of::<RawInode>());
        bytes[..n].copy_from_slice(&inode.as_bytes()[..n]);
        if self.sb.has_csum() {
            let crc = crc32c(self.seed(ino), bytes);
            bytes[CSUM_LO_OFFSET..CSUM_LO_OFFSET + 2].copy_from_slice(&(crc as u16).to_le_bytes());
            if inode.i_extra_isize.get() > 0 {
                let high = ((crc >> 16) as u16).to_le_bytes();
                bytes[CSUM_HI_OFFSET..CSUM_HI_OFFSET + 2].copy_from_slice(&high);
            }
        }
    }

    /// A block of a directory: entries that fill it, and the checksum.
    pub fn dir_block(&self, dir: u32, entries: &[(u32, &str)]) -> Vec<u8> {
        let bs = self.sb.block_size as usize;
        let end = if self.sb.has_csum() { bs - DIR_TAIL } else { bs };
        let mut block = vec![0; bs];
        let mut at = 0;
        for (n, (ino, name)) in entries.iter().enumerate() {
            let own = (DIRENT_HEAD + name.len()).next_multiple_of(4);
            let rec_len = if n + 1 == entries.len() { end - at } else { own };
            let head = RawDirEntry {
                inode: (*ino).into(),
                rec_len: (rec_len as u16).into(),
                name_len: name.len() as u8,
                file_type: if *ino == 0 { 0 } else { FT_DIR },
            };
            block[at..at + DIRENT_HEAD].copy_from_slice(head.as_bytes());
            block[at + DIRENT_HEAD..at + DIRENT_HEAD + name.len()].copy_from_slice(name.as_bytes());
            at += rec_len;
        }
        if self.sb.has_csum() {
            let tail = RawDirTail::new(crc32c(self.seed(dir), &block[..end]));
            block[end..].copy_from_slice(tail.as_bytes());
        }
        block
    }

    /// The block of the extent tree below inode `ino`.
    pub fn extent_block(&self, ino: u32, extents: &[Extent]) -> Vec<u8> {
        let bs = self.sb.block_size as usize;
        let mut block = vec![0; bs];
        let most = (bs - EXTENT_ENTRY) / EXTENT_ENTRY;
        put_extents(&mut block, extents, most as u16);
        if self.sb.has_csum() {
            let end = RawExtentTail::offset(&block);
            let tail = RawExtentTail { et_checksum: crc32c(self.seed(ino), &block[..end]).into() };
            block[end..end + size_of::<RawExtentTail>()].copy_from_slice(tail.as_bytes());
        }
        block
    }
}

/// Extents that the inode has room for.
pub(super) const IN_INODE: usize = I_BLOCK_SIZE / EXTENT_ENTRY - 1;

/// The map in an inode: extents, or the one block below that has the extents.
fn extent_root(index: Option<u64>, extents: &[Extent]) -> [u8; I_BLOCK_SIZE] {
    let mut bytes = [0; I_BLOCK_SIZE];
    let Some(leaf) = index else {
        put_extents(&mut bytes, extents, IN_INODE as u16);
        return bytes;
    };
    // Behind the entry lies the old content from before the tree grew, as in Linux.
    put_extents(&mut bytes, &extents[..extents.len().min(IN_INODE)], IN_INODE as u16);
    put_header(&mut bytes, 1, IN_INODE as u16, 1);
    let entry = RawExtentIndex {
        ei_block: 0.into(),
        ei_leaf_lo: (leaf as u32).into(),
        ei_leaf_hi: ((leaf >> 32) as u16).into(),
        ei_unused: 0.into(),
    };
    bytes[EXTENT_ENTRY..2 * EXTENT_ENTRY].copy_from_slice(entry.as_bytes());
    bytes
}

fn put_header(bytes: &mut [u8], entries: u16, most: u16, depth: u16) {
    let header = RawExtentHeader {
        eh_magic: EXTENT_MAGIC.into(),
        eh_entries: entries.into(),
        eh_max: most.into(),
        eh_depth: depth.into(),
        eh_generation: 0.into(),
    };
    bytes[..EXTENT_ENTRY].copy_from_slice(header.as_bytes());
}

fn put_extents(bytes: &mut [u8], extents: &[Extent], most: u16) {
    put_header(bytes, extents.len() as u16, most, 0);
    let mut block = 0;
    for (extent, place) in extents.iter().zip(bytes[EXTENT_ENTRY..].chunks_exact_mut(EXTENT_ENTRY)) {
        let len = extent.end - extent.start;
        let entry = RawExtent {
            ee_block: (block as u32).into(),
            ee_len: (len as u16).into(),
            ee_start_hi: ((extent.start >> 32) as u16).into(),
            ee_start_lo: (extent.start as u32).into(),
        };
        place.copy_from_slice(entry.as_bytes());
        block += len;
    }
}
