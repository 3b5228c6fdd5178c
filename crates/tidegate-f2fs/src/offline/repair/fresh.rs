//! A new directory for inodes without a name.

use super::Repair;
use super::alloc::{HOT_DATA, HOT_NODE};
use super::claim::Owner;
use super::disk::{Block, Changed};
use super::insert::dots_block;
use super::map::Place;
use crate::format::raw::*;
use crate::offline::areas::Areas;
use std::mem::offset_of;
use tidegate_vfs::{Error, ErrorKind, Result};

const MODE: u16 = 0o040_700;
/// Bytes of extra attributes that include the time of birth.
const CRTIME_END: usize = offset_of!(RawExtraAttr, i_compr_blocks);

impl Repair<'_, '_> {
    /// Makes a directory for inodes without a name in the root directory.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn new_lost_found(&mut self, name: &[u8]) -> Result<u32> {
        let full = || Error::new(ErrorKind::NoSpace, "every node id is in use");
        let root = self.sb.root_ino;
        let ino = self.nat.next_free(root + 1).ok_or_else(full)?;
        let mut block = self.empty_inode(ino, name)?;
        let base = Areas::of(&self.sb, &block).unwrap_or(self.usual).base();
        let addr = self.alloc(HOT_NODE, Owner { nid: ino, slot: None })?;
        let data = self.alloc(HOT_DATA, Owner { nid: ino, slot: Some(0) });
        let data = data.inspect_err(|_| self.disown(addr, true))?;
        // A file that already has the name keeps it.
        let mut own = name.to_vec();
        while self.find_in(root, &own)?.is_some() {
            own.push(b'_');
        }
        // Nothing leads to the directory before this.
        if !self.insert(root, &own, ino, file_type::DIR, true)? {
            self.disown(data, false);
            self.disown(addr, true);
            return Err(Error::new(ErrorKind::NoSpace, "no room for lost_found in the root directory"));
        }
        put32(&mut block[..], base, data);
        let entries = Changed {
            block: dots_block(ino, root),
            place: Place::Entries { nid: ino, slot: 0 },
            fresh: true,
        };
        self.disk.changed.insert(data, entries);
        self.disk.changed.insert(addr, Changed { block, place: Place::Node(ino), fresh: true });
        self.nat.place(ino, ino, addr);
        self.usage.inodes += 1;
        self.reached.set(ino);
        self.is_inode.set(ino);
        self.is_dir.set(ino);
        let shown = format!("directory /{}", String::from_utf8_lossy(name));
        self.change("inode", format!("inode {ino}"), "free".into(), shown);
        Ok(ino)
    }

    /// The inode of an empty directory in the root, with the root's layout.
    fn empty_inode(&mut self, ino: u32, name: &[u8]) -> Result<Block> {
        let root = self.again(self.sb.root_ino)?;
        let mut b: Block = Box::new([0; BLOCK_SIZE]);
        let (now, nanos) = ((self.options.now.secs as u64).into(), self.options.now.nanos.into());
        let block = RawInodeBlock::of_mut(&mut b);
        let raw = &mut block.inode;
        raw.i_mode = MODE.into();
        raw.i_inline = root.raw().i_inline & (inline::EXTRA_ATTR | inline::XATTR);
        (raw.i_links, raw.i_blocks, raw.i_current_depth) = (2.into(), 2.into(), 1.into());
        raw.i_size = (BLOCK_SIZE as u64).into();
        raw.i_pino = self.sb.root_ino.into();
        raw.set_name(name);
        (raw.i_atime, raw.i_ctime, raw.i_mtime) = (now, now, now);
        (raw.i_atime_nsec, raw.i_ctime_nsec, raw.i_mtime_nsec) = (nanos, nanos, nanos);
        (block.footer.nid, block.footer.ino) = (ino.into(), ino.into());
        if let Some(extra) = RawExtraAttr::of_mut(&mut b[..]) {
            if root.areas.extra >= CRTIME_END {
                (extra.i_crtime, extra.i_crtime_nsec) = (now, nanos);
            }
            if root.has(inline::EXTRA_ATTR) {
                let of_root = RawInodeBlock::of(&root.block).extra();
                extra.i_extra_isize = of_root.i_extra_isize;
                extra.i_inline_xattr_size = of_root.i_inline_xattr_size;
            }
        }
        Ok(b)
    }
}
