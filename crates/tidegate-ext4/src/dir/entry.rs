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
