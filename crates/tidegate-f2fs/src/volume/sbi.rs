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

/// The checkpoint on the volume, as the next one and the nodes written meanwhile need it.
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
    /// Why it was opened so, if it was.
    pub(super) read_only: OnceLock<ReadOnly>,
    /// Files were fsynced after the last checkpoint, and it is not known how to bring them back.
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
    /// Counts the streams that runs of blocks or files were given.
    pub(crate) next_stream: AtomicU32,
    pub(crate) affinity: Affinity,
    pub(crate) since_cp: SinceCp,
    pub(crate) ckpt: Mutex<CpState>,
    /// One checkpoint at a time.
    pub(crate) cp_mutex: Mutex<()>,
    /// Shared by operations that change the volume, exclusive for the moment of a checkpoint.
    pub(crate) cp_rwsem: RwLock<()>,
    /// Keeps one file's placing and sending together, where the switch `writepages` says so.
    pub(crate) writepages: Mutex<()>,
    /// One such lock for the files that are pinned to a stream, by its slot.
    pub(crate) stream_writepages: [Mutex<()>; LOG_SLOTS],
    /// One writer of node pages at a time.
    pub(crate) node_write: Mutex<()>,
    /// One thread at a time resets and finishes zones: a log goes to a zone that was left only once it was reset.
    pub(crate) zone_mgmt: Mutex<()>,
    pub(crate) counts: Mutex<Counts>,
    pub(crate) orphans: Mutex<Orphans>,
    pub(crate) orphans_changed: AtomicBool,
    /// Directories with dirty pages: a checkpoint writes them.
    pub(crate) dirty_dirs: Mutex<HashMap<u64, Arc<Inode>>>,
    /// Memory of what is known of directories' names.
    pub(crate) names: Arc<names::Budget>,
    /// Inodes with times or a size that their nodes do not have: a checkpoint stores them.
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

    /// How many fsynced files opening the volume recovered.
    pub fn recovered(&self) -> u64 {
        self.recovered.load(SeqCst)
    }

    /// Checks an address read from a node before anybody goes there.
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
