//! Blocks with two owners: one keeps the block, the others get copies.

use super::Repair;
use super::map::Run;
use crate::format::raw::*;
use crate::offline::node::Kind;
use std::collections::BTreeSet;
use tidegate_vfs::{ErrorKind, Result};

impl Repair<'_, '_> {
    /// Gives each further owner of a shared block a block of its own, and rebuilds the maps for which that is
    /// necessary.
    pub(super) fn mend_shared(&mut self) -> Result<()> {
        let mut owners = self.owners()?;
        owners.sort_unstable();
        // Tables, maps and attributes stay where they are.
        let fixed =
            |b: &&u64| self.meta.get(**b) || self.map_blocks.get(**b) || self.attributes.contains_key(b);
        let mut owned: BTreeSet<u64> = self.shared.iter().filter(fixed).copied().collect();
        for (_, ino) in owners {
            let mut n = self.node(ino)?;
            let (runs, anew) = match self.rebuild.remove(&ino) {
                Some(runs) => (runs, true),
                None => (self.map(&n, false)?.runs, false),
            };
            let (apart, copied, lost) = self.part(&runs, &mut owned)?;
            if copied + lost > 0 {
                let place = format!("inode {ino}");
                self.tell(
                    "block",
                    &place,
                    format!("{} blocks have another owner", copied + lost),
                    format!("{copied} copied"),
                );
                if lost > 0 {
                    let what = format!("{place}: no room for copies of {lost} blocks, which are another's");
                    self.notes.push(what);
                }
            }
            if copied + lost > 0 || anew {
                let runs = if n.kind() == Some(Kind::Dir) { packed(apart) } else { apart };
                if n.kind() == Some(Kind::Dir) {
                    let end = runs.last().map_or(0, Run::end);
                    super::fields::set_size(&mut n, end * u64::from(self.sb.block_size));
                }
                self.build_map(&mut n, &runs)?;
                self.state_mut(ino).mended = true;
            }
        }
        Ok(())
    }

    /// Inodes that a shared block belongs to, and inodes whose maps are rebuilt; the inode with the best
    /// claim comes first.
    fn owners(&mut self) -> Result<Vec<(u8, u32)>> {
        let mut owners = Vec::new();
        for g in 0..self.states.len() {
            for slot in 0..self.states[g].len() {
                let ino = g as u32 * self.sb.inodes_per_group + slot as u32 + 1;
                if !self.used_inodes.get(ino.into()) || ino == RESIZE_INO {
                    continue;
                }
                if self.rebuild.contains_key(&ino) || self.shares(ino)? {
                    let s = self.states[g][slot];
                    let files = u8::from(s.kind != Some(Kind::Dir));
                    owners.push((if s.special { 0 } else { 1 + files + 2 * u8::from(s.mended) }, ino));
                }
            }
        }
        Ok(owners)
    }

    fn shares(&mut self, ino: u32) -> Result<bool> {
        if self.shared.is_empty() {
            return Ok(false);
        }
        let n = self.node(ino)?;
        if !n.is_mapped() {
            return Ok(false);
        }
        let map = self.map(&n, false)?;
        let within = |r: &Run| self.shared.range(r.start..r.start + r.len).next().is_some();
        Ok(map.runs.iter().any(within))
    }

    /// Runs without the blocks of other owners; returns the number of blocks copied, and the number of blocks
    /// for which there was no room.
    fn part(&mut self, runs: &[Run], owned: &mut BTreeSet<u64>) -> Result<(Vec<Run>, u64, u64)> {
        let (mut out, mut copied, mut lost) = (Vec::new(), 0, 0);
        for run in runs {
            let end = run.start + run.len;
            let shared: Vec<u64> = self.shared.range(run.start..end).copied().collect();
            let piece = |first: u64, last: u64| Run {
                at: run.at + first - run.start,
                start: first,
                len: last - first,
                unwritten: run.unwritten,
            };
            let mut from = run.start;
            for block in shared {
                if owned.insert(block) {
                    continue;
                }
                out.push(piece(from, block));
                from = block + 1;
                match self.alloc_block() {
                    Ok(new) => {
                        self.disk.copy(block, new)?;
                        copied += 1;
                        out.push(Run { start: new, ..piece(block, block + 1) });
                    }
                    Err(e) if e.kind() == ErrorKind::NoSpace => lost += 1,
                    Err(e) => return Err(e),
                }
            }
            out.push(piece(from, end));
        }
        out.retain(|r| r.len > 0);
        Ok((out, copied, lost))
    }
}

/// Runs of a directory, whose blocks must follow one another.
fn packed(runs: Vec<Run>) -> Vec<Run> {
    let mut next = 0;
    let place = |r: Run| {
        let placed = Run { at: next, ..r };
        next += r.len;
        placed
    };
    runs.into_iter().map(place).collect()
}
