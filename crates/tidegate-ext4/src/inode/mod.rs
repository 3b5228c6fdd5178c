//! Inodes: from the inode table to memory.
//!
//! Locks owned: `ei->i_order_lock` 97 orders the passes of a file; `ei->i_raw_lock` 204 orders states of an inode on
//! their way to the table; `ei->i_data_sem` 205 guards a map; `ext4->s_orphan_lock` 403; `ei->i_es_lock` 410 guards
//! blocks without a place; `ei->i_sent_lock` 593. Callers: the map, directories and attributes work on the inodes that
//! this folder loads.
//!
//! | module | holds |
//! |---|---|
//! | `create` | new inodes, and their end |
//! | `orphan` | inodes without a name, as a list on the volume |
//! | `store` | storing inodes in the inode table |
//! | `promised` | blocks that are promised, and the space for them |
//! | `ranges` | sets of blocks |
//! | `sent` | runs of pages on their way, in order |
//! | `time` | times with their nanoseconds and epoch |

pub(crate) mod create;
pub(crate) mod orphan;
mod orphan_file;
mod promised;
mod ranges;
mod sent;
mod store;
mod time;

pub(crate) use promised::Promised;
pub(crate) use ranges::Ranges;
pub(crate) use sent::Sent;
pub(crate) use store::keep_what_fits;

use crate::format::crc::crc32c;
use crate::format::gate::{GroupDesc, Superblock, rule};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::blocks::Block;
use crate::volume::conversion::Written;
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Release};
use tidegate_jbd2::Tid;
use tidegate_rt::{LockClass, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tidegate_vfs::{Attr, DeviceNumber, Error, ErrorKind, FileType, Ino, Inode, InodeParts, Result};
use zerocopy::FromBytes;

/// Ext4's part of an inode in memory.
#[derive(Clone, Debug)]
pub(crate) struct Ext4Inode {
    /// Its number.
    pub ino: u32,
    /// Its flags.
    pub flags: InodeFlags,
    /// `i_block`.
    pub block: [u8; I_BLOCK_SIZE],
    /// The block with further attributes.
    pub file_acl: Option<BlockAddr>,
    /// The bytes behind the inode's fields: attributes, magic number first, or nothing.
    pub behind: Box<[u8]>,
    /// The start of checksums of its blocks.
    pub csum_seed: u32,
    /// Bytes of fields behind the first 128.
    pub extra: usize,
    /// The size in the table: bytes behind it that were written have no place yet.
    pub disk_size: u64,
    /// `i_atime`; in an inode that holds an attribute's value this is the hash of the value.
    pub raw_atime: u32,
}

/// Ext4's part of an inode: its entry in the table, as the last change left it, and its blocks without a
/// place.
pub(crate) struct Own {
    /// Held shared while the map is looked up, and exclusive while it changes; also during reads of the map's
    /// blocks.
    data: RwLock<Arc<Ext4Inode>>,
    /// Blocks that are promised and have no place yet.
    pub delayed: Mutex<Promised>,
    /// Runs of pages on their way to the device.
    pub sent: Mutex<Sent<Written>>,
    /// Held by a pass from the moment that it takes pages until they have places and a position among the runs
    /// on their way. So the file gets longer in the table in the order in which its pages are taken.
    pub order: Mutex<()>,
    /// Keeps an older state from being stored after a newer one; held during reads of the table.
    raw: Mutex<()>,
    /// The transaction that last changed the inode, with a bit above it, or 0 (`i_sync_tid`).
    changed: AtomicU64,
    /// The transaction that last changed a field that a read of the inode's data needs, in the same form
    /// (`i_datasync_tid`).
    needed: AtomicU64,
    /// The file was truncated to nothing, and has not been closed since.
    pub emptied: AtomicBool,
    /// A pass gave places to pages that it did not come to yet, and some are dirty.
    pub ahead: AtomicBool,
}

static I_ORDER: LockClass = LockClass::new("ei->i_order_lock", 97);
static I_DATA: LockClass = LockClass::new("ei->i_data_sem", 205);
static I_RAW: LockClass = LockClass::new("ei->i_raw_lock", 204);
static I_ES: LockClass = LockClass::new("ei->i_es_lock", 410);
static I_SENT: LockClass = LockClass::new("ei->i_sent_lock", 593);

impl Own {
    /// An inode whose last change may be in `changed`, or in an earlier transaction.
    pub(crate) fn new(sb: &Superblock, inode: Ext4Inode, changed: Option<Tid>) -> Box<Self> {
        let per_block = (!inode.is(InodeFlags::EXTENTS)).then_some(u64::from(sb.block_size) / 4);
        let own = Own {
            data: RwLock::new(&I_DATA, Arc::new(inode)),
            delayed: Mutex::new(&I_ES, Promised::none(per_block)),
            sent: Mutex::new(&I_SENT, Sent::default()),
            order: Mutex::new(&I_ORDER, ()),
            raw: Mutex::new(&I_RAW, ()),
            changed: AtomicU64::new(0),
            needed: AtomicU64::new(0),
            emptied: AtomicBool::new(false),
            ahead: AtomicBool::new(false),
        };
        own.note(changed);
        own.note_needed(changed);
        Box::new(own)
    }

    /// Notes the transaction that changes the inode.
    pub(crate) fn note(&self, tid: Option<Tid>) {
        if let Some(tid) = tid {
            self.changed.store(1 << 32 | u64::from(tid.0), Release);
        }
    }

    /// Notes the transaction that changes a field that a read of the inode's data needs.
    pub(crate) fn note_needed(&self, tid: Option<Tid>) {
        if let Some(tid) = tid {
            self.needed.store(1 << 32 | u64::from(tid.0), Release);
        }
    }

    /// The transaction that an fsync waits for, if any changed the inode; an fdatasync waits for the last
    /// that changed more than times.
    pub(crate) fn changed(&self, datasync: bool) -> Option<Tid> {
        let n = if datasync { &self.needed } else { &self.changed }.load(Acquire);
        (n != 0).then_some(Tid(n as u32))
    }

    /// Keeps other threads from storing the inode.
    pub(crate) fn storing(&self) -> MutexGuard<'_, ()> {
        self.raw.lock()
    }

    /// Locks the map for reads.
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Arc<Ext4Inode>> {
        self.data.read()
    }

    /// Locks the map for changes.
    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, Arc<Ext4Inode>> {
        self.data.write()
    }
}

/// The file system's part of an inode.
pub(crate) fn own(inode: &Inode) -> &Own {
    inode.private()
}

/// The inode as it is now. That is enough for fields that do not change with its map, or cannot change while
/// the caller holds `i_rwsem`.
pub(crate) fn ei(inode: &Inode) -> Arc<Ext4Inode> {
    own(inode).read().clone()
}

impl Ext4Inode {
    /// Whether a flag is set.
    pub(crate) fn is(&self, flag: InodeFlags) -> bool {
        self.flags.contains(flag)
    }
}

/// Adds to an inode's sectors the difference of two counts of blocks.
pub(crate) fn count_sectors(inode: &Inode, before: u64, after: u64) {
    let mut a = inode.attr();
    a.blocks = (a.blocks + after).saturating_sub(before);
}

/// Sectors of 512 bytes in a block.
fn sectors(block_size: u32) -> u64 {
    u64::from(block_size / 512)
}

impl Ext4 {
    /// Reads an inode that a directory may name.
    ///
    /// # Errors
    /// `Stale` for one that is free, `Corrupt` for a damaged one, and for a number that no file can have.
    pub(crate) fn load_inode(&self, ino: Ino) -> Result<InodeParts> {
        let number = u32::try_from(ino.0).unwrap_or(0);
        let is_file = number == ROOT_INO || number >= self.sb.first_ino;
        rule(is_file && !self.is_system(number), "no file has this number").map_err(|e| e.in_inode(ino))?;
        let (attr, inode) = self.load_system_inode(number)?;
        rule(!inode.is(InodeFlags::EA_INODE), "it holds an attribute, and has a name")
            .map_err(|e| e.in_inode(ino))?;
        // The read may have seen a transaction that is not committed yet.
        let newest = self.blocks.journal().map(|j| j.newest());
        Ok(InodeParts { ino, attr, private: Own::new(&self.sb, inode, newest) })
    }

    /// Whether a number above the reserved ones belongs to the volume itself.
    pub(crate) fn is_system(&self, ino: u32) -> bool {
        let r = &self.sb.raw;
        let orphan = self.sb.compat.contains(Compat::ORPHAN_FILE) && ino == r.s_orphan_file_inum.get();
        let quota = self.sb.ro_compat.contains(RoCompat::QUOTA)
            && [&r.s_usr_quota_inum, &r.s_grp_quota_inum, &r.s_prj_quota_inum].iter().any(|q| q.get() == ino);
        orphan || quota
    }

    /// Reads any inode, also one that has no name.
    ///
    /// # Errors
    /// `Stale` for one that is free, `Corrupt` for a damaged one.
    pub(crate) fn load_system_inode(&self, ino: u32) -> Result<(Attr, Ext4Inode)> {
        let (attr, inode) = self.load_any(ino)?;
        if attr.nlink == 0 { Err(gone(ino)) } else { Ok((attr, inode)) }
    }

    /// Reads an inode that may have no name.
    ///
    /// # Errors
    /// As [`Ext4::load_system_inode`]. Each names the inode.
    pub(crate) fn load_any(&self, ino: u32) -> Result<(Attr, Ext4Inode)> {
        self.read_inode(ino).map_err(|e| e.in_inode(ino))
    }

    fn read_inode(&self, ino: u32) -> Result<(Attr, Ext4Inode)> {
        let (block, at) = self.inode_place(ino)?;
        let bytes = &block[at..at + self.sb.inode_size as usize];
        let mut fixed = [0; size_of::<RawInode>()];
        let n = bytes.len().min(fixed.len());
        fixed[..n].copy_from_slice(&bytes[..n]);
        let raw = RawInode::read_from_bytes(&fixed).map_err(|_| Error::corrupt("too short"))?;
        if raw.i_mode.get() == 0 && raw.i_links_count.get() == 0 {
            return Err(gone(ino));
        }
        let seed =
            crc32c(crc32c(self.sb.csum_seed, &ino.to_le_bytes()), &raw.i_generation.get().to_le_bytes());
        let extra = self.extra_isize(&raw)?;
        if self.sb.has_csum() {
            check_csum(seed, &raw, bytes, extra)?;
        }
        self.decode(ino, &raw, bytes, extra, seed)
    }

    /// The block of the inode table that holds an inode, and the offset in it.
    pub(super) fn inode_place(&self, ino: u32) -> Result<(Block, usize)> {
        let sb = &self.sb;
        rule((1..=sb.raw.s_inodes_count.get()).contains(&ino), "there are not so many")
            .map_err(|e| e.in_inode(ino))?;
        let (group, index) = ((ino - 1) / sb.inodes_per_group, (ino - 1) % sb.inodes_per_group);
        let desc = self.group(GroupNo(group)).map_err(|e| e.in_inode(ino))?;
        let unused = desc.flags.contains(GroupFlags::INODE_UNINIT)
            || index >= sb.inodes_per_group - desc.itable_unused;
        if unused {
            return Err(gone(ino));
        }
        let (addr, at) = self.place_in_table(&desc, index);
        Ok((self.blocks.read(addr).map_err(|e| e.in_inode(ino))?, at))
    }

    fn place_in_table(&self, desc: &GroupDesc, index: u32) -> (BlockAddr, usize) {
        let (byte, bs) = (u64::from(index) * u64::from(self.sb.inode_size), u64::from(self.sb.block_size));
        (desc.inode_table.plus(byte / bs), (byte % bs) as usize)
    }

    /// The block of the inode table that an inode in use is stored in, and the offset in it.
    pub(crate) fn inode_address(&self, ino: u32) -> Result<(BlockAddr, usize)> {
        let (group, index) = self.inode_group(ino);
        let desc = self.group(group).map_err(|e| e.in_inode(ino))?;
        Ok(self.place_in_table(&desc, index))
    }

    /// Bytes of fields behind the first 128.
    fn extra_isize(&self, raw: &RawInode) -> Result<usize> {
        if self.sb.inode_size == INODE_BASE as u32 {
            return Ok(0);
        }
        let extra = usize::from(raw.i_extra_isize.get());
        let room = self.sb.inode_size as usize - INODE_BASE;
        rule(extra <= room && extra.is_multiple_of(4), format_args!("i_extra_isize is {extra}"))?;
        Ok(extra)
    }

    fn decode(
        &self,
        ino: u32,
        raw: &RawInode,
        bytes: &[u8],
        extra: usize,
        csum_seed: u32,
    ) -> Result<(Attr, Ext4Inode)> {
        let mode = u32::from(raw.i_mode.get());
        let file_type = FileType::from_mode(mode)
            .ok_or_else(|| Error::corrupt(format!("its mode {mode:o} is no file's")))?;
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let acl = u64::from(raw.i_file_acl_lo.get())
            | match self.sb.incompat.contains(Incompat::BIT64) {
                true => u64::from(raw.i_file_acl_high.get()) << 32,
                false => 0,
            };
        let mut inode = Ext4Inode {
            ino,
            flags,
            block: raw.i_block,
            file_acl: (acl != 0).then_some(BlockAddr(acl)),
            behind: if extra == 0 { Box::default() } else { bytes[INODE_BASE + extra..].into() },
            csum_seed,
            extra,
            disk_size: 0,
            raw_atime: raw.i_atime.get(),
        };
        let attr = self.attributes(raw, file_type, extra, flags);
        inode.disk_size = attr.size;
        let limit = self.map_limit(&inode) * u64::from(self.sb.block_size);
        rule(attr.size <= limit, format_args!("a size of {} bytes, {limit} at most", attr.size))?;
        // A directory's blocks are its own, so it cannot have more than the volume; otherwise a listing would
        // go on for as long as the map says.
        let blocks = self.blocks_of(attr.size);
        rule(
            file_type != FileType::Directory || blocks <= self.sb.blocks,
            format_args!("a directory of {blocks} blocks, the volume has {}", self.sb.blocks),
        )?;
        rule(
            inode.file_acl.is_none_or(|b| self.sb.holds(b, 1)),
            "its block of attributes lies outside of the volume",
        )?;
        inode.file_acl.map_or(Ok(()), |b| self.refuse_tables(ino, b, 1))?;
        Ok((attr, inode))
    }

    fn attributes(&self, raw: &RawInode, file_type: FileType, extra: usize, flags: InodeFlags) -> Attr {
        let times = time::Times { raw, extra, long: self.sb.inode_size > INODE_BASE as u32 };
        let id = |lo: u16, hi: u16| u32::from(lo) | u32::from(hi) << 16;
        let large = file_type == FileType::Regular
            || file_type == FileType::Directory && self.sb.incompat.contains(Incompat::LARGEDIR);
        let high = if large { raw.i_size_high.get() } else { 0 };
        Attr {
            file_type,
            mode: u32::from(raw.i_mode.get()) & 0o7777,
            uid: id(raw.i_uid.get(), raw.i_uid_high.get()),
            gid: id(raw.i_gid.get(), raw.i_gid_high.get()),
            nlink: raw.i_links_count.get().into(),
            size: u64::from(raw.i_size_lo.get()) | u64::from(high) << 32,
            blocks: self.used_sectors(raw, flags),
            atime: times.atime(),
            mtime: times.mtime(),
            ctime: times.ctime(),
            crtime: times.crtime(),
            rdev: device_number(file_type, &raw.i_block),
            generation: raw.i_generation.get(),
            flags: flags.bits() & FLAGS_USER_VISIBLE,
        }
    }

    /// The space that an inode takes, in sectors. With huge_file the count has 48 bits, and may count blocks.
    fn used_sectors(&self, raw: &RawInode, flags: InodeFlags) -> u64 {
        let low = u64::from(raw.i_blocks_lo.get());
        if !self.sb.ro_compat.contains(RoCompat::HUGE_FILE) {
            return low;
        }
        let all = low | u64::from(raw.i_blocks_high.get()) << 32;
        if flags.contains(InodeFlags::HUGE_FILE) { all * sectors(self.sb.block_size) } else { all }
    }

    /// The number of blocks that an inode's map can lead to.
    fn map_limit(&self, inode: &Ext4Inode) -> u64 {
        let n = u64::from(self.sb.block_size) / 4;
        match inode.is(InodeFlags::EXTENTS) {
            true => u64::from(u32::MAX),
            false => (12 + n + n * n + n * n * n).min(u32::MAX.into()),
        }
    }

    /// The largest size that a file may get, in bytes. The limit is the map and, without huge_file, the count
    /// of sectors in 32 bits (`ext4_max_size`, `ext4_max_bitmap_size`).
    pub(crate) fn size_limit(&self, inode: &Ext4Inode) -> u64 {
        let bs = u64::from(self.sb.block_size);
        let mut blocks = self.map_limit(inode);
        if !self.sb.ro_compat.contains(RoCompat::HUGE_FILE) {
            let all = u64::from(u32::MAX) / sectors(self.sb.block_size);
            let map = if inode.is(InodeFlags::EXTENTS) { 0 } else { indirect_blocks(all, bs / 4) };
            blocks = blocks.min(all - map);
        }
        blocks * bs
    }
}

/// The blocks that a map itself takes for `blocks` blocks of a file, with `n` numbers in each.
fn indirect_blocks(blocks: u64, n: u64) -> u64 {
    let single = blocks.saturating_sub(12);
    let double = single.saturating_sub(n);
    let triple = double.saturating_sub(n * n);
    let tops = [single, double, triple].into_iter().filter(|left| *left > 0).count() as u64;
    let below = double.min(n * n).div_ceil(n) + triple.div_ceil(n) + triple.div_ceil(n * n);
    tops + below
}

fn gone(ino: u32) -> Error {
    Error::from(ErrorKind::Stale).in_inode(ino)
}

/// Checks the checksum of an inode: 32 bits if its fields reach that far, otherwise 16.
fn check_csum(seed: u32, raw: &RawInode, bytes: &[u8], extra: usize) -> Result<()> {
    let has_high = extra + INODE_BASE >= CSUM_HI_OFFSET + 2;
    let mut crc = crc32c(seed, &bytes[..CSUM_LO_OFFSET]);
    crc = crc32c(crc, &[0; 2]);
    if has_high {
        crc = crc32c(crc, &bytes[CSUM_LO_OFFSET + 2..CSUM_HI_OFFSET]);
        crc = crc32c(crc, &[0; 2]);
        crc = crc32c(crc, &bytes[CSUM_HI_OFFSET + 2..]);
    } else {
        crc = crc32c(crc, &bytes[CSUM_LO_OFFSET + 2..]);
    }
    let mut stored = u32::from(raw.i_checksum_lo.get());
    if has_high {
        stored |= u32::from(raw.i_checksum_hi.get()) << 16;
    } else {
        crc &= 0xffff;
    }
    rule(crc == stored, format_args!("its checksum is {stored:#x} and should be {crc:#x}"))
}

/// The number of a device file: 16 bits in the first word, or else 32 bits in the second.
fn device_number(file_type: FileType, block: &[u8]) -> DeviceNumber {
    if !matches!(file_type, FileType::CharDevice | FileType::BlockDevice) {
        return DeviceNumber::default();
    }
    let (old, new) = (le32(block, 0), le32(block, 4));
    if old != 0 {
        return DeviceNumber { major: old >> 8 & 0xff, minor: old & 0xff };
    }
    DeviceNumber { major: new >> 8 & 0xfff, minor: new & 0xff | new >> 12 & 0xf_ff00 }
}
