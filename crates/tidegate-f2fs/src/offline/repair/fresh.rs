//! A new directory: lost_found.

use super::Repair;
use super::alloc::{HOT_DATA, HOT_NODE};
use super::areas::areas;
use super::claim::Owner;
use super::disk::{Block, Changed};
use super::inode::at;
use super::insert::dots_block;
use super::map::Place;
use crate::format::raw::*;
use std::mem::offset_of;
use tidegate_vfs::{Error, ErrorKind, Result};

const NAME: &[u8] = b"lost_found";
const MODE: u16 = 0o040_700;
/// Offset of the birth time in an inode with so many extra attributes.
const CRTIME: usize = I_ADDR_OFFSET + offset_of!(RawExtraAttr, i_crtime);

impl Repair<'_, '_> {
    /// Makes lost_found in the root directory.
    ///
    /// # Errors
    /// `NoSpace`.
    pub(super) fn new_lost_found(&mut self) -> Result<u32> {
        let full = || Error::new(ErrorKind::NoSpace, "every node id is in use");
        let root = self.sb.root_ino;
        let ino = self.nat.next_free(root + 1).ok_or_else(full)?;
        let mut block = self.empty_inode(ino)?;
        let base = areas(&self.sb, &block).unwrap_or(self.usual).base();
        let addr = self.alloc(HOT_NODE, Owner { nid: ino, slot: None })?;
        let data = self.alloc(HOT_DATA, Owner { nid: ino, slot: Some(0) })?;
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
        self.change("inode", format!("inode {ino}"), "free".into(), "directory /lost_found".into());
        // A file of that name stays what it is.
        let mut name = NAME.to_vec();
        while self.find_in(root, &name)?.is_some() {
            name.push(b'_');
        }
        if !self.insert(root, &name, ino, file_type::DIR, true)? {
            return Err(Error::new(ErrorKind::NoSpace, "no room for lost_found in the root directory"));
        }
        Ok(ino)
    }

    /// The inode of an empty directory in the root, its layout as the root's.
    fn empty_inode(&mut self, ino: u32) -> Result<Block> {
        let root = self.again(self.sb.root_ino)?;
        let mut b: Block = Box::new([0; BLOCK_SIZE]);
        b[at::MODE..at::MODE + 2].copy_from_slice(&MODE.to_le_bytes());
        b[at::INLINE] = root.block[at::INLINE] & (inline::EXTRA_ATTR | inline::XATTR);
        let (now, nanos) = (self.options.now.secs as u64, self.options.now.nanos);
        let mut words = vec![
            (at::LINKS, 2),
            (at::SIZE, BLOCK_SIZE as u32),
            (at::BLOCKS, 2),
            (at::DEPTH, 1),
            (at::PINO, self.sb.root_ino),
            (at::NAMELEN, NAME.len() as u32),
        ];
        let mut time = |at: usize, nsec: usize| {
            words.extend([(at, now as u32), (at + 4, (now >> 32) as u32), (nsec, nanos)]);
        };
        time(offset_of!(RawInode, i_atime), offset_of!(RawInode, i_atime_nsec));
        time(offset_of!(RawInode, i_ctime), offset_of!(RawInode, i_ctime_nsec));
        time(offset_of!(RawInode, i_mtime), offset_of!(RawInode, i_mtime_nsec));
        if root.areas.extra >= CRTIME + 12 - I_ADDR_OFFSET {
            time(CRTIME, CRTIME + 8);
        }
        if root.has(inline::EXTRA_ATTR) {
            words.push((I_ADDR_OFFSET, root.u32(I_ADDR_OFFSET)));
        }
        words.into_iter().for_each(|(at, v)| put32(&mut b[..], at, v));
        b[at::NAME..at::NAME + NAME.len()].copy_from_slice(NAME);
        if let Some(footer) = RawNodeFooter::of_mut(&mut b[..]) {
            footer.nid = ino.into();
            footer.ino = ino.into();
        }
        Ok(b)
    }
}
