//! Whether the volume takes changes, and the events that stop it.

use crate::volume::sbi::F2fs;
use std::sync::atomic::Ordering::SeqCst;
use tidegate_vfs::{Error, ErrorKind, Inode, ReadOnly, Result, Unseen};

impl F2fs {
    /// The reason why changes are refused, if they are.
    pub(crate) fn why_read_only(&self) -> Option<ReadOnly> {
        if !self.failed.load(SeqCst)
            && let Some(e) = self.lost_metadata()
        {
            self.stop(&e);
        }
        if self.failed.load(SeqCst) {
            return self.failure.lock().clone().map(ReadOnly::Stopped);
        }
        let why = self.read_only.get().cloned()?;
        Some(match self.unrecovered.load(SeqCst) {
            true => why.without(Unseen::Fsynced),
            false => why,
        })
    }

    /// Whether an error has stopped the volume.
    pub(crate) fn is_stopped(&self) -> bool {
        self.failed.load(SeqCst)
    }

    /// Whether changes were refused from the beginning.
    pub(crate) fn opened_read_only(&self) -> bool {
        self.read_only.get().is_some()
    }

    /// The error of a write of a node, a directory's block or a block of the metadata area, if one failed.
    /// Memory is newer than the state that recovery would find then, so nothing more may be promised.
    pub(crate) fn lost_metadata(&self) -> Option<Error> {
        let of =
            |i: &Inode, what: &'static str| (i.mapping.errseq() != 0).then(|| i.mapping.last_error(what));
        let known = || self.write_io.metadata_error().cloned();
        of(&self.meta.inode, "writing the metadata area")
            .or_else(known)
            .or_else(|| of(&self.node_inode, "writing nodes"))
    }

    /// Refuses changes on a volume that is read-only or has failed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        match self.why_read_only() {
            None => Ok(()),
            Some(why) => Err(Error::read_only(&why)),
        }
    }

    /// Stops all further changes, since memory and volume may not agree. On zones, blocks that came early
    /// fail. For callers that hold no lock of a log's order or bio, nor a lock of a higher rank.
    pub(crate) fn stop(&self, why: &Error) {
        {
            let mut f = self.failure.lock();
            if self.failed.swap(true, SeqCst) {
                return;
            }
            *f = Some(why.clone());
        }
        // Threads wait for blocks that came early, and the blocks before these may never come.
        self.write_io.give_up_order();
    }

    /// Passes a result on; an error stops the volume, as it leaves metadata half changed.
    pub(crate) fn guard<T>(&self, r: Result<T>) -> Result<T> {
        if let Err(e) = &r
            && (e.errno().is_some() || matches!(e.kind(), ErrorKind::Io | ErrorKind::Corrupt))
        {
            self.stop(e);
        }
        r
    }

    /// Runs the rest of a change after its first step. The caller holds `cp_rwsem`, so that no checkpoint has
    /// one without the other.
    ///
    /// # Errors
    /// Those of `rest`; the volume takes no more changes then.
    pub(crate) fn finish<T>(&self, rest: impl FnOnce() -> Result<T>) -> Result<T> {
        rest().inspect_err(|e| self.stop(e))
    }
}
