//! The entries that wait to be added, and lost_found.

use super::Repair;
use super::dir::Insert;
use super::insert::dots_block;
use crate::format::raw::*;
use tidegate_vfs::Result;

/// Most numbers tried when a name is taken.
const MOST_CLASHES: u32 = 1000;

impl Repair<'_, '_> {
    /// Adds every entry that waits.
    pub(super) fn insert_all(&mut self) -> Result<()> {
        for (dir, parent) in std::mem::take(&mut self.no_first_block) {
            let mut i = self.again(dir)?;
            if let Some(slot) = self.slot_of(&i, 0)? {
                self.change("dentry", format!("inode {dir} block 0"), "missing".into(), "new".into());
                self.new_block(&mut i, &slot, 0, dots_block(dir, parent))?;
                self.keep(i);
            }
        }
        for e in std::mem::take(&mut self.inserts) {
            let placed = e.dir != 0 && self.insert(e.dir, &e.name, e.ino, e.file_type, false)?;
            if !placed {
                self.insert_lost(&e)?;
            }
        }
        Ok(())
    }

    fn insert_lost(&mut self, e: &Insert) -> Result<()> {
        let dir = self.lost_found()?;
        let mut name = e.name.clone();
        for n in 1..MOST_CLASHES {
            if self.find_in(dir, &name)?.is_none() {
                break;
            }
            name = format!("ino-{}-{n}", e.ino).into_bytes();
        }
        let shown = String::from_utf8_lossy(&name).escape_debug().to_string();
        if !self.insert(dir, &name, e.ino, e.file_type, true)? {
            self.notes.push(format!("no room in lost_found for inode {}", e.ino));
            return Ok(());
        }
        self.change(
            "inode",
            format!("inode {}", e.ino),
            "no name".into(),
            format!("lost_found (inode {dir}) \"{shown}\""),
        );
        let mut i = self.again(e.ino)?;
        i.change(|r| r.i_pino = dir.into());
        i.change(|r| r.set_name(&name));
        self.keep(i);
        if e.file_type == file_type::DIR { self.set_parent(e.ino, dir) } else { Ok(()) }
    }

    /// Points ".." of directory `ino` to `parent`.
    fn set_parent(&mut self, ino: u32, parent: u32) -> Result<()> {
        let Some((addr, place, l, slot)) = self.find_in(ino, b"..")? else { return Ok(()) };
        let mut block = self.disk.block(addr)?;
        let e = RawDirEntry { ino: parent.into(), ..l.entry(&block[..], slot) };
        l.put_entry(&mut block[..], slot, e);
        self.disk.put(addr, place, block);
        Ok(())
    }

    /// The directory for inodes without a name, which is made if it is not there.
    fn lost_found(&mut self) -> Result<u32> {
        if let Some(ino) = self.lost_found {
            return Ok(ino);
        }
        for name in [&b"lost+found"[..], b"lost_found"] {
            if let Some((addr, _, l, slot)) = self.find_in(self.sb.root_ino, name)? {
                let ino = l.entry(&self.disk.block(addr)?[..], slot).ino.get();
                if self.is_dir.get(ino) {
                    self.lost_found = Some(ino);
                    return Ok(ino);
                }
            }
        }
        let ino = self.new_lost_found()?;
        self.lost_found = Some(ino);
        Ok(ino)
    }
}
