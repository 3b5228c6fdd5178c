//! Makes the changes of fast commits a transaction of the log, which recovery replays like any other.
//!
//! Fast commits count only behind one transaction. First the log's blocks are written to their places. Then
//! the superblock says that the log begins, empty, with the number that the fast commits count for: so they
//! still count. With the record of the new transaction they do not count any more, and their changes are in
//! the log.

use super::Replay;
use crate::format::raw::{FLAG_ESCAPE, FLAG_LAST_TAG, FLAG_SAME_UUID, JBD2_MAGIC};
use crate::format::{TagLayout, descriptor, record, tag};
use crate::io::{Pending, write_bio};
use crate::journal::Costs;
use crate::units::{FsBlock, LogBlock};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tidegate_block::{BioFlags, PageBuf, RequestQueue};
use tidegate_rt::clock;
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;

/// Changed blocks, each with its new bytes at the beginning of a page.
pub type Changed = BTreeMap<FsBlock, std::sync::Arc<PageBuf>>;

impl Replay {
    /// Puts `changes`, the effect of the fast commits, into the log as its only transaction, durably; the
    /// log's old content is on the volume then. The log must be recovered again. A power cut at any point
    /// leaves a log with an equal recovery.
    ///
    /// # Errors
    /// `NoSpace` for more changes than the log has room for, with nothing written; the device's.
    pub fn settle(&self, volume: &RequestQueue, changes: &Changed) -> Result<()> {
        let layout = TagLayout::of(&self.sb);
        let costs = Costs::new(&self.sb, layout);
        let needs = u32::try_from(changes.len())
            .map_or(u32::MAX, |n| n.saturating_add(n.div_ceil(costs.tags)).saturating_add(1));
        if needs > costs.ring {
            let what = format!("its fast commits need {needs} blocks of a log that has {}", costs.ring);
            return Err(Error::new(ErrorKind::NoSpace, what));
        }
        self.write_blocks(volume)?;
        let begin = LogBlock(self.sb.ring.start);
        let mut head = self.log.read_block(LogBlock(0))?;
        let raw = self.sb.bytes(self.end, Some(begin));
        head[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
        self.log.write(LogBlock(0), &head, BioFlags::PREFLUSH | BioFlags::FUA)?;
        let at = self.send_changes(begin, layout, &costs, changes)?;
        let mut block = vec![0; self.log.block_size() as usize];
        record(&self.sb, self.end, clock::realtime(), &mut block);
        self.log.write(at, &block, BioFlags::PREFLUSH | BioFlags::FUA)
    }

    /// Writes the transaction without its record, and waits for the write; returns the place of the record.
    fn send_changes(
        &self,
        begin: LogBlock,
        layout: TagLayout,
        costs: &Costs,
        changes: &Changed,
    ) -> Result<LogBlock> {
        let size = self.log.block_size() as usize;
        let (pending, mut at) = (Pending::new(), begin);
        let mut send = |bytes: &[u8]| -> Result<()> {
            let (to, _) = self.log.place(at, 1)?;
            let bio = write_bio(to.0 * size as u64, bytes, BioFlags::META | BioFlags::SYNC);
            self.log.queue().submit(pending.watch(bio));
            at = self.sb.forward(at, 1);
            Ok(())
        };
        let all: Vec<_> = changes.iter().map(|(at, page)| (*at, &page[..size])).collect();
        for some in all.chunks(costs.tags as usize) {
            let logged: Vec<_> = some.iter().map(|(_, bytes)| escaped(bytes)).collect();
            let tags = some.iter().zip(&logged).enumerate().map(|(n, ((at, _), bytes))| {
                let flags = [
                    (matches!(bytes, Cow::Owned(_)), FLAG_ESCAPE),
                    (n > 0, FLAG_SAME_UUID),
                    (n + 1 == some.len(), FLAG_LAST_TAG),
                ];
                let flags = flags.into_iter().filter(|(on, _)| *on).map(|(_, f)| f).sum();
                tag(&self.sb, layout, self.end, (*at, bytes), flags)
            });
            let mut block = vec![0; size];
            descriptor(&self.sb, layout, self.end, tags, &mut block);
            send(&block)?;
            logged.iter().try_for_each(|bytes| send(bytes))?;
        }
        pending.wait().map_err(|e| Error::device(e, "writing fast commits to the journal"))?;
        Ok(at)
    }
}

/// The bytes of a block for the log; owned if they differ from the block's own.
fn escaped(block: &[u8]) -> Cow<'_, [u8]> {
    if !block.starts_with(&JBD2_MAGIC.to_be_bytes()) {
        return Cow::Borrowed(block);
    }
    let mut block = block.to_vec();
    block[..4].fill(0);
    Cow::Owned(block)
}
