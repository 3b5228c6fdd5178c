//! fsync: an inode's nodes alone go out, marked so that recovery rolls them forward.
//!
//! The nodes of a regular file go to the warm-node log, where each names the block of the next. The
//! inode goes last and bears the mark, so recovery takes all of them or none. An fsync is durable when
//! every node before it in that chain is, too.
//!
//! File data is flushed before the nodes that point to it go out. (Linux leaves the order to the device
//! unless `fsync_mode=strict`: a power cut inside an fsync may then replace a durable page by what its
//! new block held before.)

use crate::durable::flush::Approach;
use crate::durable::since_cp::Since;
use crate::file::write_io::FullBios;
use crate::format::raw::*;
use crate::format::units::Nid;
use crate::inode::fsync_state::FsyncState;
use crate::inode::{NodeId, fi};
use crate::node::{ino_of, is_dnode, ofs_of};
use crate::volume::options::FsyncMode;
use crate::volume::sbi::F2fs;
use std::collections::BTreeSet;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use tidegate_rt::device_wait;
use tidegate_rt::trace::{EventPoint, SpanPoint};
use tidegate_vfs::{ErrorKind, FileType, Inode, Result};

static SYNC_FILE: SpanPoint<2> = SpanPoint::new("f2fs_sync_file", ["ino", "datasync"]);
static FSYNC_CHECKPOINT: EventPoint<2> = EventPoint::new("f2fs_fsync_checkpoint", ["ino", "reason"]);

/// Times that an fsync waits for other writers of its file before it asks for a checkpoint.
const TRIES: u32 = 4;
/// Times that an operation releases its locks to wait for its nodes on their way. A flusher may begin to
/// write these nodes anew each time.
const BUSY_TURNS: u32 = 16;

impl F2fs {
    /// Makes durable an inode whose data was written and waited for. The caller holds no lock. For some
    /// inodes this writes a checkpoint instead.
    ///
    /// # Errors
    /// Those of the device; the volume takes no more changes then.
    pub(crate) fn fsync_inode(&self, inode: &Inode, datasync: bool) -> Result<()> {
        if self.opened_read_only() {
            return Ok(()); // nothing can have changed
        }
        self.check_writable()?;
        // The inode's nodes go to new places, and room cannot be made while locks are held.
        self.make_room()?;
        let ino = inode.ino.0;
        let _span = SYNC_FILE.enter([ino, datasync as u64]);
        let state = &fi(inode).fsync;
        let barrier = self.switches.fsync_mode() != FsyncMode::Nobarrier;
        let one = state.one.lock();
        if datasync && !state.changed.load(Relaxed) {
            self.stats.fsyncs.fetch_add(1, Relaxed);
            let durable = self.flushes.is_durable(state.written.load(SeqCst));
            return if barrier && !durable { self.flush_device() } else { Ok(()) };
        }
        let mut why = Reason::Unsettled;
        let (mut tries, mut turns) = (0, 0);
        while tries < TRIES {
            tries += 1;
            if barrier && !self.flushes.is_durable(state.moved.load(SeqCst)) {
                self.flush_device()?;
            }
            // These bios are sent when the locks that other threads want are released.
            let mut full = self.write_io.full_bios();
            // The lock covers decision and write: no change of the file or its name comes between.
            let stable = inode.rwsem.read();
            if let Some(reason) = self.needs_checkpoint(inode)? {
                why = reason;
                break;
            }
            let coming = self.flushes.approach();
            let wait = turns == BUSY_TURNS;
            let wrote =
                self.write_inode_nodes(inode, barrier, wait, &mut full).inspect_err(|_| state.forget());
            drop(stable);
            drop(full);
            match wrote {
                Ok(Wrote::Nodes) if self.cursegs.chain_is_broken() => {
                    why = Reason::NoChain;
                    break;
                }
                Ok(Wrote::InFlight) => {
                    drop(coming);
                    inode.mapping.wait_writeback(0, u64::MAX)
                }
                Ok(Wrote::Busy(nids)) => {
                    drop(coming);
                    nids.iter().for_each(|nid| self.wait_on_node(*nid));
                    (tries, turns) = (tries - 1, turns + 1);
                }
                Ok(Wrote::FailedPages) => {
                    why = Reason::FailedPages;
                    break;
                }
                Ok(wrote) => {
                    self.stats.fsyncs.fetch_add(1, Relaxed);
                    return self.settle(state, wrote, coming, barrier);
                }
                Err(e) if e.kind() == ErrorKind::NoSpace => {
                    why = Reason::NoSpace;
                    break;
                }
                Err(e) => return Err(e),
            }
        }
        drop(one);
        FSYNC_CHECKPOINT.record([ino, why as u64]);
        self.stats.fsync_checkpoints.fetch_add(1, Relaxed);
        // Nodes may have been written that no recovery finds: the next fdatasync must not take them for durable.
        self.issue_checkpoint().inspect_err(|_| state.forget())
    }

    /// Waits until the nodes of an fsync and the chain before them are durable.
    fn settle(&self, state: &FsyncState, wrote: Wrote, coming: Approach<'_>, barrier: bool) -> Result<()> {
        let nodes = wrote == Wrote::Nodes;
        if nodes {
            self.write_io.wait_chain();
            self.check_promises()?;
        }
        drop(coming);
        let durable = !nodes && self.flushes.is_durable(state.written.load(SeqCst));
        if barrier && !durable { self.flush_device() } else { Ok(()) }
    }

    /// A volume that has stopped meanwhile promises nothing any more.
    fn check_promises(&self) -> Result<()> {
        self.check_writable().map_err(|e| e.as_kind(ErrorKind::Io))
    }

    /// The reason why only a checkpoint can make this inode durable, if there is one.
    fn needs_checkpoint(&self, inode: &Inode) -> Result<Option<Reason>> {
        let f = fi(inode);
        let pino = f.pino.load(Relaxed);
        let [since, parent] = self.since_cp.of_each([inode.nid().0, pino]);
        let named = since.contains(Since::NEW) && !since.contains(Since::FSYNCED);
        let reason = if inode.file_type != FileType::Regular || f.compressed {
            Reason::NotRegular
        } else if inode.nlink() != 1 {
            Reason::HardLink
        } else if f.has_advise(advise::LOST_PINO) {
            Reason::WrongParent
        } else if since.contains(Since::RENAMED) && !named {
            Reason::Renamed
        } else if since.contains(Since::CUT) {
            Reason::Cut
        } else if parent.contains(Since::NEW) {
            Reason::NewParent
        } else if self.cursegs.chain_is_broken() {
            Reason::NoChain
        } else if !self.has_space_for_roll_forward() || self.checkpoint_comes_first(0) {
            Reason::NoSpace
        } else if named && self.name_is_vacated(inode, pino)? {
            Reason::NameVacated
        } else if named && self.switches.fsync_mode() == FsyncMode::Strict && parent.contains(Since::RENAMED)
        {
            Reason::ParentRenamed
        } else {
            return Ok(None);
        };
        Ok(Some(reason))
    }

    fn name_is_vacated(&self, inode: &Inode, pino: u32) -> Result<bool> {
        let node = self.node_of(inode.nid(), inode.ino.0)?;
        Ok(crate::inode::name_of(node.bytes()).is_none_or(|n| self.since_cp.is_vacated(pino, n)))
    }

    /// Writes the inode's dirty nodes, the inode last and marked. With `barrier`, it writes them only when
    /// all data that they may point to is durable. With `wait`, it waits for nodes that are on their way. It
    /// leaves full bios in `full`. The caller holds `i_rwsem` shared; takes `cp_rwsem` shared, `node_write`,
    /// `i_dnode`.
    fn write_inode_nodes(
        &self,
        inode: &Inode,
        barrier: bool,
        wait: bool,
        full: &mut FullBios<'_>,
    ) -> Result<Wrote> {
        let ino = inode.nid();
        let mapping = &self.node_inode.mapping;
        let state = &fi(inode).fsync;
        let _op = self.cp_rwsem.read();
        self.check_promises()?;
        let writer = self.node_write.lock();
        // No page gets a new place from here on.
        let _map = fi(inode).map.lock();
        let settled = state.moving.load(SeqCst) == 0 && self.flushes.is_durable(state.moved.load(SeqCst));
        if barrier && !settled {
            return Ok(Wrote::InFlight);
        }
        if self.write_io.failed_pages.has(inode.ino.0) {
            return Ok(Wrote::FailedPages);
        }
        // Changes made from here on are for the next fsync.
        state.changed.store(false, Relaxed);
        self.store_if_dirty(inode)?;
        let mut nids = self.dirty_dnodes(inode)?;
        if nids.is_empty() && !mapping.is_dirty(ino.0 as u64) {
            // Every change of a file changes its inode.
            let marked = self.since_cp.of(ino.0).contains(Since::LAST_FSYNC);
            if marked || self.nat.is_checkpointed(ino) {
                return Ok(Wrote::Nothing);
            }
        }
        nids.push(ino);
        let busy: Vec<Nid> = nids.iter().copied().filter(|nid| mapping.is_writeback(nid.0.into())).collect();
        if !busy.is_empty() && !wait {
            // No node of the inode is written yet.
            state.changed.store(true, Relaxed);
            nids.iter().filter(|nid| **nid != ino).for_each(|nid| state.dnode_changed(*nid));
            return Ok(Wrote::Busy(busy));
        }
        if !busy.is_empty() {
            let _leave = device_wait::permit("nodes that are written anew each time: an fsync has an end");
            busy.iter().for_each(|nid| self.wait_on_node(*nid));
        }
        self.write_fsync_nodes(&writer, ino, &nids, full)?;
        Ok(Wrote::Nodes)
    }

    /// The inode's dirty direct nodes, its xattr node among them, in order.
    fn dirty_dnodes(&self, inode: &Inode) -> Result<Vec<Nid>> {
        let f = fi(inode);
        let mapping = &self.node_inode.mapping;
        let known = {
            let mut d = f.fsync.dnodes.lock();
            d.replace(BTreeSet::new())
        };
        let ours = |nid: u64| {
            mapping.get(nid, 1).is_some_and(|run| {
                let page = run.bytes();
                ino_of(page) as u64 == inode.ino.0 && is_dnode(ofs_of(page)) && nid != inode.ino.0
            })
        };
        let found: Vec<u64> = match known {
            Some(mut set) => {
                set.extend(Some(f.xattr_nid.load(Relaxed)).filter(|n| *n != 0));
                set.into_iter().map(u64::from).filter(|n| mapping.is_dirty(*n)).collect()
            }
            None => mapping.dirty_indices(0, u64::MAX).collect(),
        };
        Ok(found.into_iter().filter(|n| ours(*n)).map(|n| Nid(n as u32)).collect())
    }
}

/// The outcome of writing an inode's nodes.
#[derive(PartialEq, Eq)]
enum Wrote {
    /// The nodes are on their way.
    Nodes,
    /// There was nothing to write.
    Nothing,
    /// Not written: the nodes would point to data that is on its way.
    InFlight,
    /// Not written: the nodes point to places whose pages could not be written.
    FailedPages,
    /// Not written: earlier states of these nodes are on their way.
    Busy(Vec<Nid>),
}

/// The reason why an fsync becomes a checkpoint.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Reason {
    /// Roll-forward knows regular files only.
    NotRegular = 1,
    /// The inode has several names, or none.
    HardLink,
    /// The inode's parent is not known for certain.
    WrongParent,
    /// Roll-forward would leave the inode at its old name.
    Renamed,
    /// The inode lost nodes.
    Cut,
    /// The inode's directory is not in the checkpoint.
    NewParent,
    /// The chain of warm nodes ends before the log does.
    NoChain,
    /// Recovery might find no room.
    NoSpace,
    /// Other threads write the file all the time.
    Unsettled,
    /// Recovery of the inode's name would take that name from an inode which lives on under another.
    NameVacated,
    /// (strict) The inode's directory has another name in the checkpoint.
    ParentRenamed,
    /// Pages could not be written where the inode's nodes say they are.
    FailedPages,
}
