//! Group descriptors: each from where it makes sense, and the blocks that the format itself takes.

use super::Repair;
use super::disk::Disk;
use crate::format::gate::{GroupDesc, Superblock, group::desc_csum};
use crate::format::raw::*;
use crate::format::units::GroupNo;
use crate::offline::bits::Bits;
use crate::offline::node::Node;
use tidegate_vfs::{Error, Result};

/// A descriptor as it is believed.
pub(super) struct Desc {
    pub(super) desc: GroupDesc,
    /// The bytes that it came from; they are not what lies on the volume where it is a copy.
    pub(super) bytes: Vec<u8>,
    /// What it counts, and which tables are not there yet, can be believed, too.
    pub(super) trusted: bool,
}

/// All descriptors, and what was wrong with some.
pub(super) struct Descs {
    pub(super) all: Vec<Desc>,
    pub(super) from_copies: Vec<(u32, &'static str)>,
}

/// Loads the descriptors, each from the first place where it makes sense.
///
/// # Errors
/// `Corrupt` for a group whose tables cannot be found; those of the device.
pub(super) fn load(disk: &mut Disk<'_>, sb: &Superblock) -> Result<Descs> {
    let (size, per) = (sb.desc_size as usize, sb.descs_per_block());
    let (mut all, mut from_copies) = (Vec::new(), Vec::new());
    let mut tables = Bits::new(sb.blocks);
    for g in 0..sb.groups {
        let (number, at) = (u64::from(g / per), (g % per) as usize * size);
        let first = disk.block(sb.desc_block(number).0)?[at..at + size].to_vec();
        if let Ok(desc) = GroupDesc::parse(sb, GroupNo(g), &first)
            && sb.has_group_csum()
        {
            take(sb, &desc, &mut tables);
            all.push(Desc { desc, bytes: first, trusted: true });
            continue;
        }
        let mut candidates = vec![(first, "its checksum or counts are wrong")];
        for block in copies(sb, number) {
            candidates.push((disk.block(block)?[at..at + size].to_vec(), "it is damaged"));
        }
        // Places that two agree on come before those of one.
        let agreed = |bytes: &[u8]| candidates.iter().filter(|c| same_places(&c.0, bytes)).count();
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        let alone = |n: usize| n == 0 && agreed(&candidates[n].0) == 1;
        order.sort_by_key(|n| (usize::MAX - agreed(&candidates[*n].0), alone(*n)));
        let mut found = None;
        for n in order {
            let (bytes, why) = &candidates[n];
            if let Some(desc) = believed(sb, g, bytes)
                && is_free(sb, &desc, &tables)
                && (g > 0 || has_root(disk, sb, &desc)?)
            {
                let stored = if n == 0 { GroupDesc::parse(sb, GroupNo(g), bytes).ok() } else { None };
                let sound = stored.is_some();
                found = Some((stored.unwrap_or(desc), bytes.clone(), sound, *why));
                break;
            }
        }
        let Some((desc, bytes, sound, why)) = found else {
            let what = "where its tables are cannot be told, and no copy of its descriptor helps: nothing was changed";
            return Err(Error::corrupt(what).at(GroupNo(g).place()));
        };
        take(sb, &desc, &mut tables);
        if !sound {
            from_copies.push((g, why));
        }
        all.push(Desc { desc, bytes, trusted: false });
    }
    Ok(Descs { all, from_copies })
}

/// Other blocks with the descriptors of block `number`.
fn copies(sb: &Superblock, number: u64) -> Vec<u64> {
    let meta = sb.incompat.contains(Incompat::META_BG) && number >= sb.raw.s_first_meta_bg.get().into();
    if meta {
        let per = sb.descs_per_block();
        let first = number as u32 * per;
        let others = [1, per - 1].map(|n| GroupNo(first + n));
        let others = others.into_iter().filter(|g| g.0 < sb.groups);
        return others.map(|g| sb.group_start(g).0 + u64::from(sb.has_super(g))).collect();
    }
    let has = (1..sb.groups).map(GroupNo).filter(|g| sb.has_super(*g)).take(3);
    has.map(|g| sb.group_start(g).0 + 1 + number).filter(|b| *b < sb.blocks).collect()
}

/// Whether two descriptors name the same places.
fn same_places(a: &[u8], b: &[u8]) -> bool {
    a[..12] == b[..12] && a.get(32..44) == b.get(32..44)
}

/// A descriptor whose places lie on the volume, whatever else is wrong with it.
fn believed(sb: &Superblock, g: u32, bytes: &[u8]) -> Option<GroupDesc> {
    let mut bytes = bytes.to_vec();
    // Counts: they are made anew.
    bytes[12..18].fill(0);
    bytes[28..30].fill(0);
    if bytes.len() >= DESC_SIZE_64 {
        bytes[44..52].fill(0);
    }
    let csum = desc_csum(sb, GroupNo(g), &bytes);
    bytes[DESC_CSUM_OFFSET..DESC_CSUM_OFFSET + 2].copy_from_slice(&csum.to_le_bytes());
    let mut desc = GroupDesc::parse(sb, GroupNo(g), &bytes).ok()?;
    desc.flags = GroupFlags::empty();
    let all = [(desc.block_bitmap.0, 1), (desc.inode_bitmap.0, 1), (desc.inode_table.0, sb.itable_blocks())];
    let inside = |(first, n): (u64, u64)| {
        let start = sb.group_start(GroupNo(g)).0;
        let end = start + u64::from(sb.blocks_per_group);
        sb.incompat.contains(Incompat::FLEX_BG) || (first >= start && first + n <= end)
    };
    all.into_iter().all(inside).then_some(desc)
}

fn ranges(sb: &Superblock, desc: &GroupDesc) -> [(u64, u64); 3] {
    [(desc.block_bitmap.0, 1), (desc.inode_bitmap.0, 1), (desc.inode_table.0, sb.itable_blocks())]
}

/// Whether its tables are apart, and nobody else's.
fn is_free(sb: &Superblock, desc: &GroupDesc, tables: &Bits) -> bool {
    let r = ranges(sb, desc);
    let apart = |a: (u64, u64), b: (u64, u64)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
    let own = apart(r[0], r[1]) && apart(r[0], r[2]) && apart(r[1], r[2]);
    let in_copies = |block: u64| {
        let g = ((block - sb.first_data_block.0) / u64::from(sb.blocks_per_group)) as u32;
        block < sb.group_start(GroupNo(g)).0 + sb.copies_in(GroupNo(g))
    };
    own && r.iter().all(|(first, n)| (*first..first + n).all(|b| !tables.get(b) && !in_copies(b)))
}

fn take(sb: &Superblock, desc: &GroupDesc, tables: &mut Bits) {
    for (first, n) in ranges(sb, desc) {
        (first..first + n).for_each(|b| {
            tables.set(b);
        });
    }
}

/// Whether the first inodes of group 0 look like inodes: the root is a directory, or most have good checksums.
fn has_root(disk: &mut Disk<'_>, sb: &Superblock, desc: &GroupDesc) -> Result<bool> {
    let (size, bs) = (sb.inode_size as usize, sb.block_size as usize);
    let (mut good, mut root) = (0, false);
    for ino in 1..sb.first_ino.min(sb.inodes_per_group) {
        let at = (ino as usize - 1) * size;
        let block = disk.block(desc.inode_table.0 + (at / bs) as u64)?;
        let n = Node::parse(sb, ino, &block[at % bs..at % bs + size]);
        let (has, should) = n.checksums();
        good += u32::from(sb.has_csum() && has == should);
        let dir = n.raw.i_mode.get() & 0o170_000 == 0o040_000 && n.raw.i_links_count.get() >= 2;
        root |= ino == ROOT_INO && dir;
    }
    Ok(root || good > 4)
}

impl Repair<'_, '_> {
    /// Claims superblocks, descriptors, bitmaps and inode tables.
    pub(super) fn claim_metadata(&mut self) {
        if self.sb.block_size == 1024 {
            // The block before the first group is nobody's.
            self.claim(0);
        }
        for g in 0..self.sb.groups {
            let start = self.sb.group_start(GroupNo(g)).0;
            self.claim_meta(start, self.sb.copies_in(GroupNo(g)));
            for (first, n) in ranges(&self.sb, &self.descs[g as usize].desc) {
                self.claim_meta(first, n);
            }
        }
        if self.sb.incompat.contains(Incompat::MMP) {
            self.claim_meta(self.sb.raw.s_mmp_block.get(), 1);
        }
    }

    fn claim_meta(&mut self, start: u64, n: u64) {
        for block in start..start.saturating_add(n).min(self.sb.blocks) {
            self.meta.set(block);
            self.claim(block);
        }
    }
}
