//! What a volume did since it was opened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tidegate_rt::{Nanos, clock};

/// Kinds of blocks that are written, as statistics tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockKind {
    Data,
    Node,
    Meta,
}

#[derive(Default)]
pub(crate) struct Counters {
    bios: [AtomicU64; 3],
    blocks: [AtomicU64; 3],
    pub checkpoints: AtomicU64,
    pub checkpoint_ns: AtomicU64,
    pub in_place: AtomicU64,
    pub ssr_segments: AtomicU64,
    pub fsyncs: AtomicU64,
    pub fsync_checkpoints: AtomicU64,
}

/// What a volume wrote since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct FsStats {
    /// Bios with file data and directory blocks.
    pub data_bios: u64,
    /// Blocks in them.
    pub data_blocks: u64,
    /// Bios with nodes.
    pub node_bios: u64,
    /// Blocks in them.
    pub node_blocks: u64,
    /// Bios of the metadata area, checkpoint packs included.
    pub meta_bios: u64,
    /// Blocks in them.
    pub meta_blocks: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Time spent in them, in nanoseconds.
    pub checkpoint_ns: u64,
    /// Data blocks written where they were.
    pub in_place_blocks: u64,
    /// Segments reused with valid blocks in them.
    pub ssr_segments: u64,
    /// fsyncs that wrote the file's nodes alone, or nothing.
    pub fsyncs: u64,
    /// fsyncs that took a checkpoint.
    pub fsync_checkpoints: u64,
}

impl Counters {
    pub(crate) fn bio(&self, kind: BlockKind, blocks: u64) {
        self.bios[kind as usize].fetch_add(1, Relaxed);
        self.blocks[kind as usize].fetch_add(blocks, Relaxed);
    }

    pub(crate) fn checkpoint(&self, start: Nanos) {
        self.checkpoints.fetch_add(1, Relaxed);
        self.checkpoint_ns.fetch_add(clock::now().since(start).0, Relaxed);
    }

    pub(crate) fn snapshot(&self) -> FsStats {
        let bios = |k: BlockKind| self.bios[k as usize].load(Relaxed);
        let blocks = |k: BlockKind| self.blocks[k as usize].load(Relaxed);
        FsStats {
            data_bios: bios(BlockKind::Data),
            data_blocks: blocks(BlockKind::Data),
            node_bios: bios(BlockKind::Node),
            node_blocks: blocks(BlockKind::Node),
            meta_bios: bios(BlockKind::Meta),
            meta_blocks: blocks(BlockKind::Meta),
            checkpoints: self.checkpoints.load(Relaxed),
            checkpoint_ns: self.checkpoint_ns.load(Relaxed),
            in_place_blocks: self.in_place.load(Relaxed),
            ssr_segments: self.ssr_segments.load(Relaxed),
            fsyncs: self.fsyncs.load(Relaxed),
            fsync_checkpoints: self.fsync_checkpoints.load(Relaxed),
        }
    }
}
