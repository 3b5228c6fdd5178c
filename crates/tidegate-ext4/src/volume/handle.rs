//! Changes of metadata: sets of blocks that change together.
//!
//! With a journal, a change is a handle of the journal: after a power cut, all of the change is there or
//! nothing. A volume without a journal changes its blocks in memory, and a sync writes them in no particular
//! order, as in Linux; e2fsck repairs the state after a power cut.

use crate::format::units::BlockAddr;
use crate::volume::blocks::Blocks;
use std::cell::Cell;
use tidegate_jbd2::{Credits, FsBlock, Reserved, Tid};
use tidegate_rt::thread;
use tidegate_vfs::{Error, ErrorKind, Result};

/// Credits that a change begins with: blocks that it may change, and blocks that it may free.
const BEGIN: Credits = Credits { blocks: 64, revokes: 16, reserve: 0, kind: 0 };
/// Credits for the change that marks the blocks of one extent when its data has arrived: the leaf, the inode,
/// and a split.
const LATER: u32 = 8;
/// Credits that a change gets when the first are used up.
const MORE: u32 = 32;
/// A change with several steps ends after a step that leaves fewer credits than this.
const LOW: u32 = 28;

/// A set of changes.
pub(crate) struct Handle<'a> {
    way: Way<'a>,
    /// How often a block was changed.
    writes: u32,
    /// The changes are complete: they were undone, or have no effect.
    whole: bool,
    /// The handle is in the middle of changes that belong together.
    in_step: bool,
    /// Credits for data that is put into the transaction when it has its places.
    kept: u32,
    /// Inodes whose blocks of the table are held, with their places.
    places: Vec<(u32, (BlockAddr, usize))>,
}

thread::local!(static HELD: Cell<u32> = const { Cell::new(0) });

/// The purpose of a handle: Linux's `EXT4_HT_*`, which events of the journal report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum HandleType {
    /// The superblock, and everything that no other kind covers.
    Misc = 0,
    /// An inode's attributes.
    Inode = 1,
    /// Places for pages that are written.
    WritePage = 2,
    /// Preallocation of blocks.
    MapBlocks = 3,
    /// Names.
    Dir = 4,
    /// Blocks, or a whole inode, that are freed.
    Truncate = 5,
    /// Extended attributes.
    Xattr = 10,
    /// Extents whose data has arrived.
    ExtConvert = 11,
}

impl HandleType {
    fn begin(self, reserve: u32) -> Credits {
        Credits { reserve, kind: self as u8, ..BEGIN }
    }
}

/// Whether the thread has a handle.
pub(crate) fn is_held() -> bool {
    HELD.get() > 0
}

impl Drop for Handle<'_> {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// The way of changes.
enum Way<'a> {
    /// In memory, until a sync.
    Direct(&'a Blocks),
    /// In a transaction of the journal.
    Logged(tidegate_jbd2::Handle),
}

impl<'a> Handle<'a> {
    /// Begins a change of `blocks`. With a journal it may wait for a commit, so the caller must hold no lock
    /// that an owner of a handle takes.
    ///
    /// # Errors
    /// When the journal was aborted.
    pub(crate) fn new(blocks: &'a Blocks, kind: HandleType) -> Result<Self> {
        let way = match blocks.journal() {
            Some(journal) => Way::Logged(journal.start(kind.begin(0))?),
            None => Way::Direct(blocks),
        };
        Ok(Handle::on(way))
    }

    fn on(way: Way<'a>) -> Self {
        HELD.set(HELD.get() + 1);
        Handle { way, writes: 0, whole: false, in_step: false, kept: 0, places: Vec::new() }
    }

    /// Begins a change that puts `data` blocks of data into the transaction.
    ///
    /// # Errors
    /// As [`Handle::new`].
    pub(super) fn with_data(blocks: &'a Blocks, kind: HandleType, data: u32) -> Result<Self> {
        let way = match blocks.journal() {
            Some(journal) => {
                let begin = kind.begin(0);
                Way::Logged(journal.start(Credits { blocks: begin.blocks + data, ..begin })?)
            }
            None => Way::Direct(blocks),
        };
        Ok(Handle::on(way))
    }

    /// Begins a change that frees `revokes` blocks which the log may have.
    ///
    /// # Errors
    /// As [`Handle::new`].
    pub(super) fn with_revokes(blocks: &'a Blocks, kind: HandleType, revokes: u32) -> Result<Self> {
        let way = match blocks.journal() {
            Some(journal) => {
                let begin = kind.begin(0);
                Way::Logged(journal.start(Credits { revokes: begin.revokes + revokes, ..begin })?)
            }
            None => Way::Direct(blocks),
        };
        Ok(Handle::on(way))
    }

    /// Keeps credits back for blocks of data: [`Handle::is_low`] does not count them.
    pub(crate) fn keep_for_data(&mut self, blocks: u32) {
        self.kept = blocks;
    }

    /// A handle for a change whose last part comes later ([`Handle::later`]).
    ///
    /// # Errors
    /// As [`Handle::new`].
    pub(super) fn with_later(blocks: &'a Blocks, kind: HandleType) -> Result<Self> {
        let way = match blocks.journal() {
            Some(journal) => Way::Logged(journal.start(kind.begin(LATER))?),
            None => Way::Direct(blocks),
        };
        Ok(Handle::on(way))
    }

    /// The reserved credits for the later part; only once, and only with a journal.
    pub(crate) fn later(&mut self) -> Option<Reserved> {
        match &mut self.way {
            Way::Direct(_) => None,
            Way::Logged(h) => h.reserve(),
        }
    }

    /// Begins the later part. Does not wait.
    ///
    /// # Errors
    /// When the journal was aborted.
    pub(super) fn of_later(later: Reserved, kind: HandleType) -> Result<Self> {
        Ok(Handle::on(Way::Logged(later.of_kind(kind as u8).start()?)))
    }

    /// Whether a block was changed. A change that fails before leaves nothing half done.
    pub(crate) fn has_changed(&self) -> bool {
        self.writes > 0
    }

    /// How often a block was changed so far.
    pub(crate) fn writes(&self) -> u32 {
        self.writes
    }

    /// Whether an error now would leave something half done.
    pub(crate) fn is_half_done(&self) -> bool {
        self.in_step || self.has_changed() && !self.whole
    }

    /// Notes that the changes were undone: a later error leaves nothing half done.
    pub(crate) fn set_whole(&mut self) {
        self.whole = true;
    }

    /// Begins changes that cannot be undone by halves.
    pub(crate) fn begin_step(&mut self) {
        self.in_step = true;
    }

    /// Ends such changes.
    pub(crate) fn end_step(&mut self) {
        self.in_step = false;
    }

    /// Whether such changes have begun and not ended.
    pub(crate) fn is_in_step(&self) -> bool {
        self.in_step
    }

    fn has_changed_now(&mut self) {
        self.writes += 1;
        self.whole = false;
    }

    /// Whether changes may wait for the log: with `journal=jbd2`.
    pub(crate) fn waits_for_log(&self) -> bool {
        matches!(&self.way, Way::Logged(handle) if handle.waits_for_log())
    }

    /// Waits while a block is on its way to the log, if a change would.
    pub(crate) fn wait_for_log(&self, at: BlockAddr) {
        if let Way::Logged(handle) = &self.way {
            handle.wait_for_log(FsBlock(at.0));
        }
    }

    /// The transaction that the change is part of, if there is a journal.
    pub(crate) fn tid(&self) -> Option<Tid> {
        match &self.way {
            Way::Direct(_) => None,
            Way::Logged(h) => Some(h.tid()),
        }
    }

    /// Whether a change with several steps should end here, since a transaction is bounded.
    pub(crate) fn is_low(&mut self) -> bool {
        match &mut self.way {
            Way::Direct(_) => false,
            Way::Logged(h) => {
                while h.credits() < LOW + self.kept {
                    if !h.extend(MORE, 0) {
                        return true;
                    }
                }
                false
            }
        }
    }

    /// Puts a file's data into the transaction: `f` gets a block of zeros.
    ///
    /// # Errors
    /// As [`Handle::write`]; `Unsupported` without a journal.
    pub(crate) fn log_data(&mut self, at: BlockAddr, f: impl FnOnce(&mut [u8])) -> Result<()> {
        let Way::Logged(h) = &mut self.way else {
            return Err(Error::new(
                ErrorKind::Unsupported,
                "data cannot go through a journal that is not there",
            ));
        };
        has_credit(h)?;
        h.log_data(FsBlock(at.0), f)?;
        self.has_changed_now();
        Ok(())
    }

    /// Takes a block into the change, unchanged, before anything is changed, so that the change cannot fail
    /// later for want of the block.
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub(crate) fn hold(&mut self, at: BlockAddr) -> Result<()> {
        match &mut self.way {
            Way::Direct(blocks) => blocks.modify(at, &mut |_| {}),
            Way::Logged(h) => {
                has_credit(h)?;
                h.write(FsBlock(at.0), |_| {})
            }
        }
    }

    /// Takes the table block of inode `ino` into the change, and remembers the inode's place in it.
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub(crate) fn hold_inode_at(&mut self, ino: u32, place: (BlockAddr, usize)) -> Result<()> {
        self.hold(place.0)?;
        self.places.push((ino, place));
        Ok(())
    }

    /// The place of an inode whose table block is held.
    pub(crate) fn place_of(&self, ino: u32) -> Option<(BlockAddr, usize)> {
        self.places.iter().find(|p| p.0 == ino).map(|p| p.1)
    }

    /// Lets `f` change a block; `f` must not change another.
    ///
    /// # Errors
    /// Those of reading it; `NoSpace` when the transaction is full; when the journal was aborted.
    pub(crate) fn write(&mut self, at: BlockAddr, mut f: impl FnMut(&mut [u8])) -> Result<()> {
        match &mut self.way {
            Way::Direct(blocks) => blocks.modify(at, &mut f),
            Way::Logged(h) => {
                has_credit(h)?;
                h.write(FsBlock(at.0), |b| f(b))
            }
        }?;
        self.has_changed_now();
        Ok(())
    }

    /// Lets `f` fill a new block: it is not read, and `f` gets zeros.
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub(crate) fn create(&mut self, at: BlockAddr, mut f: impl FnMut(&mut [u8])) -> Result<()> {
        match &mut self.way {
            Way::Direct(blocks) => {
                blocks.create(at, &mut f);
                Ok(())
            }
            Way::Logged(h) => {
                has_credit(h)?;
                h.create(FsBlock(at.0), |b| f(b))
            }
        }?;
        self.has_changed_now();
        Ok(())
    }

    /// Replaces all bytes of a block of metadata, which is not read; it stays checked if it was.
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub(crate) fn replace(&mut self, at: BlockAddr, bytes: &[u8]) -> Result<()> {
        match &mut self.way {
            Way::Direct(blocks) => {
                blocks.create(at, &mut |block| block.copy_from_slice(bytes));
                Ok(())
            }
            Way::Logged(h) => {
                has_credit(h)?;
                h.replace(FsBlock(at.0), bytes)
            }
        }?;
        self.has_changed_now();
        Ok(())
    }

    /// Notes that a block of metadata is free: its changes are dropped, and the log's copies of it are
    /// revoked.
    ///
    /// # Errors
    /// As [`Handle::write`].
    pub(crate) fn forget(&mut self, at: BlockAddr) -> Result<()> {
        self.has_changed_now();
        match &mut self.way {
            Way::Direct(blocks) => {
                blocks.forget(at);
                Ok(())
            }
            Way::Logged(h) => match h.forget(FsBlock(at.0)) {
                Err(e) if e.kind() == ErrorKind::NoSpace => match h.extend(0, MORE) {
                    true => h.forget(FsBlock(at.0)),
                    false => Err(no_room(h)),
                },
                r => r,
            },
        }
    }
}

/// Gets more credits for a handle that has none left.
fn has_credit(h: &mut tidegate_jbd2::Handle) -> Result<()> {
    if h.credits() > 0 || h.extend(MORE, 0) {
        return Ok(());
    }
    Err(no_room(h))
}

/// The error of a half-done change that cannot go on in another transaction.
fn no_room(h: &tidegate_jbd2::Handle) -> Error {
    Error::new(ErrorKind::Io, format!("transaction {} has no room for the rest of a change", h.tid()))
}
