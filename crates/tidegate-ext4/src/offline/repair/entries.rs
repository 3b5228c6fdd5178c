//! Blocks of entries: read as far as they make sense, and written so that they are valid.

use super::Repair;
use crate::format::crc::crc32c;
use crate::format::raw::*;
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;

/// Most blocks of one directory.
const MOST_BLOCKS: u64 = 4 << 20;

/// Bytes of the hash behind a name that is encrypted and folds case.
const NAME_HASH: usize = 8;

/// An entry where it lies in its block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) at: usize,
    pub(super) ino: u32,
    pub(super) name: Vec<u8>,
    pub(super) kind: u8,
}

impl Entry {
    /// Bytes that the entry needs.
    pub(super) fn len(&self) -> usize {
        len_of(&self.name)
    }
}

pub(super) fn len_of(name: &[u8]) -> usize {
    (DIRENT_HEAD + name.len()).next_multiple_of(4)
}

/// The findings in a block.
pub(super) struct Found {
    pub(super) entries: Vec<Entry>,
    /// The block consists of valid entries to its end.
    pub(super) whole: bool,
}

impl Repair<'_, '_> {
    pub(super) fn has_types(&self) -> bool {
        self.sb.incompat.contains(Incompat::FILETYPE)
    }

    /// Bytes of a block that entries may take.
    pub(super) fn entries_end(&self) -> usize {
        self.sb.block_size as usize - if self.sb.has_csum() { DIR_TAIL } else { 0 }
    }

    /// The entries of `bytes`. If one makes no sense, the search goes on at the next place from which all
    /// entries do.
    pub(super) fn entries(&self, bytes: &[u8]) -> Found {
        let (mut at, mut found) = (0, Found { entries: Vec::new(), whole: true });
        while at < bytes.len() {
            match self.entry(bytes, at) {
                Some((e, len)) => {
                    found.entries.extend((e.ino != 0).then_some(e));
                    at += len;
                }
                None => {
                    found.whole = false;
                    let next = self.next_whole(bytes, at + 4);
                    found.entries.extend(self.cut_entry(bytes, at, next));
                    at = next;
                }
            }
        }
        found
    }

    /// An entry that makes no sense only because of its length; the next one begins at `next`.
    fn cut_entry(&self, bytes: &[u8], at: usize, next: usize) -> Option<Entry> {
        let head = read_at::<RawDirEntry>(bytes, at)?;
        let (name_len, kind) = head.name_and_type(self.has_types());
        let name = bytes.get(at + DIRENT_HEAD..at + DIRENT_HEAD + name_len)?.to_vec();
        let e = Entry { at, ino: head.inode.get(), name, kind };
        (at + e.len() <= next && self.makes_sense(&e)).then_some(e)
    }

    fn makes_sense(&self, e: &Entry) -> bool {
        let plain = !e.name.is_empty() && !e.name.iter().any(|b| matches!(b, 0 | b'/'));
        plain && self.is_inode(e.ino) && self.used_inodes.get(e.ino.into())
    }

    /// The first place from `from` on where an entry makes sense and from which entries lead to the end; the
    /// end if there is none.
    fn next_whole(&self, bytes: &[u8], from: usize) -> usize {
        let end = bytes.len();
        // Computed backwards: for each place, whether entries lead from it to the end.
        let mut leads = vec![false; end / 4 + 1];
        leads[end / 4] = true;
        let mut first = end;
        for at in (from..end).step_by(4).rev() {
            let Some((e, len)) = self.entry(bytes, at) else { continue };
            leads[at / 4] = leads[(at + len) / 4];
            if leads[at / 4] && self.makes_sense(&e) {
                first = at;
            }
        }
        first
    }

    /// The entry at byte `at`, and its length; none where it does not fit.
    pub(super) fn entry(&self, bytes: &[u8], at: usize) -> Option<(Entry, usize)> {
        let head = read_at::<RawDirEntry>(bytes, at)?;
        let (len, (name_len, kind)) = (head.stride(), head.name_and_type(self.has_types()));
        let needs = (DIRENT_HEAD + name_len.max(1)).next_multiple_of(4);
        let sane = name_len <= NAME_LEN && len.is_multiple_of(4) && needs <= len && at + len <= bytes.len();
        if !sane {
            return None;
        }
        let name = bytes.get(at + DIRENT_HEAD..at + DIRENT_HEAD + name_len)?.to_vec();
        Some((Entry { at, ino: head.inode.get(), name, kind }, len))
    }

    /// A block of these entries, where they are or nearer to the beginning, with its checksum.
    pub(super) fn dir_block(&self, seed: u32, entries: &[Entry]) -> Vec<u8> {
        self.dir_block_over(seed, entries, None)
    }

    /// A block of these entries, as [`Self::dir_block`] makes it. If the directory's names are encrypted and
    /// fold case, `before` is the old block: behind each name lies its hash (`struct ext4_dir_entry_hash`),
    /// which cannot be computed without the key.
    pub(super) fn dir_block_over(&self, seed: u32, entries: &[Entry], before: Option<&[u8]>) -> Vec<u8> {
        let end = self.entries_end();
        let mut bytes = vec![0; self.sb.block_size as usize];
        let first = entries.first().map_or(end, |e| e.at);
        // Bytes that are too few for an entry go to the first entry.
        let lead = if first < 12 { 0 } else { first };
        if lead > 0 {
            put_head(&mut bytes, 0, 0, lead, 0, 0, true);
        }
        for (n, e) in entries.iter().enumerate() {
            let at = if n == 0 { lead } else { e.at };
            let next = entries.get(n + 1).map_or(end, |e| e.at);
            put_head(&mut bytes, at, e.ino, next - at, e.name.len(), e.kind, self.has_types());
            bytes[at + DIRENT_HEAD..at + DIRENT_HEAD + e.name.len()].copy_from_slice(&e.name);
            if let Some(before) = before
                && at + e.len() + NAME_HASH <= next
                && let Some(hash) = before.get(e.at + e.len()..e.at + e.len() + NAME_HASH)
            {
                bytes[at + e.len()..at + e.len() + NAME_HASH].copy_from_slice(hash);
            }
        }
        if self.sb.has_csum() {
            put_tail(&mut bytes, seed, end);
        }
        bytes
    }

    /// The blocks of a directory, which has no holes.
    pub(super) fn dir_blocks(&mut self, ino: u32) -> Result<Vec<u64>> {
        let n = self.node(ino)?;
        let map = self.map(&n, false)?;
        if map.data() > MOST_BLOCKS {
            let what =
                format!("directory {ino} has {} blocks, too many to repair: nothing was changed", map.data());
            return Err(Error::new(ErrorKind::FileTooBig, what));
        }
        Ok(map.runs.iter().flat_map(|r| r.start..r.start + r.len).collect())
    }
}

fn put_head(bytes: &mut [u8], at: usize, ino: u32, len: usize, name_len: usize, kind: u8, types: bool) {
    bytes[at..at + 4].copy_from_slice(&ino.to_le_bytes());
    bytes[at + 4..at + 6].copy_from_slice(&(len as u16).to_le_bytes());
    bytes[at + 6..at + 8].copy_from_slice(&(name_len as u16).to_le_bytes());
    if types {
        bytes[at + 7] = kind;
    }
}

fn put_tail(bytes: &mut [u8], seed: u32, end: usize) {
    let tail = RawDirTail::new(crc32c(seed, &bytes[..end]));
    bytes[end..].copy_from_slice(tail.as_bytes());
}
