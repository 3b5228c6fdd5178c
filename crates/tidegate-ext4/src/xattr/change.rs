//! Sets and removes attributes: in the inode while they fit there, otherwise in a block of the inode's own.
//!
//! A block that several inodes share is left to the other inodes, and this inode gets one of its own. All
//! attributes of a place are read as a list, changed, and written whole, with the hashes by which Linux and
//! e2fsck compare blocks.

use super::area::Area;
use super::split_name;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use crate::inode::Ext4Inode;
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use tidegate_rt::LockClass;
use tidegate_vfs::acl::Acl;
use tidegate_vfs::{Attr, Error, ErrorKind, Result, XattrFlags};
use zerocopy::IntoBytes;

/// The class of [`Ext4::shared_xattrs`].
pub(crate) static SHARED: LockClass = LockClass::new("ext4->shared_xattrs", 402);

/// An attribute that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Kept {
    index: u8,
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Kept {
    /// Bytes of its entry.
    fn entry(&self) -> usize {
        (XATTR_ENTRY + self.name.len()).next_multiple_of(XATTR_ROUND)
    }

    /// Bytes of its value.
    fn room(&self) -> usize {
        self.value.len().next_multiple_of(XATTR_ROUND)
    }

    /// The hash of name and value, as Linux keeps it in an entry (`ext4_xattr_hash_entry`).
    fn hash(&self) -> u32 {
        let by_name = self.name.iter().fold(0_u32, |h, b| h.rotate_left(5) ^ u32::from(*b));
        let mut padded = self.value.clone();
        padded.resize(self.room(), 0);
        padded.chunks_exact(4).fold(by_name, |h, w| h.rotate_left(16) ^ le32(w, 0))
    }
}

/// Bytes that a list takes, with the zeros at its end.
fn size_of_list(list: &[Kept]) -> usize {
    list.iter().map(|k| k.entry() + k.room()).sum::<usize>() + 4
}

/// Writes a list into `bytes`: entries from `first` on, values from the end down; offsets count from `base`.
fn put_list(bytes: &mut [u8], first: usize, base: usize, list: &[Kept], with_hash: bool) {
    let (mut at, mut end) = (first, bytes.len());
    for k in list {
        end -= k.room();
        bytes[end..end + k.value.len()].copy_from_slice(&k.value);
        let raw = RawXattrEntry {
            e_name_len: k.name.len() as u8,
            e_name_index: k.index,
            e_value_offs: (if k.value.is_empty() { 0 } else { (end - base) as u16 }).into(),
            e_value_inum: 0.into(),
            e_value_size: (k.value.len() as u32).into(),
            e_hash: (if with_hash { k.hash() } else { 0 }).into(),
        };
        bytes[at..at + XATTR_ENTRY].copy_from_slice(raw.as_bytes());
        bytes[at + XATTR_ENTRY..at + XATTR_ENTRY + k.name.len()].copy_from_slice(&k.name);
        at += k.entry();
    }
}

impl Ext4 {
    /// Sets (`Some`) or removes an attribute; `value` is in user space's form. The caller stores the inode.
    ///
    /// # Errors
    /// `NoData` or `Exists` as `flags` require; `Range` for a name and `TooBig` for a list that is too long;
    /// `Corrupt`.
    pub(crate) fn change_xattr(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut Attr,
        name: &[u8],
        value: Option<&[u8]>,
        flags: XattrFlags,
    ) -> Result<()> {
        let (index, rest) = split_name(name)?;
        if rest.len() > NAME_LEN {
            return Err(Error::new(ErrorKind::Range, "an attribute's name of more than 255 bytes"));
        }
        let acl = matches!(index, INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT);
        let value = match value {
            Some(v) if acl => Some(Acl::parse(v).ok_or(ErrorKind::InvalidArgument)?.to_disk()),
            v => v.map(<[u8]>::to_vec),
        };
        let (mut inside, mut outside) = (self.kept_inside(own)?, self.kept_in_block(own)?);
        let is = |k: &Kept| k.index == index && k.name == rest;
        let known = inside.iter().chain(&outside).any(is);
        if known && flags.contains(XattrFlags::CREATE) {
            return Err(ErrorKind::Exists.into());
        }
        if !known && (value.is_none() || flags.contains(XattrFlags::REPLACE)) {
            return Err(ErrorKind::NoData.into());
        }
        let before = (inside.clone(), outside.clone());
        inside.retain(|k| !is(k));
        outside.retain(|k| !is(k));
        if let Some(value) = value {
            let new = Kept { index, name: rest.to_vec(), value };
            let mut with = inside.clone();
            with.push(new.clone());
            if size_of_list(&with) <= self.room_inside(own) {
                inside = with;
            } else {
                outside.push(new);
            }
        }
        if inside != before.0 && size_of_list(&inside) > self.room_inside(own) && !inside.is_empty() {
            return Err(Error::corrupt("attributes in it that do not fit there").in_inode(own.ino));
        }
        if outside != before.1 {
            self.put_block(handle, own, attr, outside)?;
        }
        if inside != before.0 {
            self.put_inside(own, &inside);
        }
        Ok(())
    }

    /// Bytes of a list in the inode.
    fn room_inside(&self, own: &Ext4Inode) -> usize {
        own.behind.len().saturating_sub(4)
    }

    fn kept_inside(&self, own: &Ext4Inode) -> Result<Vec<Kept>> {
        if le32(&own.behind, 0) != XATTR_MAGIC {
            return Ok(Vec::new());
        }
        kept(own.ino, &Area::of_inode(own.ino, &own.behind[4..]))
    }

    fn kept_in_block(&self, own: &Ext4Inode) -> Result<Vec<Kept>> {
        let Some(addr) = own.file_acl else { return Ok(Vec::new()) };
        let block = self.xattr_block(own, addr)?;
        kept(own.ino, &Area::of_block(own.ino, addr, &block))
    }

    fn put_inside(&self, own: &mut Ext4Inode, list: &[Kept]) {
        let mut behind = vec![0; own.behind.len()];
        if !list.is_empty() {
            behind[..4].copy_from_slice(&XATTR_MAGIC.to_le_bytes());
            put_list(&mut behind[4..], 0, 0, list, false);
        }
        own.behind = behind.into();
    }

    /// Writes the attributes of a block: the inode's own block is overwritten, a shared block is left to the
    /// other inodes; an empty list keeps no block.
    fn put_block(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut Attr,
        mut list: Vec<Kept>,
    ) -> Result<()> {
        if list.is_empty() {
            return self.free_xattr_block(handle, own, attr);
        }
        let head = size_of::<RawXattrHeader>();
        if head + size_of_list(&list) > self.sb.block_size as usize {
            return Err(Error::new(
                ErrorKind::TooBig,
                format!(
                    "attributes that do not fit in the inode and a block of {} bytes",
                    self.sb.block_size
                ),
            ));
        }
        self.announce_xattrs(handle)?;
        // Linux sorts the entries of a block by namespace, length and name.
        list.sort_by(|a, b| (a.index, a.name.len(), &a.name).cmp(&(b.index, b.name.len(), &b.name)));
        let addr = match own.file_acl {
            Some(addr) if self.references(own, addr)? == 1 => addr,
            before => {
                let new = self.take_block(handle, self.goal_of(own.ino))?;
                match before {
                    Some(addr) if !self.leave_shared(handle, own, addr)? => {
                        self.free_blocks(handle, new, 1)?;
                        addr
                    }
                    Some(_) => new,
                    None => {
                        attr.blocks += u64::from(self.sb.block_size / 512);
                        new
                    }
                }
            }
        };
        own.file_acl = Some(addr);
        let mut bytes = vec![0; self.sb.block_size as usize];
        put_list(&mut bytes, head, 0, &list, true);
        let mut raw = RawXattrHeader {
            h_magic: XATTR_MAGIC.into(),
            h_refcount: 1.into(),
            h_blocks: 1.into(),
            h_hash: list.iter().map(Kept::hash).fold(0_u32, |h, e| h.rotate_left(16) ^ e).into(),
            h_checksum: 0.into(),
            h_reserved: Default::default(),
        };
        bytes[..head].copy_from_slice(raw.as_bytes());
        raw.h_checksum = self.xattr_block_csum(addr, &bytes).into();
        bytes[..head].copy_from_slice(raw.as_bytes());
        handle.create(addr, |b| b.copy_from_slice(&bytes))
    }

    /// Removes an inode's block of attributes: the block is freed, or left to the inodes that share it.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn free_xattr_block(
        &self,
        handle: &mut Handle<'_>,
        own: &mut Ext4Inode,
        attr: &mut Attr,
    ) -> Result<()> {
        let Some(addr) = own.file_acl else { return Ok(()) };
        if self.references(own, addr)? == 1 || !self.leave_shared(handle, own, addr)? {
            handle.forget(addr)?;
            self.free_blocks(handle, addr, 1)?;
        }
        own.file_acl = None;
        attr.blocks = attr.blocks.saturating_sub(u64::from(self.sb.block_size / 512));
        Ok(())
    }

    /// Checks an inode's block of attributes before the inode is freed.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn judge_xattr_block(&self, own: &Ext4Inode) -> Result<()> {
        own.file_acl.map_or(Ok(()), |addr| self.references(own, addr).map(drop))
    }

    /// Number of inodes that share a block. This code never adds one, so the block of one inode stays its
    /// own.
    fn references(&self, own: &Ext4Inode, addr: BlockAddr) -> Result<u32> {
        let head = read_at::<RawXattrHeader>(&self.xattr_block(own, addr)?, 0);
        Ok(head.map_or(0, |head| head.h_refcount.get()))
    }

    /// Leaves a block to the inodes that share it; false if all of them have left it by now.
    fn leave_shared(&self, handle: &mut Handle<'_>, own: &Ext4Inode, addr: BlockAddr) -> Result<bool> {
        let _one_leaves = self.shared_xattrs.lock();
        if self.references(own, addr)? == 1 {
            return Ok(false);
        }
        handle.write(addr, |b| {
            if let Some(head) = at_mut::<RawXattrHeader>(b, 0) {
                head.h_refcount -= 1;
            }
            let crc = self.xattr_block_csum(addr, b);
            if let Some(head) = at_mut::<RawXattrHeader>(b, 0) {
                head.h_checksum = crc.into();
            }
        })?;
        Ok(true)
    }
}

/// The list of a place. Values in inodes of their own cannot be moved.
fn kept(ino: u32, area: &Area<'_>) -> Result<Vec<Kept>> {
    let keep = |s: super::area::Stored<'_>| {
        if s.value_inum != 0 {
            let what = "an attribute's value lies in an inode of its own";
            return Err(Error::new(ErrorKind::Unsupported, what).in_inode(ino));
        }
        Ok(Kept { index: s.index, name: s.name.to_vec(), value: area.value(&s)?.to_vec() })
    };
    area.own_entries()?.into_iter().map(keep).collect()
}
