//! The hash tree of a directory.

use super::{Checker, rules};
use crate::format::crc::crc32c;
use crate::format::hash::DirHash;
use crate::format::raw::*;
use crate::offline::node::Node;
use std::collections::{HashMap, HashSet};
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

/// The hashes that a block of entries may have, both ends included.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) low: u32,
    pub(super) high: u32,
    pub(super) hash: DirHash,
}

/// The parts of a tree.
pub(super) struct Tree {
    /// Blocks of the directory that are nodes.
    pub(super) nodes: HashSet<u64>,
    leaves: HashMap<u64, (u32, u32)>,
    hash: Option<DirHash>,
}

impl Tree {
    /// The range of hashes of leaf `at`, if hashes can be computed.
    pub(super) fn range(&self, at: u64) -> Option<Range> {
        let &(low, high) = self.leaves.get(&at)?;
        Some(Range { low, high, hash: self.hash? })
    }
}

impl Checker<'_> {
    /// Reads a directory's tree; none where damage keeps its nodes from being told apart from blocks of
    /// entries.
    pub(super) fn htree(&mut self, node: &Node, blocks: &[(u64, u64)]) -> Result<Option<Tree>> {
        let Some(root) = blocks.first() else { return Ok(None) };
        let bytes = self.block(root.1)?;
        let Some(info) = read_at::<RawDxRootInfo>(&bytes, DX_ROOT_INFO) else { return Ok(None) };
        let (version, length, levels) = (info.hash_version, info.info_length, info.indirect_levels);
        let raw = &self.sb.raw;
        let unsigned = raw.s_flags.get() & FLAGS_UNSIGNED_HASH != 0;
        let hash = DirHash::new(version, unsigned, raw.s_hash_seed.map(|w| w.get()));
        let opaque = node.flags().intersects(InodeFlags::ENCRYPT | InodeFlags::CASEFOLD);
        let most = if self.sb.incompat.contains(Incompat::LARGEDIR) { DX_MAX_INDIRECT } else { 1 };
        let known = version <= 2 || (version == 6 && opaque);
        let zero = info.reserved_zero.get() == 0;
        let sane = zero && known && length == 8 && levels <= most && is_dx_root(&bytes);
        let ino = node.ino;
        if !self
            .found
            .require(sane, rules::HTREE, || format!("directory {ino}: the root of its tree is damaged"))
        {
            return Ok(None);
        }
        let hash = hash.filter(|_| !opaque);
        let mut tree = Tree { nodes: HashSet::from([0]), leaves: HashMap::new(), hash };
        let at = DX_ROOT_INFO + usize::from(length);
        self.dx_entries(node, blocks, &mut tree, &bytes, at, levels, (0, u32::MAX))?;
        let total = tree.nodes.len() + tree.leaves.len();
        self.found.require(total == blocks.len(), rules::HTREE, || {
            format!("directory {ino}: its tree leads to {total} of {} blocks", blocks.len())
        });
        Ok(Some(tree))
    }

    #[allow(clippy::too_many_arguments)] // a step of a recursion, with its whole state
    fn dx_entries(
        &mut self,
        node: &Node,
        blocks: &[(u64, u64)],
        tree: &mut Tree,
        bytes: &[u8],
        at: usize,
        levels: u8,
        (low, high): (u32, u32),
    ) -> Result<()> {
        let ino = node.ino;
        let csum = self.sb.has_csum();
        let (count, limit) = RawDxCountLimit::of(bytes, at);
        let room = (bytes.len() - at) / DX_ENTRY - usize::from(csum);
        let sane = limit == room && (1..=limit).contains(&count);
        if !self.found.require(sane, rules::HTREE, || {
            format!(
                "directory {ino}: a node of its tree has {count} entries of {limit}, with room for {room}"
            )
        }) {
            return Ok(());
        }
        if csum {
            let right = read_at::<RawDxTail>(bytes, at + limit * DX_ENTRY).is_some_and(|tail| {
                let sum = crc32c(node.seed, &bytes[..at + count * DX_ENTRY]);
                crc32c(crc32c(sum, tail.dt_reserved.as_bytes()), &[0; 4]) == tail.dt_checksum.get()
            });
            self.found.require(right, rules::HTREE_CHECKSUM, || {
                format!("directory {ino}: the checksum of a node does not match")
            });
        }
        // As many entries as there is room for.
        let entries: Vec<RawDxEntry> = (0..count).filter_map(|n| RawDxEntry::of(bytes, at, n)).collect();
        for (n, e) in entries.iter().enumerate() {
            let start = if n == 0 { low } else { e.hash.get() };
            let end = entries.get(n + 1).map_or(high, |next| next.hash.get());
            let child = u64::from(e.block.get() & 0x0FFF_FFFF);
            self.found.require(start <= end && start >= low && end <= high, rules::HTREE_ORDER, || {
                format!("directory {ino}: the hashes of its tree do not rise")
            });
            let known = tree.nodes.contains(&child) || tree.leaves.contains_key(&child);
            let inside = (child as usize) < blocks.len();
            if !self.found.require(inside && !known, rules::HTREE, || {
                format!("directory {ino}: its tree leads to block {child}, outside or twice")
            }) {
                continue;
            }
            if levels == 0 {
                tree.leaves.insert(child, (start & !1, end));
                continue;
            }
            tree.nodes.insert(child);
            let below = self.block(blocks[child as usize].1)?;
            self.found.require(is_dx_node(&below), rules::HTREE, || {
                format!("directory {ino}: block {child} is no node")
            });
            self.dx_entries(node, blocks, tree, &below, DX_NODE_ENTRIES, levels - 1, (start, end))?;
        }
        Ok(())
    }

    /// Checks that a name lies in the block of its hash.
    pub(super) fn check_place(&mut self, node: &Node, at: u64, name: &[u8], r: &Range) {
        let hash = r.hash.of(name).0;
        self.found.require((r.low..=r.high).contains(&hash), rules::HTREE_ORDER, || {
            format!("directory {}, block {at}: the hash {hash:#x} belongs elsewhere", node.ino)
        });
    }
}
