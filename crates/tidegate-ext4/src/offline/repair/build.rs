//! Builds a new map for given blocks. Its own blocks are new; the inode takes them into use.

use super::Repair;
use super::disk::Stage;
use super::map::Run;
use crate::format::crc::crc32c;
use crate::format::raw::*;
use crate::offline::node::Node;
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;

/// Words of the inode that name blocks of data.
const DIRECT: u64 = 12;

impl Repair<'_, '_> {
    /// Gives an inode a map that leads to `runs`, which are in order, and counts its blocks. The inode is stored.
    ///
    /// # Errors
    /// `NoSpace`; those of the device.
    pub(super) fn build_map(&mut self, n: &mut Node, runs: &[Run]) -> Result<()> {
        let own = match n.has(InodeFlags::EXTENTS) {
            true => self.build_extents(n, &pieces(runs))?,
            false => self.build_numbers(n, runs)?,
        };
        let data: u64 = runs.iter().map(|r| r.len).sum();
        let blocks = data + own + u64::from(n.acl_block() != 0);
        self.mend_block_count(n, blocks, false);
        self.store(n)
    }

    /// Builds the extent tree; returns the number of blocks that it takes besides the inode.
    fn build_extents(&mut self, n: &mut Node, runs: &[Run]) -> Result<u64> {
        let mut level: Vec<(u64, Vec<u8>)> = runs.iter().map(|r| (r.at, extent(r))).collect();
        let (mut depth, mut own) = (0, 0);
        let room = (self.sb.block_size as usize - EXTENT_ENTRY) / EXTENT_ENTRY;
        let in_inode = I_BLOCK_SIZE / EXTENT_ENTRY - 1;
        while level.len() > in_inode {
            let mut above = Vec::new();
            for part in level.chunks(room) {
                let block = self.alloc_block()?;
                let mut bytes = vec![0; self.sb.block_size as usize];
                put_node(&mut bytes, part, room, depth);
                self.seal(n.seed, &mut bytes);
                self.disk.put(block, Stage::Fresh, bytes)?;
                above.push((part[0].0, index(part[0].0, block)));
                own += 1;
            }
            level = above;
            depth += 1;
        }
        n.raw.i_block.fill(0);
        put_node(&mut n.raw.i_block, &level, in_inode, depth);
        Ok(own)
    }

    /// Sets the checksum of a block of extents.
    fn seal(&self, seed: u32, bytes: &mut [u8]) {
        let tail = RawExtentTail::offset(bytes);
        if self.sb.has_csum() && tail <= bytes.len() {
            let sum = crc32c(seed, &bytes[..tail]);
            if let Some(sealed) = at_mut::<RawExtentTail>(bytes, tail) {
                sealed.et_checksum = sum.into();
            }
        }
    }

    /// Corrects the checksum of a block of extents.
    pub(super) fn seal_extents(&mut self, n: &Node, block: u64) -> Result<()> {
        let mut bytes = self.disk.block(block)?;
        self.seal(n.seed, &mut bytes);
        self.tell("map", format!("inode {}, block {block} of its extents", n.ino), "checksum wrong", "right");
        self.disk.put(block, Stage::InPlace, bytes)
    }

    /// Builds the blocks of numbers; returns how many there are.
    fn build_numbers(&mut self, n: &mut Node, runs: &[Run]) -> Result<u64> {
        n.raw.i_block.fill(0);
        for at in 0..DIRECT {
            if let Some(to) = find(runs, at) {
                put_word(&mut n.raw.i_block, at as usize, to)?;
            }
        }
        let per = u64::from(self.sb.block_size / 4);
        let (mut first, mut span, mut own) = (DIRECT, per, 0);
        for level in 1..=3 {
            if let Some(block) = self.build_table(runs, first, span, &mut own)? {
                put_word(&mut n.raw.i_block, 11 + level, block)?;
            }
            first += span;
            span *= per;
        }
        Ok(own)
    }

    /// Builds a block of numbers for `span` blocks of the file from `first` on; none if the file has no block
    /// there.
    fn build_table(&mut self, runs: &[Run], first: u64, span: u64, own: &mut u64) -> Result<Option<u64>> {
        let from = runs.partition_point(|r| r.end() <= first);
        let here = &runs[from..runs.partition_point(|r| r.at < first + span)];
        if here.is_empty() {
            return Ok(None);
        }
        let per = u64::from(self.sb.block_size / 4);
        let block = self.alloc_block()?;
        *own += 1;
        let mut bytes = vec![0; self.sb.block_size as usize];
        for word in 0..per {
            let each = span / per;
            let to = match each {
                1 => find(here, first + word),
                _ => self.build_table(here, first + word * each, each, own)?,
            };
            if let Some(to) = to {
                put_word(&mut bytes, word as usize, to)?;
            }
        }
        self.disk.put(block, Stage::Fresh, bytes)?;
        Ok(Some(block))
    }
}

/// Runs joined where they touch, and cut to what an extent holds.
fn pieces(runs: &[Run]) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::new();
    for run in runs {
        let most = u64::from(INIT_MAX_LEN) - u64::from(run.unwritten);
        let mut rest = *run;
        if let Some(last) = out.last_mut()
            && last.end() == rest.at
            && last.start + last.len == rest.start
            && last.unwritten == rest.unwritten
        {
            let more = (most - last.len).min(rest.len);
            last.len += more;
            rest = Run { at: rest.at + more, start: rest.start + more, len: rest.len - more, ..rest };
        }
        while rest.len > 0 {
            let len = rest.len.min(most);
            out.push(Run { len, ..rest });
            rest = Run { at: rest.at + len, start: rest.start + len, len: rest.len - len, ..rest };
        }
    }
    out
}

fn find(runs: &[Run], at: u64) -> Option<u64> {
    let run = runs.get(runs.partition_point(|r| r.end() <= at))?;
    (run.at <= at).then(|| run.start + at - run.at)
}

fn put_word(bytes: &mut [u8], word: usize, to: u64) -> Result<()> {
    let to = u32::try_from(to)
        .map_err(|_| Error::new(ErrorKind::NoSpace, "no block that a map of numbers can name is free"))?;
    bytes[word * 4..word * 4 + 4].copy_from_slice(&to.to_le_bytes());
    Ok(())
}

fn extent(run: &Run) -> Vec<u8> {
    let entry = RawExtent {
        ee_block: (run.at as u32).into(),
        ee_len: (run.len as u16 + if run.unwritten { INIT_MAX_LEN } else { 0 }).into(),
        ee_start_hi: ((run.start >> 32) as u16).into(),
        ee_start_lo: (run.start as u32).into(),
    };
    entry.as_bytes().to_vec()
}

fn index(at: u64, block: u64) -> Vec<u8> {
    let entry = RawExtentIndex {
        ei_block: (at as u32).into(),
        ei_leaf_lo: (block as u32).into(),
        ei_leaf_hi: ((block >> 32) as u16).into(),
        ei_unused: 0.into(),
    };
    entry.as_bytes().to_vec()
}

fn put_node(bytes: &mut [u8], entries: &[(u64, Vec<u8>)], room: usize, depth: u16) {
    let header = RawExtentHeader {
        eh_magic: EXTENT_MAGIC.into(),
        eh_entries: (entries.len() as u16).into(),
        eh_max: (room as u16).into(),
        eh_depth: depth.into(),
        eh_generation: 0.into(),
    };
    bytes[..EXTENT_ENTRY].copy_from_slice(header.as_bytes());
    for ((_, entry), to) in entries.iter().zip(bytes[EXTENT_ENTRY..].chunks_exact_mut(EXTENT_ENTRY)) {
        to.copy_from_slice(entry);
    }
}
