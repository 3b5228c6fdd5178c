//! The content of an entry: its name, its inode, and the inode's type.

use super::Repair;
use super::dir::Dir;
use super::entries::Entry;
use super::hashed::NewEntry;
use crate::format::raw::*;
use crate::offline::node::Kind;

impl Repair<'_, '_> {
    /// Repairs one entry; none if it is removed.
    pub(super) fn mend_entry(&mut self, dir: &mut Dir, mut e: Entry) -> Option<Entry> {
        let place = format!("directory {}, {:?}", dir.ino, String::from_utf8_lossy(&e.name));
        if e.name.is_empty() || e.name == b"." || e.name == b".." {
            self.tell("entry", place, "a name that is none", "removed");
            return None;
        }
        if self.is_unused_in_use(e.ino) {
            let (group, _) = self.place(e.ino);
            self.doubted.insert(group as u32);
            return Some(e);
        }
        let state = self.state(e.ino);
        let used = self.is_inode(e.ino) && self.used_inodes.get(e.ino.into());
        if !used || state.special || e.ino == ROOT_INO {
            let what = format!("names inode {}, which is free or the format's own", e.ino);
            self.tell("entry", place, what, "removed");
            return None;
        }
        if state.kind == Some(Kind::Dir) && (state.reached || e.ino == dir.ino) {
            self.tell("entry", place, format!("another name of directory {}", e.ino), "removed");
            return None;
        }
        if !dir.encrypted && e.name.iter().any(|b| matches!(b, 0 | b'/')) {
            e.name.iter_mut().filter(|b| matches!(**b, 0 | b'/')).for_each(|b| *b = b'.');
            self.tell(
                "entry",
                &place,
                "no name for a file",
                format!("{:?}", String::from_utf8_lossy(&e.name)),
            );
            // The entry may now belong elsewhere in the hash tree.
            dir.remake |= dir.hashed;
        }
        let kind = match state.kind {
            Some(kind) if self.has_types() => kind as u8,
            _ => 0,
        };
        if e.kind != kind {
            self.tell("entry", &place, format!("type {}", e.kind), kind);
            e.kind = kind;
        }
        match dir.names.get(&e.name) {
            Some(ino) if *ino == e.ino => {
                self.tell("entry", place, "a name that is there twice", "removed");
                return None;
            }
            Some(_) if dir.encrypted => {
                self.tell("entry", place, "a name that is there twice", "removed");
                return None;
            }
            Some(_) => {
                self.tell("entry", place, "a name that is there twice", "another name");
                self.count_name(dir, e.ino);
                let new = NewEntry { name: e.name, ino: e.ino, kind: e.kind };
                self.remake.entry(dir.ino).or_default().push(new);
                return None;
            }
            None => {}
        }
        self.count_name(dir, e.ino);
        dir.names.insert(e.name.clone(), e.ino);
        Some(e)
    }

    /// Whether an inode is in use that was never used by its group's descriptor: if a journal is lost,
    /// descriptors may be older than tables.
    fn is_unused_in_use(&mut self, ino: u32) -> bool {
        if !self.is_inode(ino) || self.used_inodes.get(ino.into()) {
            return false;
        }
        let (group, slot) = self.place(ino);
        let unused = self.descs[group].unused(self.sb.inodes_per_group);
        let looked_at = (slot as u32) < self.sb.inodes_per_group - unused;
        let Some(n) = (!looked_at).then(|| self.node(ino).ok()).flatten() else { return false };
        let (has, should) = n.checksums();
        let sealed = !self.sb.has_csum() || has == should;
        n.kind().is_some() && n.raw.i_links_count.get() > 0 && sealed
    }

    fn count_name(&mut self, dir: &mut Dir, ino: u32) {
        let state = self.state_mut(ino);
        state.names = state.names.saturating_add(1);
        if state.kind == Some(Kind::Dir) {
            state.reached = true;
            dir.below.push(ino);
            self.state_mut(dir.ino).subdirs += 1;
        }
    }
}
