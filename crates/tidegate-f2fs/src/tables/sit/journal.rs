//! The SIT journal: entries that travel in the checkpoint pack.

use super::*;

impl SitState {
    /// The journal as it goes into the cold-data summary.
    pub(crate) fn journal_bytes(&self) -> [u8; SUM_JOURNAL_SIZE] {
        let mut out = [0; SUM_JOURNAL_SIZE];
        out[..2].copy_from_slice(&(self.journal.len() as u16).to_le_bytes());
        for (i, (segno, e)) in self.journal.iter().enumerate() {
            let raw = RawSitJournalEntry { segno: (*segno).into(), se: e.clone() };
            let at = 2 + i * size_of::<RawSitJournalEntry>();
            out[at..at + size_of::<RawSitJournalEntry>()].copy_from_slice(raw.as_bytes());
        }
        out
    }
}

/// Reads the SIT journal of a cold-data summary.
///
/// # Errors
/// `Corrupt` for a count or a segment out of range.
pub(crate) fn parse_journal(bytes: &[u8], main_segments: u32) -> Result<BTreeMap<u32, RawSitEntry>> {
    let n = usize::from(le16(bytes, 0));
    if n > SIT_JOURNAL_ENTRIES {
        return Err(Error::corrupt(format!("{n} entries")).at(At::The("SIT journal")));
    }
    let mut out = BTreeMap::new();
    for i in 0..n {
        let at = 2 + i * size_of::<RawSitJournalEntry>();
        let Ok((raw, _)) = RawSitJournalEntry::read_from_prefix(&bytes[at..]) else { break };
        if raw.segno.get() >= main_segments {
            return Err(Error::corrupt("is out of range")
                .at(At::Part("segment", raw.segno.get().into()))
                .at(At::The("SIT journal")));
        }
        out.insert(raw.segno.get(), raw.se);
    }
    Ok(out)
}
