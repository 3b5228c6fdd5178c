//! The end of all changes: inodes without a name are freed, links of directories are counted, and bitmaps are
//! updated.

use super::changes::Changes;
use crate::format::gate::rule;
use std::sync::Arc;
use tidegate_jbd2::format::fc::FcInode;
use tidegate_vfs::{FileType, Inode, Result};

impl Changes<'_> {
    pub(super) fn settle(&mut self) -> Result<()> {
        self.count_links()?;
        // Inodes on the volume's own orphan list are freed with that list.
        let listed = self.fs.orphan_numbers()?;
        let nameless = |(n, inode): (&u32, &Arc<Inode>)| {
            (inode.nlink() == 0 && !listed.contains(n)).then(|| inode.clone())
        };
        let free: Vec<_> = self.inodes.iter().filter_map(nameless).collect();
        free.iter().try_for_each(|inode| self.free(inode))?;
        for inode in self.inodes.values().filter(|i| i.is_dir() && i.nlink() > 0) {
            rule(inode.size() > 0, "it is a directory without blocks").map_err(|e| e.in_inode(inode.ino))?;
        }
        let lost: Vec<_> = self.gone.iter().chain(self.ahead.iter()).collect();
        let owned: Vec<_> = self.owned.values().flat_map(|o| o.iter()).collect();
        for range in lost {
            self.fs.set_blocks(&mut self.handle, range, false)?;
        }
        for range in owned {
            self.fs.set_blocks(&mut self.handle, range, true)?;
        }
        self.fs.change_super_in(&mut self.handle, |_| {})
    }

    /// Counts the subdirectories of directories that got or lost one, or whose count was set with other
    /// fields.
    fn count_links(&mut self) -> Result<()> {
        for n in std::mem::take(&mut self.recount) {
            let inode = self.inode(FcInode(n))?;
            // A count of 1 means more links than can be counted.
            if inode.nlink() < 2 || inode.size() == 0 {
                continue;
            }
            let (mut links, mut others) = (2, Vec::new());
            self.fs.each_entry(&inode, &mut |e| {
                match e.file_type {
                    _ if matches!(&e.name[..], b"." | b"..") => {}
                    Some(FileType::Directory) => links += 1,
                    Some(_) => {}
                    None => others.push(e.ino),
                }
                true
            })?;
            for ino in others {
                let (attr, _) = self.fs.load_any(u32::try_from(ino.0).unwrap_or(0))?;
                links += u32::from(attr.file_type == FileType::Directory);
            }
            inode.attr().nlink = links;
            self.fs.store_inode(&mut self.handle, &inode)?;
        }
        Ok(())
    }
}
