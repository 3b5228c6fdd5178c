//! The fast-commit area behind the log's last transaction.

use super::damaged;
use crate::format::Superblock;
use crate::format::fc::{FcTag, Refused, Scan, changes};
use crate::log::Log;
use crate::units::{LogBlock, Tid};
use std::collections::VecDeque;
use std::ops::Range;
use tidegate_vfs::{Error, ErrorKind, Result};

/// The number of committed tags of the area behind the transaction before `end`.
///
/// # Errors
/// `Corrupt` for a damaged first commit, `Unsupported` for unknown features, the device's.
pub(super) fn committed(log: &Log, sb: &Superblock, end: Tid) -> Result<u64> {
    let mut scan = Scan::new(end);
    for at in sb.fast_commits.clone().map(LogBlock) {
        let block = log.read_block(at)?;
        let goes_on = scan.block(&block).map_err(|refused| match refused {
            Refused::Damaged => damaged(at, format!("the first fast commit behind {end} is damaged")),
            Refused::Features(f) => {
                let what = format!("fast commits with features {f:#x}");
                Error::new(ErrorKind::Unsupported, what).at(at.place())
            }
        })?;
        if !goes_on {
            break;
        }
    }
    Ok(scan.committed)
}

/// The changes of a log's fast commits, in order; read on demand.
pub struct FastCommits<'a> {
    log: &'a Log,
    blocks: Range<u32>,
    /// Committed tags that are still to come.
    left: u64,
    ready: VecDeque<FcTag>,
}

impl<'a> FastCommits<'a> {
    pub(super) fn new(log: &'a Log, sb: &Superblock, left: u64) -> Self {
        FastCommits { log, blocks: sb.fast_commits.clone(), left, ready: VecDeque::new() }
    }
}

impl Iterator for FastCommits<'_> {
    type Item = Result<FcTag>;

    fn next(&mut self) -> Option<Result<FcTag>> {
        while self.ready.is_empty() && self.left > 0 {
            match self.log.read_block(LogBlock(self.blocks.next()?)) {
                Ok(block) => self.ready.extend(changes(&block, &mut self.left)),
                Err(e) => {
                    self.left = 0;
                    return Some(Err(e));
                }
            }
        }
        self.ready.pop_front().map(Ok)
    }
}
