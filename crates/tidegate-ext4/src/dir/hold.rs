//! Reads the blocks that a change of names needs before its first step, and keeps them in memory: an
//! unreadable block leaves everything as it was.

use super::entry::Spot;
use super::htree::TreeBlock;
use crate::format::units::FileBlock;
use crate::inode::ei;
use crate::map::Place;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use tidegate_vfs::fs::Rename;
use tidegate_vfs::{Error, Inode, Result};

impl Ext4 {
    /// Holds the blocks for another name of an inode.
    pub(super) fn hold_link(&self, handle: &mut Handle<'_>, dir: &Inode, inode: &Inode) -> Result<()> {
        [dir, inode].into_iter().try_for_each(|i| self.hold_inode(handle, i.ino.0 as u32))?;
        if inode.nlink() == 0 { self.hold_orphan(handle, inode.ino.0 as u32) } else { Ok(()) }
    }

    /// Holds the blocks for the removal of the name at `spot`.
    pub(super) fn hold_unlink(
        &self,
        handle: &mut Handle<'_>,
        dir: &Inode,
        spot: Spot,
        inode: &Inode,
    ) -> Result<()> {
        handle.hold(spot.addr)?;
        self.hold_inode(handle, dir.ino.0 as u32)?;
        self.hold_dropped(handle, inode)
    }

    /// Holds the blocks for an inode that loses a name.
    fn hold_dropped(&self, handle: &mut Handle<'_>, inode: &Inode) -> Result<()> {
        let ino = inode.ino.0 as u32;
        self.hold_inode(handle, ino)?;
        if inode.is_dir() || inode.nlink() <= 1 { self.hold_orphan(handle, ino) } else { Ok(()) }
    }

    /// Holds the blocks for a rename that changes the entries at `spots`.
    pub(super) fn hold_rename(
        &self,
        handle: &mut Handle<'_>,
        r: &Rename<'_>,
        spots: impl Iterator<Item = Spot>,
    ) -> Result<()> {
        for spot in spots {
            handle.hold(spot.addr)?;
        }
        for inode in [r.old_dir, r.new_dir, r.inode] {
            self.hold_inode(handle, inode.ino.0 as u32)?;
        }
        r.target.map_or(Ok(()), |target| self.hold_dropped(handle, target))
    }

    /// The position of the entry called `name`, which was at `spot` when the directory had `blocks` blocks. A
    /// split moves entries to a new block, and the blocks that it changed are held.
    pub(super) fn found_again(&self, dir: &Inode, name: &[u8], spot: Spot, blocks: u64) -> Result<Spot> {
        let own = &*ei(dir);
        let now = self.blocks_of(dir.size());
        if now == blocks {
            return Ok(spot);
        }
        for n in std::iter::once(spot.block).chain((blocks..now).map(FileBlock)) {
            let Place::Data(addr) = self.map_blocks(own, n, 1)?.place else { continue };
            let block = TreeBlock { block: self.dir_block(own, n, addr)?, addr };
            if let Some(found) = self.find_in_block(own, n, &block, name)? {
                return Ok(found);
            }
        }
        Err(Error::corrupt("an entry is gone that a split was to keep").in_dir(dir.ino))
    }
}
