//! The walk from the root to every inode, without recursion.

use super::dir::DirState;
use super::inode::{Inode, Kind};
use super::tree::FileState;
use super::{Checker, rules};
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use tidegate_vfs::Result;

/// Inodes visited in one batch, in order of their addresses, so that read-ahead helps.
const BATCH: usize = 4096;

/// A name found in a directory whose inode is not visited yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) ino: u32,
    pub(super) parent: u32,
    pub(super) file_type: u8,
}

/// The way the walk reached an inode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum From {
    Name(Pending),
    Root,
    /// A quota file: only the superblock names it.
    Quota,
    Orphan,
}

/// Links of an inode that has more than one, or should have.
pub(super) struct Links {
    stored: u32,
    seen: u32,
}

impl Checker<'_> {
    /// Visits the tree, the quota files and the orphans.
    pub(super) fn walk(&mut self) -> Result<()> {
        self.visit(self.sb.root_ino, From::Root)?;
        while !self.pending.is_empty() {
            let mut batch = self.pending.split_off(self.pending.len().saturating_sub(BATCH));
            batch.sort_unstable_by_key(|p| (self.nat.entry(p.ino).block_addr.get(), p.ino));
            for p in batch {
                self.visit(p.ino, From::Name(p))?;
            }
        }
        if self.sb.features.contains(Features::QUOTA_INO) {
            for ino in self.sb.raw.qf_ino.map(|i| i.get()) {
                if self.known_nid(ino) {
                    self.visit(ino, From::Quota)?;
                }
            }
        }
        self.walk_orphans()?;
        self.check_links()
    }

    fn walk_orphans(&mut self) -> Result<()> {
        let mut orphans = std::mem::take(&mut self.pack.orphans);
        orphans.sort_unstable();
        orphans.dedup();
        self.orphans = orphans.len() as u64;
        for ino in orphans {
            if self.reached.get(ino) {
                self.at(rules::ORPHAN_LINKED, ino, || "listed as an orphan, but in the tree".into())?;
            } else {
                self.visit(ino, From::Orphan)?;
            }
        }
        // A directory that was removed while open is empty; the inodes that its old entries name are not in
        // the tree.
        self.pending.clear();
        Ok(())
    }

    fn visit(&mut self, ino: u32, from: From) -> Result<()> {
        if !self.reached.set(ino) {
            return self.visit_again(ino, from);
        }
        let Some(block) = self.node(ino, ino, 0)? else { return Ok(()) };
        let Some(i) = self.inode(ino, block)? else { return Ok(()) };
        self.usage.inodes += 1;
        if from != From::Orphan {
            self.count(&i);
        }
        self.check_name(&i, from)?;
        self.check_inode(&i, from == From::Orphan)?;
        let dir = (i.kind == Kind::Directory).then(|| DirState::new(&i, parent_of(ino, from)));
        let mut f = FileState::new(&i, dir);
        self.walk_tree(&i, &mut f)?;
        if i.kind == Kind::Directory && i.has(inline::DENTRY) {
            self.inline_dentries(&i, &mut f)?;
        }
        self.check_xattrs(&i, &mut f)?;
        self.check_tree(&i, &f, from == From::Orphan)?;
        self.check_directory(&i, &mut f)
    }

    fn count(&mut self, i: &Inode) {
        match i.kind {
            Kind::Regular => self.files += 1,
            Kind::Directory => self.directories += 1,
            Kind::Symlink | Kind::Special => self.others += 1,
        }
    }

    /// Checks that name and inode agree, at the inode's first name.
    fn check_name(&mut self, i: &Inode, from: From) -> Result<()> {
        let From::Name(p) = from else { return Ok(()) };
        self.check_type(i.ino, p, i.file_type())?;
        let links = i.raw.i_links.get();
        if i.kind != Kind::Directory {
            if links != 1 {
                self.links.insert(i.ino, Links { stored: links, seen: 1 });
            }
        } else if i.raw.i_pino.get() != p.parent {
            let pino = i.raw.i_pino.get();
            self.at(rules::DIR_PARENT, i.ino, || format!("i_pino is {pino}, it is in inode {}", p.parent))?;
        }
        Ok(())
    }

    fn check_type(&mut self, ino: u32, p: Pending, is: u8) -> Result<()> {
        if is == p.file_type {
            return Ok(());
        }
        self.at(rules::DENTRY_TYPE, ino, || {
            format!("its entry in inode {} says file type {}, it is {is}", p.parent, p.file_type)
        })
    }

    /// Checks a further name of an inode: a hard link, or damage.
    fn visit_again(&mut self, ino: u32, from: From) -> Result<()> {
        let From::Name(p) = from else { return Ok(()) };
        let entry = self.nat.entry(ino);
        if entry.ino.get() != ino {
            return self.at(rules::DENTRY_INO, p.parent, || format!("node {ino} is not an inode"));
        }
        let addr = entry.block_addr.get();
        if !self.sb.in_main(BlockAddr(addr)) {
            return Ok(());
        }
        let block = self.dev.block(addr)?;
        let Some(i) = self.inode(ino, block)? else { return Ok(()) };
        self.check_type(ino, p, i.file_type())?;
        if i.kind == Kind::Directory {
            return self.at(rules::DIR_LINKED_TWICE, ino, || format!("also in inode {}", p.parent));
        }
        self.links.entry(ino).or_insert(Links { stored: 1, seen: 1 }).seen += 1;
        Ok(())
    }

    fn check_links(&mut self) -> Result<()> {
        let links = std::mem::take(&mut self.links);
        let mut wrong: Vec<_> = links.iter().filter(|(_, l)| l.stored != l.seen).collect();
        wrong.sort_unstable_by_key(|(ino, _)| **ino);
        for (&ino, l) in wrong {
            self.at(rules::LINK_COUNT, ino, || format!("i_links is {}, it has {} names", l.stored, l.seen))?;
        }
        Ok(())
    }
}

fn parent_of(ino: u32, from: From) -> Option<u32> {
    match from {
        From::Name(p) => Some(p.parent),
        From::Root => Some(ino),
        From::Quota | From::Orphan => None,
    }
}
