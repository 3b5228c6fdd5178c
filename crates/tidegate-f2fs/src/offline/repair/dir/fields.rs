//! The parts that every directory must have: ".", "..", and fields that agree with its entries.

use super::{Dir, Entry, Repair, Where, slots_of};
use crate::format::raw::*;
use tidegate_vfs::Result;

impl Repair<'_, '_> {
    /// Puts "." and ".." where they are missing.
    pub(super) fn mend_dots(&mut self, d: &mut Dir) -> Result<()> {
        if d.no_dots || d.dots == [true; 2] {
            return Ok(());
        }
        let Some(n) = d.blocks.iter().position(|b| b.index == 0) else {
            self.no_first_block.push((d.ino, d.parent));
            return Ok(());
        };
        for which in 0..2 {
            if d.dots[which] {
                continue;
            }
            let b = self.disk.block(d.blocks[n].addr)?;
            // The other of the two may be in this one's slot.
            let slot = [which, 1 - which].into_iter().find(|s| !d.layout.marked(&b[..], *s)).unwrap_or(which);
            self.make_room(d, n, slot)?;
            let (name, ino) = ([&b"."[..], b".."][which], [d.ino, d.parent][which]);
            self.entry_change(d, name, "missing".into(), &format!("inode {ino}"));
            self.edit(d, n, |l, b| l.add(b, slot, name, ino, file_type::DIR))?;
        }
        Ok(())
    }

    /// Moves the entry in `slot` of a block to another slot.
    fn make_room(&mut self, d: &mut Dir, n: usize, slot: usize) -> Result<()> {
        let takes = |e: &&mut Entry| match e.at {
            Where::Slot { block, slot: s } => block == n && (s..s + slots_of(e.len as usize)).contains(&slot),
            _ => false,
        };
        let Some(e) = d.entries.iter_mut().find(takes) else { return Ok(()) };
        let Where::Slot { slot: first, .. } = e.at else { return Ok(()) };
        let len = e.len as usize;
        e.at = Where::Moved(d.moved.len());
        let b = self.disk.block(d.blocks[n].addr)?;
        d.moved.push(d.layout.name(&b[..], first, len).to_vec());
        self.edit(d, n, |l, b| l.mark(b, first..first + slots_of(len), false))
    }

    pub(super) fn mend_dir_fields(&mut self, d: &Dir) -> Result<()> {
        let mut i = self.again(d.ino)?;
        let depth = i.raw().i_current_depth.get();
        let right_depth = if depth > MAX_DIR_HASH_DEPTH + 1 { d.levels.max(1) } else { depth.max(d.levels) };
        let pino = if d.ino == self.sb.root_ino || d.parent == 0 { i.raw().i_pino.get() } else { d.parent };
        let raw = i.raw_mut();
        let fields = [
            ("i_links", &mut raw.i_links, 2 + d.subdirs),
            ("i_current_depth", &mut raw.i_current_depth, right_depth),
            ("i_pino", &mut raw.i_pino, pino),
        ];
        let mut changed = false;
        for (name, field, want) in fields {
            if field.get() != want {
                self.inode_change(d.ino, name, field.to_string(), want.to_string());
                *field = want.into();
                changed = true;
            }
        }
        i.dirty |= changed;
        self.keep(i);
        Ok(())
    }
}
