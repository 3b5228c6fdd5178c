//! Group descriptors, each from a place where it makes sense, and the blocks of the format's own tables.

use super::Repair;
use super::disk::{Disk, Stage};
use crate::format::gate::{GroupDesc, Superblock, group::desc_csum};
use crate::format::raw::*;
use crate::format::units::{BlockAddr, GroupNo};
use crate::offline::bits::Bits;
use crate::offline::node::{Kind, Node};
use tidegate_vfs::{Error, Result};

/// Blocks of the first group in which its inode table is searched for.
const SEARCHED: u64 = 4096;

/// Inodes of a table that are examined to decide whether it is one.
const LOOKED_AT: u32 = 512;

/// A descriptor that the repair trusts.
pub(super) struct Desc {
    pub(super) desc: GroupDesc,
    /// The bytes that it came from; they differ from the volume's if it came from a copy.
    pub(super) bytes: Vec<u8>,
    /// Its counts, and its flags of uninitialised tables, can be trusted, too.
    pub(super) trusted: bool,
}

impl Desc {
    /// Inodes at the end of its table, of `per`, that were never used.
    pub(super) fn unused(&self, per: u32) -> u32 {
        match self.trusted {
            true if self.desc.flags.contains(GroupFlags::INODE_UNINIT) => per,
            true => self.desc.itable_unused,
            false => 0,
        }
    }
}

/// All descriptors, and the faults of some.
pub(super) struct Descs {
    pub(super) all: Vec<Desc>,
    pub(super) from_copies: Vec<(u32, &'static str)>,
}

/// Loads each descriptor from the first place where it makes sense.
///
/// # Errors
/// `Corrupt` for a group whose tables cannot be found; those of the device.
pub(super) fn load(disk: &mut Disk<'_>, sb: &Superblock) -> Result<Descs> {
    let (size, per) = (sb.desc_size as usize, sb.descs_per_block());
    let (mut all, mut from_copies) = (Vec::new(), Vec::new());
    let mut tables = Bits::new(sb.blocks);
    for g in 0..sb.groups {
        let (number, at) = (u64::from(g / per), (g % per) as usize * size);
        let first = match disk.block(sb.desc_block(number).0) {
            Ok(block) => block[at..at + size].to_vec(),
            // A block that cannot be read counts as damaged.
            Err(_) => vec![0; size],
        };
        if let Ok(desc) = GroupDesc::parse(sb, GroupNo(g), &first)
            && sb.has_group_csum()
            && is_free(sb, &desc, &tables)
        {
            take(sb, &desc, &mut tables);
            let mut desc = Desc { desc, bytes: first, trusted: true };
            // The root, the journal and other reserved inodes are in the first group: its tables are in use.
            desc.trusted =
                g > 0 || desc.unused(sb.inodes_per_group) + sb.first_ino <= sb.inodes_per_group + 1;
            all.push(desc);
            continue;
        }
        let mut candidates = vec![(first, "its checksum, counts or places are wrong")];
        for block in copies(sb, number).into_iter().take(ASKED) {
            let Ok(block) = disk.block(block) else { continue };
            candidates.push((block[at..at + size].to_vec(), "it is damaged"));
        }
        let mut found = None;
        for n in by_likelihood(disk, sb, g, &candidates) {
            let (bytes, why) = &candidates[n];
            if let Some(desc) = believed(sb, g, bytes)
                && is_free(sb, &desc, &tables)
                && (g > 0 || has_inodes(disk, sb, 0, desc.inode_table.0)?)
            {
                let stored = if n == 0 { GroupDesc::parse(sb, GroupNo(g), bytes).ok() } else { None };
                let sound = stored.is_some();
                found = Some((stored.unwrap_or(desc), bytes.clone(), sound, *why));
                break;
            }
        }
        if found.is_none() {
            let bytes: Vec<Vec<u8>> = candidates.into_iter().map(|c| c.0).collect();
            let found_apart = find_apart(disk, sb, g, &bytes, &all, &tables)?;
            found = found_apart.map(|(desc, bytes)| (desc, bytes, false, "its tables are not where it says"));
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

/// The candidates in the order of their credibility: places that two copies agree on come before those of
/// one, and among these the ones with fewer contradictions.
fn by_likelihood(
    disk: &mut Disk<'_>,
    sb: &Superblock,
    g: u32,
    candidates: &[(Vec<u8>, &'static str)],
) -> Vec<usize> {
    let agreed = |bytes: &[u8]| candidates.iter().filter(|c| same_places(&c.0, bytes)).count();
    let mut order: Vec<(usize, u32, usize)> = Vec::new();
    for (n, (bytes, _)) in candidates.iter().enumerate() {
        let most = agreed(bytes);
        let odd = if most == candidates.len() { 0 } else { at_odds(disk, sb, g, bytes) };
        order.push((usize::MAX - most, odd, n));
    }
    order.sort_unstable();
    order.into_iter().map(|o| o.2).collect()
}

/// The number of inodes, in the table that a descriptor leads to, that are in use though its bitmap says they
/// are free, or the other way round. A descriptor with wrong places takes other blocks for these.
fn at_odds(disk: &mut Disk<'_>, sb: &Superblock, g: u32, bytes: &[u8]) -> u32 {
    let Some(desc) = believed(sb, g, bytes) else { return u32::MAX };
    let Ok(bitmap) = disk.block(desc.inode_bitmap.0) else { return u32::MAX };
    let (size, bs) = (sb.inode_size as usize, sb.block_size as usize);
    let mut odd = 0;
    for slot in 0..sb.inodes_per_group.min(LOOKED_AT) {
        let at = slot as usize * size;
        let Ok(block) = disk.block(desc.inode_table.0 + (at / bs) as u64) else { return u32::MAX };
        let n = Node::parse(sb, g * sb.inodes_per_group + slot + 1, &block[at % bs..at % bs + size]);
        let marked = bitmap[slot as usize / 8] >> (slot % 8) & 1 == 1;
        odd += u32::from(n.ino >= sb.first_ino && marked != (n.raw.i_links_count.get() > 0));
    }
    odd
}

/// Copies of a block of descriptors that are consulted.
const ASKED: usize = 3;

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
    let has = (1..sb.groups).map(GroupNo).filter(|g| sb.has_super(*g));
    has.map(|g| sb.group_start(g).0 + 1 + number).filter(|b| *b < sb.blocks).collect()
}

/// Whether block `at` leads to the tables of `first`, the descriptors of block `number`. A block that cannot
/// be read must be rewritten.
fn is_copy(disk: &mut Disk<'_>, sb: &Superblock, number: u64, first: &[u8], at: u64) -> bool {
    let (size, per) = (sb.desc_size as usize, sb.descs_per_block());
    let last = sb.groups - number as u32 * per;
    let copy = disk.block(at).unwrap_or_default();
    let mut pairs = first[..last.min(per) as usize * size].chunks(size).zip(copy.chunks(size));
    copy.len() == first.len() && pairs.all(|(a, b)| same_places(a, b))
}

/// Whether a copy of descriptors is useless.
///
/// # Errors
/// Those of the device for the first ones.
pub(super) fn has_bad_copy(disk: &mut Disk<'_>, sb: &Superblock) -> Result<bool> {
    for number in 0..sb.desc_blocks() {
        let first = disk.block(sb.desc_block(number).0)?;
        if copies(sb, number).into_iter().any(|at| !is_copy(disk, sb, number, &first, at)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether two descriptors name equal places.
fn same_places(a: &[u8], b: &[u8]) -> bool {
    a[..12] == b[..12] && a.get(32..44) == b.get(32..44)
}

/// A descriptor whose places lie on the volume, whatever else is wrong with it.
fn believed(sb: &Superblock, g: u32, bytes: &[u8]) -> Option<GroupDesc> {
    let mut bytes = bytes.to_vec();
    // These are counts, which are computed anew.
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

/// Its tables; a table without a place has no blocks.
fn ranges(sb: &Superblock, desc: &GroupDesc) -> [(u64, u64); 3] {
    let bitmap = |b: BlockAddr| (b.0, u64::from(b.0 != 0));
    [bitmap(desc.block_bitmap), bitmap(desc.inode_bitmap), (desc.inode_table.0, sb.itable_blocks())]
}

/// Whether its tables do not overlap each other or other tables.
fn is_free(sb: &Superblock, desc: &GroupDesc, tables: &Bits) -> bool {
    let r = ranges(sb, desc);
    let apart = |a: (u64, u64), b: (u64, u64)| a.0 + a.1 <= b.0 || b.0 + b.1 <= a.0;
    let own = apart(r[0], r[1]) && apart(r[0], r[2]) && apart(r[1], r[2]);
    own && r.iter().all(|(first, n)| (*first..first + n).all(|b| !tables.get(b) && !in_copies(sb, b)))
}

fn take(sb: &Superblock, desc: &GroupDesc, tables: &mut Bits) {
    for (first, n) in ranges(sb, desc) {
        (first..first + n).for_each(|b| {
            tables.set(b);
        });
    }
}

/// A descriptor from places that each make sense by themselves: the inode table where some place leads to
/// one, and bitmaps where the descriptor says, or block 0, which means anywhere with room later.
fn find_apart(
    disk: &mut Disk<'_>,
    sb: &Superblock,
    g: u32,
    candidates: &[Vec<u8>],
    before: &[Desc],
    tables: &Bits,
) -> Result<Option<(GroupDesc, Vec<u8>)>> {
    let start = sb.group_start(GroupNo(g)).0;
    let first = start + sb.copies_in(GroupNo(g));
    let wide = sb.incompat.contains(Incompat::BIT64);
    let place = |bytes: &[u8], at: usize| {
        let high = if wide { u64::from(le32(bytes, 32 + at)) << 32 } else { 0 };
        u64::from(le32(bytes, at)) | high
    };
    let mut tried: Vec<u64> = candidates.iter().map(|c| place(c, 8)).collect();
    tried.extend(before.last().map(|d| d.desc.inode_table.0 + sb.itable_blocks()));
    // mke2fs places inode tables behind the bitmaps of the group, or of sixteen groups.
    tried.extend([first + 2, first + 32]);
    if g == 0 {
        tried.extend(first..(first + SEARCHED).min(start + u64::from(sb.blocks_per_group)));
    }
    for table in tried {
        let range = [(table, sb.itable_blocks())];
        if !may_be(sb, g, &range, tables) || !has_inodes(disk, sb, g, table)? {
            continue;
        }
        let own = |b: u64| (table..table + sb.itable_blocks()).contains(&b);
        let bitmap = |at: usize| {
            let named = candidates.iter().map(|c| place(c, at));
            named.into_iter().find(|b| may_be(sb, g, &[(*b, 1)], tables) && !own(*b)).unwrap_or(0)
        };
        let (blocks, inodes) = (bitmap(0), bitmap(4));
        let inodes = if inodes == blocks { 0 } else { inodes };
        let mut bytes = vec![0; sb.desc_size as usize];
        for (at, block) in [(0, table), (4, table), (8, table)] {
            bytes[at..at + 4].copy_from_slice(&(block as u32).to_le_bytes());
            if wide {
                bytes[32 + at..36 + at].copy_from_slice(&((block >> 32) as u32).to_le_bytes());
            }
        }
        let csum = desc_csum(sb, GroupNo(g), &bytes);
        bytes[DESC_CSUM_OFFSET..DESC_CSUM_OFFSET + 2].copy_from_slice(&csum.to_le_bytes());
        let Ok(mut desc) = GroupDesc::parse(sb, GroupNo(g), &bytes) else { continue };
        (desc.block_bitmap, desc.inode_bitmap) = (BlockAddr(blocks), BlockAddr(inodes));
        return Ok(Some((desc, bytes)));
    }
    Ok(None)
}

/// Whether blocks may be tables of group `g`: on the volume, without another owner, and in the group if they
/// have to be.
fn may_be(sb: &Superblock, g: u32, ranges: &[(u64, u64)], tables: &Bits) -> bool {
    let start = sb.group_start(GroupNo(g)).0;
    let end = start + u64::from(sb.blocks_per_group);
    ranges.iter().all(|(first, n)| {
        let inside = sb.incompat.contains(Incompat::FLEX_BG) || (*first >= start && first + n <= end);
        let free = |b: u64| !tables.get(b) && !in_copies(sb, b);
        sb.holds(BlockAddr(*first), *n) && inside && (*first..first + n).all(free)
    })
}

/// Whether a block belongs to a copy of the superblock and descriptors.
fn in_copies(sb: &Superblock, block: u64) -> bool {
    let g = GroupNo(((block - sb.first_data_block.0) / u64::from(sb.blocks_per_group)) as u32);
    block < sb.group_start(g).0 + sb.copies_in(g)
}

/// Whether the inode table of group `g` begins at `table`: directories in it have "." entries with their
/// numbers, or several checksums, which cover the numbers, are right.
fn has_inodes(disk: &mut Disk<'_>, sb: &Superblock, g: u32, table: u64) -> Result<bool> {
    let (size, bs) = (sb.inode_size as usize, sb.block_size as usize);
    let mut good = 0;
    for slot in 0..sb.inodes_per_group.min(LOOKED_AT) {
        let at = slot as usize * size;
        let block = disk.block(table + (at / bs) as u64)?;
        let n = Node::parse(sb, g * sb.inodes_per_group + slot + 1, &block[at % bs..at % bs + size]);
        let (has, should) = n.checksums();
        good += u32::from(sb.has_csum() && has == should);
        if good > 4 || names_itself(disk, sb, &n)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether an inode is a directory that begins with "." and its number.
fn names_itself(disk: &mut Disk<'_>, sb: &Superblock, n: &Node) -> Result<bool> {
    let block = match n.has(InodeFlags::EXTENTS) {
        true => u64::from(n.word(5)) | u64::from(n.word(4) >> 16) << 32,
        false => n.word(0).into(),
    };
    if n.kind() != Some(Kind::Dir) || !sb.holds(BlockAddr(block), 1) {
        return Ok(false);
    }
    let bytes = disk.block(block)?;
    let dot = read_at::<RawDirEntry>(&bytes, 0);
    let is_dot = dot.is_some_and(|e| e.inode.get() == n.ino && e.stride() == DOT_LEN);
    Ok(is_dot && bytes[DIRENT_HEAD..].starts_with(b".\0"))
}

impl Repair<'_, '_> {
    /// Makes copies of descriptors that lead to other tables than the first ones copies of the first. Counts
    /// and flags differ on every volume: kernels update only those of the first.
    pub(super) fn mend_desc_copies(&mut self) -> Result<()> {
        for number in 0..self.sb.desc_blocks() {
            let first = self.disk.block(self.sb.desc_block(number).0)?;
            for at in copies(&self.sb, number) {
                if is_copy(&mut self.disk, &self.sb, number, &first, at) {
                    continue;
                }
                let place = format!(
                    "block {at}, a copy of descriptors {}",
                    number * u64::from(self.sb.descs_per_block())
                );
                self.tell("group", place, "of no use", "as the first ones");
                self.disk.put(at, Stage::Copies, first.clone())?;
            }
        }
        Ok(())
    }

    /// Marks the tables' blocks as such.
    pub(super) fn mark_tables(&mut self) {
        for g in 0..self.sb.groups {
            let start = self.sb.group_start(GroupNo(g)).0;
            let copies = (start, self.sb.copies_in(GroupNo(g)));
            for (first, n) in ranges(&self.sb, &self.descs[g as usize].desc).into_iter().chain([copies]) {
                for block in first..first.saturating_add(n).min(self.sb.blocks) {
                    self.meta.set(block);
                }
            }
        }
    }

    /// Claims superblocks, descriptors, bitmaps and inode tables.
    pub(super) fn claim_metadata(&mut self) {
        if self.sb.block_size == 1024 {
            // The block before the first group belongs to no table.
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
