//! Nodes that nothing leads to: an inode gets a name in lost_found, other nodes are freed. Link counts.

use super::Repair;
use super::dir::Insert;
use super::footer::Footer;
use super::inode::file_type_of;
use crate::format::raw::*;
use tidegate_vfs::Result;

/// An inode that no directory names.
struct Lost {
    ino: u32,
    file_type: u8,
    parent: u32,
}

impl Repair<'_, '_> {
    /// Gives names to inodes without one. A directory whose parent is lost, too, waits for its parent.
    pub(super) fn adopt_lost(&mut self) -> Result<()> {
        let lost = self.find_lost()?;
        let is_dir = |l: &&Lost| l.file_type == file_type::DIR;
        let dirs: tidegate_rt::hash::HashSet<u32> = lost.iter().filter(is_dir).map(|l| l.ino).collect();
        for tops_only in [true, false] {
            for l in lost.iter().filter(is_dir) {
                let waits = tops_only && l.parent != l.ino && dirs.contains(&l.parent);
                if !waits {
                    self.adopt(l)?;
                }
            }
        }
        lost.iter().filter(|l| !is_dir(l)).try_for_each(|l| self.adopt(l))
    }

    fn adopt(&mut self, l: &Lost) -> Result<()> {
        if self.reached.get(l.ino) {
            return Ok(());
        }
        if let Ok(file_type) = self.link(l.ino, 0, l.file_type)? {
            let name = format!("ino-{}", l.ino).into_bytes();
            self.inserts.push(Insert { dir: 0, name, ino: l.ino, file_type });
        }
        self.mend_dirs()
    }

    /// Inodes in the NAT that the walk did not reach, except inodes that were being removed.
    fn find_lost(&mut self) -> Result<Vec<Lost>> {
        let (mut lost, mut from) = (Vec::new(), self.sb.root_ino + 1);
        while let Some((nid, e)) = self.nat.next_used(from) {
            from = nid + 1;
            let addr = e.block_addr.get();
            if self.reached.get(nid) || self.orphans.contains(&nid) || !self.is_free(addr) {
                continue;
            }
            let block = self.disk.block(addr)?;
            let f = Footer::of(&block);
            let file_type = file_type_of(&block);
            let raw = &RawInodeBlock::of(&block).inode;
            let alive = raw.i_links.get() > 0 && file_type != file_type::UNKNOWN;
            if f.nid == nid && f.ino == nid && e.ino == nid && alive {
                lost.push(Lost { ino: nid, file_type, parent: raw.i_pino.get() });
            }
        }
        Ok(lost)
    }

    /// Frees the nodes that nothing leads to.
    pub(super) fn free_unreached(&mut self) {
        let mut from = 0;
        while let Some((nid, e)) = self.nat.next_used(from) {
            from = nid + 1;
            if !self.known_nid(nid) {
                if nid == 0 {
                    let was = format!("inode {} block {}", e.ino, e.block_addr);
                    self.change("nat", "node 0".into(), was, "none".into());
                    self.nat.set(0, RawNatEntry::default());
                }
            } else if !self.reached.get(nid) {
                let what = if self.orphans.contains(&nid) { "freed: an orphan" } else { "freed" };
                let was = format!("inode {} block {}", e.ino, e.block_addr);
                self.change("nat", format!("node {nid}"), was, what.into());
                self.nat.free(nid);
            }
        }
        // mkfs gives these nodes an address that is no place.
        for nid in [self.sb.node_ino, self.sb.meta_ino] {
            let e = self.nat.entry(nid);
            if (e.ino.get(), e.block_addr.get()) != (nid, 1) {
                self.nat.place(nid, nid, 1);
                let was = format!("inode {} block {}", e.ino, e.block_addr);
                self.change("nat", format!("node {nid}"), was, format!("inode {nid} block 1"));
            }
        }
    }

    /// Repairs link counts of inodes that are not directories.
    pub(super) fn mend_links(&mut self) -> Result<()> {
        let mut links: Vec<_> = std::mem::take(&mut self.links).into_iter().collect();
        links.sort_unstable();
        for (ino, (stored, seen)) in links.into_iter().filter(|(_, (stored, seen))| stored != seen) {
            self.inode_change(ino, "i_links", stored.to_string(), seen.to_string());
            let mut i = self.again(ino)?;
            i.change(|r| r.i_links = seen.into());
            self.keep(i);
        }
        Ok(())
    }
}
