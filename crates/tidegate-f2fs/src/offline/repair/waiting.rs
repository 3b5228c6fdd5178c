//! The entries that wait to be added, and lost_found.

use super::Repair;
use super::dir::Insert;
use super::insert::dots_block;
use crate::format::raw::*;
use tidegate_vfs::{ErrorKind, Result};

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
        let ino = e.ino;
        loop {
            let dir = match self.lost_found() {
                // The rest of the repair is worth more than this name.
                Err(e) if e.kind() == ErrorKind::NoSpace && self.full_lost_founds > 0 => {
                    self.notes.push(format!("no room in lost_found for inode {ino}"));
                    return Ok(());
                }
                dir => dir?,
            };
            if self.insert_into(dir, e)? {
                return Ok(());
            }
            self.lost_found = None;
            self.full_lost_founds += 1;
        }
    }

    /// Gives an inode a name in `dir`; false when there is no room for it.
    fn insert_into(&mut self, dir: u32, e: &Insert) -> Result<bool> {
        let mut name = e.name.clone();
        for n in 1..MOST_CLASHES {
            if self.find_in(dir, &name)?.is_none() {
                break;
            }
            name = format!("ino-{}-{n}", e.ino).into_bytes();
        }
        let shown = String::from_utf8_lossy(&name).escape_debug().to_string();
        if !self.insert(dir, &name, e.ino, e.file_type, true)? {
            return Ok(false);
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
        if e.file_type == file_type::DIR {
            self.set_parent(e.ino, dir)?;
        }
        Ok(true)
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

    /// The directory for inodes without a name: the first that is not full, which is made if it is not there.
    /// A repair adds no nodes to a directory, so that one has room for about 55,000 names.
    fn lost_found(&mut self) -> Result<u32> {
        if let Some(ino) = self.lost_found {
            return Ok(ino);
        }
        let names = match self.full_lost_founds {
            0 => vec![b"lost+found".to_vec(), b"lost_found".to_vec()],
            n => vec![format!("lost_found-{}", n + 1).into_bytes()],
        };
        let mut found = None;
        for name in &names {
            if let Some((addr, _, l, slot)) = self.find_in(self.sb.root_ino, name)? {
                let ino = l.entry(&self.disk.block(addr)?[..], slot).ino.get();
                found = found.or(Some(ino).filter(|ino| self.is_dir.get(*ino)));
            }
        }
        let ino = match (found, names.last()) {
            (None, Some(name)) => self.new_lost_found(name)?,
            (found, _) => found.unwrap_or_default(),
        };
        self.lost_found = Some(ino);
        Ok(ino)
    }
}
