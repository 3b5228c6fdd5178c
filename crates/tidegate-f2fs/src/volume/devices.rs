//! The check that the devices of a volume on several are its own, each in its place.
//!
//! Nothing on the devices behind the first names the volume. But the NAT says which node lies at which block,
//! and each node's footer names the node. A device on which no node is where the NAT says is not the
//! volume's.

use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use std::ops::Range;
use tidegate_block::{BioFlags, RequestQueue};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::FromBytes;

/// Nodes that are looked at on each device.
const SAMPLES: u32 = 8;
/// NAT blocks that are searched for such nodes; they describe some 30,000 nodes.
const MOST_BLOCKS: u32 = 64;
/// A device with at least this many nodes missing, and none found, counts as another device and not as a
/// damaged one.
pub(crate) const TELLING: u32 = 4;

/// A device behind the first.
struct Part {
    path: String,
    /// The volume's blocks on the device.
    blocks: Range<u64>,
    /// The number of nodes that were found, and of nodes that were not.
    right: u32,
    wrong: u32,
}

/// Refuses a device behind the first if at least `telling` nodes were looked for on it and none was found.
/// `journal` has the entries that override the NAT's. Blocks that cannot be read tell nothing.
///
/// # Errors
/// `InvalidArgument`: the device is not the volume's, or not in its place.
pub(crate) fn check_devices(
    queue: &RequestQueue,
    sb: &Superblock,
    cp: &Checkpoint,
    journal: impl Fn(u32) -> Option<RawNatEntry>,
    telling: u32,
) -> Result<()> {
    let mut end = 0;
    let part = |(path, bytes): (String, u64)| {
        let start = end;
        end += bytes / BLOCK_SIZE as u64;
        Part { path, blocks: start..end, right: 0, wrong: 0 }
    };
    let mut parts: Vec<Part> = sb.devices().into_iter().map(part).skip(1).collect();
    if parts.is_empty() {
        return Ok(());
    }
    let read = |at: u32| queue.read_wait(BlockAddr(at).sector(), 1, BioFlags::META).ok();
    for n in 0..sb.nat_blocks.min(MOST_BLOCKS) {
        let Some(block) = read(nat_block(sb, cp, n)) else { continue };
        let entries = block.chunks_exact(size_of::<RawNatEntry>()).take(NAT_ENTRY_PER_BLOCK);
        for (nid, raw) in (n * NAT_ENTRY_PER_BLOCK as u32..).zip(entries) {
            let Ok(entry) = RawNatEntry::read_from_bytes(raw) else { continue };
            let entry = journal(nid).unwrap_or(entry);
            let at = entry.block_addr.get();
            let part = parts.iter_mut().find(|p| p.blocks.contains(&u64::from(at)));
            let Some(part) = part.filter(|p| p.right + p.wrong < SAMPLES) else { continue };
            let Some(node) = read(at) else { continue };
            let footer = RawNodeFooter::of(&node);
            match (footer.nid.get(), footer.ino.get()) == (nid, entry.ino.get()) {
                true => part.right += 1,
                false => part.wrong += 1,
            }
        }
        if parts.iter().all(|p| p.right + p.wrong >= SAMPLES) {
            break;
        }
    }
    match parts.iter().enumerate().find(|(_, p)| p.right == 0 && p.wrong >= telling) {
        Some((n, p)) => Err(misplaced(n + 2, p)),
        None => Ok(()),
    }
}

fn misplaced(number: usize, part: &Part) -> Error {
    let what = format!(
        "device number {number} of the volume, which lists it as \"{}\", is another one: none of {} nodes is in its \
         place there; -o device=PATH names those behind the first, in the order of the list",
        part.path, part.wrong
    );
    Error::new(ErrorKind::InvalidArgument, what)
}

/// The address of the current copy of NAT block `n`; copies alternate by segment.
fn nat_block(sb: &Superblock, cp: &Checkpoint, n: u32) -> u32 {
    let pair = n / BLOCKS_PER_SEG * 2 * BLOCKS_PER_SEG + n % BLOCKS_PER_SEG;
    let second = test_bit_msb(&cp.nat_bitmap, n as usize);
    sb.nat_blkaddr + pair + if second { BLOCKS_PER_SEG } else { 0 }
}
