//! The NAT's journal in the checkpoint pack: entries that have not gone to the table yet.

use super::{NatEntry, NatState};
use crate::format::raw::*;
use std::collections::BTreeMap;
use tidegate_vfs::{At, Error, Result};
use zerocopy::{FromBytes, IntoBytes};

impl NatState {
    /// The journal as it goes into the hot-data summary.
    pub(crate) fn journal_bytes(&self) -> [u8; SUM_JOURNAL_SIZE] {
        let mut out = [0; SUM_JOURNAL_SIZE];
        out[..2].copy_from_slice(&(self.journal.len() as u16).to_le_bytes());
        for (i, (nid, e)) in self.journal.iter().enumerate() {
            let raw = RawNatJournalEntry { nid: (*nid).into(), ne: (*e).into() };
            let at = 2 + i * size_of::<RawNatJournalEntry>();
            out[at..at + size_of::<RawNatJournalEntry>()].copy_from_slice(raw.as_bytes());
        }
        out
    }
}

/// Reads the NAT journal of a hot-data summary.
///
/// # Errors
/// `Corrupt` for a count or a node id out of range.
pub(crate) fn parse_journal(bytes: &[u8], max_nid: u32) -> Result<BTreeMap<u32, NatEntry>> {
    let n = u16::from_le_bytes([bytes[0], bytes[1]]) as usize;
    if n > NAT_JOURNAL_ENTRIES {
        return Err(Error::corrupt(format!("{n} entries")).at(At::The("NAT journal")));
    }
    let mut out = BTreeMap::new();
    for i in 0..n {
        let at = 2 + i * size_of::<RawNatJournalEntry>();
        let Ok((raw, _)) = RawNatJournalEntry::read_from_prefix(&bytes[at..]) else { break };
        let nid = raw.nid.get();
        if nid >= max_nid {
            return Err(Error::corrupt(format!("node id {nid} is out of range")).at(At::The("NAT journal")));
        }
        out.insert(nid, raw.ne.into());
    }
    Ok(out)
}
