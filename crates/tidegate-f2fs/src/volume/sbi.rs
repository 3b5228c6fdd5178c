//! The volume in memory: what every other module works on.

use crate::durable::ckpt_stat::CkptStat;
use crate::durable::ckpt_thread::CkptThread;
use crate::durable::flush::FlushControl;
use crate::durable::since_cp::SinceCp;
use crate::file::write_io::WriteIo;
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, Nid};
use crate::gc::Gc;
use crate::inode::imeta::DirtyInodes;
use crate::inode::orphan::{Orphans, max_orphans};
use crate::segment::curseg::Cursegs;
use crate::tables::counts::Counts;
use crate::tables::meta::Meta;
use crate::tables::nat::Nat;
use crate::tables::sit::Sit;
use crate::volume::options::{F2fsOptions, Recovery, Switches};
use crate::volume::stats::Counters;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use tidegate_block::RequestQueue;
use tidegate_rt::hash::HashMap;
use tidegate_rt::{LockClass, Mutex, RwLock};
use tidegate_vfs::{Bdi, Error, Inode, PageRun, Result};

static CP_MUTEX: LockClass = LockClass::new("sbi->cp_global_sem", 90);
static WRITEPAGES: LockClass = LockClass::new("sbi->writepages", 95);
static CP_RWSEM: LockClass = LockClass::new("sbi->cp_rwsem", 100);
static NODE_WRITE: LockClass = LockClass::new("sbi->node_write", 110);
static STAT_LOCK: LockClass = LockClass::new("sbi->stat_lock", 520);
static ORPHANS: LockClass = LockClass::new("im->ino_lock", 430);
static DIRTY_DIRS: LockClass = LockClass::new("sbi->inode_lock[DIR_INODE]", 440);
static CP_STATE: LockClass = LockClass::new("sbi->ckpt", 560);
static FAILURE: LockClass = LockClass::new("sbi->stop_reason", 600);

/// The checkpoint on the volume, as the next one and the nodes written meanwhile need it.
pub(crate) struct CpState {
    pub cp: Checkpoint,
    /// Version of the checkpoint being made, and what node footers carry: version and CRC.
    pub node_version: u64,
}

/// An F2FS volume. Shared by threads; see ARCHITECTURE.md for the order of its locks.
pub struct F2fs {
    pub(crate) sb: Superblock,
    pub(crate) queue: Arc<RequestQueue>,
    pub(crate) bdi: Arc<Bdi>,
    pub(super) read_only: Option<String>,
    /// Files were fsynced after the last checkpoint, and it is not known how to bring them back.
    pub(crate) unrecovered: AtomicBool,
    /// Blocks of the metadata area, by address.
    pub(crate) meta: Meta,
    /// Nodes, by node id.
    pub(crate) node_inode: Arc<Inode>,
    pub(crate) nat: Nat,
    pub(crate) sit: Sit,
    pub(crate) cursegs: Cursegs,
    pub(crate) flushes: Arc<FlushControl>,
    pub(crate) write_io: WriteIo,
    pub(crate) since_cp: SinceCp,
    pub(crate) ckpt: Mutex<CpState>,
    /// One checkpoint at a time.
    pub(crate) cp_mutex: Mutex<()>,
    /// Shared by operations that change the volume, exclusive for the moment of a checkpoint.
    pub(crate) cp_rwsem: RwLock<()>,
    /// Keeps one file's placing and sending together, where the switch `writepages` says so.
    pub(crate) writepages: Mutex<()>,
    /// One writer of node pages at a time.
    pub(crate) node_write: Mutex<()>,
    pub(crate) counts: Mutex<Counts>,
    pub(crate) orphans: Mutex<Orphans>,
    pub(crate) orphans_changed: AtomicBool,
    /// Directories with dirty pages: a checkpoint writes them.
    pub(crate) dirty_dirs: Mutex<HashMap<u64, Arc<Inode>>>,
    /// Inodes with times or a size that their nodes do not have: a checkpoint stores them.
    pub(crate) dirty_inodes: DirtyInodes,
    pub(crate) stats: Counters,
    pub(crate) ckpt_stat: CkptStat,
    pub(crate) ckpt_thread: CkptThread,
    pub(crate) switches: Switches,
    pub(crate) recovery: Recovery,
    /// Directory blocks, by inode and block, that a read-only volume recovered and cannot write.
    pub(crate) overlay: OnceLock<HashMap<(u64, u64), PageRun>>,
    /// Files that opening recovered.
    pub(crate) recovered: AtomicU64,
    pub(crate) gc: Gc,
    pub(crate) next_generation: AtomicU32,
    pub(super) failed: AtomicBool,
    pub(super) failure: Mutex<String>,
}

/// What [`F2fs::assemble`] puts together.
pub(crate) struct Parts {
    pub sb: Superblock,
    pub queue: Arc<RequestQueue>,
    pub bdi: Arc<Bdi>,
    pub options: F2fsOptions,
    pub read_only: Option<String>,
    pub meta: Meta,
    pub node_inode: Arc<Inode>,
    pub nat: Nat,
    pub sit: Sit,
    pub cursegs: Cursegs,
    pub cp: Checkpoint,
    pub orphans: BTreeSet<u32>,
}

impl F2fs {
    pub(crate) fn assemble(p: Parts) -> F2fs {
        let counts = Counts::new(&p.cp, p.sb.max_nid);
        let orphans = Orphans::new(p.orphans, max_orphans(p.sb.cp_payload));
        let generation = if p.options.deterministic { 1 } else { tidegate_rt::clock::entropy() as u32 };
        let node_version = node_version(&p.cp);
        let flushes = Arc::new(FlushControl::default());
        F2fs {
            ckpt: Mutex::new(&CP_STATE, CpState { cp: p.cp, node_version }),
            sb: p.sb,
            bdi: p.bdi,
            read_only: p.read_only,
            unrecovered: AtomicBool::new(false),
            meta: p.meta,
            node_inode: p.node_inode,
            nat: p.nat,
            sit: p.sit,
            cursegs: p.cursegs,
            write_io: WriteIo::new(p.queue.clone(), flushes.clone()),
            flushes,
            since_cp: SinceCp::default(),
            queue: p.queue,
            cp_mutex: Mutex::new(&CP_MUTEX, ()),
            cp_rwsem: RwLock::new(&CP_RWSEM, ()),
            writepages: Mutex::new(&WRITEPAGES, ()),
            node_write: Mutex::new(&NODE_WRITE, ()),
            counts: Mutex::new(&STAT_LOCK, counts),
            orphans: Mutex::new(&ORPHANS, orphans),
            orphans_changed: AtomicBool::new(false),
            dirty_dirs: Mutex::new(&DIRTY_DIRS, HashMap::default()),
            dirty_inodes: DirtyInodes::default(),
            stats: Counters::opened_now(),
            ckpt_stat: CkptStat::default(),
            ckpt_thread: CkptThread::default(),
            switches: Switches::new(&p.options),
            recovery: p.options.recovery,
            overlay: OnceLock::new(),
            recovered: AtomicU64::new(0),
            gc: Gc::new(&p.options),
            next_generation: AtomicU32::new(generation),
            failed: AtomicBool::new(false),
            failure: Mutex::new(&FAILURE, String::new()),
        }
    }

    /// What went to the device and came from it.
    pub fn queue_stats(&self) -> tidegate_block::QueueStats {
        self.queue.stats()
    }

    /// How many fsynced files opening the volume recovered.
    pub fn recovered(&self) -> u64 {
        self.recovered.load(SeqCst)
    }

    /// Turns the volume's switches to what `options` says. What only opening looks at is left alone.
    /// Returns when requests that no longer have a checkpoint thread have been served.
    pub fn remount(&self, options: &F2fsOptions) {
        self.switches.turn(options);
        if !options.checkpoint_merge {
            self.ckpt_thread.stop();
        }
    }

    /// Checks an address read from a node before anybody goes there.
    pub(crate) fn check_data_addr(&self, addr: BlockAddr, ino: u64) -> Result<()> {
        if !addr.is_data() || self.sb.in_main(addr) {
            return Ok(());
        }
        Err(Error::corrupt(format!("inode {ino}: data address {addr} lies outside the main area")))
    }

    /// Checks a node id read from the volume.
    pub(crate) fn check_nid(&self, nid: Nid, ino: u64) -> Result<()> {
        if nid.0 >= 3 && nid.0 < self.sb.max_nid {
            return Ok(());
        }
        Err(Error::corrupt(format!("inode {ino}: node id {nid} is out of range")))
    }

    /// Whether inodes carry extra attributes.
    pub(crate) fn has_extra_attr(&self) -> bool {
        self.sb.features.contains(Features::EXTRA_ATTR)
    }
}
