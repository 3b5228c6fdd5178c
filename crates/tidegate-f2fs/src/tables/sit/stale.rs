//! Where stale blocks may be: a search passes over sections that have none, and over all where it found nothing.

/// Notes that searches for stale blocks leave to those that follow.
pub(crate) struct Stale {
    /// Segments of a section.
    per: u32,
    /// Sections that were wholly in use, or empty, when somebody looked, and have not changed since: a bit each.
    settled: Vec<u64>,
    /// Blocks freed since the volume was opened.
    pub(super) blocks: u64,
    /// The section where the next search for holes begins.
    pub(super) hint: u32,
    /// Times that holes may have come into the logs' reach.
    pub(super) openings: u64,
    /// For logs of data and of nodes: a search found no holes after so many openings.
    pub(super) none_after: [Option<u64>; 2],
}

impl Stale {
    pub(super) fn new(segments: u32, per: u32) -> Stale {
        let words = segments.div_ceil(per.max(1)).div_ceil(64) as usize;
        Stale { per, settled: vec![0; words], blocks: 0, hint: 0, openings: 0, none_after: [None; 2] }
    }

    /// Blocks of a segment were taken, or `freed` of them given back.
    pub(super) fn changed(&mut self, segno: u32, freed: u64) {
        self.blocks += freed;
        let section = segno / self.per;
        if let Some(word) = self.settled.get_mut(section as usize / 64) {
            *word &= !(1 << (section % 64));
        }
    }

    /// A section is wholly in use or empty.
    pub(crate) fn settle(&mut self, section: u32) {
        if let Some(word) = self.settled.get_mut(section as usize / 64) {
            *word |= 1 << (section % 64);
        }
    }

    /// How many sections from `section` on are settled, as far as one step tells; a search goes on behind them.
    pub(crate) fn settled_from(&self, section: u32) -> u32 {
        let word = self.settled.get(section as usize / 64).copied().unwrap_or(0);
        (word >> (section % 64)).trailing_ones()
    }

    /// Holes may have come into the logs' reach: a checkpoint was made, or a segment was let go.
    pub(crate) fn opened(&mut self) {
        self.openings += 1;
    }
}
