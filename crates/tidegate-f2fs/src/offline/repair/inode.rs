//! Repair of an inode by itself: its layout, and its impossible parts.

use super::disk::Block;
use super::map::Place;
use super::{Repair, dots};
use crate::format::raw::*;
use crate::offline::areas::Areas;
use tidegate_vfs::Result;
use zerocopy::IntoBytes;

/// The kind of file that an inode is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Regular,
    Directory,
    Symlink,
    /// Device, FIFO, socket: `i_addr` holds no addresses.
    Special,
}

/// Compressed files.
const COMPR_FL: u32 = 0x4;
/// Case-insensitive directories.
const CASEFOLD_FL: u32 = 0x4000_0000;
/// An inode that is good enough to go on with.
pub(super) struct Inode {
    pub(super) ino: u32,
    pub(super) addr: u32,
    pub(super) block: Block,
    pub(super) kind: Kind,
    pub(super) areas: Areas,
    pub(super) dirty: bool,
}

impl Inode {
    pub(super) fn u32(&self, at: usize) -> u32 {
        le32(&self.block[..], at)
    }

    /// The ids of the nodes below the inode.
    pub(super) fn nids(&self) -> &[zerocopy::little_endian::U32; 5] {
        &RawInodeBlock::of(&self.block).i_nid
    }

    /// The ids of the nodes below the inode, to be changed.
    pub(super) fn nids_mut(&mut self) -> &mut [zerocopy::little_endian::U32; 5] {
        self.dirty = true;
        &mut RawInodeBlock::of_mut(&mut self.block).i_nid
    }

    pub(super) fn raw(&self) -> &RawInode {
        &RawInodeBlock::of(&self.block).inode
    }

    pub(super) fn raw_mut(&mut self) -> &mut RawInode {
        &mut RawInodeBlock::of_mut(&mut self.block).inode
    }

    /// Changes fields of the inode.
    pub(super) fn change(&mut self, f: impl FnOnce(&mut RawInode)) {
        f(self.raw_mut());
        self.dirty = true;
    }

    pub(super) fn set32(&mut self, at: usize, v: u32) {
        put32(&mut self.block[..], at, v);
        self.dirty = true;
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.raw().i_inline & flag != 0
    }

    pub(super) fn is_inline(&self) -> bool {
        self.has(inline::DATA | inline::DENTRY)
    }

    pub(super) fn file_type(&self) -> u8 {
        file_type_of(&self.block)
    }

    /// The names are hashed in a way that only the kernel knows, so they are left unchanged.
    pub(super) fn strange_names(&self) -> bool {
        self.raw().i_advise & advise::ENCRYPT != 0 || self.raw().i_flags.get() & CASEFOLD_FL != 0
    }
}

/// Position of the file's type in a mode.
const TYPE_SHIFT: u32 = 12;

/// The dentry type that goes with an inode's mode.
pub(super) fn file_type_of(block: &[u8; BLOCK_SIZE]) -> u8 {
    match RawInodeBlock::of(block).inode.i_mode.get() >> TYPE_SHIFT {
        0o10 => file_type::REG_FILE,
        0o04 => file_type::DIR,
        0o02 => file_type::CHRDEV,
        0o06 => file_type::BLKDEV,
        0o01 => file_type::FIFO,
        0o14 => file_type::SOCK,
        0o12 => file_type::SYMLINK,
        _ => file_type::UNKNOWN,
    }
}

/// The mode's type bits that go with a dentry type.
fn mode_of(file_type: u8) -> Option<u16> {
    let bits = [0, 0o10, 0o04, 0o02, 0o06, 0o01, 0o14, 0o12];
    bits.get(usize::from(file_type)).map(|b| b << TYPE_SHIFT).filter(|b| *b != 0)
}

impl Repair<'_, '_> {
    /// Takes inode `ino`, whose directory entry says type `hint`, and repairs its layout and flags.
    pub(super) fn take_inode(&mut self, ino: u32, hint: u8) -> Result<Option<Inode>> {
        let Some((addr, mut block)) = self.take_node(ino, ino, 0)? else { return Ok(None) };
        self.is_inode.set(ino);
        self.usage.inodes += 1;
        let mut dirty = false;
        // The root is a directory in any case, and so is an inode with entries that an entry calls one.
        let holds_entries = RawInodeBlock::of(&block).inode.i_inline & inline::DENTRY != 0;
        let is_dir = hint == file_type::DIR && (ino == self.sb.root_ino || holds_entries);
        let found = file_type_of(&block);
        if found == file_type::UNKNOWN || is_dir && found != file_type::DIR {
            let Some(bits) = mode_of(hint) else { return self.give_up_inode(ino, addr) };
            let mode = &mut RawInodeBlock::of_mut(&mut block).inode.i_mode;
            let was = mode.get();
            let now = was & ((1 << TYPE_SHIFT) - 1) | bits;
            *mode = now.into();
            self.inode_change(ino, "i_mode", format!("{was:#o}"), format!("{now:#o}"));
            dirty = true;
        }
        let (areas, mended) = self.mend_areas(ino, &mut block);
        let kind = match file_type_of(&block) {
            file_type::REG_FILE => Kind::Regular,
            file_type::DIR => Kind::Directory,
            file_type::SYMLINK => Kind::Symlink,
            _ => Kind::Special,
        };
        let mut i = Inode { ino, addr, block, kind, areas, dirty: dirty || mended };
        if i.kind == Kind::Directory {
            self.is_dir.set(ino);
        }
        self.mend_feature_flags(&mut i);
        self.mend_inline_flags(&mut i)?;
        if i.is_inline() && i.u32(i.areas.base()) != 0 {
            let was = format!("{:#x}", i.u32(i.areas.base()));
            self.inode_change(ino, "word before inline content", was, "0x0".into());
            i.set32(i.areas.base(), 0);
        }
        self.mend_namelen(&mut i);
        self.note_checksum(&mut i);
        Ok(Some(i))
    }

    fn give_up_inode(&mut self, ino: u32, addr: u32) -> Result<Option<Inode>> {
        self.reached.clear(ino);
        self.is_inode.clear(ino);
        self.usage.inodes -= 1;
        self.disown(addr, true);
        self.disk.changed.remove(&addr);
        Ok(None)
    }

    /// Keeps the inode's changes.
    pub(super) fn keep(&mut self, i: Inode) {
        if i.dirty {
            self.disk.put(i.addr, Place::Node(i.ino), i.block);
        }
    }

    /// An inode that was taken before, with the changes made since.
    pub(super) fn again(&mut self, ino: u32) -> Result<Inode> {
        let addr = self.nat.addr(ino);
        let block = self.disk.block(addr)?;
        let areas = Areas::of(&self.sb, &block).unwrap_or(self.usual);
        let kind = if file_type_of(&block) == file_type::DIR { Kind::Directory } else { Kind::Regular };
        Ok(Inode { ino, addr, block, kind, areas, dirty: false })
    }

    /// Clears flags of features that the volume does not have.
    fn mend_feature_flags(&mut self, i: &mut Inode) {
        let has = |f: Features| self.sb.features.contains(f);
        let (mut advise, mut flags) = (i.raw().i_advise, i.raw().i_flags.get());
        let before = (advise, flags);
        if !has(Features::ENCRYPT) {
            advise &= !(advise::ENCRYPT | advise::ENC_NAME);
        }
        if !has(Features::VERITY) {
            advise &= !advise::VERITY;
        }
        if !has(Features::CASEFOLD) {
            flags &= !CASEFOLD_FL;
        }
        if !has(Features::COMPRESSION) {
            flags &= !COMPR_FL;
        }
        if before != (advise, flags) {
            let show = |(a, f): (u8, u32)| format!("i_advise {a:#x}, i_flags {f:#x}");
            self.inode_change(i.ino, "flags", show(before), show((advise, flags)));
            i.raw_mut().i_advise = advise;
            i.change(|r| r.i_flags = flags.into());
        }
    }

    fn mend_inline_flags(&mut self, i: &mut Inode) -> Result<()> {
        let was = i.raw().i_inline;
        let mut flags = was;
        match i.kind {
            Kind::Directory => {
                flags &= !inline::DATA;
                let mut as_inline = i.block.clone();
                RawInodeBlock::of_mut(&mut as_inline).inode.i_inline = flags | inline::DENTRY;
                if let Ok(a) = Areas::of(&self.sb, &as_inline)
                    && was & inline::DENTRY == 0
                    && dots::begins_with_dot(&as_inline[..], a, i.ino)
                {
                    flags |= inline::DENTRY;
                }
            }
            Kind::Regular | Kind::Symlink => flags &= !inline::DENTRY,
            Kind::Special => flags &= !(inline::DATA | inline::DENTRY),
        }
        let nids = i.nids().map(|n| n.get());
        if flags & (inline::DATA | inline::DENTRY) != 0 && nids.iter().any(|n| *n != 0) {
            if self.has_node(i.ino, &nids)? {
                flags &= !(inline::DATA | inline::DENTRY | inline::DATA_EXIST);
            } else {
                self.inode_change(i.ino, "i_nid", format!("{nids:?}"), "none: its content is inline".into());
                i.nids_mut().fill(0.into());
                i.dirty = true;
            }
        }
        if flags & inline::DATA != 0 && flags & inline::DATA_EXIST == 0 {
            let a = i.areas;
            let has_data = i.block[a.inline_at()..a.inline_at() + a.inline_max()].iter().any(|b| *b != 0);
            flags |= if has_data { inline::DATA_EXIST } else { 0 };
        }
        if flags != was {
            i.raw_mut().i_inline = flags;
            i.dirty = true;
            self.inode_change(i.ino, "i_inline", format!("{was:#x}"), format!("{flags:#x}"));
            i.areas = Areas::of(&self.sb, &i.block).unwrap_or(self.usual);
        }
        Ok(())
    }

    /// Whether one of `nids` is a node of `ino`.
    fn has_node(&mut self, ino: u32, nids: &[u32]) -> Result<bool> {
        for (n, nid) in nids.iter().enumerate().filter(|(_, nid)| **nid != 0) {
            let ofs = [1, 2, 3, 4 + NIDS_PER_BLOCK as u32, 5 + 2 * NIDS_PER_BLOCK as u32][n];
            if self.known_nid(*nid) && self.find_node(*nid, ino, ofs)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn mend_namelen(&mut self, i: &mut Inode) {
        let len = i.raw().i_namelen.get();
        if len as usize <= F2FS_NAME_LEN {
            return;
        }
        let name = &i.raw().i_name;
        let found = name.iter().position(|b| *b == 0).unwrap_or(F2FS_NAME_LEN) as u32;
        self.inode_change(i.ino, "i_namelen", len.to_string(), found.to_string());
        i.change(|r| r.i_namelen = found.into());
    }

    /// Corrects a checksum that does not match: other faults are repaired separately.
    fn note_checksum(&mut self, i: &mut Inode) {
        if let Some((stored, sum)) = checksum(&self.sb, i.ino, &i.block).filter(|(a, b)| a != b)
            && !i.dirty
        {
            self.inode_change(i.ino, "checksum", format!("{stored:#x}"), format!("{sum:#x}"));
            i.dirty = true;
        }
    }
}

/// The inode's checksum and the correct one, if the inode has a checksum.
pub(super) fn checksum(
    sb: &crate::format::gate::Superblock,
    ino: u32,
    b: &[u8; BLOCK_SIZE],
) -> Option<(u32, u32)> {
    let extra = Areas::of(sb, b).ok()?.extra;
    if !sb.features.contains(Features::INODE_CHKSUM) || I_ADDR_OFFSET + extra < I_CHKSUM_OFFSET + 4 {
        return None;
    }
    let raw = RawInodeBlock::of(b);
    let seed = f2fs_chksum(u32::MAX, &sb.raw.uuid);
    let seed = f2fs_chksum(f2fs_chksum(seed, &ino.to_le_bytes()), raw.inode.i_generation.as_bytes());
    let sum = f2fs_chksum(f2fs_chksum(seed, &b[..I_CHKSUM_OFFSET]), &[0; 4]);
    Some((raw.extra().i_inode_checksum.get(), f2fs_chksum(sum, &b[I_CHKSUM_OFFSET + 4..])))
}
