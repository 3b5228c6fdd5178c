//! The first directories: the root, and lost+found when asked for. Each has one node and one dentry block.

use super::{Layout, MkfsOptions};
use crate::format::raw::{
    BLOCK_SIZE, F2FS_SLOT_LEN, Features, NR_DENTRY_IN_BLOCK, RawDirEntry, RawExtraAttr, RawInode,
    RawInodeBlock, RawNodeFooter, SIZE_OF_DENTRY_BITMAP, SIZE_OF_DIR_ENTRY, SIZE_OF_RESERVED, dentry_hash,
    f2fs_chksum, file_type, inline, set_bit_le,
};
use crate::format::units::{BlockAddr, Nid};
use std::mem::offset_of;
use tidegate_block::PageBuf;
use zerocopy::{FromZeros, IntoBytes};

/// The node that stands for the node mapping; it has no block.
pub(super) const NODE_INO: Nid = Nid(1);
/// The node that stands for the meta mapping; it has no block.
pub(super) const META_INO: Nid = Nid(2);
/// The root directory.
pub(super) const ROOT_INO: Nid = Nid(3);

const LOST_FOUND: &str = "lost+found";
const S_IFDIR: u16 = 0o40000;
/// Version in the footer of a node that mkfs wrote; no checkpoint has it.
const FOOTER_VERSION: u64 = 1;
const ENTRIES_OFFSET: usize = SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED;
const NAMES_OFFSET: usize = ENTRIES_OFFSET + NR_DENTRY_IN_BLOCK * SIZE_OF_DIR_ENTRY;

/// A directory that the volume begins with.
pub(super) struct NewDir {
    pub nid: Nid,
    parent: Nid,
    name: &'static str,
    mode: u16,
    /// The place of the inode: the next block of the hot node log.
    pub node: BlockAddr,
    /// The place of the entries: the next block of the hot data log.
    pub data: BlockAddr,
}

/// The directories, in the order of their blocks in the logs. The root is the first.
pub(super) fn new_dirs(layout: &Layout, options: &MkfsOptions) -> Vec<NewDir> {
    let lost_found = options.has(Features::LOST_FOUND).then_some((LOST_FOUND, 0o700));
    let dirs = std::iter::once(("", 0o755)).chain(lost_found);
    let [hot_data, .., hot_node, _, _] = layout.logs.map(|log| layout.segment_start(log));
    let new = |(i, (name, mode)): (u32, _)| NewDir {
        nid: Nid(ROOT_INO.0 + i),
        parent: ROOT_INO,
        name,
        mode,
        node: hot_node.plus(i),
        data: hot_data.plus(i),
    };
    (0..).zip(dirs).map(new).collect()
}

impl NewDir {
    fn is_root(&self) -> bool {
        self.nid == ROOT_INO
    }

    /// The inode's block. `subdirs`: the number of directories in this one.
    pub fn node_block(&self, subdirs: u32, options: &MkfsOptions, uuid: &[u8; 16]) -> PageBuf {
        let mut block = RawInodeBlock::new_zeroed();
        block.inode = self.inode(subdirs, options);
        let mut extra = 0;
        if options.has(Features::EXTRA_ATTR) {
            extra = extra_bytes(options);
            block.i_addr.as_mut_bytes()[..extra]
                .copy_from_slice(&extra_attributes(options).as_bytes()[..extra]);
        }
        block.i_addr[extra / 4] = self.data.0.into();
        block.footer = self.footer();
        let mut page = PageBuf::zeroed(1);
        page.copy_from_slice(block.as_bytes());
        if options.has(Features::INODE_CHKSUM) {
            let sum = inode_checksum(&page, self.nid, uuid);
            if let Some(extra) = RawExtraAttr::of_mut(&mut page) {
                extra.i_inode_checksum = sum.into();
            }
        }
        page
    }

    fn inode(&self, subdirs: u32, options: &MkfsOptions) -> RawInode {
        let mut i = RawInode::new_zeroed();
        i.i_mode = (S_IFDIR | self.mode).into();
        i.i_inline = if options.has(Features::EXTRA_ATTR) { inline::EXTRA_ATTR } else { 0 };
        i.i_uid = options.root_uid.into();
        i.i_gid = options.root_gid.into();
        i.i_links = (2 + subdirs).into();
        i.i_size = (BLOCK_SIZE as u64).into();
        i.i_blocks = 2.into();
        // Seconds before 1970 are stored in two's complement.
        (i.i_atime, i.i_atime_nsec) = ((options.time.secs as u64).into(), options.time.nanos.into());
        (i.i_ctime, i.i_ctime_nsec) = (i.i_atime, i.i_atime_nsec);
        (i.i_mtime, i.i_mtime_nsec) = (i.i_atime, i.i_atime_nsec);
        i.i_current_depth = 1.into();
        // The root has neither name nor parent.
        if !self.is_root() {
            i.i_pino = self.parent.0.into();
            i.i_namelen = (self.name.len() as u32).into();
            i.i_name[..self.name.len()].copy_from_slice(self.name.as_bytes());
        }
        i
    }

    fn footer(&self) -> RawNodeFooter {
        RawNodeFooter {
            nid: self.nid.0.into(),
            ino: self.nid.0.into(),
            flag: 0.into(),
            cp_ver: FOOTER_VERSION.into(),
            next_blkaddr: self.node.plus(1).0.into(),
        }
    }

    /// The dentry block: ".", ".." and the directories among `all` in this one.
    pub fn dentry_block(&self, all: &[NewDir]) -> PageBuf {
        let mut block = PageBuf::zeroed(1);
        let mut slot = add_entry(&mut block, 0, ".", self.nid);
        slot = add_entry(&mut block, slot, "..", self.parent);
        for dir in all.iter().filter(|d| !d.is_root() && d.parent == self.nid) {
            slot = add_entry(&mut block, slot, dir.name, dir.nid);
        }
        block
    }

    /// Directories among `all` that lie in this one.
    pub fn subdirs(&self, all: &[NewDir]) -> u32 {
        all.iter().filter(|d| !d.is_root() && d.parent == self.nid).count() as u32
    }
}

/// Adds a directory at `slot` and returns the next free slot.
fn add_entry(block: &mut [u8], slot: usize, name: &str, nid: Nid) -> usize {
    let entry = RawDirEntry {
        hash_code: dentry_hash(name.as_bytes()).into(),
        ino: nid.0.into(),
        name_len: (name.len() as u16).into(),
        file_type: file_type::DIR,
    };
    let at = ENTRIES_OFFSET + slot * SIZE_OF_DIR_ENTRY;
    block[at..at + SIZE_OF_DIR_ENTRY].copy_from_slice(entry.as_bytes());
    let at = NAMES_OFFSET + slot * F2FS_SLOT_LEN;
    block[at..at + name.len()].copy_from_slice(name.as_bytes());
    let next = slot + name.len().div_ceil(F2FS_SLOT_LEN);
    (slot..next).for_each(|s| set_bit_le(block, s, true));
    next
}

/// Bytes of extra attributes: up to the last one that a feature needs.
fn extra_bytes(options: &MkfsOptions) -> usize {
    if options.has(Features::INODE_CRTIME) {
        offset_of!(RawExtraAttr, i_compr_blocks)
    } else if options.has(Features::INODE_CHKSUM) {
        offset_of!(RawExtraAttr, i_crtime)
    } else {
        offset_of!(RawExtraAttr, i_projid)
    }
}

fn extra_attributes(options: &MkfsOptions) -> RawExtraAttr {
    let mut e = RawExtraAttr::new_zeroed();
    e.i_extra_isize = (extra_bytes(options) as u16).into();
    if options.has(Features::INODE_CRTIME) {
        e.i_crtime = (options.time.secs as u64).into();
        e.i_crtime_nsec = options.time.nanos.into();
    }
    e
}

/// The checksum of an inode whose checksum field is still 0: seeded by the volume, the inode's number and its
/// generation, then over the whole block.
fn inode_checksum(block: &[u8], ino: Nid, uuid: &[u8; 16]) -> u32 {
    let seed = f2fs_chksum(u32::MAX, uuid);
    let generation = [0; 4];
    let seed = f2fs_chksum(f2fs_chksum(seed, &ino.0.to_le_bytes()), &generation);
    f2fs_chksum(seed, block)
}
