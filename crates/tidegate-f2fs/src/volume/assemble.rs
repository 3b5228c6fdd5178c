//! A volume, put together from the structures read, and its locks.

use crate::durable::ckpt_stat::CkptStat;
use crate::durable::ckpt_thread::CkptThread;
use crate::durable::flush::FlushControl;
use crate::durable::since_cp::SinceCp;
use crate::file::affinity::Affinity;
use crate::file::write_io::{SectionSpan, WriteIo};
use crate::format::gate::{Checkpoint, Superblock};
use crate::format::raw::BLOCKS_PER_SEG;
use crate::gc::state::Gc;
use crate::inode::dirty::DirtyInodes;
use crate::inode::orphan::{Orphans, max_orphans};
use crate::node::around::Around;
use crate::segment::curseg::Cursegs;
use crate::segment::zones::ZoneMap;
use crate::tables::counts::Counts;
use crate::tables::meta::Meta;
use crate::tables::nat::Nat;
use crate::tables::sit::Sit;
use crate::volume::options::{F2fsOptions, Switches};
use crate::volume::sbi::{CpState, F2fs};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Arc, OnceLock};
use tidegate_block::RequestQueue;
use tidegate_rt::hash::HashMap;
use tidegate_rt::{LockClass, Mutex, RwLock};
use tidegate_vfs::{Bdi, Inode, ReadOnly};

static CP_MUTEX: LockClass = LockClass::new("sbi->cp_global_sem", 90);
static WRITEPAGES: LockClass = LockClass::new("sbi->writepages", 95).off_device();
static CP_RWSEM: LockClass = LockClass::new("sbi->cp_rwsem", 100).off_device();
static NODE_WRITE: LockClass = LockClass::new("sbi->node_write", 110).off_device();
static ZONE_MGMT: LockClass = LockClass::new("sbi->zone_mgmt", 480);
static STAT_LOCK: LockClass = LockClass::new("sbi->stat_lock", 520);
static ORPHANS: LockClass = LockClass::new("im->ino_lock", 430);
static DIRTY_DIRS: LockClass = LockClass::new("sbi->inode_lock[DIR_INODE]", 440);
static CP_STATE: LockClass = LockClass::new("sbi->ckpt", 560);
static FAILURE: LockClass = LockClass::new("sbi->stop_reason", 600);

/// The parts that [`F2fs::assemble`] puts together.
pub(crate) struct Parts {
    pub sb: Superblock,
    pub queue: Arc<RequestQueue>,
    pub bdi: Arc<Bdi>,
    pub options: F2fsOptions,
    pub read_only: Option<ReadOnly>,
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
        let node_version = p.cp.node_version();
        let flushes = Arc::new(FlushControl::default());
        let stats = p.meta.stats.clone();
        let blocks = p.sb.segs_per_sec * BLOCKS_PER_SEG;
        let main = p.sb.main_blkaddr;
        let span = |z: &ZoneMap| SectionSpan { main, blocks, first: z.first(), capacity: z.capacity() };
        let zones = p.sit.zones.as_deref().map(|z| (span(z), z.active_at_open()));
        let write_io = WriteIo::new(p.queue.clone(), flushes.clone(), stats.clone(), zones);
        F2fs {
            ckpt: Mutex::new(&CP_STATE, CpState { cp: p.cp, node_version }),
            sb: p.sb,
            bdi: p.bdi,
            read_only: p.read_only.map_or_else(OnceLock::new, OnceLock::from),
            unrecovered: AtomicBool::new(false),
            meta: p.meta,
            node_inode: p.node_inode,
            around: Around::default(),
            nat: p.nat,
            sit: p.sit,
            cursegs: p.cursegs,
            write_io,
            next_stream: AtomicU32::new(0),
            affinity: Affinity::default(),
            flushes,
            since_cp: SinceCp::default(),
            queue: p.queue,
            cp_mutex: Mutex::new(&CP_MUTEX, ()),
            cp_rwsem: RwLock::new(&CP_RWSEM, ()),
            writepages: Mutex::new(&WRITEPAGES, ()),
            stream_writepages: std::array::from_fn(|_| Mutex::new(&WRITEPAGES, ())),
            node_write: Mutex::new(&NODE_WRITE, ()),
            zone_mgmt: Mutex::new(&ZONE_MGMT, ()),
            counts: Mutex::new(&STAT_LOCK, counts),
            orphans: Mutex::new(&ORPHANS, orphans),
            orphans_changed: AtomicBool::new(false),
            dirty_dirs: Mutex::new(&DIRTY_DIRS, HashMap::default()),
            names: Arc::default(),
            dirty_inodes: DirtyInodes::default(),
            stats,
            ckpt_stat: CkptStat::default(),
            ckpt_thread: CkptThread::default(),
            switches: Switches::new(&p.options),
            planted: p.options.planted,
            recovery: p.options.recovery,
            overlay: OnceLock::new(),
            recovered: AtomicU64::new(0),
            gc: Gc::new(&p.options),
            next_generation: AtomicU32::new(generation),
            failed: AtomicBool::new(false),
            failure: Mutex::new(&FAILURE, None),
        }
    }
}
