//! The first pass: from the log's start to its last whole transaction.

use super::{OnDamage, damaged};
use crate::format::raw::{
    COMMIT_BLOCK, CRC32_CHKSUM, CRC32_CHKSUM_SIZE, DESCRIPTOR_BLOCK, REVOKE_BLOCK, RawCommit,
};
use crate::format::{Checksums, Crc32Be, Incompat, Superblock, Tag, TagLayout, header, tags};
use crate::log::{Log, Window};
use crate::units::{LogBlock, Tid};
use tidegate_vfs::Result;
use zerocopy::FromBytes;

/// A block in the log.
pub(super) struct Logged {
    pub at: LogBlock,
    pub tid: Tid,
    pub tag: Tag,
}

/// The blocks of whole transactions.
pub(super) struct Scanned {
    /// The blocks in the order of the log.
    pub logged: Vec<Logged>,
    /// Revoke blocks with their transactions.
    pub revoke_blocks: Vec<(LogBlock, Tid)>,
    /// The transaction behind the last whole one.
    pub end: Tid,
    /// The transaction whose record's checksum is wrong.
    pub failed: Option<Tid>,
}

/// Whether the pass goes on.
#[derive(PartialEq)]
enum Next {
    Block,
    End,
}

struct Scan<'a> {
    sb: &'a Superblock,
    layout: TagLayout,
    window: Window<'a>,
    /// The current block, and its position.
    block: Vec<u8>,
    here: LogBlock,
    /// The position behind the current block.
    at: LogBlock,
    /// Number of blocks walked. A log has no more than its ring.
    walked: u64,
    /// The current transaction.
    tid: Tid,
    logged: Vec<Logged>,
    revoke_blocks: Vec<(LogBlock, Tid)>,
    /// Number of blocks and of revoke blocks of whole transactions.
    whole: (usize, usize),
    /// The time of the last whole transaction.
    last_time: u64,
    /// A tail of this transaction has a wrong checksum: either damage, or blocks of an older log.
    doubtful: bool,
    /// The checksum of the current transaction, with csum v1.
    crc: Crc32Be,
    /// The first transaction whose record has a wrong checksum.
    end: Option<Tid>,
    failed: Option<Tid>,
}

/// Follows the log from `start` to its end, or to damage that `on_damage` accepts.
///
/// # Errors
/// `Corrupt` for a damaged transaction that is not the log's torn end; the device's.
pub(super) fn scan(log: &Log, sb: &Superblock, start: LogBlock, on_damage: OnDamage) -> Result<Scanned> {
    let mut scan = Scan {
        sb,
        layout: TagLayout::of(sb),
        window: Window::new(log),
        block: Vec::new(),
        here: start,
        at: start,
        walked: 0,
        tid: sb.sequence,
        logged: Vec::new(),
        revoke_blocks: Vec::new(),
        whole: (0, 0),
        last_time: 0,
        doubtful: false,
        crc: Crc32Be::new(),
        end: None,
        failed: None,
    };
    loop {
        match scan.step() {
            Ok(Next::Block) => {}
            Ok(Next::End) => break,
            Err(e) => {
                on_damage(e)?;
                break;
            }
        }
    }
    let (logged, revokes) = scan.whole;
    scan.logged.truncate(logged);
    scan.revoke_blocks.truncate(revokes);
    let end = scan.end.unwrap_or(scan.tid);
    Ok(Scanned { logged: scan.logged, revoke_blocks: scan.revoke_blocks, end, failed: scan.failed })
}

impl Scan<'_> {
    fn step(&mut self) -> Result<Next> {
        self.here = self.at;
        self.block.clear();
        self.block.extend_from_slice(self.window.get(self.here)?);
        let kind = match header(&self.block) {
            Some((kind, tid)) if tid == self.tid => kind,
            _ => return Ok(Next::End),
        };
        match kind {
            DESCRIPTOR_BLOCK | REVOKE_BLOCK | COMMIT_BLOCK => self.forward(1)?,
            _ => return Ok(Next::End),
        };
        match kind {
            DESCRIPTOR_BLOCK => self.descriptor()?,
            REVOKE_BLOCK => {
                self.doubtful |= !self.sb.tail_holds(&self.block);
                self.revoke_blocks.push((self.here, self.tid));
            }
            _ => return self.commit(),
        }
        Ok(Next::Block)
    }

    /// Walks `n` blocks forward; returns the position before.
    fn forward(&mut self, n: u32) -> Result<LogBlock> {
        self.walked += u64::from(n);
        if self.walked > u64::from(self.sb.ring.end - self.sb.ring.start) {
            return Err(damaged(self.here, format!("transaction {} goes around the whole log", self.tid)));
        }
        let before = self.at;
        self.at = self.sb.forward(before, n);
        Ok(before)
    }

    fn descriptor(&mut self) -> Result<()> {
        self.doubtful |= !self.sb.tail_holds(&self.block);
        let sums = self.sb.checksums == Checksums::V1 && self.end.is_none();
        if sums {
            self.crc.update(&self.block);
        }
        let block = std::mem::take(&mut self.block);
        for tag in tags(self.layout, &block) {
            let at = self.forward(1)?;
            if sums {
                self.crc.update(self.window.get(at)?);
            }
            self.logged.push(Logged { at, tid: self.tid, tag });
        }
        self.block = block;
        Ok(())
    }

    fn commit(&mut self) -> Result<Next> {
        let Ok((raw, _)) = RawCommit::read_from_prefix(&self.block) else { return Ok(Next::End) };
        let time = raw.h_commit_sec.get();
        if self.doubtful {
            // The time goes back, so an older log begins here: this block is not part of the present log.
            if time < self.last_time {
                return Ok(Next::End);
            }
            let what = format!("transaction {} has a commit record and a damaged descriptor", self.tid);
            return Err(damaged(self.here, what));
        }
        if let Some(end) = self.end {
            // With asynchronous commits, this transaction came after the broken one.
            self.failed = Some(end);
            return Ok(Next::End);
        }
        if !self.record_holds(&raw) {
            if time < self.last_time {
                return Ok(Next::End);
            }
            self.end = Some(self.tid);
            if !self.sb.incompat.contains(Incompat::ASYNC_COMMIT) {
                self.failed = self.end;
                return Ok(Next::End);
            }
        } else {
            self.whole = (self.logged.len(), self.revoke_blocks.len());
        }
        self.crc = Crc32Be::new();
        self.last_time = time;
        self.tid = self.tid.next();
        Ok(Next::Block)
    }

    /// Whether the record's checksum is right; with csum v1 it is the checksum of the whole transaction, if
    /// there is one.
    fn record_holds(&self, raw: &RawCommit) -> bool {
        if self.sb.checksums != Checksums::V1 {
            return self.sb.record_holds(&self.block);
        }
        let found = (raw.h_chksum_type, raw.h_chksum_size, raw.h_chksum[0].get());
        found == (0, 0, 0) || found == (CRC32_CHKSUM, CRC32_CHKSUM_SIZE, self.crc.value())
    }
}
