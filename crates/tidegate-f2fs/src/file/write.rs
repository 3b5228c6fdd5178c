//! Writing file data out: an extent is allocated for each run of dirty pages.
//!
//! Each step calls the next:
//!
//! | function | adds |
//! |---|---|
//! | `write_data_in_turn` | `sbi->writepages` around a pass, and the submission that Linux makes at the end of a pass |
//! | `write_data_pass` | the pass: its policy, its last bio, the list of dirty directories |
//! | `write_dirty_runs` | the walk over dirty pages, `cp_rwsem` for each run |
//! | `place_and_send` | places for a run, and its bios |

use crate::file::place::Placed;
use crate::file::write_io::{Bios, Extent, Grown, LastBio, Pages, Sender};
use crate::inode::fi;
use crate::segment::curseg::Allocated;
use crate::segment::log::{Log, LogId};
use crate::volume::options::{StreamPolicy, WritePages};
use crate::volume::sbi::F2fs;
use std::sync::Arc;
use tidegate_block::{BioFlags, PAGE_SIZE, Segment};
use tidegate_rt::device_wait::{self, Permit};
use tidegate_rt::{RwLockReadGuard, sim};
use tidegate_vfs::mapping::{DirtyRun, Tag, Taken};
use tidegate_vfs::{ErrorKind, FileType, Inode, Result, WritebackControl};

/// An fsync of at most this many dirty pages writes them in place (`min_fsync_blocks`).
const MIN_FSYNC_BLOCKS: u64 = 8;
/// Most pages that get places in one step; they may go out in several bios.
const MAX_EXTENT: usize = 2048;

/// The way pages get their places.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Placement {
    /// A place in the log of the file's temperature, or the page's present place.
    ByPolicy { in_place: bool },
    /// A new place in the cold log: cleaning.
    Move,
    /// A new place in the log of the file's temperature, since the write to the present place failed.
    Rescue,
}

/// The way a pass and checkpoints are kept apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ops {
    /// The pass takes `cp_rwsem` shared for each run of pages.
    Beside,
    /// The caller is the checkpoint and holds `cp_rwsem` exclusive.
    Frozen,
}

/// A pass over a file's dirty pages.
pub(crate) struct DataPass {
    how: Placement,
    flags: BioFlags,
    /// The stream of the whole pass; `None` when streams take turns.
    stream: Option<LogId>,
    /// Pages placed so far.
    placed: u64,
    /// A bio that is held back so that more pages can join it.
    last: Option<LastBio>,
    /// The pages placed last, while their neighbours follow.
    run: Option<BlockRun>,
}

/// Neighbouring pages that go to one stream.
struct BlockRun {
    log: LogId,
    /// The page behind the run.
    end: u64,
    pages: usize,
}

impl DataPass {
    /// A pass that has done nothing yet. Its bios have these flags.
    pub(crate) fn new(how: Placement, flags: BioFlags) -> Self {
        DataPass { how, flags, stream: None, placed: 0, last: None, run: None }
    }
}

impl F2fs {
    /// One pass, with `sbi->writepages` held where the switch and Linux's rule ask for it.
    pub(crate) fn write_data_in_turn(&self, inode: &Arc<Inode>, wbc: &mut WritebackControl) -> Result<()> {
        let position = self.switches.writepages();
        let _leave = permit_as_linux(position != WritePages::Extent);
        let takes_turns = matches!(position, WritePages::Locked | WritePages::SubmitLocked);
        let stream = self.stream_of_pass(inode);
        let turn =
            (takes_turns && self.serialises(inode, wbc)).then(|| self.writepages_of(inode, stream).lock());
        let r = self.write_data_pass(inode, wbc, Ops::Beside, stream);
        match position {
            // Small files of a pass share bios; at the end of a pass all of its bios are sent.
            WritePages::Extent => {}
            WritePages::SubmitLocked => self.send_streams_within(inode),
            WritePages::Unlocked | WritePages::Locked => {
                drop(turn);
                self.send_streams_within(inode);
            }
        }
        r
    }

    /// One pass over an inode's dirty pages, to a stream that [`F2fs::stream_of_pass`] has chosen.
    pub(crate) fn write_data_pass(
        &self,
        inode: &Arc<Inode>,
        wbc: &mut WritebackControl,
        ops: Ops,
        stream: Option<LogId>,
    ) -> Result<()> {
        // An fsync of few pages writes them in place, so that no node has to be written for them.
        let in_place = wbc.fsync.is_some_and(|d| d || inode.mapping.nr_dirty() <= MIN_FSYNC_BLOCKS);
        let mut pass = DataPass::new(Placement::ByPolicy { in_place }, wbc.to_write_flags());
        pass.stream = stream;
        let r = self.write_dirty_runs(inode, wbc, &mut pass, ops);
        wbc.written += pass.placed;
        let sender = if wbc.fsync.is_some() { Sender::Caller } else { Sender::Queue };
        self.end_pass(&mut pass, sender);
        r?;
        if inode.is_dir() {
            // The count is read under the lock that a thread takes after it made a block dirty.
            let mut dirs = self.dirty_dirs.lock();
            // Another directory may have a removed directory's number by now.
            let own = dirs.get(&inode.ino.0).is_some_and(|d| Arc::ptr_eq(d, inode));
            if own && inode.mapping.nr_dirty() == 0 {
                dirs.remove(&inode.ino.0);
            }
        }
        Ok(())
    }

    /// Takes dirty pages run by run, and places and sends each run, until no dirty page is left in the range
    /// of `wbc`.
    fn write_dirty_runs(
        &self,
        inode: &Arc<Inode>,
        wbc: &mut WritebackControl,
        pass: &mut DataPass,
        ops: Ops,
    ) -> Result<()> {
        let tag = if wbc.sync_all { Tag::ToWrite } else { Tag::Dirty };
        // Linux takes and places page by page; a position of the switch that places whole extents takes the
        // pages of one at once.
        let max = if self.places_whole(pass.how) { MAX_EXTENT } else { 1 };
        let mut at = wbc.start;
        while wbc.nr_to_write > 0 {
            // This comes before pages are taken: a checkpoint that wants to write the pages itself must not
            // find them taken by a pass that waits for the checkpoint.
            let op = (ops == Ops::Beside).then(|| self.begin_op(pass));
            match inode.mapping.take_dirty(at, wbc.end, tag, max) {
                Taken::None => break,
                Taken::Busy(i) if wbc.sync_all => {
                    drop(op);
                    // The page that this pass is about to wait for may be in the bio that the pass holds
                    // back.
                    self.end_pass(pass, Sender::Caller);
                    inode.mapping.wait_writeback(i, i + 1);
                }
                Taken::Busy(i) => at = i + 1,
                Taken::Run(run) => {
                    sim::write_pages(run.pages);
                    at = run.index + run.pages as u64;
                    wbc.nr_to_write = wbc.nr_to_write.saturating_sub(run.pages as u64);
                    self.place_and_send(inode, run, op, pass)?;
                }
            }
        }
        Ok(())
    }

    /// Takes `cp_rwsem` shared. A checkpoint that holds `cp_rwsem` waits for bios that are held back, so the
    /// pass's bio is sent first.
    fn begin_op(&self, pass: &mut DataPass) -> RwLockReadGuard<'_, ()> {
        self.cp_rwsem.try_read().unwrap_or_else(|| {
            self.end_pass(pass, Sender::Queue);
            self.cp_rwsem.read()
        })
    }

    /// Sends the bio that a pass holds back.
    pub(crate) fn end_pass(&self, pass: &mut DataPass, sender: Sender) {
        self.write_io.submit(Grown::Last(pass.last.take(), sender));
    }

    fn places_whole(&self, how: Placement) -> bool {
        self.switches.writepages() == WritePages::Extent || how == Placement::Move
    }

    /// Places a run of pages and submits it. After an error the other pages are dirty again. `op` is
    /// `cp_rwsem`, which is released once the pages have their places, so that a congested queue delays no
    /// checkpoint. Linux's positions of the switch `writepages` send pages with a new place with `cp_rwsem`
    /// held, as `f2fs_do_write_data_page` does. All positions send pages that are written in place without
    /// it.
    pub(crate) fn place_and_send(
        &self,
        inode: &Arc<Inode>,
        run: DirtyRun,
        op: Option<RwLockReadGuard<'_, ()>>,
        pass: &mut DataPass,
    ) -> Result<()> {
        let whole = self.places_whole(pass.how);
        let cleaned = pass.how == Placement::Move;
        let log = if cleaned { Log::ColdData.into() } else { self.stream_of_run(inode, &run, pass) };
        let mut unused = Vec::new();
        let (places, r) = self.place_run(inode, run.index, run.pages, pass.how, log, &mut unused);
        let placing = self.write_io.placing(cleaned || inode.is_dir());
        let op = op.filter(|_| !whole && places.iter().any(|p| p.moved));
        let _leave = permit_as_linux(!whole);
        let mut segments = Segments { list: run.segments.into(), bytes_used: 0 };
        let mut at = run.index;
        for p in places {
            let part = segments.take(p.pages);
            match p.blk {
                Some(blk) => {
                    let pages = Pages {
                        inode: inode.clone(),
                        index: at,
                        pages: p.pages,
                        old: p.old,
                        moved: p.moved,
                        cleaned,
                    };
                    let extent = Extent { blk, segments: part, pages };
                    let bios = if whole { Bios::Own(&mut pass.last) } else { Bios::Locked };
                    self.write_io.add(p.log, extent, pass.flags, bios);
                    self.stats.placed(cleaned, p.pages as u64);
                }
                None => inode.mapping.end_writeback(at, p.pages, None),
            }
            at += p.pages as u64;
            pass.placed += p.pages as u64;
        }
        for a in unused {
            self.write_io.fill(a.log, a.start, a.blocks, &mut self.write_io.full_bios());
        }
        drop(placing);
        drop(op);
        r
    }

    /// The stream for a run of a pass. Where streams take turns, a run that continues the pages before it
    /// goes to their stream. So a position that takes page by page gives a stream as much as one that takes
    /// whole runs.
    fn stream_of_run(&self, inode: &Inode, run: &DirtyRun, pass: &mut DataPass) -> LogId {
        if let Some(stream) = pass.stream {
            return stream;
        }
        let kind = self.data_log(inode);
        if pass.how == Placement::Rescue {
            return kind.into();
        }
        let n = self.streams(kind);
        if self.switches.stream_policy() == StreamPolicy::Chosen {
            return LogId { kind, stream: fi(inode).chosen.next(n, run.pages) };
        }
        let before = pass.run.take().filter(|r| r.end == run.index && r.pages + run.pages <= MAX_EXTENT);
        let (log, pages) =
            before.map_or_else(|| (LogId { kind, stream: self.next_stream(n) }, 0), |r| (r.log, r.pages));
        let end = run.index + run.pages as u64;
        pass.run = Some(BlockRun { log, end, pages: pages + run.pages });
        log
    }

    /// Places `pages` taken pages from `index` on; pages that get no place are dirty again.
    fn place_run(
        &self,
        inode: &Arc<Inode>,
        index: u64,
        pages: usize,
        how: Placement,
        log: LogId,
        unused: &mut Vec<Allocated>,
    ) -> (Vec<Placed>, Result<()>) {
        let (mut places, mut done) = (Vec::new(), 0);
        while done < pages {
            let at = index + done as u64;
            match self.place_pages(inode, at, pages - done, how, log, unused) {
                Ok(more) => {
                    done += more.iter().map(|p| p.pages).sum::<usize>();
                    places.extend(more);
                }
                Err(e) => {
                    if e.kind() == ErrorKind::NoSpace {
                        // Cleaning can make room for the rest.
                        inode.mapping.redirty(at, pages - done);
                    } else {
                        inode.mapping.end_writeback(at, pages - done, Some(e.kind()));
                    }
                    // The flusher may have found no dirty page there meanwhile and taken the inode off its
                    // list.
                    self.bdi.mark_dirty(inode);
                    return (places, Err(e));
                }
            }
        }
        (places, Ok(()))
    }

    /// Whether Linux would make this writer wait for its turn.
    fn serialises(&self, inode: &Inode, wbc: &WritebackControl) -> bool {
        let many = || inode.mapping.nr_dirty() >= self.switches.min_seq_blocks();
        inode.file_type == FileType::Regular && (!wbc.sync_all || many())
    }
}

/// Leave to send with locks held, for the positions that do as Linux does.
fn permit_as_linux(yes: bool) -> Option<Permit> {
    yes.then(|| {
        device_wait::permit(
            "Linux waits for room in the queue with sbi->writepages, cp_rwsem and io_rwsem held",
        )
    })
}

/// The memory of a run, handed out from its front.
struct Segments {
    list: std::collections::VecDeque<Segment>,
    bytes_used: u32,
}

impl Segments {
    /// The next `pages` pages.
    fn take(&mut self, pages: usize) -> Vec<Segment> {
        let mut want = (pages * PAGE_SIZE) as u32;
        let mut out = Vec::new();
        while want > 0 {
            let Some(s) = self.list.front() else { break };
            let n = want.min(s.len - self.bytes_used);
            out.push(Segment { buf: s.buf.clone(), offset: s.offset + self.bytes_used, len: n });
            self.bytes_used += n;
            want -= n;
            if self.bytes_used == s.len {
                self.list.pop_front();
                self.bytes_used = 0;
            }
        }
        out
    }
}
