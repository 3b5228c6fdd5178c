//! Journals: entries of the NAT and the SIT that are in the checkpoint pack and not in their table yet.
//!
//! ```text
//! byte 0     2         2 + n                 507
//!      | n   | entry 0 | entry 1 | ... | zeros |
//! ```

use crate::format::raw::*;
use tidegate_vfs::{At, Error, Result};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// An entry of a journal (`struct nat_journal_entry`, `struct sit_journal_entry`).
pub(crate) trait JournalEntry: FromBytes + IntoBytes + Immutable {
    /// The journal's name in errors.
    const JOURNAL: &'static str;
    /// Most entries of the journal.
    const MOST: usize;

    /// The table index of the entry.
    fn index(&self) -> u32;

    /// The table index, as the place of an error.
    fn place(&self) -> At;
}

impl JournalEntry for RawNatJournalEntry {
    const JOURNAL: &'static str = "NAT journal";
    const MOST: usize = NAT_JOURNAL_ENTRIES;

    fn index(&self) -> u32 {
        self.nid.get()
    }

    fn place(&self) -> At {
        At::Part("node", self.index().into())
    }
}

impl JournalEntry for RawSitJournalEntry {
    const JOURNAL: &'static str = "SIT journal";
    const MOST: usize = SIT_JOURNAL_ENTRIES;

    fn index(&self) -> u32 {
        self.segno.get()
    }

    fn place(&self) -> At {
        At::Part("segment", self.index().into())
    }
}

/// The journal's bytes in a summary block, for at most [`JournalEntry::MOST`] entries.
pub(crate) fn bytes_of<E: JournalEntry>(entries: impl ExactSizeIterator<Item = E>) -> [u8; SUM_JOURNAL_SIZE] {
    assert!(entries.len() <= E::MOST, "an entry that has no room would be lost");
    let mut out = [0; SUM_JOURNAL_SIZE];
    let (count, places) = out.split_at_mut(2);
    count.copy_from_slice(&(entries.len() as u16).to_le_bytes());
    for (place, entry) in places.chunks_exact_mut(size_of::<E>()).zip(entries) {
        place.copy_from_slice(entry.as_bytes());
    }
    out
}

/// The entries of a journal whose table has `end` entries.
///
/// # Errors
/// `Corrupt` for a count or an index out of range.
pub(crate) fn parse<E: JournalEntry>(bytes: &[u8], end: u32) -> Result<Vec<E>> {
    let n = usize::from(le16(bytes, 0));
    if n > E::MOST {
        return Err(Error::corrupt(format!("{n} entries")).at(At::The(E::JOURNAL)));
    }
    let entries = bytes.get(2..).unwrap_or_default().chunks_exact(size_of::<E>()).take(n);
    let checked = |e: E| match e.index() < end {
        true => Ok(e),
        false => Err(Error::corrupt("is out of range").at(e.place()).at(At::The(E::JOURNAL))),
    };
    entries.filter_map(|b| E::read_from_bytes(b).ok()).map(checked).collect()
}
