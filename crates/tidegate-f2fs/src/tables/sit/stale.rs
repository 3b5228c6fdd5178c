//! Records where stale blocks may be: a search passes over sections that have none, and is skipped where an
//! earlier one found nothing.

/// Notes of searches for stale blocks, for later searches.
pub(crate) struct Stale {
    /// Segments of a section.
    per: u32,
    /// Sections that were wholly in use, or empty, when a search looked, and have not changed since: a bit
    /// each.
    settled: Vec<u64>,
    /// Blocks freed since the volume was opened.
    pub(super) blocks: u64,
    /// The section where the next search for holes begins.
    pub(super) hint: u32,
    /// Number of times that logs may have got access to new holes.
    pub(super) openings: u64,
    /// For logs of data and of nodes: the value of `openings` when a search found no holes.
    pub(super) none_after: [Option<u64>; 2],
}

impl Stale {
    pub(super) fn new(segments: u32, per: u32) -> Stale {
        let words = segments.div_ceil(per.max(1)).div_ceil(64) as usize;
        Stale { per, settled: vec![0; words], blocks: 0, hint: 0, openings: 0, none_after: [None; 2] }
    }

    /// Notes that blocks of a segment were taken, or that `freed` of them were freed.
    pub(super) fn changed(&mut self, segno: u32, freed: u64) {
        self.blocks += freed;
        let section = segno / self.per;
        if let Some(word) = self.settled.get_mut(section as usize / 64) {
            *word &= !(1 << (section % 64));
        }
    }

    /// Notes that a section is wholly in use or empty.
    pub(crate) fn settle(&mut self, section: u32) {
        if let Some(word) = self.settled.get_mut(section as usize / 64) {
            *word |= 1 << (section % 64);
        }
    }

    /// The number of settled sections from `section` on, as far as one step tells; a search goes on behind
    /// them.
    pub(crate) fn settled_from(&self, section: u32) -> u32 {
        let word = self.settled.get(section as usize / 64).copied().unwrap_or(0);
        (word >> (section % 64)).trailing_ones()
    }

    /// Notes that logs may have access to new holes: a checkpoint was made, or a segment was released.
    pub(crate) fn opened(&mut self) {
        self.openings += 1;
    }
}
