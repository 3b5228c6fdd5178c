//! Extended attributes: behind the inode's fields, in a block that inodes may share, and values in inodes of
//! their own.
//!
//! Lock owned: `ext4->shared_xattrs` 402. Callers: `vfs_impl`, and `map` for inline data.
//!
//! | module | holds |
//! |---|---|
//! | `area` | the entries of an inode or a block, checked |
//! | `change` | setting and removing attributes |

mod area;
mod change;

pub(crate) use change::SHARED;

use crate::format::crc::crc32c;
use crate::format::gate::rule;
use crate::format::raw::*;
use crate::format::units::{BlockAddr, FileBlock};
use crate::inode::Ext4Inode;
use crate::map::Place;
use crate::volume::blocks::Block;
use crate::volume::sbi::Ext4;
use area::{Area, Stored};
use tidegate_vfs::acl::{self, Acl};
use tidegate_vfs::{At, Error, ErrorKind, Result};

/// Splits a full name into the format's namespace number and the rest.
fn split_name(name: &[u8]) -> Result<(u8, &[u8])> {
    match name {
        acl::ACCESS => return Ok((INDEX_ACL_ACCESS, b"")),
        acl::DEFAULT => return Ok((INDEX_ACL_DEFAULT, b"")),
        _ => {}
    }
    for (index, prefix) in NAME_PREFIXES {
        match name.strip_prefix(prefix) {
            Some([]) => return Err(ErrorKind::InvalidArgument.into()),
            Some(rest) => return Ok((index, rest)),
            None => {}
        }
    }
    Err(ErrorKind::Unsupported.into())
}

/// The name in user space; `None` for an attribute that user space does not see, such as inline data.
fn full_name(index: u8, name: &[u8]) -> Option<Vec<u8>> {
    match index {
        INDEX_ACL_ACCESS => return Some(acl::ACCESS.to_vec()),
        INDEX_ACL_DEFAULT => return Some(acl::DEFAULT.to_vec()),
        _ => {}
    }
    let prefix = NAME_PREFIXES.iter().find(|p| p.0 == index)?.1;
    Some([prefix, name].concat())
}

impl Ext4 {
    /// The value of an attribute, in user space's form.
    ///
    /// # Errors
    /// `NoData`; `Unsupported` for a namespace that is not supported; `Corrupt`; those of the device.
    pub(crate) fn get_xattr(&self, inode: &Ext4Inode, name: &[u8]) -> Result<Vec<u8>> {
        let (index, rest) = split_name(name)?;
        let value = self.stored_xattr(inode, index, rest)?.ok_or(ErrorKind::NoData)?;
        match index {
            INDEX_ACL_ACCESS | INDEX_ACL_DEFAULT => Acl::from_disk(&value)
                .map(|a| a.to_xattr())
                .ok_or_else(|| Error::corrupt("its ACL is damaged").in_inode(inode.ino)),
            _ => Ok(value),
        }
    }

    /// The names of all attributes that user space sees.
    ///
    /// # Errors
    /// `Corrupt`; those of the device.
    pub(crate) fn list_xattrs(&self, inode: &Ext4Inode) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::new();
        self.each_area(inode, &mut |area| {
            names.extend(area.entries()?.iter().filter_map(|s| full_name(s.index, s.name)));
            Ok(false)
        })?;
        Ok(names)
    }

    /// The value of an attribute in the volume's form.
    pub(crate) fn stored_xattr(&self, inode: &Ext4Inode, index: u8, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let mut value = None;
        self.each_area(inode, &mut |area| {
            let all = area.entries()?;
            if let Some(s) = all.iter().find(|s| s.index == index && s.name == name) {
                value = Some(self.value_of(inode, area, s)?);
            }
            Ok(value.is_some())
        })?;
        Ok(value)
    }

    /// Calls `f` with the attributes in the inode, and then with those in its block, until `f` asks for no
    /// more.
    fn each_area(&self, inode: &Ext4Inode, f: &mut dyn FnMut(&Area<'_>) -> Result<bool>) -> Result<()> {
        if le32(&inode.behind, 0) == XATTR_MAGIC && f(&Area::of_inode(inode.ino, &inode.behind[4..]))? {
            return Ok(());
        }
        let Some(addr) = inode.file_acl else { return Ok(()) };
        let block = self.xattr_block(inode, addr)?;
        f(&Area::of_block(inode.ino, addr, &block)).map(drop)
    }

    /// Reads and checks a block of attributes.
    fn xattr_block(&self, inode: &Ext4Inode, addr: BlockAddr) -> Result<Block> {
        let block = self.blocks.read(addr).map_err(|e| e.in_inode(inode.ino))?;
        self.check_xattr_block(addr, &block).map_err(|e| e.at(area::place(addr)).in_inode(inode.ino))?;
        Ok(block)
    }

    fn check_xattr_block(&self, addr: BlockAddr, block: &[u8]) -> Result<()> {
        let head: RawXattrHeader = read_at(block, 0).ok_or_else(|| Error::corrupt("too short"))?;
        rule(head.h_magic.get() == XATTR_MAGIC, "no header of attributes")?;
        rule((1..=XATTR_REFCOUNT_MAX).contains(&head.h_refcount.get()), "h_refcount")?;
        rule(head.h_blocks.get() == 1, "h_blocks is not 1")?;
        let sealed = !self.sb.has_csum() || head.h_checksum.get() == self.xattr_block_csum(addr, block);
        rule(sealed, "the checksum does not match")
    }

    /// The checksum of a block of attributes; 0 where the volume has none.
    fn xattr_block_csum(&self, addr: BlockAddr, block: &[u8]) -> u32 {
        if !self.sb.has_csum() {
            return 0;
        }
        let seed = crc32c(self.sb.csum_seed, &addr.0.to_le_bytes());
        let head = crc32c(crc32c(seed, &block[..XATTR_CSUM_OFFSET]), &[0; 4]);
        crc32c(head, &block[XATTR_CSUM_OFFSET + 4..])
    }

    fn value_of(&self, inode: &Ext4Inode, area: &Area<'_>, s: &Stored<'_>) -> Result<Vec<u8>> {
        if s.value_inum == 0 {
            return area.value(s).map(<[u8]>::to_vec);
        }
        let holder = At::Part("attribute inode", s.value_inum.into());
        self.ea_inode_value(s).map_err(|e| e.at(holder).in_inode(inode.ino))
    }

    /// The value in an inode of its own.
    fn ea_inode_value(&self, s: &Stored<'_>) -> Result<Vec<u8>> {
        rule(self.sb.incompat.contains(Incompat::EA_INODE), "the volume has no such feature")?;
        rule(s.size <= XATTR_SIZE_MAX, "a value of more than 64 KiB")?;
        let (attr, holder) = self.load_system_inode(s.value_inum)?;
        rule(holder.is(InodeFlags::EA_INODE), "it is an ordinary one")?;
        rule(attr.size == u64::from(s.size), "its size is not the value's")?;
        let bs = u64::from(self.sb.block_size);
        let mut value = Vec::with_capacity(s.size as usize);
        while (value.len() as u64) < attr.size {
            let at = FileBlock(value.len() as u64 / bs);
            let Place::Data(addr) = self.map_blocks(&holder, at, 1)?.place else {
                return Err(Error::corrupt("it has a hole"));
            };
            let block = self.blocks.read(addr)?;
            let n = (attr.size - value.len() as u64).min(bs) as usize;
            value.extend_from_slice(&block[..n]);
        }
        // The kernel keeps the value's hash in the field of the access time.
        let hash = crc32c(self.sb.csum_seed, &value);
        rule(hash == holder.raw_atime, "the hash of the value does not match")?;
        Ok(value)
    }
}
