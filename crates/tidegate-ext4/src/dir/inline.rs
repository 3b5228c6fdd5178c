//! Directories in their inodes: the parent's number, then entries; no entries for "." and "..".

use super::entry::{Dirent, entries};
use crate::format::gate::rule;
use crate::format::raw::{I_BLOCK_SIZE, le32};
use crate::format::units::FileBlock;
use crate::inode::Ext4Inode;
use crate::volume::sbi::Ext4;
use tidegate_vfs::{FileType, Result};

/// Bytes of the parent's number.
const PARENT: usize = 4;

impl Ext4 {
    /// Lists the entries from position `pos` on. "." is at 0, ".." at 1, the others at their offset in the
    /// content.
    pub(super) fn list_inline(
        &self,
        dir: &Ext4Inode,
        size: u64,
        pos: u64,
        emit: &mut dyn FnMut(Dirent<'_>, u64) -> bool,
    ) -> Result<()> {
        let content = self.inline_content(dir, size)?;
        let parent = le32(&content, 0);
        let inodes = self.sb.raw.s_inodes_count.get();
        rule(
            content.len() as u64 == size && (1..=inodes).contains(&parent),
            format_args!("{size} bytes in its inode, its parent is inode {parent}"),
        )
        .map_err(|e| e.in_dir(dir.ino))?;
        let dots: [(u64, u32, &[u8], u64); 2] = [(0, dir.ino, b".", 1), (1, parent, b"..", PARENT as u64)];
        for (at, ino, name, next) in dots {
            let file_type = Some(FileType::Directory);
            let e = Dirent { ino, name, file_type, offset: at as usize, rec_len: 0 };
            if at >= pos && !emit(e, next) {
                return Ok(());
            }
        }
        // There are two lists: each ends with its part of the content.
        let middle = I_BLOCK_SIZE.min(content.len());
        for (from, to) in [(PARENT, middle), (middle, content.len())] {
            for e in entries(&content[from..to], self.dir_rules(dir), FileBlock(0)) {
                let e = e?;
                let here = (from + e.offset) as u64;
                if here >= pos && !emit(e, here + u64::from(e.rec_len)) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}
