//! Figures of a volume since it was opened.

use crate::segment::log::LogId;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tidegate_rt::{Nanos, clock};
use tidegate_vfs::{VolumeStats, Written};

/// Kinds of blocks that are written, as statistics count them.
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
    /// The first blocks of SIT, NAT and SSA; the packs of checkpoints are in front.
    areas: [u32; 3],
    /// Blocks written to packs, SIT, NAT and SSA.
    area_blocks: [AtomicU64; 4],
    pub checkpoints: AtomicU64,
    pub checkpoint_ns: AtomicU64,
    /// The end of the last checkpoint, or the time when the volume was opened, on the monotonic clock.
    last_checkpoint: AtomicU64,
    pub in_place: AtomicU64,
    pub ssr_segments: AtomicU64,
    pub streams_opened: AtomicU64,
    pub streams_closed: AtomicU64,
    pub streams_refused: AtomicU64,
    streams_sent: AtomicU64,
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

impl Counters {
    /// Statistics of a volume that is being opened; `areas`: the first blocks of SIT, NAT and SSA.
    pub(crate) fn opened_now(areas: [u32; 3]) -> Self {
        Counters { areas, last_checkpoint: AtomicU64::new(clock::now().0), ..Counters::default() }
    }

    pub(crate) fn bio(&self, kind: BlockKind, blocks: u64) {
        self.bios[kind as usize].fetch_add(1, Relaxed);
        self.blocks[kind as usize].fetch_add(blocks, Relaxed);
    }

    /// Counts a bio that writes blocks in front of the main area, from `addr` on.
    pub(crate) fn meta_bio(&self, addr: u32, blocks: u64) {
        self.bio(BlockKind::Meta, blocks);
        let area = self.areas.iter().take_while(|first| **first <= addr).count();
        self.area_blocks[area].fetch_add(blocks, Relaxed);
    }

    /// Counts data blocks that got a place: moved by cleaning, or written for users.
    pub(crate) fn placed(&self, moved: bool, blocks: u64) {
        let counter = if moved { &self.gc_data } else { &self.user_blocks };
        counter.fetch_add(blocks, Relaxed);
    }

    /// Counts a growing bio that is sent; `split`: another writer's pages do not continue it.
    pub(crate) fn sent_early(&self, split: bool) {
        self.split_bios.fetch_add(split as u64, Relaxed);
    }

    /// Counts a bio of a log that is sent before it is full: a pass ends, or a thread waits.
    pub(crate) fn stream_sent(&self, log: LogId) {
        self.streams_sent.fetch_add(!log.kind.is_node() as u64, Relaxed);
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

    pub(crate) fn snapshot(&self) -> VolumeStats {
        let written = |k: BlockKind| Written {
            bios: self.bios[k as usize].load(Relaxed),
            blocks: self.blocks[k as usize].load(Relaxed),
        };
        VolumeStats {
            data: written(BlockKind::Data),
            metadata: written(BlockKind::Node),
            log: written(BlockKind::Meta),
            user_data_blocks: self.user_blocks.load(Relaxed),
            data_fragments: self.fragments.load(Relaxed),
            split_bios: self.split_bios.load(Relaxed),
            fsyncs: self.fsyncs.load(Relaxed),
            fsync_commits: self.fsync_checkpoints.load(Relaxed),
            commits: self.checkpoints.load(Relaxed),
            commit_ns: self.checkpoint_ns.load(Relaxed),
            discarded_bytes: self.discarded.load(Relaxed),
            own: self.own(),
        }
    }

    /// Figures that only F2FS has.
    fn own(&self) -> BTreeMap<Cow<'static, str>, u64> {
        let counts = [
            // Data blocks written in place.
            ("in_place_blocks", &self.in_place),
            // Segments reused with valid blocks in them.
            ("ssr_segments", &self.ssr_segments),
            // Extra streams that got a segment; extra streams that left theirs; runs of blocks that could
            // open no stream.
            ("streams_opened", &self.streams_opened),
            ("streams_closed", &self.streams_closed),
            ("streams_refused", &self.streams_refused),
            // Bios of data that were sent before they were full, since a pass over a file ended or a thread
            // waited.
            ("streams_sent", &self.streams_sent),
            // Times that a thread cleaned because room was short, and times that the background thread
            // cleaned.
            ("gc_foreground", &self.gc_foreground),
            ("gc_background", &self.gc_background),
            // Segments cleaned.
            ("gc_segments", &self.gc_segments),
            // Data blocks that cleaning moved, and nodes that cleaning marked dirty.
            ("gc_data_blocks", &self.gc_data),
            ("gc_node_blocks", &self.gc_nodes),
            // Blocks written in front of the main area.
            ("pack_blocks", &self.area_blocks[0]),
            ("sit_blocks", &self.area_blocks[1]),
            ("nat_blocks", &self.area_blocks[2]),
            ("ssa_blocks", &self.area_blocks[3]),
        ];
        counts.into_iter().map(|(name, n)| (name.into(), n.load(Relaxed))).collect()
    }
}
