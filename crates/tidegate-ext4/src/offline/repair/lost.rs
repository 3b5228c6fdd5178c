//! Inodes that nothing leads to get a name in lost+found.

use super::disk::Stage;
use super::hashed::NewEntry;
use super::map::Run;
use super::{Repair, State};
use crate::format::raw::*;
use crate::offline::node::{Kind, Node};
use std::collections::BTreeSet;
use tidegate_vfs::Result;

/// Most directories above a lost one that are looked at.
const ABOVE: usize = 1000;
const NAME: &[u8] = b"lost+found";
const S_IFDIR: u16 = 0o040_000;

impl Repair<'_, '_> {
    /// Repairs the root directory; makes a new one if it is not a directory.
    pub(super) fn mend_root(&mut self) -> Result<()> {
        let is_dir = self.state(ROOT_INO).kind == Some(Kind::Dir);
        if is_dir && !self.dir_blocks(ROOT_INO)?.is_empty() {
            return Ok(());
        }
        self.tell("directory", ROOT_INO, "no directory", "a new root");
        self.make_dir(ROOT_INO, ROOT_INO, 0o755)
    }

    /// Makes a free inode an empty directory.
    fn make_dir(&mut self, ino: u32, parent: u32, mode: u16) -> Result<()> {
        let block = self.alloc_block()?;
        let mut n = Node::parse(&self.sb, ino, &vec![0; self.sb.inode_size as usize]);
        self.set_times(&mut n);
        n.raw.i_mode = (S_IFDIR | mode).into();
        n.raw.i_links_count = 2.into();
        if self.sb.incompat.contains(Incompat::EXTENTS) {
            n.raw.i_flags = InodeFlags::EXTENTS.bits().into();
        }
        let state = State {
            kind: Some(Kind::Dir),
            links: 2,
            parent,
            reached: true,
            mended: true,
            ..State::default()
        };
        *self.state_mut(ino) = state;
        self.used_inodes.set(ino.into());
        let bytes = self.linear(&n, &[]).remove(0);
        self.disk.put(block, Stage::Fresh, bytes)?;
        super::fields::set_size(&mut n, self.sb.block_size.into());
        self.build_map(&mut n, &[Run { at: 0, start: block, len: 1, unwritten: false }])
    }

    /// Gives a new inode its times, and its fields behind the first 128 bytes.
    pub(super) fn set_times(&self, n: &mut Node) {
        let secs = self.options.now.secs;
        let low = (secs as u32).into();
        (n.raw.i_atime, n.raw.i_ctime, n.raw.i_mtime) = (low, low, low);
        if self.sb.inode_size as usize <= INODE_BASE {
            return;
        }
        let epoch = (((secs - i64::from(secs as i32)) >> 32) as u32 & 3).into();
        n.raw.i_extra_isize = ((size_of::<RawInode>() - INODE_BASE) as u16).into();
        (n.raw.i_ctime_extra, n.raw.i_mtime_extra, n.raw.i_atime_extra) = (epoch, epoch, epoch);
        (n.raw.i_crtime, n.raw.i_crtime_extra) = (low, epoch);
    }

    /// Gives names to directories that no way from the root leads to, and to files without a name.
    pub(super) fn adopt_lost(&mut self) -> Result<()> {
        for ino in 1..=self.sb.raw.s_inodes_count.get() {
            let lost = |s: State| s.kind == Some(Kind::Dir) && !s.reached && !s.special;
            while self.used_inodes.get(ino.into()) && lost(self.state(ino)) {
                let top = self.top_of(ino)?;
                self.adopt(top)?;
            }
        }
        for ino in 1..=self.sb.raw.s_inodes_count.get() {
            let s = self.state(ino);
            let other = s.kind.is_some_and(|k| k != Kind::Dir) && !s.special && s.names == 0;
            if self.used_inodes.get(ino.into()) && other && !self.orphans.contains(&ino) {
                self.adopt(ino)?;
            }
        }
        Ok(())
    }

    /// The highest directory above a lost one that is lost, too.
    fn top_of(&mut self, ino: u32) -> Result<u32> {
        let (mut at, mut met) = (ino, BTreeSet::from([ino]));
        while met.len() <= ABOVE {
            let Some(first) = self.dir_blocks(at)?.first().copied() else { return Ok(at) };
            let bytes = self.disk.block(first)?;
            let Some((e, _)) = self.entry(&bytes, 12) else { return Ok(at) };
            let s = if self.is_inode(e.ino) { self.state(e.ino) } else { State::default() };
            let lost = s.kind == Some(Kind::Dir) && !s.reached && !s.special;
            if e.name != b".." || !lost || !self.used_inodes.get(e.ino.into()) || !met.insert(e.ino) {
                return Ok(at);
            }
            at = e.ino;
        }
        Ok(at)
    }

    fn adopt(&mut self, ino: u32) -> Result<()> {
        let to = self.lost_found()?;
        let s = self.state(ino);
        let name = format!("#{ino}");
        self.tell("directory", format!("inode {ino}"), "without a name", format!("lost+found/{name}"));
        let kind = match s.kind {
            Some(kind) if self.has_types() => kind as u8,
            _ => 0,
        };
        self.remake.entry(to).or_default().push(NewEntry { name: name.into_bytes(), ino, kind });
        self.state_mut(ino).names = 1;
        if s.kind == Some(Kind::Dir) {
            self.state_mut(to).subdirs += 1;
            self.mend_tree(ino, to)?;
        }
        Ok(())
    }

    /// The directory for lost inodes, which is made if it is not there.
    fn lost_found(&mut self) -> Result<u32> {
        if let Some(ino) = self.lost_found {
            return Ok(ino);
        }
        let found = self.find_in_root(NAME)?;
        let usable = |ino: &u32| {
            let s = self.state(*ino);
            s.kind == Some(Kind::Dir) && s.reached && s.parent == ROOT_INO
        };
        let ino = match found.filter(usable) {
            Some(ino) => ino,
            None => {
                let ino = self.alloc_inode()?;
                self.tell("directory", "lost+found", "not there", format!("inode {ino}"));
                if let Err(e) = self.make_dir(ino, ROOT_INO, 0o700) {
                    self.used_inodes.clear(ino.into());
                    return Err(e);
                }
                let kind = if self.has_types() { Kind::Dir as u8 } else { 0 };
                self.remake.entry(ROOT_INO).or_default().push(NewEntry { name: NAME.to_vec(), ino, kind });
                self.state_mut(ino).names = 1;
                self.state_mut(ROOT_INO).subdirs += 1;
                ino
            }
        };
        self.lost_found = Some(ino);
        Ok(ino)
    }

    fn find_in_root(&mut self, name: &[u8]) -> Result<Option<u32>> {
        for block in self.dir_blocks(ROOT_INO)? {
            let bytes = self.disk.block(block)?;
            if is_dx_root(&bytes) {
                continue;
            }
            let end = self.entries_end();
            if let Some(e) = self.entries(&bytes[..end]).entries.into_iter().find(|e| e.name == name) {
                return Ok(Some(e.ino));
            }
        }
        Ok(None)
    }
}
