//! The entries of one place of attributes, checked before they are used.

use crate::format::raw::*;
use crate::format::units::BlockAddr;
use tidegate_vfs::{At, Error, Result};
use zerocopy::FromBytes;

/// An attribute as it is stored.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stored<'a> {
    pub index: u8,
    pub name: &'a [u8],
    /// Bytes of the value.
    pub size: u32,
    /// The inode that holds the value, 0 if it lies here.
    pub value_inum: u32,
    /// Offset of the value, if it lies here.
    value_offs: usize,
}

impl Stored<'_> {
    /// Whether it has a value that lies here.
    fn is_here(&self) -> bool {
        self.value_inum == 0 && self.size > 0
    }

    /// The first byte behind its value and the padding.
    fn end(&self) -> Option<usize> {
        (self.size as usize).checked_next_multiple_of(XATTR_ROUND)?.checked_add(self.value_offs)
    }
}

/// Bytes with entries at their beginning and values behind.
pub(super) struct Area<'a> {
    ino: u32,
    block: Option<BlockAddr>,
    /// The bytes that the offsets of values count from.
    bytes: &'a [u8],
    /// Offset of the first entry.
    first: usize,
}

/// A block of attributes, as the place of an error.
pub(super) fn place(addr: BlockAddr) -> At {
    At::Part("attribute block", addr.0)
}

impl<'a> Area<'a> {
    /// The area behind the magic number in an inode.
    pub(super) fn of_inode(ino: u32, bytes: &'a [u8]) -> Self {
        Area { ino, block: None, bytes, first: 0 }
    }

    /// A block whose header is checked.
    pub(super) fn of_block(ino: u32, addr: BlockAddr, bytes: &'a [u8]) -> Self {
        Area { ino, block: Some(addr), bytes, first: size_of::<RawXattrHeader>() }
    }

    fn bad(&self, what: &'static str) -> Error {
        let place = self.block.map_or(At::The("attributes in it"), place);
        Error::corrupt(what).at(place).in_inode(self.ino)
    }

    /// All entries, whose names and values lie in the area. Values may overlap, as Linux reads them.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn entries(&self) -> Result<Vec<Stored<'a>>> {
        let (mut at, mut all) = (self.first, Vec::new());
        loop {
            let rest = self.bytes.get(at..).unwrap_or_default();
            // An area in an inode may end without the four zero bytes at the end of a list.
            if rest.len() < 4 || le32(rest, 0) == 0 {
                break;
            }
            let (raw, behind) =
                RawXattrEntry::read_from_prefix(rest).map_err(|_| self.bad("the last entry is cut short"))?;
            let len = usize::from(raw.e_name_len);
            let name = behind.get(..len).ok_or_else(|| self.bad("the last name is cut short"))?;
            // A list of names ends each name with a zero byte.
            if name.contains(&0) {
                return Err(self.bad("a name with a zero byte"));
            }
            let s = Stored {
                index: raw.e_name_index,
                name,
                size: raw.e_value_size.get(),
                value_inum: raw.e_value_inum.get(),
                value_offs: raw.e_value_offs.get().into(),
            };
            all.push(s);
            at += (XATTR_ENTRY + len).next_multiple_of(XATTR_ROUND);
        }
        // Values lie behind the zeros at the end of the list, with room for their padding.
        for s in all.iter().filter(|s| s.is_here()) {
            if s.value_offs < at + 4 || s.end().is_none_or(|end| end > self.bytes.len()) {
                return Err(self.bad("a value lies outside"));
            }
        }
        Ok(all)
    }

    /// All entries, for a change: values must not overlap, so that they have room where they are.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn own_entries(&self) -> Result<Vec<Stored<'a>>> {
        let all = self.entries()?;
        let mut values: Vec<_> = all
            .iter()
            .filter(|s| s.is_here())
            .map(|s| (s.value_offs, s.end().unwrap_or(usize::MAX)))
            .collect();
        values.sort_unstable();
        match values.windows(2).any(|w| w[0].1 > w[1].0) {
            true => Err(self.bad("values lie in each other")),
            false => Ok(all),
        }
    }

    /// The value of an entry that lies here.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(super) fn value(&self, s: &Stored<'_>) -> Result<&'a [u8]> {
        let end = s.value_offs.checked_add(s.size as usize).filter(|e| *e <= self.bytes.len());
        let value = end.and_then(|end| self.bytes.get(s.value_offs..end));
        // An empty value may have a left-over offset.
        value.or((s.size == 0).then_some(&[][..])).ok_or_else(|| self.bad("a value lies outside"))
    }
}
