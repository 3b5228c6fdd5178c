//! Directories: entries, and the hash tree among them.

use super::{at_mut, read_at};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The longest name in bytes.
pub const NAME_LEN: usize = 255;
/// Bytes of an entry before its name.
pub const DIRENT_HEAD: usize = 8;
/// Bytes of the entry ".".
pub const DOT_LEN: usize = 12;
/// Type of the entry that holds a block's checksum.
pub const FT_DIR_CSUM: u8 = 0xDE;
/// Bytes of that entry, at the end of the block.
pub const DIR_TAIL: usize = 12;
/// `det_rec_len` of that entry.
const DIR_TAIL_LEN: u16 = 12;

/// `struct ext4_dir_entry_2` without its name.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawDirEntry {
    pub inode: U32,
    pub rec_len: U16,
    pub name_len: u8,
    /// The high byte of `name_len` without the filetype feature.
    pub file_type: u8,
}
const _: () = assert!(size_of::<RawDirEntry>() == DIRENT_HEAD);

/// `struct ext4_dir_entry_tail`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawDirTail {
    pub det_reserved_zero1: U32,
    pub det_rec_len: U16,
    pub det_reserved_zero2: u8,
    pub det_reserved_ft: u8,
    pub det_checksum: U32,
}
const _: () = assert!(size_of::<RawDirTail>() == DIR_TAIL);

impl RawDirEntry {
    /// Bytes from the entry to the next; 0 and 65535 stand for 65536, which 16 bits cannot hold.
    pub(crate) fn stride(&self) -> usize {
        match self.rec_len.get() {
            0 | u16::MAX => 1 << 16,
            n => n.into(),
        }
    }

    /// The length of the entry's name, and its type; `types` says whether entries have types. Without types
    /// the length has 16 bits, and the type is 0.
    pub(crate) fn name_and_type(&self, types: bool) -> (usize, u8) {
        match types {
            true => (self.name_len.into(), self.file_type),
            false => (u16::from_le_bytes([self.name_len, self.file_type]).into(), 0),
        }
    }
}

impl RawDirTail {
    pub(crate) fn new(checksum: u32) -> Self {
        RawDirTail {
            det_reserved_zero1: 0.into(),
            det_rec_len: DIR_TAIL_LEN.into(),
            det_reserved_zero2: 0,
            det_reserved_ft: FT_DIR_CSUM,
            det_checksum: checksum.into(),
        }
    }

    /// Whether all fields but the checksum are those of a tail.
    pub(crate) fn is_tail(&self) -> bool {
        RawDirTail::new(self.det_checksum.get()).as_bytes() == self.as_bytes()
    }
}

/// Whether a block is a node of a hash tree, which looks like a single empty entry.
pub(crate) fn is_dx_node(block: &[u8]) -> bool {
    let entry = read_at::<RawDirEntry>(block, 0);
    entry.is_some_and(|e| e.inode.get() == 0 && usize::from(e.rec_len.get()) == block.len())
}

/// Whether a block is the root of a hash tree: its entry ".." reaches to the end.
pub(crate) fn is_dx_root(block: &[u8]) -> bool {
    let len = |at| read_at::<RawDirEntry>(block, at).map(|e| usize::from(e.rec_len.get()));
    len(0) == Some(DOT_LEN) && len(DOT_LEN) == Some(block.len() - DOT_LEN)
}

/// `struct dx_root_info`, behind the entries "." and ".." of a hashed directory's first block.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawDxRootInfo {
    pub reserved_zero: U32,
    pub hash_version: u8,
    pub info_length: u8,
    pub indirect_levels: u8,
    pub unused_flags: u8,
}
/// The offset of [`RawDxRootInfo`] in the block.
pub const DX_ROOT_INFO: usize = 24;
/// The offset of the entries in a node that is not the root.
pub const DX_NODE_ENTRIES: usize = 8;

/// `struct dx_countlimit`, in place of the first entry's hash.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawDxCountLimit {
    pub limit: U16,
    pub count: U16,
}

/// `struct dx_entry`.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawDxEntry {
    pub hash: U32,
    pub block: U32,
}
/// Bytes of an entry, and of the tail.
pub const DX_ENTRY: usize = 8;
const _: () = assert!(size_of::<RawDxEntry>() == DX_ENTRY);

impl RawDxCountLimit {
    /// The counts of a node whose entries begin at byte `at`: its entries, and the entries that it has room
    /// for. Zeros where the block ends before.
    pub(crate) fn of(block: &[u8], at: usize) -> (usize, usize) {
        let counts = read_at::<RawDxCountLimit>(block, at);
        counts.map_or((0, 0), |c| (c.count.get().into(), c.limit.get().into()))
    }
}

impl RawDxEntry {
    /// Entry `n` of a node whose entries begin at byte `at`. The counts lie in place of the first entry's
    /// hash.
    pub(crate) fn of(block: &[u8], at: usize, n: usize) -> Option<RawDxEntry> {
        read_at(block, at + n * DX_ENTRY)
    }
}

/// Writes the list of a node with room for `limit` entries: for each block its first hash, and the counts in
/// place of the first hash.
pub(crate) fn put_dx_list(block: &mut [u8], at: usize, limit: u16, list: &[(u32, u32)]) {
    let room = block.get_mut(at..).unwrap_or_default().chunks_exact_mut(DX_ENTRY);
    for ((hash, child), to) in list.iter().zip(room) {
        to.copy_from_slice(RawDxEntry { hash: (*hash).into(), block: (*child).into() }.as_bytes());
    }
    if let Some(counts) = at_mut::<RawDxCountLimit>(block, at) {
        let count = u16::try_from(list.len()).unwrap_or(u16::MAX);
        *counts = RawDxCountLimit { limit: limit.into(), count: count.into() };
    }
}

/// `struct dx_tail`, behind the room for entries.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[allow(missing_docs)] // the format defines the names
pub struct RawDxTail {
    pub dt_reserved: U32,
    pub dt_checksum: U32,
}
const _: () = assert!(size_of::<RawDxTail>() == DX_ENTRY);

/// Most levels of index blocks below the root; one without the large_dir feature.
pub const DX_MAX_INDIRECT: u8 = 2;

/// Whether a zero byte follows the name of the entry at byte `at`: "." and ".." are also read as C strings.
pub(crate) fn ends_with_nul(block: &[u8], at: usize, name: &[u8]) -> bool {
    block.get(at + DIRENT_HEAD + name.len()) == Some(&0)
}
