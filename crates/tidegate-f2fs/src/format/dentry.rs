//! A table of directory entries: a dentry block, or the inline area of a directory's inode.

use crate::format::raw::*;
use tidegate_vfs::{At, Error, FileType, Result};
use zerocopy::{FromBytes, IntoBytes};

/// Where the parts of a table lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Slots.
    pub max: usize,
    dentries: usize,
    names: usize,
}

/// The layout of a dentry block.
pub(crate) const BLOCK: Layout = Layout {
    max: NR_DENTRY_IN_BLOCK,
    dentries: SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED,
    names: SIZE_OF_DENTRY_BITMAP + SIZE_OF_RESERVED + NR_DENTRY_IN_BLOCK * SIZE_OF_DIR_ENTRY,
};

impl Layout {
    /// The layout of an inline area of `bytes` bytes.
    pub(crate) fn inline(bytes: usize) -> Layout {
        let each = SIZE_OF_DIR_ENTRY + F2FS_SLOT_LEN;
        let max = bytes * 8 / (each * 8 + 1);
        let names = bytes - max * F2FS_SLOT_LEN;
        Layout { max, dentries: names - max * SIZE_OF_DIR_ENTRY, names }
    }
}

/// One entry of a table.
pub(crate) struct Entry<'a> {
    pub slot: usize,
    /// First slot behind the entry.
    pub next: usize,
    /// The hash stored in the entry.
    pub hash: u32,
    pub ino: u32,
    pub file_type: u8,
    pub name: &'a [u8],
}

/// Slots a name takes.
pub(crate) fn slots(name: &[u8]) -> usize {
    name.len().div_ceil(F2FS_SLOT_LEN)
}

/// The first entry at or behind `slot`. The entry is checked to lie inside the table.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn next_entry<'a>(t: &'a [u8], l: &Layout, slot: usize) -> Result<Option<Entry<'a>>> {
    let mut i = slot;
    while i < l.max {
        if t[i / 8] == 0 && i.is_multiple_of(8) {
            i += 8;
            continue;
        }
        if !test_bit_le(t, i) {
            i += 1;
            continue;
        }
        let Some(de) = raw_entry(t, l, i) else { break };
        let len = usize::from(de.name_len.get());
        if len == 0 {
            i += 1; // a slot left over from a longer name
            continue;
        }
        let next = i + len.div_ceil(F2FS_SLOT_LEN);
        if len > F2FS_NAME_LEN || next > l.max {
            return Err(Error::corrupt(format!("a name of {len} bytes"))
                .at(At::Part("entry", u64::try_from(i).unwrap_or(u64::MAX))));
        }
        let at = l.names + i * F2FS_SLOT_LEN;
        let ino = de.ino.get();
        let (hash, file_type) = (de.hash_code.get(), de.file_type);
        return Ok(Some(Entry { slot: i, next, hash, ino, file_type, name: &t[at..at + len] }));
    }
    Ok(None)
}

fn raw_entry(t: &[u8], l: &Layout, i: usize) -> Option<RawDirEntry> {
    RawDirEntry::read_from_prefix(&t[l.dentries + i * SIZE_OF_DIR_ENTRY..]).ok().map(|r| r.0)
}

/// Finds a name: the slot and the inode number.
///
/// # Errors
/// `Corrupt`.
pub(crate) fn find(t: &[u8], l: &Layout, hash: u32, name: &[u8]) -> Result<Option<(usize, u32)>> {
    // The hashes are compared first: a search for a missing name goes through every level of a directory.
    let wanted = hash.to_le_bytes();
    let entries = t[l.dentries..].chunks_exact(SIZE_OF_DIR_ENTRY).take(l.max);
    for (i, _) in entries.enumerate().filter(|(_, e)| e[..4] == wanted) {
        if !test_bit_le(t, i) {
            continue;
        }
        // A slot may be left over from an entry that a longer name now covers, so the walk checks that an
        // entry begins there.
        let mut slot = 0;
        while let Some(e) = next_entry(t, l, slot)?.filter(|e| e.slot <= i) {
            if e.slot == i && e.name == name {
                return Ok(Some((e.slot, e.ino)));
            }
            slot = e.next;
        }
    }
    Ok(None)
}

/// The first place with room for a name of `n` slots.
pub(crate) fn room(t: &[u8], l: &Layout, n: usize) -> Option<usize> {
    let (mut run, mut i) = (0, 0);
    while i < l.max {
        if t[i / 8] == u8::MAX && i.is_multiple_of(8) {
            (run, i) = (0, i + 8);
            continue;
        }
        run = if test_bit_le(t, i) { 0 } else { run + 1 };
        i += 1;
        if run == n {
            return Some(i - n);
        }
    }
    None
}

/// Puts a name into free slots.
pub(crate) fn put(t: &mut [u8], l: &Layout, slot: usize, hash: u32, name: &[u8], ino: u32, file_type: u8) {
    for i in 0..slots(name) {
        set_bit_le(t, slot + i, true);
        let de = if i == 0 {
            RawDirEntry {
                hash_code: hash.into(),
                ino: ino.into(),
                name_len: u16::try_from(name.len()).unwrap_or(u16::MAX).into(),
                file_type,
            }
        } else {
            RawDirEntry::default()
        };
        let at = l.dentries + (slot + i) * SIZE_OF_DIR_ENTRY;
        t[at..at + SIZE_OF_DIR_ENTRY].copy_from_slice(de.as_bytes());
    }
    let at = l.names + slot * F2FS_SLOT_LEN;
    t[at..at + name.len()].copy_from_slice(name);
}

/// Points an entry to another inode.
pub(crate) fn point(t: &mut [u8], l: &Layout, slot: usize, ino: u32, file_type: u8) {
    let at = l.dentries + slot * SIZE_OF_DIR_ENTRY;
    if let Ok((entry, _)) = RawDirEntry::mut_from_prefix(&mut t[at..]) {
        (entry.ino, entry.file_type) = (ino.into(), file_type);
    }
}

/// Takes an entry out.
pub(crate) fn clear(t: &mut [u8], slot: usize, n: usize) {
    (slot..slot + n).for_each(|i| set_bit_le(t, i, false));
}

/// Whether no slot is in use.
pub(crate) fn is_empty(t: &[u8], l: &Layout) -> bool {
    (0..l.max).all(|i| !test_bit_le(t, i))
}

/// The format's number for a type.
pub(crate) fn type_to_raw(t: FileType) -> u8 {
    match t {
        FileType::Regular => file_type::REG_FILE,
        FileType::Directory => file_type::DIR,
        FileType::CharDevice => file_type::CHRDEV,
        FileType::BlockDevice => file_type::BLKDEV,
        FileType::Fifo => file_type::FIFO,
        FileType::Socket => file_type::SOCK,
        FileType::Symlink => file_type::SYMLINK,
    }
}

/// The file type that the format's number means.
pub(crate) fn type_from_raw(t: u8) -> Option<FileType> {
    Some(match t {
        file_type::REG_FILE => FileType::Regular,
        file_type::DIR => FileType::Directory,
        file_type::CHRDEV => FileType::CharDevice,
        file_type::BLKDEV => FileType::BlockDevice,
        file_type::FIFO => FileType::Fifo,
        file_type::SOCK => FileType::Socket,
        file_type::SYMLINK => FileType::Symlink,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_layout_is_the_kernels() {
        // 923 words less 50 for xattrs and 1 reserved: 182 entries, 23 bytes of bitmap, 7 reserved.
        let l = Layout::inline(3488);
        assert_eq!((l.max, l.dentries, l.names), (182, 30, 30 + 182 * 11));
    }

    #[test]
    fn names_come_and_go() {
        let (mut t, l) = (vec![0; BLOCK_SIZE], BLOCK);
        let long = [b'x'; 255];
        for name in [&b"a"[..], &long, b"nine_byte"] {
            let at = room(&t, &l, slots(name)).unwrap();
            put(&mut t, &l, at, dentry_hash(name), name, 7, 1);
        }
        assert_eq!(find(&t, &l, dentry_hash(&long), &long).unwrap(), Some((1, 7)));
        clear(&mut t, 1, slots(&long));
        assert_eq!(find(&t, &l, dentry_hash(&long), &long).unwrap(), None);
        assert_eq!(room(&t, &l, 3), Some(1));
    }
}
