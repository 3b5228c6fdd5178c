//! The requests to the device, block by block, and the part of them that a power cut leaves.
//!
//! A write is durable once a flush that began after the write's completion has completed, or with FUA once it
//! has completed itself. Every other write, in flight or not, may be on the medium or not, each block of it
//! by itself. Of two writes to one block that were in flight together, either may end up on the medium, even
//! if only the other is durable. A PREFLUSH write reaches the medium only after its flush.

use crate::zones::OnZones;
use std::sync::Arc;
use tidegate_block::{BioFlags, Blocks, Op, Record};

/// A recorded request that changes or flushes something.
#[derive(Clone, Debug)]
pub struct Change {
    /// First block of the device.
    pub block: u32,
    /// Blocks; 0 for a flush.
    pub count: u32,
    /// The first block of its content in [`Tape::blocks`]; `None` when it leaves zeros.
    pub content: Option<u32>,
    /// Whether it flushes before it is done.
    pub flushes: bool,
    /// Whether it is durable when it completes.
    pub fua: bool,
    /// Whether it carries metadata.
    pub meta: bool,
    /// Something done to a zone as a whole: a reset, or a finish, which has no blocks.
    pub zone: Option<Op>,
    /// Event of its submission.
    pub submitted: u64,
    /// Event of its completion; `u64::MAX` when it never completed.
    pub completed: u64,
}

/// No change.
const NONE: u32 = u32::MAX;

/// All requests to the device, in order.
#[derive(Default)]
pub struct Tape {
    /// The content of all blocks.
    pub blocks: Arc<Blocks>,
    /// The content of the device before.
    pub before: Arc<Vec<u32>>,
    /// The changes, in order of submission.
    pub changes: Vec<Change>,
    /// The write pointers of the zones before the recording, on a device with zones.
    pub zones: OnZones,
}

/// One block of one change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Unit {
    /// The number of the change.
    pub change: u32,
    /// The number of the block on the device.
    pub block: u32,
}

impl Tape {
    /// The tape of a recording that began with the content `before` in `blocks`.
    ///
    /// # Panics
    /// A request is not of whole blocks: a part would be missing in every state.
    pub fn new(blocks: &Arc<Blocks>, before: &Arc<Vec<u32>>, records: Vec<Record>) -> Tape {
        let mut content = Blocks::after(blocks.clone());
        let size = blocks.block_size() as u64;
        for r in &records {
            let whole = r.sector.bytes().is_multiple_of(size) && r.bytes.is_multiple_of(size);
            assert!(whole, "{:?} of {} bytes at {}: no whole blocks", r.op, r.bytes, r.sector.bytes());
        }
        let changes = records.iter().map(|r| Change {
            block: (r.sector.bytes() / size) as u32,
            count: if r.op == Op::ZoneFinish { 0 } else { (r.bytes / size) as u32 },
            zone: matches!(r.op, Op::ZoneReset | Op::ZoneFinish).then_some(r.op),
            content: (r.op == Op::Write).then(|| content.push(&r.data)),
            flushes: r.op == Op::Flush || r.flags.contains(BioFlags::PREFLUSH),
            fua: r.flags.contains(BioFlags::FUA),
            meta: r.flags.contains(BioFlags::META),
            submitted: r.submitted,
            completed: r.completed.unwrap_or(u64::MAX),
        });
        let changes = changes.collect();
        Tape { blocks: Arc::new(content), before: before.clone(), changes, zones: None }
    }

    /// This tape, of a device with zones.
    pub fn on(self, zones: &OnZones) -> Tape {
        Tape { zones: zones.clone(), ..self }
    }

    /// The number of flushes of the device.
    pub fn flushes(&self) -> u64 {
        self.changes.iter().filter(|c| c.flushes).count() as u64
    }

    /// The event behind the last one.
    pub fn end(&self) -> u64 {
        let last =
            |c: &Change| if c.completed == u64::MAX { c.submitted } else { c.completed.max(c.submitted) };
        self.changes.iter().map(last).max().map_or(0, |e| e + 1)
    }

    /// The changes submitted before event `cut`, with their numbers.
    pub(crate) fn until(&self, cut: u64) -> impl DoubleEndedIterator<Item = (u32, &Change)> {
        let n = self.changes.partition_point(|c| c.submitted < cut);
        self.changes[..n].iter().enumerate().map(|(i, c)| (i as u32, c))
    }

    /// The event at which the last flush began that is complete at `cut`: writes completed before that event
    /// are durable.
    pub fn flushed(&self, cut: u64) -> u64 {
        let done = self.until(cut).filter(|(_, c)| c.flushes && c.completed < cut);
        done.map(|(_, c)| c.submitted).max().unwrap_or(0)
    }

    /// PREFLUSH writes in flight at `cut`: their flush may be done while the writes are not.
    pub fn flushing(&self, cut: u64) -> Vec<u32> {
        let inflight = self.until(cut).filter(|(_, c)| c.flushes && c.completed >= cut);
        inflight.map(|(i, _)| i).collect()
    }

    pub(crate) fn is_durable(c: &Change, cut: u64, flushed: u64) -> bool {
        c.completed < flushed || (c.fua && c.completed < cut)
    }

    /// Whether `new` replaces `old` on the medium for certain: they were not in flight together.
    fn is_over(old: &Change, new: &Change) -> bool {
        old.completed < new.submitted
    }

    /// The durable change of each block; [`NONE`] where there is none.
    fn settled(&self, cut: u64, flushed: u64) -> Vec<u32> {
        let mut settled = vec![NONE; self.before.len()];
        for (i, c) in self.until(cut).filter(|(_, c)| Self::is_durable(c, cut, flushed)) {
            for last in &mut settled[c.block as usize..(c.block + c.count) as usize] {
                if *last == NONE || self.changes[*last as usize].completed < c.completed {
                    *last = i;
                }
            }
        }
        settled
    }

    /// The blocks that may or may not be on the medium at `cut`, when the last flush began at `flushed`.
    pub fn volatile(&self, cut: u64, flushed: u64) -> Vec<Unit> {
        let settled = self.settled(cut, flushed);
        let mut out = Vec::new();
        for (change, c) in self.until(cut).filter(|(_, c)| !Self::is_durable(c, cut, flushed)) {
            if c.flushes && c.completed >= cut && c.submitted > flushed {
                continue; // its flush comes first
            }
            let blocks = c.block..c.block + c.count;
            let may = |b: &u32| match settled[*b as usize] {
                NONE => true,
                s => !Self::is_over(c, &self.changes[s as usize]),
            };
            out.extend(blocks.filter(may).map(|block| Unit { change, block }));
        }
        out
    }

    /// The device's content: all durable blocks, and of the others those in `present`, later ones over
    /// earlier ones.
    pub fn table(&self, cut: u64, flushed: u64, present: &[Unit]) -> Vec<u32> {
        self.medium(cut, flushed, present).0
    }

    /// The content of [`Tape::table`], and the write pointers of the zones.
    pub fn medium(&self, cut: u64, flushed: u64, present: &[Unit]) -> (Vec<u32>, OnZones) {
        let mut table = self.before.to_vec();
        let mut put = |block: u32, change: u32| {
            let c = &self.changes[change as usize];
            table[block as usize] = c.content.map_or(0, |at| at + block - c.block);
        };
        for (block, change) in self.settled(cut, flushed).into_iter().enumerate().filter(|s| s.1 != NONE) {
            put(block as u32, change);
        }
        present.iter().for_each(|u| put(u.block, u.change));
        let zones = self.lay_zones(cut, flushed, present, &mut table);
        (table, zones)
    }
}
