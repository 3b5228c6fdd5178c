//! The entries of a block, each checked before it is used.

use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use tidegate_vfs::{Error, FileType, Result};
use zerocopy::FromBytes;

/// An entry in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dirent<'a> {
    pub ino: u32,
    pub name: &'a [u8],
    /// The type that the entry gives.
    pub file_type: Option<FileType>,
    /// Byte offset of the entry in the block.
    pub offset: usize,
    /// Bytes up to the next entry.
    pub rec_len: u16,
}

/// The position of an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    /// The inode that the entry names.
    pub ino: u32,
    /// The directory's block.
    pub block: FileBlock,
    /// The address of the block.
    pub addr: BlockAddr,
    /// Byte offset of the entry in the block.
    pub offset: usize,
}

/// The rules that entries have to obey.
#[derive(Clone, Copy)]
pub(super) struct Rules {
    /// The directory, for messages.
    pub dir: u32,
    /// Entries have types.
    pub filetype: bool,
    /// Names are encrypted: they are bytes of any kind.
    pub encrypted: bool,
    /// The volume's inodes.
    pub inodes: u32,
}

/// The type that an entry's number stands for.
fn file_type(number: u8) -> Option<FileType> {
    Some(match number {
        1 => FileType::Regular,
        2 => FileType::Directory,
        3 => FileType::CharDevice,
        4 => FileType::BlockDevice,
        5 => FileType::Fifo,
        6 => FileType::Socket,
        7 => FileType::Symlink,
        _ => return None,
    })
}

/// The number that stands for a type in an entry.
pub(super) fn type_number(file_type: FileType) -> u8 {
    match file_type {
        FileType::Regular => 1,
        FileType::Directory => 2,
        FileType::CharDevice => 3,
        FileType::BlockDevice => 4,
        FileType::Fifo => 5,
        FileType::Socket => 6,
        FileType::Symlink => 7,
    }
}

/// The entry in use called `name` of a block whose entries were all checked before. `None` also where they are not in
/// order any more.
pub(super) fn find_checked<'a>(bytes: &'a [u8], name: &[u8], rules: Rules) -> Option<Dirent<'a>> {
    let mut at = 0;
    while let Some((head, rest)) = bytes.get(at..)?.split_first_chunk::<DIRENT_HEAD>() {
        let raw = RawDirEntry::ref_from_bytes(head).ok()?;
        let is_it = usize::from(raw.name_len) == name.len() && raw.inode.get() != 0;
        if is_it && rest.get(..name.len()) == Some(name) {
            return one(bytes, at, rules).ok()?.1;
        }
        at += usize::from(raw.rec_len.get()).max(DIRENT_HEAD);
    }
    None
}

/// The entries in use; ends after the first error.
pub(super) fn entries(
    bytes: &[u8],
    rules: Rules,
    block: FileBlock,
) -> impl Iterator<Item = Result<Dirent<'_>>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let here = at;
            match one(bytes, here, rules) {
                Ok((rec_len, entry)) => {
                    at += usize::from(rec_len);
                    if let Some(e) = entry {
                        return Some(Ok(e));
                    }
                }
                Err(what) => {
                    at = bytes.len();
                    let e = Error::corrupt(format!("byte {here}: {what}"));
                    return Some(Err(e.at(block.place()).in_dir(rules.dir)));
                }
            }
        }
        None
    })
}

/// The length of the entry at byte `at`, and the entry if it is in use.
#[inline]
fn one(bytes: &[u8], at: usize, rules: Rules) -> std::result::Result<(u16, Option<Dirent<'_>>), String> {
    let (raw, rest) = RawDirEntry::read_from_prefix(&bytes[at..]).map_err(|_| "an entry is cut short")?;
    let (rec_len, ino) = (raw.rec_len.get(), raw.inode.get());
    let (number, len) = (raw.file_type, usize::from(raw.name_len));
    let least = DIRENT_HEAD + if ino == 0 { 0 } else { len };
    let fits = usize::from(rec_len) >= least.max(DIRENT_HEAD + 1).next_multiple_of(4);
    if !fits || !rec_len.is_multiple_of(4) || usize::from(rec_len) > bytes.len() - at {
        return Err(format!("an entry of {rec_len} bytes with a name of {len}"));
    }
    if ino == 0 {
        return Ok((rec_len, None));
    }
    if ino > rules.inodes {
        return Err(format!("it names inode {ino} of {}", rules.inodes));
    }
    let name = &rest[..len];
    if len == 0 || !rules.filetype && number != 0 {
        return Err("a name without a length that can be".into());
    }
    if !rules.encrypted && name.iter().any(|b| matches!(b, 0 | b'/')) {
        return Err("a name with a slash or a zero byte in it".into());
    }
    let file_type = if rules.filetype { file_type(number) } else { None };
    Ok((rec_len, Some(Dirent { ino, name, file_type, offset: at, rec_len })))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A block with entries for `names`, of which those that are empty are not in use.
    fn block_of(names: &[Vec<u8>]) -> Vec<u8> {
        let mut block = Vec::new();
        for (n, name) in names.iter().enumerate() {
            let len = (DIRENT_HEAD + name.len().max(1)).next_multiple_of(4);
            let (start, ino) = (block.len(), if name.is_empty() { 0 } else { n as u32 + 12 });
            block.extend(ino.to_le_bytes());
            block.extend((len as u16).to_le_bytes());
            block.extend([name.len() as u8, 1]);
            block.extend(name);
            block.resize(start + len, 0);
        }
        block
    }

    #[test]
    fn a_search_of_a_checked_block_finds_the_entries() {
        let rules = Rules { dir: 2, filetype: true, encrypted: false, inodes: 1000 };
        let names: Vec<Vec<u8>> = (0..90).map(|n| vec![b'a' + (n % 26) as u8; n % 30]).collect();
        let block = block_of(&names);
        let all: Vec<_> = entries(&block, rules, FileBlock(0)).map(|e| e.unwrap()).collect();
        assert_eq!(all.len(), 87);
        for name in &names {
            let first = all.iter().find(|e| e.name == name).map(|e| (e.ino, e.offset, e.rec_len));
            assert_eq!(find_checked(&block, name, rules).map(|e| (e.ino, e.offset, e.rec_len)), first);
        }
        for missing in [&b"b-"[..], b"zz-no", &[b'q'; 255]] {
            assert!(find_checked(&block, missing, rules).is_none());
        }
        // The search ends whatever the bytes are.
        assert!(find_checked(&[0; 4096], b"a", rules).is_none());
        assert!(find_checked(&[255; 4096], &[255; 255], rules).is_none());
        assert!(find_checked(&block[..block.len() - 3], b"no", rules).is_none());
    }
}
