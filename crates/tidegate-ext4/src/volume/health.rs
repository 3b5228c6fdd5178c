//! Whether the volume takes changes, the event that stops changes, and the state in which the volume is left.

use crate::alloc::{Free, Space};
use crate::format::crc::{START, crc32c};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::{count_sectors, ei, own};
use crate::volume::handle::{self, Handle, HandleType};
use crate::volume::sbi::Ext4;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_block::{Bio, BioFlags, Segment};
use tidegate_jbd2::Reserved;
use tidegate_rt::{Timespec, clock};
use tidegate_vfs::planted::PlantedBug;
use tidegate_vfs::{Error, ErrorKind, Inode, ReadOnly, Result, XattrFlags};

/// Number of times that a change which found no space is repeated after a commit, which makes freed blocks
/// usable, or after passes that counted blocks twice: other changes may take these first, or free more.
const PATIENCE: u32 = 8;

fn needs_no_recovery(raw: &mut RawSuperblock) {
    let features = raw.s_feature_incompat.get() & !Incompat::RECOVER.bits();
    raw.s_feature_incompat.set(features);
}

impl Ext4 {
    /// The reason why changes are refused, if they are.
    pub(crate) fn why_no_changes(&self) -> Option<ReadOnly> {
        if let Some(e) = self.blocks.journal().and_then(|j| j.aborted()) {
            self.stop(&e);
        }
        match self.failure.get() {
            Some(e) => Some(ReadOnly::Stopped(e.clone())),
            None => self.read_only.clone(),
        }
    }

    /// Refuses changes on a volume that is read-only or has failed.
    ///
    /// # Errors
    /// `ReadOnly` on such a volume.
    pub(crate) fn check_writable(&self) -> Result<()> {
        self.why_no_changes().map_or(Ok(()), |why| Err(Error::read_only(&why)))
    }

    /// Stops all further changes, since memory and volume may not agree.
    pub(crate) fn stop(&self, why: &Error) {
        let _ = self.failure.set(why.clone());
    }

    /// Does one change. An error that leaves the change half done stops the volume; an error before anything
    /// was changed does not. If only a commit, or the end of a pass, can make space, this waits for it and repeats
    /// the change.
    ///
    /// # Errors
    /// Those of `f`; `ReadOnly`.
    pub(crate) fn op<T>(&self, kind: HandleType, f: impl FnMut(&mut Handle<'_>) -> Result<T>) -> Result<T> {
        self.op_by(|fs| Handle::new(&fs.blocks, kind), f)
    }

    /// Does one change whose last part comes later ([`Handle::later`]).
    ///
    /// # Errors
    /// As [`Ext4::op`].
    pub(crate) fn op_with_later<T>(
        &self,
        kind: HandleType,
        f: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        self.op_by(|fs| Handle::with_later(&fs.blocks, kind), f)
    }

    /// Does one change that puts `data` blocks of data into its transaction.
    ///
    /// # Errors
    /// As [`Ext4::op`].
    pub(crate) fn op_with_data<T>(
        &self,
        kind: HandleType,
        data: u64,
        f: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        self.op_by(|fs| Handle::with_data(&fs.blocks, kind, data as u32), f)
    }

    /// Does one change that frees blocks of an inode; of logged data, at most as many as one change may.
    ///
    /// # Errors
    /// As [`Ext4::op`].
    pub(crate) fn op_freeing<T>(
        &self,
        inode: &Inode,
        f: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        let revokes = self.revoked_at_once(inode) as u32;
        self.op_by(|fs| Handle::with_revokes(&fs.blocks, HandleType::Truncate, revokes), f)
    }

    /// Does the later part of a change if one is given, or else a change of its own.
    ///
    /// # Errors
    /// As [`Ext4::op`].
    pub(crate) fn op_later<'a, T>(
        &'a self,
        mut later: Option<Reserved>,
        kind: HandleType,
        f: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        let begin = |fs: &'a Ext4| {
            // If a transaction has no room beyond the reserved credits, a mark that needs more would fail
            // half way.
            let mut own = later.take().map(|l| Handle::of_later(l, kind)).transpose()?;
            match own.take_if(|h| !h.is_low()) {
                Some(own) => Ok(own),
                None => {
                    drop(own);
                    Handle::new(&fs.blocks, kind)
                }
            }
        };
        self.op_by(begin, f)
    }

    fn op_by<'a, T>(
        &'a self,
        mut begin: impl FnMut(&'a Ext4) -> Result<Handle<'a>>,
        mut f: impl FnMut(&mut Handle<'_>) -> Result<T>,
    ) -> Result<T> {
        let mut patience = PATIENCE;
        loop {
            let released = self.freed.released();
            let (space, here) = (self.space.as_ref(), Space::placings_ended_here());
            let seen = space.map_or(0, Space::placings_ended);
            self.check_writable()?;
            self.blocks.make_room()?;
            let mut handle = begin(self)?;
            let r = f(&mut handle);
            let Err(e) = &r else {
                self.note_faults(&mut handle);
                return r;
            };
            let kinds = [ErrorKind::Io, ErrorKind::Corrupt, ErrorKind::NotFound];
            let breaks = e.errno().is_some() || kinds.contains(&e.kind());
            if breaks && !handle.is_half_done() {
                return r;
            }
            if breaks {
                self.stop(e);
                if let Some(journal) = self.blocks.journal() {
                    // A half-done change must not be committed.
                    journal.abort(e.clone());
                }
                return r;
            }
            drop(handle);
            if e.kind() != ErrorKind::NoSpace || patience == 0 {
                return r;
            }
            patience -= 1;
            // Blocks that are given places just now count twice. A thread that gives places may wait for the end of
            // another handle of this thread.
            let seen = seen + Space::placings_ended_here() - here;
            let placed = !handle::is_held() && space.is_some_and(|space| space.wait_placed(seen));
            let may_find = || self.freed.waits() || self.freed.released() != released;
            match self.blocks.journal().filter(|_| may_find()) {
                Some(journal) => journal.commit()?,
                None if placed => {}
                None => return r,
            }
        }
    }

    /// Makes the changes of an inode durable; its pages were written and waited for.
    ///
    /// # Errors
    /// Those of the device, and the volume takes no more changes.
    pub(crate) fn fsync_inode(&self, inode: &Inode, datasync: bool) -> Result<()> {
        self.check_writable()?;
        self.settled(inode)?;
        let Some(journal) = self.blocks.journal() else { return self.write_all() };
        match own(inode).changed(datasync).filter(|tid| !journal.committed().reaches(*tid)) {
            Some(tid) => {
                self.stats.fsync_commits.fetch_add(1, Relaxed);
                // A commit that is already on its way may have flushed before the data arrived.
                let flushes = journal.start_commit(tid);
                journal.wait_commit(tid)?;
                if flushes { Ok(()) } else { self.flush() }
            }
            // Data that was written in place may be in the device's cache.
            None => {
                self.stats.fsyncs.fetch_add(1, Relaxed);
                self.flush()
            }
        }
    }

    fn flush(&self) -> Result<()> {
        self.blocks.queue.flush().map_err(|e| Error::device(e, "flushing")).inspect_err(|e| {
            self.stop(e);
            // The system reports a lost write only once: a commit record that flushes after this flush would
            // not get the error.
            if let Some(journal) = self.blocks.journal() {
                journal.abort(e.clone());
            }
        })
    }

    /// Sets or removes an attribute of an inode in memory.
    pub(crate) fn set_xattr(
        &self,
        inode: &Inode,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
        now: Timespec,
    ) -> Result<()> {
        self.op(HandleType::Xattr, |handle| {
            let mut new = Arc::unwrap_or_clone(ei(inode));
            let mut attr = inode.attr().clone();
            let (before, ctime) = (attr.blocks, attr.ctime);
            self.change_xattr(handle, &mut new, &mut attr, name, value, flags)?;
            count_sectors(inode, before, attr.blocks);
            inode.attr().ctime = now;
            let old = put_xattrs(inode, (new.file_acl, new.behind));
            let stored = self.store_inode(handle, inode);
            if stored.is_err() && !handle.has_changed() {
                count_sectors(inode, attr.blocks, before);
                inode.attr().ctime = ctime;
                put_xattrs(inode, old);
            }
            stored
        })
    }

    /// Records in the superblock that the volume has faults, if some were found that it does not record yet:
    /// a power cut must not hide them. A transaction without room leaves this to the next.
    fn note_faults(&self, handle: &mut Handle<'_>) {
        if self.damaged.is_untold() {
            let error = |raw: &mut RawSuperblock| {
                let state = State::from_bits_retain(raw.s_state.get()) | State::ERROR;
                raw.s_state.set(state.bits());
            };
            if self.change_super_in(handle, error).is_ok() {
                self.damaged.set_told();
            }
        }
    }

    /// Marks the volume as in use, durably and before anything else changes.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn enter_use(&self) -> Result<()> {
        if self.filling {
            return Ok(());
        }
        let logged = self.blocks.journal().is_some();
        self.write_super(|raw| {
            if logged {
                let features = raw.s_feature_incompat.get() | Incompat::RECOVER.bits();
                raw.s_feature_incompat.set(features);
            } else {
                let state = State::from_bits_retain(raw.s_state.get()) - State::VALID;
                raw.s_state.set(state.bits());
            }
            raw.s_mnt_count.set(raw.s_mnt_count.get().saturating_add(1));
            raw.s_mtime.set(self.time_now().secs as u32);
        })
    }

    /// Writes all changes, and marks the volume as clean.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn leave_clean(&self) -> Result<()> {
        if let Some(conversions) = &self.conversions {
            self.plug.send_awaited();
            conversions.wait_idle();
        }
        if self.planted.is(PlantedBug::EarlyClean) {
            self.write_super(needs_no_recovery)?;
        }
        match self.blocks.journal() {
            Some(journal) => journal.close()?,
            None => self.write_all()?,
        }
        let mut valid = State::from_bits_retain(self.sb.raw.s_state.get()) & State::VALID;
        if self.has_unlisted_orphans() {
            // A file without a name is still open.
            valid = State::empty();
        }
        // e2fsck checks a volume with this state without being forced.
        let found = if self.damaged.has_faults() { State::ERROR } else { State::empty() };
        self.write_super(|raw| {
            raw.s_state.set((State::from_bits_retain(raw.s_state.get()) | valid | found).bits());
            needs_no_recovery(raw);
        })
    }

    /// Writes metadata that is only in memory, on a volume without a journal. An error stops the volume.
    pub(crate) fn write_buffers(&self) {
        let _ = self.blocks.write_out().inspect_err(|e| self.stop(e));
    }

    /// Writes all changes of the metadata, and makes them durable.
    ///
    /// # Errors
    /// Those of the device, and the volume takes no more changes.
    pub(crate) fn write_all(&self) -> Result<()> {
        match self.blocks.journal() {
            Some(journal) => journal.commit().and_then(|()| self.flush()),
            None => self.blocks.write_out().inspect_err(|e| self.stop(e)).and_then(|()| self.flush()),
        }
    }

    /// Changes the superblock on the device, past the journal and memory: when the volume is opened and left.
    fn write_super(&self, f: impl Fn(&mut RawSuperblock)) -> Result<()> {
        let (block, at) = self.super_place();
        let bs = self.sb.block_size as usize;
        let sector = self.blocks.sector(block);
        let mut page = self.blocks.read_bytes(sector.bytes(), 1, BioFlags::META)?;
        self.put_super(&mut page[at..at + SUPER_SIZE], self.free_now(), f);
        let segment = Segment { buf: Arc::new(page), offset: 0, len: bs as u32 };
        let flags = BioFlags::META | BioFlags::SYNC | BioFlags::PREFLUSH | BioFlags::FUA;
        let wrote = self.blocks.queue.submit_wait(Bio::write(sector, vec![segment], flags));
        wrote.map(drop).map_err(|e| Error::device(e, "writing the superblock"))
    }

    fn free_now(&self) -> Option<Free> {
        self.space.as_ref().map(Space::now)
    }

    fn time_now(&self) -> Timespec {
        self.fixed_time.unwrap_or_else(clock::realtime)
    }

    fn super_place(&self) -> (BlockAddr, usize) {
        let bs = self.sb.block_size as usize;
        (BlockAddr((SUPER_OFFSET / bs) as u64), SUPER_OFFSET % bs)
    }

    /// Takes the superblock into a change before anything is changed.
    ///
    /// # Errors
    /// Those of reading it.
    pub(crate) fn hold_super(&self, handle: &mut Handle<'_>) -> Result<()> {
        handle.hold(self.super_place().0)
    }

    /// Changes the superblock as part of a change.
    pub(crate) fn change_super_in(
        &self,
        handle: &mut Handle<'_>,
        f: impl Fn(&mut RawSuperblock),
    ) -> Result<()> {
        let (block, at) = self.super_place();
        let free = self.free_now();
        handle.write(block, |bytes| self.put_super(&mut bytes[at..at + SUPER_SIZE], free, &f))
    }

    /// Changes the superblock's bytes; its counts and its checksum follow.
    fn put_super(&self, bytes: &mut [u8], free: Option<Free>, f: impl Fn(&mut RawSuperblock)) {
        let Ok(raw) = <RawSuperblock as zerocopy::FromBytes>::mut_from_bytes(bytes) else { return };
        if let Some(free) = free {
            let (blocks, inodes) = (free.blocks + free.unread.0, free.inodes + free.unread.1);
            raw.s_free_blocks_count_lo.set(blocks as u32);
            if self.sb.incompat.contains(Incompat::BIT64) {
                raw.s_free_blocks_count_hi.set((blocks >> 32) as u32);
            }
            raw.s_free_inodes_count.set(inodes as u32);
        }
        raw.s_wtime.set(self.time_now().secs as u32);
        f(raw);
        if self.sb.has_csum() {
            let crc = crc32c(START, &bytes[..SB_CSUM_OFFSET]);
            bytes[SB_CSUM_OFFSET..].copy_from_slice(&crc.to_le_bytes());
        }
    }
}

/// The places of an inode's attributes: a block of their own, and the bytes behind its fields.
type Xattrs = (Option<BlockAddr>, Box<[u8]>);

/// Sets the places of an inode's attributes in memory; returns the old places.
fn put_xattrs(inode: &Inode, new: Xattrs) -> Xattrs {
    let mut data = own(inode).write();
    let now = Arc::make_mut(&mut data);
    let old = (now.file_acl, std::mem::take(&mut now.behind));
    (now.file_acl, now.behind) = new;
    old
}
