//! Inodes: from the node block to memory and back.
//!
//! An operation's changes of attributes are in the inode's node page before the operation ends. The exception
//! is changes of times and the size by a plain write or a read: these are noted (`imeta`).
//!
//! Locks owned: `fi->i_dnode` 200, `sbi->inode_lock[DIRTY_META]` 445, and of fsync's state `fi->i_fsync` 19
//! and `fi->dirty_dnodes` 705. Orphans are under the volume's `ino_lock` 430. Callers: files, directories and
//! durability.
//!
//! | module | holds |
//! |---|---|
//! | `checksum` | the checksum of an inode block |
//! | `dirty`, `imeta` | inodes whose times or size are newer than their node: the list, and storing them |
//! | `fsync_state` | what fsync keeps of an inode |
//! | `orphan` | inodes without a name, and their place in a checkpoint pack |
//! | `xattr` | extended attributes |

pub(crate) mod checksum;
pub(crate) mod dirty;
pub(crate) mod fsync_state;
pub(crate) mod imeta;
pub(crate) mod orphan;
pub(crate) mod xattr;

use crate::dir::names::Names;
use crate::file::affinity::Writer;
use crate::file::extent::{Extent, ExtentCache};
use crate::file::stream::ChosenStreams;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::inode::fsync_state::FsyncState;
use crate::node::{ino_of, nid_of, ofs_of};
use crate::segment::log::Log;
use crate::volume::sbi::F2fs;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};
use tidegate_rt::{LockClass, Mutex, Timespec};
use tidegate_vfs::{
    Attr, DeviceNumber, Error, ErrorKind, FileType, Ino, Inode, InodeParts, Result, WriteHint,
};
use zerocopy::{FromBytes, IntoBytes};

pub(crate) static I_DNODE: LockClass = LockClass::new("fi->i_dnode", 200);

/// F2FS's part of an inode in memory.
pub(crate) struct F2fsInode {
    /// Serialises changes of the block map; caches extents.
    pub map: Mutex<ExtentCache>,
    /// `i_inline`.
    pub inline: AtomicU8,
    /// `i_advise`.
    pub advise: AtomicU8,
    /// Directories: levels of hash buckets in use.
    pub depth: AtomicU32,
    pub dir_level: u8,
    /// Directories: where names can be.
    pub names: Names,
    pub xattr_nid: AtomicU32,
    pub pino: AtomicU32,
    /// 4-byte words that extra attributes take from `i_addr`.
    pub extra_words: usize,
    /// 4-byte words that the inline xattr area takes from the end of `i_addr`;
    /// [`F2fsInode::inline_xattr_words`] reads them.
    pub xattr_words: AtomicU32,
    pub compressed: bool,
    pub fsync: FsyncState,
    /// Whether its times or size are newer than its node.
    pub meta: dirty::State,
    /// One more than the stream of the file's data; 0 before the first.
    pub stream: AtomicU8,
    pub chosen: ChosenStreams,
    pub writer: Writer,
}

impl F2fsInode {
    /// The stream that the file is pinned to; `first` chooses it the first time.
    pub(crate) fn pin_stream(&self, first: impl FnOnce() -> u8) -> u8 {
        match self.stream.load(Relaxed) {
            0 => {
                let stream = first();
                self.stream.store(stream + 1, Relaxed);
                stream
            }
            n => n - 1,
        }
    }

    pub(crate) fn has_inline(&self, bit: u8) -> bool {
        self.inline.load(Relaxed) & bit != 0
    }

    pub(crate) fn set_inline(&self, bit: u8, on: bool) {
        if on {
            self.inline.fetch_or(bit, Relaxed);
        } else {
            self.inline.fetch_and(!bit, Relaxed);
        }
    }

    pub(crate) fn has_advise(&self, bit: u8) -> bool {
        self.advise.load(Relaxed) & bit != 0
    }

    /// 4-byte words that the inline xattr area takes from the end of `i_addr`. A directory may give up the
    /// area with its inline entries.
    pub(crate) fn inline_xattr_words(&self) -> usize {
        self.xattr_words.load(Relaxed) as usize
    }

    /// Block addresses in the inode block.
    pub(crate) fn addrs_per_inode(&self) -> usize {
        DEF_ADDRS_PER_INODE - self.extra_words - self.inline_xattr_words()
    }

    /// Byte range of the inline data or dentry area in the inode block.
    pub(crate) fn inline_area(&self) -> std::ops::Range<usize> {
        let start = I_ADDR_OFFSET + (self.extra_words + DEF_INLINE_RESERVED_SIZE) * 4;
        start..I_ADDR_OFFSET + (DEF_ADDRS_PER_INODE - self.inline_xattr_words()) * 4
    }

    /// Byte range of the inline xattr area in the inode block.
    pub(crate) fn inline_xattr_area(&self) -> std::ops::Range<usize> {
        I_NID_OFFSET - self.inline_xattr_words() * 4..I_NID_OFFSET
    }

    /// First word of the address array in the inode block.
    pub(crate) fn addr_base(&self) -> usize {
        I_ADDR_OFFSET / 4 + self.extra_words
    }
}

/// An inode as a node.
pub(crate) trait NodeId {
    /// The id of the inode's node, which is the inode's number.
    fn nid(&self) -> Nid;
}

impl NodeId for Inode {
    fn nid(&self) -> Nid {
        Nid(self.ino.0 as u32)
    }
}

/// F2FS's part of `inode`.
pub(crate) fn fi(inode: &Inode) -> &F2fsInode {
    inode.private()
}

fn time(secs: u64, nanos: u32) -> Timespec {
    Timespec { secs: secs as i64, nanos: nanos.min(999_999_999) }
}

impl F2fs {
    /// Reads inode `ino` and checks every field that later code relies on.
    ///
    /// # Errors
    /// `Stale` when it is free, `Corrupt` with the rule it breaks, `Unsupported`.
    pub(crate) fn load_inode(&self, ino: Ino) -> Result<InodeParts> {
        let bad = |rule: &'static str| Error::corrupt(rule).in_inode(ino);
        let nid = u32::try_from(ino.0).map_err(|_| bad("no such number"))?;
        self.check_nid(Nid(nid), ino.0)?;
        let run = self.node(Nid(nid))?;
        let page = run.bytes();
        if ino_of(page) != nid || nid_of(page).0 != nid || ofs_of(page) != 0 {
            return Err(bad("its node is not an inode"));
        }
        let raw = RawInode::ref_from_prefix(page).map_err(|_| bad("short"))?.0;
        let file_type =
            FileType::from_mode(raw.i_mode.get() as u32).ok_or_else(|| bad("i_mode has no file type"))?;
        let extra = (raw.i_inline & inline::EXTRA_ATTR != 0).then(|| RawExtraAttr::of(page));
        let (extra_words, inline_xattr_words) = self.layout_of(page, raw).map_err(bad)?;
        let private = F2fsInode {
            map: Mutex::new(&I_DNODE, ExtentCache::default()),
            inline: AtomicU8::new(raw.i_inline),
            advise: AtomicU8::new(raw.i_advise),
            depth: AtomicU32::new(raw.i_current_depth.get()),
            dir_level: raw.i_dir_level,
            names: Names::default(),
            xattr_nid: AtomicU32::new(raw.i_xattr_nid.get()),
            pino: AtomicU32::new(raw.i_pino.get()),
            extra_words,
            xattr_words: AtomicU32::new(inline_xattr_words as u32),
            compressed: raw.i_flags.get() & FS_COMPR_FL != 0,
            fsync: FsyncState::of_read(self.flushes.completed()),
            meta: dirty::State::default(),
            stream: AtomicU8::new(0),
            chosen: ChosenStreams::default(),
            writer: Writer::default(),
        };
        self.check_inode(raw, file_type, &private).map_err(bad)?;
        if raw.i_links.get() == 0 && !self.orphans.lock().contains(nid) {
            // The inode may have been freed at this moment. Without this check its close would free it, and
            // the entry that names it may be right.
            self.node(Nid(nid))?;
            return Err(bad("i_links is 0, and it is no orphan"));
        }
        *private.map.lock() = ExtentCache::new(self.stored_extent(raw, file_type));
        let crtime = extra
            .filter(|x| self.sb.features.contains(Features::INODE_CRTIME) && x.i_extra_isize.get() >= 24)
            .map(|x| time(x.i_crtime.get(), x.i_crtime_nsec.get()));
        let attr = Attr {
            file_type,
            mode: raw.i_mode.get() as u32 & 0o7777,
            uid: raw.i_uid.get(),
            gid: raw.i_gid.get(),
            nlink: raw.i_links.get(),
            size: raw.i_size.get(),
            blocks: raw.i_blocks.get().saturating_sub(1) * 8,
            atime: time(raw.i_atime.get(), raw.i_atime_nsec.get()),
            mtime: time(raw.i_mtime.get(), raw.i_mtime_nsec.get()),
            ctime: time(raw.i_ctime.get(), raw.i_ctime_nsec.get()),
            crtime,
            rdev: read_rdev(page, file_type, extra_words),
            generation: raw.i_generation.get(),
            flags: raw.i_flags.get(),
        };
        Ok(InodeParts { ino, attr, private: Box::new(private) })
    }

    /// Whether an inode says how many words its inline attributes take.
    pub(crate) fn tells_inline_xattr_size(&self, f: &F2fsInode) -> bool {
        f.has_inline(inline::EXTRA_ATTR) && self.sb.features.contains(Features::FLEXIBLE_INLINE_XATTR)
    }

    /// Words of `i_addr` that extra attributes and inline xattrs take.
    pub(crate) fn layout_of(
        &self,
        page: &[u8],
        raw: &RawInode,
    ) -> std::result::Result<(usize, usize), &'static str> {
        let extra = (raw.i_inline & inline::EXTRA_ATTR != 0).then(|| RawExtraAttr::of(page));
        let extra_bytes = extra.map_or(0, |x| x.i_extra_isize.get() as usize);
        if extra.is_some()
            && (!self.has_extra_attr()
                || extra_bytes < 4
                || !extra_bytes.is_multiple_of(4)
                || extra_bytes > 64)
        {
            return Err("i_extra_isize");
        }
        let xattr_words = match extra {
            Some(x) if self.sb.features.contains(Features::FLEXIBLE_INLINE_XATTR) => {
                x.i_inline_xattr_size.get() as usize
            }
            _ if raw.i_inline & (inline::XATTR | inline::DENTRY) != 0 => DEFAULT_INLINE_XATTR_ADDRS,
            _ => 0,
        };
        let most = DEF_ADDRS_PER_INODE - extra_bytes / 4 - DEF_INLINE_RESERVED_SIZE - 5;
        if xattr_words > most {
            return Err("i_inline_xattr_size");
        }
        Ok((extra_bytes / 4, xattr_words))
    }

    /// The rule that an inode of type `t` with the layout of `f` breaks.
    pub(crate) fn check_inode(
        &self,
        raw: &RawInode,
        t: FileType,
        f: &F2fsInode,
    ) -> std::result::Result<(), &'static str> {
        let is_dir = t == FileType::Directory;
        if raw.i_namelen.get() as usize > F2FS_NAME_LEN {
            return Err("i_namelen is above 255");
        }
        if raw.i_inline & inline::DATA != 0 && raw.i_inline & inline::DENTRY != 0 {
            return Err("inline data and inline dentries at once");
        }
        if raw.i_inline & inline::DENTRY != 0 && !is_dir || raw.i_inline & inline::DATA != 0 && is_dir {
            return Err("i_inline does not fit its type");
        }
        if raw.i_inline & inline::DATA != 0 && raw.i_size.get() > f.inline_area().len() as u64 {
            return Err("inline data longer than the inode has room for");
        }
        if raw.i_size.get() > self.max_file_bytes() {
            return Err("i_size is above the largest file");
        }
        if raw.i_blocks.get() == 0 || raw.i_blocks.get() > self.sb.block_count {
            return Err("i_blocks");
        }
        if is_dir
            && (f.depth.load(Relaxed) > MAX_DIR_HASH_DEPTH || raw.i_dir_level as u32 > MAX_DIR_HASH_DEPTH)
        {
            return Err("i_current_depth or i_dir_level");
        }
        let x = raw.i_xattr_nid.get();
        if x != 0 && (x < 3 || x >= self.sb.max_nid) {
            return Err("i_xattr_nid is out of range");
        }
        Ok(())
    }

    /// The extent that the inode remembers, if it is plausible.
    fn stored_extent(&self, raw: &RawInode, t: FileType) -> Extent {
        let e = raw.i_ext;
        let (blk, len) = (BlockAddr(e.blk.get()), e.len.get());
        let last = BlockAddr(blk.0.saturating_add(len.saturating_sub(1)));
        let inside = t == FileType::Regular && len > 0 && self.sb.in_main(blk) && self.sb.in_main(last);
        if inside { Extent { fofs: e.fofs.get() as u64, blk, len } } else { Extent::default() }
    }

    /// Writes an inode's attributes and state to its node page.
    pub(crate) fn store_inode(&self, inode: &Inode) -> Result<()> {
        // The lock is held until the page has the state, so that an older state cannot overtake a newer one.
        let map = fi(inode).map.lock();
        let attr = inode.attr().clone();
        self.store_inode_with(inode, &attr, map.largest)
    }

    /// Writes an inode's attributes and state for a caller that holds `i_dnode`.
    pub(crate) fn store_inode_with(&self, inode: &Inode, attr: &Attr, largest: Extent) -> Result<()> {
        let largest = if inode.file_type == FileType::Regular { largest } else { Extent::default() };
        self.modify_node(inode.nid(), |page| {
            if RawInode::of(page).i_size.get() != attr.size {
                fi(inode).fsync.inode_changed();
            }
            write_fields(page, attr, fi(inode), largest);
            if attr.nlink == 0 && matches!(inode.file_type, FileType::CharDevice | FileType::BlockDevice) {
                // No user reads the device number of an orphan's inode block, and fsck.f2fs takes it for an
                // address.
                write_rdev(page, DeviceNumber::default(), fi(inode).extra_words);
            }
        })
    }

    /// Writes only an inode's times and size to its node page. For callers that hold `i_dnode`.
    pub(crate) fn store_times(&self, inode: &Inode) -> Result<()> {
        let attr = inode.attr().clone();
        self.modify_node(inode.nid(), |page| {
            if let Some(raw) = RawInode::of_mut(page) {
                write_times(raw, &attr);
                raw.i_size = attr.size.into();
            }
        })
    }

    /// The log for an inode's data. As in Linux, the file's stored temperature comes before its program's
    /// hint.
    pub(crate) fn data_log(&self, inode: &Inode) -> Log {
        if inode.is_dir() || fi(inode).has_advise(advise::HOT) {
            return Log::HotData;
        }
        if fi(inode).has_advise(advise::COLD) {
            return Log::ColdData;
        }
        match inode.write_hint() {
            WriteHint::Short => Log::HotData,
            WriteHint::Extreme => Log::ColdData,
            _ => Log::WarmData,
        }
    }

    /// `i_advise` of a new file called `name`: the superblock lists endings of cold and of hot files.
    pub(crate) fn temperature(&self, name: &[u8]) -> u8 {
        let r = &self.sb.raw;
        let cold = r.extension_count.get() as usize;
        let all = cold + r.hot_ext_count as usize;
        let ends = |ext: &[u8; 8]| {
            let len = ext.iter().position(|&b| b == 0).unwrap_or(8);
            len > 0
                && name.len() > len + 1
                && name[name.len() - len - 1] == b'.'
                && name[name.len() - len..].eq_ignore_ascii_case(&ext[..len])
        };
        match r.extension_list[..all].iter().position(ends) {
            Some(i) if i < cold => advise::COLD,
            Some(_) => advise::HOT,
            None => 0,
        }
    }

    /// Largest file in bytes: all addresses an inode can reach.
    pub(crate) fn max_file_bytes(&self) -> u64 {
        let (a, n) = (ADDRS_PER_BLOCK as u64, NIDS_PER_BLOCK as u64);
        let inode = (DEF_ADDRS_PER_INODE
            - DEFAULT_INLINE_XATTR_ADDRS
            - if self.has_extra_attr() { EXTRA_ISIZE / 4 } else { 0 }) as u64;
        (inode + 2 * a + 2 * n * a + n * n * a) * BLOCK_SIZE as u64
    }
}

/// `FS_COMPR_FL`.
const FS_COMPR_FL: u32 = 0x4;

/// Sets the fields of inode block `page`.
pub(crate) fn write_fields(page: &mut [u8], a: &Attr, f: &F2fsInode, largest: Extent) {
    if let Some(raw) = RawInode::of_mut(page) {
        raw.i_mode = ((a.file_type.mode_bits() | a.mode & 0o7777) as u16).into();
        raw.i_advise = f.advise.load(Relaxed);
        raw.i_inline = f.inline.load(Relaxed);
        raw.i_uid = a.uid.into();
        raw.i_gid = a.gid.into();
        raw.i_links = a.nlink.into();
        write_times(raw, a);
        raw.i_size = a.size.into();
        raw.i_blocks = (a.blocks / 8 + 1).into();
        raw.i_generation = a.generation.into();
        raw.i_current_depth = f.depth.load(Relaxed).into();
        raw.i_xattr_nid = f.xattr_nid.load(Relaxed).into();
        raw.i_flags = a.flags.into();
        raw.i_pino = f.pino.load(Relaxed).into();
        raw.i_dir_level = f.dir_level;
        raw.i_ext = largest.to_raw();
    }
    if let (Some(t), true) = (a.crtime, f.extra_words >= 6)
        && let Some(x) = RawExtraAttr::of_mut(page)
    {
        x.i_crtime = (t.secs as u64).into();
        x.i_crtime_nsec = t.nanos.into();
    }
}

fn write_times(raw: &mut RawInode, a: &Attr) {
    raw.i_atime = (a.atime.secs as u64).into();
    raw.i_ctime = (a.ctime.secs as u64).into();
    raw.i_mtime = (a.mtime.secs as u64).into();
    raw.i_atime_nsec = a.atime.nanos.into();
    raw.i_ctime_nsec = a.ctime.nanos.into();
    raw.i_mtime_nsec = a.mtime.nanos.into();
}

fn read_rdev(page: &[u8], t: FileType, extra_words: usize) -> DeviceNumber {
    if !matches!(t, FileType::CharDevice | FileType::BlockDevice) {
        return DeviceNumber::default();
    }
    let base = I_ADDR_OFFSET / 4 + extra_words;
    match word(page, base) {
        0 => {
            let d = word(page, base + 1);
            DeviceNumber { major: d >> 8 & 0xfff, minor: d & 0xff | d >> 12 & 0xfff00 }
        }
        d => DeviceNumber { major: d >> 8 & 0xff, minor: d & 0xff },
    }
}

/// Puts a device number where the first addresses would be, in the short form where that fits.
pub(crate) fn write_rdev(page: &mut [u8], d: DeviceNumber, extra_words: usize) {
    let base = I_ADDR_OFFSET / 4 + extra_words;
    let short = d.major < 256 && d.minor < 256;
    let long = d.minor & 0xff | d.major << 8 | (d.minor & !0xff) << 12;
    set_word(page, base, if short { d.major << 8 | d.minor } else { 0 });
    set_word(page, base + 1, if short { 0 } else { long });
}

/// The extra attributes of a new inode.
pub(crate) fn write_extra(page: &mut [u8], inline_xattr_words: usize) {
    let Some(x) = RawExtraAttr::of_mut(page) else { return };
    x.as_mut_bytes().fill(0);
    x.i_extra_isize = (EXTRA_ISIZE as u16).into();
    x.i_inline_xattr_size = (inline_xattr_words as u16).into();
}

/// The name an inode block remembers.
pub(crate) fn name_of(page: &[u8]) -> Option<&[u8]> {
    RawInode::of(page).name()
}

/// Whether a read failed because the inode does not exist.
pub(crate) fn is_gone(e: &Error) -> bool {
    e.kind() == ErrorKind::Stale
}
