//! The second pass: the blocks that were freed, and the transactions that freed them.

use super::scan::Logged;
use super::{OnDamage, damaged};
use crate::format::{Superblock, revoked};
use crate::log::{Log, Window};
use crate::units::{FsBlock, LogBlock, Tid};
use tidegate_rt::hash::{HashMap, HashSet};
use tidegate_vfs::Result;

/// The last transaction that revoked each logged block, and the number of records. Records of blocks that the
/// log does not hold have no effect and are not kept.
///
/// # Errors
/// `Corrupt` for a count that goes beyond its block; the device's.
pub(super) fn records(
    log: &Log,
    sb: &Superblock,
    blocks: &[(LogBlock, Tid)],
    logged: &[Logged],
    on_damage: OnDamage,
) -> Result<(HashMap<FsBlock, Tid>, usize)> {
    let (mut last, mut count) = (HashMap::default(), 0);
    if blocks.is_empty() {
        return Ok((last, 0));
    }
    let held: HashSet<FsBlock> = logged.iter().map(|l| l.tag.block).collect();
    let mut window = Window::new(log);
    for &(at, tid) in blocks {
        let records = revoked(sb, window.get(at)?);
        let Some(records) = records else {
            on_damage(damaged(at, "its revoke records go beyond the block".to_string()))?;
            continue;
        };
        for block in records {
            count += 1;
            if held.contains(&block) {
                // Transactions come in order: this is the latest so far.
                last.insert(block, tid);
            }
        }
    }
    Ok((last, count))
}
