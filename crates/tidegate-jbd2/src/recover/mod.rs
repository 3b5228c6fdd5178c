//! Recovery: the content of a log for its volume, found in three passes, as in stock tools.
//!
//! 1. `scan` follows the log from `s_start` to the last whole transaction and keeps its tags.
//! 2. `revoke` finds the blocks that were freed since, which must not be written.
//! 3. `replay` takes the newest copy of each block that is left, and checks the checksum of each.
//!
//! Nothing is written before [`Replay::write_out`]. Memory is bounded by the number of blocks in the log,
//! whose bytes stay there.
//!
//! | module | holds |
//! |---|---|
//! | `scan` | where the log ends, and why |
//! | `revoke` | revoke records |
//! | `fast` | the fast-commit area |
//! | `settle` | the changes of fast commits become a transaction |
//! | `write_out` | writing the log's blocks to their places |

mod fast;
mod revoke;
mod scan;
mod settle;
mod write_out;

pub use fast::FastCommits;
pub use settle::Changed;

use crate::format::Superblock;
use crate::log::{Log, Window};
use crate::units::{FsBlock, LogBlock, Tid};
use scan::{Logged, Scanned};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidegate_vfs::{Error, ErrorKind, Result};

/// The newest copy of a block in the log.
#[derive(Clone, Copy, Debug)]
struct Copy {
    at: LogBlock,
    /// Its first four bytes are the magic.
    escaped: bool,
}

/// The content of a log for its volume: the blocks that whole transactions left, to be read in place of the
/// volume's ([`Replay::read`]) or to be written to it ([`Replay::write_out`]).
pub struct Replay {
    log: Arc<Log>,
    sb: Superblock,
    blocks: BTreeMap<FsBlock, Copy>,
    /// The transaction behind the last whole one.
    end: Tid,
    failed: Option<Tid>,
    /// The log was cut before transactions that may be whole.
    is_cut_short: bool,
    stats: ReplayStats,
    fast: u64,
}

/// Statistics of a recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayStats {
    /// Whole transactions.
    pub transactions: u32,
    /// Copies of blocks in them.
    pub logged: usize,
    /// Revoke records in them.
    pub revokes: usize,
    /// Copies that were revoked.
    pub revoked: usize,
}

/// Finds the content of `log` for a volume of `volume_blocks` blocks.
///
/// # Errors
/// `Corrupt`, with the log block, where stock recovery fails, too; `Unsupported` for unknown features; the
/// device's. Nothing was written.
pub fn recover(log: Arc<Log>, volume_blocks: u64) -> Result<Replay> {
    find(log, volume_blocks, &mut Err)
}

/// Finds the content of a damaged log, for a repair: the log ends before a damaged transaction, and damaged
/// blocks of other transactions are left out. An unreadable block counts as damaged. Also returns the damage
/// found, in order. The volume needs a check afterwards.
///
/// # Errors
/// Those of the superblock and of fast commits; the device's. Nothing was written.
pub fn salvage(log: Arc<Log>, volume_blocks: u64) -> Result<(Replay, Vec<Error>)> {
    let mut damage = Vec::new();
    let mut replay = find(log, volume_blocks, &mut |e| match e.kind() {
        ErrorKind::Corrupt | ErrorKind::Io => {
            damage.push(e);
            Ok(())
        }
        _ => Err(e),
    })?;
    replay.is_cut_short |= !damage.is_empty();
    Ok((replay, damage))
}

/// Accepts damage, or returns it as an error.
type OnDamage<'a> = &'a mut dyn FnMut(Error) -> Result<()>;

fn find(log: Arc<Log>, volume_blocks: u64, on_damage: OnDamage) -> Result<Replay> {
    let sb = Superblock::read(&log)?;
    let Some(start) = sb.start else {
        let (blocks, end, stats) = (BTreeMap::new(), sb.sequence, ReplayStats::default());
        return Ok(Replay { log, sb, blocks, end, failed: None, is_cut_short: false, stats, fast: 0 });
    };
    let Scanned { logged, revoke_blocks, end, failed } = scan::scan(&log, &sb, start, on_damage)?;
    let (revoked, revokes) = revoke::records(&log, &sb, &revoke_blocks, &logged, on_damage)?;
    let is_revoked = |l: &Logged| revoked.get(&l.tag.block).is_some_and(|tid| tid.reaches(l.tid));
    let mut stats = ReplayStats {
        transactions: end.0.wrapping_sub(sb.sequence.0),
        logged: logged.len(),
        revokes,
        revoked: 0,
    };
    let mut blocks = BTreeMap::new();
    let mut window = Window::new(&log);
    for one in &logged {
        if is_revoked(one) {
            stats.revoked += 1;
            continue;
        }
        if let Err(e) = check(&sb, &mut window, one, volume_blocks) {
            on_damage(e)?;
            continue;
        }
        blocks.insert(one.tag.block, Copy { at: one.at, escaped: one.tag.escaped });
    }
    let fast = fast::committed(&log, &sb, end).or_else(|e| match e.kind() {
        ErrorKind::Corrupt => on_damage(e).map(|()| 0),
        _ => Err(e),
    })?;
    Ok(Replay { log, sb, blocks, end, failed, is_cut_short: failed.is_some(), stats, fast })
}

/// Compares a logged block with its tag and the volume.
fn check(sb: &Superblock, window: &mut Window, one: &Logged, volume_blocks: u64) -> Result<()> {
    let Logged { at, tid, tag } = one;
    if tag.block.0 >= volume_blocks {
        let what = format!("transaction {tid} has block {} of a volume of {volume_blocks}", tag.block);
        return Err(damaged(*at, what));
    }
    if sb.has_crc32c() && !sb.data_holds(tag, *tid, window.get(*at)?) {
        let what = format!("the checksum of block {} in transaction {tid} does not match", tag.block);
        return Err(damaged(*at, what));
    }
    Ok(())
}

fn damaged(at: LogBlock, what: String) -> Error {
    Error::corrupt(what).at(at.place())
}

impl Replay {
    /// Whether the volume is whole without the log.
    pub fn is_clean(&self) -> bool {
        self.sb.start.is_none()
    }

    /// The superblock as it was read.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The first transaction of the log and the one behind the last whole one; equal if there is none.
    pub fn tids(&self) -> (Tid, Tid) {
        (self.sb.sequence, self.end)
    }

    /// The number of the next transaction. No block in the log that recovery may reach has it or a later one.
    pub fn next_tid(&self) -> Tid {
        if self.is_cut_short {
            // The log has room for at most as many transactions as blocks.
            return Tid(self.end.0.wrapping_add(self.log.len()));
        }
        self.end.next()
    }

    /// The transaction whose commit record has a wrong checksum. Earlier transactions are whole; it and later
    /// ones are lost.
    pub fn failed_commit(&self) -> Option<Tid> {
        self.failed
    }

    /// An error of the volume that its superblock may not record: an errno, 0 for none.
    pub fn errno(&self) -> i32 {
        self.sb.errno
    }

    /// The statistics.
    pub fn stats(&self) -> ReplayStats {
        self.stats
    }

    /// The blocks of the volume whose bytes are in the log, in ascending order.
    pub fn blocks(&self) -> impl Iterator<Item = FsBlock> {
        self.blocks.keys().copied()
    }

    /// Copies the log's bytes of `block` to `to`, which has the size of a block; true if it has any.
    ///
    /// # Errors
    /// `InvalidArgument` when `to` has another size; the device's.
    pub fn read(&self, block: FsBlock, to: &mut [u8]) -> Result<bool> {
        if to.len() != self.log.block_size() as usize {
            let what = format!("{} bytes for a block of {}", to.len(), self.log.block_size());
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        let Some(copy) = self.blocks.get(&block) else { return Ok(false) };
        self.log.read(copy.at, to)?;
        if copy.escaped {
            to[..4].copy_from_slice(&crate::format::raw::JBD2_MAGIC.to_be_bytes());
        }
        Ok(true)
    }

    /// Whether fast commits follow the last transaction; see [`Replay::fast_commits`].
    pub fn has_fast_commits(&self) -> bool {
        self.fast > 0
    }

    /// The changes of fast commits, in order. They must be made after the changes of all transactions.
    pub fn fast_commits(&self) -> FastCommits<'_> {
        FastCommits::new(&self.log, &self.sb, self.fast)
    }
}
