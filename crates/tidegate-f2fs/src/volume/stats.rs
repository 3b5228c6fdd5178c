//! What a volume did since it was opened.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
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
    /// When the last one ended, or the volume was opened, on the monotonic clock.
    last_checkpoint: AtomicU64,
    pub in_place: AtomicU64,
    pub ssr_segments: AtomicU64,
    pub fsyncs: AtomicU64,
    pub fsync_checkpoints: AtomicU64,
    pub fragments: AtomicU64,
    split_bios: AtomicU64,
    user_blocks: AtomicU64,
    pub gc_foreground: AtomicU64,
    pub gc_background: AtomicU64,
    pub gc_segments: AtomicU64,
    gc_data: AtomicU64,
    pub gc_nodes: AtomicU64,
    pub discarded: AtomicU64,
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
    /// Pieces that data was placed in.
    pub data_fragments: u64,
    /// Data bios that another writer's pages ended before they were full.
    pub split_bios: u64,
    /// Data blocks written for users: `data_blocks` without what cleaning moved.
    pub user_data_blocks: u64,
    /// Times that somebody cleaned because room was short.
    pub gc_foreground: u64,
    /// Times that the background thread cleaned.
    pub gc_background: u64,
    /// Segments cleaned.
    pub gc_segments: u64,
    /// Data blocks that cleaning moved.
    pub gc_data_blocks: u64,
    /// Nodes that cleaning had written elsewhere.
    pub gc_node_blocks: u64,
    /// Bytes the device was told are free.
    pub discarded_bytes: u64,
}

impl FsStats {
    /// Blocks written for each data block that users wrote; 1 when they wrote none.
    pub fn write_amplification(&self) -> f64 {
        let all = self.data_blocks + self.node_blocks + self.meta_blocks;
        if self.user_data_blocks == 0 { 1.0 } else { all as f64 / self.user_data_blocks as f64 }
    }
}

impl Counters {
    /// Nothing done yet.
    pub(crate) fn opened_now() -> Self {
        Counters { last_checkpoint: AtomicU64::new(clock::now().0), ..Counters::default() }
    }

    pub(crate) fn bio(&self, kind: BlockKind, blocks: u64) {
        self.bios[kind as usize].fetch_add(1, Relaxed);
        self.blocks[kind as usize].fetch_add(blocks, Relaxed);
    }

    /// Data blocks got a place: moved by cleaning, or written for users.
    pub(crate) fn placed(&self, moved: bool, blocks: u64) {
        let counter = if moved { &self.gc_data } else { &self.user_blocks };
        counter.fetch_add(blocks, Relaxed);
    }

    /// A bio that was growing is sent; `split`, since another writer's pages do not continue it.
    pub(crate) fn sent_early(&self, split: bool) {
        self.split_bios.fetch_add(split as u64, Relaxed);
    }

    pub(crate) fn checkpoint(&self, start: Nanos) {
        self.checkpoints.fetch_add(1, Relaxed);
        let now = clock::now();
        self.checkpoint_ns.fetch_add(now.since(start).0, Relaxed);
        self.last_checkpoint.store(now.0, Relaxed);
    }

    /// Time since the last checkpoint, or since the volume was opened.
    pub(crate) fn since_checkpoint(&self) -> Duration {
        clock::now().since(Nanos(self.last_checkpoint.load(Relaxed))).duration()
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
            data_fragments: self.fragments.load(Relaxed),
            split_bios: self.split_bios.load(Relaxed),
            user_data_blocks: self.user_blocks.load(Relaxed),
            gc_foreground: self.gc_foreground.load(Relaxed),
            gc_background: self.gc_background.load(Relaxed),
            gc_segments: self.gc_segments.load(Relaxed),
            gc_data_blocks: self.gc_data.load(Relaxed),
            gc_node_blocks: self.gc_nodes.load(Relaxed),
            discarded_bytes: self.discarded.load(Relaxed),
        }
    }
}
