//! The volume in memory: every other module works on it.

use crate::dir::names;
use crate::durable::ckpt_stat::CkptStat;
use crate::durable::ckpt_thread::CkptThread;
use crate::durable::flush::FlushControl;
use crate::durable::since_cp::SinceCp;
use crate::file::affinity::Affinity;
use crate::file::write_io::WriteIo;
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::gc::state::Gc;
use crate::inode::dirty::DirtyInodes;
use crate::inode::orphan::Orphans;
use crate::node::around::Around;
use crate::segment::curseg::Cursegs;
use crate::segment::log::LOG_SLOTS;
use crate::tables::counts::Counts;
use crate::tables::meta::Meta;
use crate::tables::nat::Nat;
use crate::tables::sit::Sit;
use crate::volume::options::{Recovery, Switches};
use crate::volume::stats::Counters;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tidegate_block::RequestQueue;
use tidegate_rt::hash::HashMap;
use tidegate_rt::{Mutex, RwLock};
use tidegate_vfs::planted::Planted;
use tidegate_vfs::{Bdi, Error, Inode, PageRun, ReadOnly, Result};

/// The facts about the volume's checkpoint that the next checkpoint and the nodes written meanwhile need.
pub(crate) struct CpState {
    pub cp: Checkpoint,
    /// Version of the checkpoint being made, and the stamp of node footers: version and CRC.
    pub node_version: u64,
}

/// An F2FS volume. Shared by threads; see docs/locks.md for the order of its locks.
pub struct F2fs {
    pub(crate) sb: Superblock,
    pub(crate) queue: Arc<RequestQueue>,
    pub(crate) bdi: Arc<Bdi>,
    /// The reason why the volume was opened read-only, if it was.
    pub(super) read_only: OnceLock<ReadOnly>,
    /// Files were fsynced after the last checkpoint, and their recovery is not supported.
    pub(crate) unrecovered: AtomicBool,
    /// Blocks of the metadata area, by address.
    pub(crate) meta: Meta,
    /// Nodes, by node id.
    pub(crate) node_inode: Arc<Inode>,
    pub(crate) around: Around,
    pub(crate) nat: Nat,
    pub(crate) sit: Sit,
    pub(crate) cursegs: Cursegs,
    pub(crate) flushes: Arc<FlushControl>,
    pub(crate) write_io: WriteIo,
    /// Counts the assignments of streams to runs of blocks or files.
    pub(crate) next_stream: AtomicU32,
    pub(crate) affinity: Affinity,
    pub(crate) since_cp: SinceCp,
    pub(crate) ckpt: Mutex<CpState>,
    /// Lets one checkpoint run at a time.
    pub(crate) cp_mutex: Mutex<()>,
    /// Held shared by operations that change the volume, exclusive while a checkpoint freezes them.
    pub(crate) cp_rwsem: RwLock<()>,
    /// Keeps placing and sending of one file together, where the switch `writepages` asks for it.
    pub(crate) writepages: Mutex<()>,
    /// One such lock for the files that are pinned to a stream, by the stream's slot.
    pub(crate) stream_writepages: [Mutex<()>; LOG_SLOTS],
    /// Lets one thread write node pages at a time.
    pub(crate) node_write: Mutex<()>,
    /// Lets one thread reset and finish zones at a time: a log goes to a zone that was left only once the
    /// zone was reset.
    pub(crate) zone_mgmt: Mutex<()>,
    pub(crate) counts: Mutex<Counts>,
    pub(crate) orphans: Mutex<Orphans>,
    pub(crate) orphans_changed: AtomicBool,
    /// Directories with dirty pages: a checkpoint writes them.
    pub(crate) dirty_dirs: Mutex<HashMap<u64, Arc<Inode>>>,
    /// The memory for the indexes of directories' names.
    pub(crate) names: Arc<names::Budget>,
    /// Inodes with times or a size that are newer than their nodes: a checkpoint stores them.
    pub(crate) dirty_inodes: DirtyInodes,
    pub(crate) stats: Arc<Counters>,
    pub(crate) ckpt_stat: CkptStat,
    pub(crate) ckpt_thread: CkptThread,
    pub(crate) switches: Switches,
    pub(crate) planted: Planted,
    pub(crate) recovery: Recovery,
    /// Directory blocks, by inode and block, that a read-only volume recovered and cannot write.
    pub(crate) overlay: OnceLock<HashMap<(u64, u64), PageRun>>,
    /// Files that opening recovered.
    pub(crate) recovered: AtomicU64,
    pub(crate) gc: Gc,
    pub(crate) next_generation: AtomicU32,
    pub(super) failed: AtomicBool,
    pub(super) failure: Mutex<Option<Error>>,
}

impl F2fs {
    /// Figures of the requests to the device.
    pub fn queue_stats(&self) -> tidegate_block::QueueStats {
        self.queue.stats()
    }

    /// The number of fsynced files that were recovered when the volume was opened.
    pub fn recovered(&self) -> u64 {
        self.recovered.load(SeqCst)
    }

    /// Checks an address that was read from a node, before it is used.
    pub(crate) fn check_data_addr(&self, addr: BlockAddr, ino: u64) -> Result<()> {
        if !addr.is_data() || self.sb.in_main(addr) {
            return Ok(());
        }
        Err(Error::corrupt("data outside the main area").at_block(addr).in_inode(ino))
    }

    /// Checks a node id read from the volume.
    pub(crate) fn check_nid(&self, nid: Nid, ino: u64) -> Result<()> {
        if nid.0 >= 3 && nid.0 < self.sb.max_nid {
            return Ok(());
        }
        Err(Error::corrupt("a node number out of range").at(nid.place()).in_inode(ino))
    }

    /// Whether inodes carry extra attributes.
    pub(crate) fn has_extra_attr(&self) -> bool {
        self.sb.features.contains(Features::EXTRA_ATTR)
    }
}
