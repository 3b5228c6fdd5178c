//! Whether the volume takes changes, what ends that, and how it is left.

use crate::format::crc::{START, crc32c};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::{ei, own};
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::mem::offset_of;
use std::sync::Arc;
use tidegate_rt::{Timespec, clock};
use tidegate_vfs::{Error, ErrorKind, Inode, Result, XattrFlags};

impl Ext4 {
    /// Why changes are refused, if they are.
    pub(crate) fn why_no_changes(&self) -> Option<String> {
        match self.failure.get() {
            Some(e) => Some(format!("stopped after an error: {e}")),
            None => (!self.read_only.is_empty()).then(|| self.read_only.clone()),
        }
    }

    /// Refuses changes on a volume that is read-only or has failed.
    ///
    /// # Errors
    /// `ReadOnly`, then.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let errno = self.failure.get().and_then(Error::errno);
        self.why_no_changes().map_or(Ok(()), |why| Err(Error::new(ErrorKind::ReadOnly, why).since(errno)))
    }

    /// Stops all further changes, since what is in memory and what is on the volume may not agree.
    pub(crate) fn stop(&self, why: &Error) {
        let _ = self.failure.set(why.clone());
    }

    /// Does one change. An error that may leave it half done stops the volume.
    ///
    /// # Errors
    /// Those of `f`; `ReadOnly`.
    pub(crate) fn op<T>(&self, f: impl FnOnce(&mut Handle<'_>) -> Result<T>) -> Result<T> {
        self.check_writable()?;
        let r = f(&mut Handle::new(&self.blocks));
        if let Err(e) = &r
            && (e.errno().is_some() || matches!(e.kind(), ErrorKind::Io | ErrorKind::Corrupt))
        {
            self.stop(e);
        }
        r
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
        self.op(|handle| {
            let mut new = Arc::unwrap_or_clone(ei(inode));
            let mut attr = inode.attr().clone();
            self.change_xattr(handle, &mut new, &mut attr, name, value, flags)?;
            {
                let mut a = inode.attr();
                (a.ctime, a.blocks) = (now, attr.blocks);
            }
            let mut data = own(inode).write();
            let data_now = Arc::make_mut(&mut data);
            (data_now.file_acl, data_now.behind) = (new.file_acl, new.behind);
            drop(data);
            self.store_inode(handle, inode)
        })
    }

    /// Says on the volume that it is in use: who finds it so after a power cut checks it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn enter_use(&self) -> Result<()> {
        self.change_super(|raw| {
            let state = State::from_bits_retain(raw.s_state.get()) - State::VALID;
            raw.s_state.set(state.bits());
            raw.s_mnt_count.set(raw.s_mnt_count.get().saturating_add(1));
            raw.s_mtime.set(clock::realtime().secs as u32);
        })?;
        self.write_all()
    }

    /// Writes all that changed, and says that the volume is whole.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn leave_clean(&self) -> Result<()> {
        self.change_super(|_| ())?;
        self.write_all()?;
        self.change_super(|raw| {
            let was = State::from_bits_retain(self.sb.raw.s_state.get());
            raw.s_state.set((State::from_bits_retain(raw.s_state.get()) | was & State::VALID).bits());
        })?;
        self.write_all()
    }

    /// Writes all that changed of the metadata, and makes it durable.
    ///
    /// # Errors
    /// Those of the device, and the volume takes no more changes.
    pub(crate) fn write_all(&self) -> Result<()> {
        let flush = || self.blocks.queue.flush().map_err(|e| Error::device(e, "flushing"));
        self.blocks.write_out().and_then(|()| flush()).inspect_err(|e| self.stop(e))
    }

    /// Changes the superblock: its counts follow what is free, and its checksum.
    fn change_super(&self, f: impl Fn(&mut RawSuperblock)) -> Result<()> {
        let bs = self.sb.block_size as usize;
        let (block, at) = (BlockAddr((SUPER_OFFSET / bs) as u64), SUPER_OFFSET % bs);
        let free = self.space()?.now();
        self.op(|handle| {
            handle.write(block, |bytes| {
                let bytes = &mut bytes[at..at + SUPER_SIZE];
                let Ok(raw) = <RawSuperblock as zerocopy::FromBytes>::mut_from_bytes(bytes) else { return };
                raw.s_free_blocks_count_lo.set(free.blocks as u32);
                if self.sb.incompat.contains(Incompat::BIT64) {
                    raw.s_free_blocks_count_hi.set((free.blocks >> 32) as u32);
                }
                raw.s_free_inodes_count.set(free.inodes as u32);
                raw.s_wtime.set(clock::realtime().secs as u32);
                f(raw);
                if self.sb.has_csum() {
                    let crc = crc32c(START, &bytes[..offset_of!(RawSuperblock, s_checksum)]);
                    bytes[SB_CSUM_OFFSET..].copy_from_slice(&crc.to_le_bytes());
                }
            })
        })
    }
}
