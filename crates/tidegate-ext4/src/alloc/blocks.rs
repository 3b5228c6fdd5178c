//! Allocates runs of blocks near a goal, and frees them.
//!
//! The caller gives a goal and a number of blocks. It gets the run behind the goal if that is free, else the
//! first run that is long enough, group by group, else the longest run found. Only the goal's group is searched if it is
//! known to have no such run ([`super::longest`]). Runs that are kept for other files ([`super::preallocation`]) are passed
//! over while there is another.

use super::bitmap::{clear_before, clear_run, fill, first_clear, is_set, longest_clear};
use super::damaged::{Bitmap, costs_group};
use super::preallocation::Grower;
use crate::format::gate::{GroupDesc, rule};
use crate::format::raw::GroupFlags;
use crate::format::units::{BlockAddr, GroupNo};
use crate::volume::handle::Handle;
use crate::volume::sbi::Ext4;
use std::sync::atomic::Ordering::Relaxed;
use tidegate_vfs::planted::PlantedBug;
use tidegate_vfs::{Error, ErrorKind, Result};

/// A free run of this many blocks behind the goal is taken even if more blocks are wanted.
const GOES_ON: u32 = 8;

/// After so many bitmaps, any run is better than a further search.
const MOST_BITMAPS: u32 = 128;

/// The bit of a run of which only the length is known.
const ANYWHERE: u32 = u32::MAX;

/// A run of free bits of a group.
#[derive(Clone, Copy)]
struct Found {
    group: GroupNo,
    bit: u32,
    len: u32,
}

/// Blocks that somebody looks for.
struct Wanted {
    /// Where they had best begin.
    goal: BlockAddr,
    /// How many at most.
    most: u32,
    /// The file that grows by them, if blocks are kept for it.
    file: Option<Grower>,
}

impl Ext4 {
    /// The group that a block lies in.
    pub(crate) fn group_of(&self, addr: BlockAddr) -> GroupNo {
        let n = addr.0.saturating_sub(self.sb.first_data_block.0) / u64::from(self.sb.blocks_per_group);
        GroupNo((n as u32).min(self.sb.groups - 1))
    }

    /// Takes a block for metadata, out of the blocks that are not promised.
    ///
    /// # Errors
    /// As [`Ext4::take_promised`].
    pub(crate) fn take_block(&self, handle: &mut Handle<'_>, goal: BlockAddr) -> Result<BlockAddr> {
        self.take_unpromised(handle, goal, 1, self.kept_from_metadata()).map(|(addr, _)| addr)
    }

    /// Takes a run of at most `want` blocks ahead of data, out of the blocks that are not promised.
    ///
    /// # Errors
    /// As [`Ext4::take_promised`].
    pub(crate) fn take_ahead(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockAddr,
        want: u32,
    ) -> Result<(BlockAddr, u32)> {
        self.take_unpromised(handle, goal, want, self.kept_back())
    }

    fn take_unpromised(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockAddr,
        want: u32,
        kept_back: u64,
    ) -> Result<(BlockAddr, u32)> {
        let space = self.space()?;
        let claimed = space.claim(want, kept_back)?;
        let taken = self.take_promised(handle, goal, claimed);
        space.unclaim(claimed);
        taken
    }

    /// Takes a run of at most `want` promised blocks for data of a file, as [`Ext4::take_promised`], and keeps free
    /// blocks behind it for more of that file.
    ///
    /// # Errors
    /// As [`Ext4::take_promised`].
    pub(crate) fn take_growing(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockAddr,
        want: u32,
        file: Grower,
    ) -> Result<(BlockAddr, u32)> {
        if self.filling {
            return self.take_promised(handle, goal, want);
        }
        // Small files lie one behind the other.
        let next = self.preallocations.next_of(&file);
        let goal = next.map_or(goal, |(group, bit)| self.sb.group_start(group).plus(bit.into()));
        self.take(handle, Wanted { goal, most: want, file: Some(file) })
    }

    /// Takes a run of at most `want` blocks, as near behind `goal` as one is free; returns its first block
    /// and its length. Waits for discards where all free blocks are being discarded. Groups whose bitmap is
    /// damaged or cannot be read are passed over.
    ///
    /// # Errors
    /// `NoSpace`, also where such a group is all that might have room; those of reading descriptors.
    pub(crate) fn take_promised(
        &self,
        handle: &mut Handle<'_>,
        goal: BlockAddr,
        want: u32,
    ) -> Result<(BlockAddr, u32)> {
        self.take(handle, Wanted { goal, most: want, file: None })
    }

    fn take(&self, handle: &mut Handle<'_>, wanted: Wanted) -> Result<(BlockAddr, u32)> {
        loop {
            let seen = self.freed.let_go();
            match self.take_free(handle, &wanted) {
                Err(e) if e.kind() == ErrorKind::NoSpace && self.preallocations.drop_all() => {}
                Err(e) if e.kind() == ErrorKind::NoSpace && self.freed.wait_let_go(seen) => {}
                r => return r,
            }
        }
    }

    /// As [`Ext4::take_promised`], out of the blocks that are not being discarded, nor kept for another file.
    fn take_free(&self, handle: &mut Handle<'_>, wanted: &Wanted) -> Result<(BlockAddr, u32)> {
        let Wanted { goal, most: want, .. } = *wanted;
        let goal = if self.sb.holds(goal, 1) { goal } else { self.sb.first_data_block };
        let (start, groups) = (self.group_of(goal), self.sb.groups);
        let stamp = self.freed.stamp(self.blocks.journal());
        let (mut best, mut damaged, mut searched) = (None::<Found>, None, 0);
        for n in 0..groups {
            let group = GroupNo((start.0 + n) % groups);
            let from = if n == 0 { (goal.0 - self.sb.group_start(group).0) as u32 } else { 0 };
            let found = match self.longest_free.at_most(group, stamp) {
                Some(0) => continue,
                // The file may go on in the group of the goal.
                Some(len) if len < want && n > 0 => Looked::Shorter(Found { group, bit: ANYWHERE, len }),
                _ => {
                    searched += 1;
                    match self.take_in(handle, wanted, group, from, want)? {
                        Some(found) => found,
                        None => continue,
                    }
                }
            };
            match found {
                Looked::Taken(addr, len) => return Ok((addr, len)),
                Looked::Shorter(f) if best.is_none_or(|b| b.len < f.len) => best = Some(f),
                Looked::Shorter(_) => {}
                Looked::Damaged(e) => damaged = Some(e),
            }
            // A run that is a good part of the wanted length is better than a walk over a large volume.
            let good = if searched > MOST_BITMAPS { 1 } else { want / 4 };
            if n > 16 && best.is_some_and(|b| b.len >= good) {
                break;
            }
        }
        while let Some(f) = best.take() {
            // Other threads may have taken blocks of the run meanwhile.
            if let Some(Looked::Taken(addr, len)) = self.take_in(handle, wanted, f.group, f.bit, 1)? {
                return Ok((addr, len));
            }
            for group in (0..groups).map(GroupNo) {
                if self.longest_free.at_most(group, stamp) != Some(0)
                    && let Some(Looked::Taken(addr, len)) = self.take_in(handle, wanted, group, 0, 1)?
                {
                    return Ok((addr, len));
                }
            }
        }
        Err(no_room(damaged))
    }

    /// Looks into a group for a run of as many blocks as are wanted, and takes one that has at least `least`.
    fn take_in(
        &self,
        handle: &mut Handle<'_>,
        wanted: &Wanted,
        group: GroupNo,
        from: u32,
        least: u32,
    ) -> Result<Option<Looked>> {
        let want = wanted.most;
        let _lock = self.lock_group(handle, group, Bitmap::Blocks)?;
        let desc = self.group(group)?;
        if desc.free_blocks == 0 {
            self.longest_free.learn(group, 0, None);
            return Ok(None);
        }
        let mut map = match self.trusted_bitmap(&desc)? {
            Ok(map) => map,
            Err(damage) => return Ok(Some(Looked::Damaged(damage))),
        };
        // For this search, blocks that a commit has yet to free count as in use.
        let mut free = map.clone();
        let stamp = self.freed.stamp(self.blocks.journal());
        let not_yet = self.freed.of(group, self.blocks.journal());
        not_yet.iter().for_each(|(bit, len)| fill(&mut free, *bit..bit + len, true));
        let others = self.preallocations.kept_from(wanted.file.as_ref(), group, from);
        others.iter().for_each(|bits| fill(&mut free, bits.clone(), true));
        let blocks = self.blocks_in(group);
        let enough = self.longest_free.at_most(group, stamp).map_or(want, |most| most.min(want));
        self.stats.bitmap_searches.fetch_add(1, Relaxed);
        let found = find(&free, from, blocks, (want, enough), least);
        let goes_on = found.is_some_and(|f| f.bit == from && f.len >= want.min(GOES_ON));
        if !goes_on && found.is_none_or(|f| f.len < enough) {
            let mut for_all = free.clone();
            others.into_iter().for_each(|bits| fill(&mut for_all, bits, false));
            let longest = longest_clear(&for_all, blocks);
            self.longest_free.learn(group, longest, (!not_yet.is_empty()).then_some(stamp));
        }
        let Some(found) = found else { return Ok(None) };
        let found = Found { group, ..found };
        if found.len < least && !goes_on {
            return Ok(Some(Looked::Shorter(found)));
        }
        fill(&mut map, found.bit..found.bit + found.len, true);
        self.store_block_bitmap(handle, &desc, &map, -i64::from(found.len))?;
        if let Some(file) = wanted.file {
            let end = found.bit + found.len;
            let clear = |most| clear_run(&free, end, blocks, most);
            let sizes = (desc.free_blocks, self.sb.block_size);
            self.preallocations.keep_behind(&file, (group, found.bit..end), sizes, clear);
        }
        Ok(Some(Looked::Taken(self.sb.group_start(group).plus(found.bit.into()), found.len)))
    }

    /// The bitmap of a group with free blocks, or the damage for which the group is passed over.
    fn trusted_bitmap(&self, desc: &GroupDesc) -> Result<std::result::Result<Vec<u8>, Error>> {
        if let Some(damage) = self.damage_of(Bitmap::Blocks, desc) {
            return Ok(Err(damage));
        }
        match self.block_bitmap(desc) {
            Err(e) if costs_group(&e) => {
                self.pass_over(Bitmap::Blocks, desc, &e);
                Ok(Err(e))
            }
            map => map.map(Ok),
        }
    }

    /// Frees blocks. The caller forgets blocks of metadata. Blocks of a group whose bitmap is damaged, cannot
    /// be read, or has the blocks as free, stay as they are for e2fsck.
    ///
    /// # Errors
    /// `Corrupt` for blocks outside of the volume and of its own tables; those of the journal.
    pub(crate) fn free_blocks(&self, handle: &mut Handle<'_>, first: BlockAddr, n: u64) -> Result<()> {
        rule(self.sb.holds(first, n), "it lies outside of the volume").map_err(|e| e.at(first.place()))?;
        self.refuse_to_free_tables(first, n)?;
        let (mut at, end) = (first.0, first.0 + n);
        while at < end {
            let group = self.group_of(BlockAddr(at));
            let start = self.sb.group_start(group).0;
            let bit = (at - start) as u32;
            let len = ((end - at) as u32).min(self.blocks_in(group) - bit);
            let (first, _lock) = (at, self.lock_group(handle, group, Bitmap::Blocks)?);
            at += u64::from(len);
            let desc = self.group(group)?;
            let Some(mut map) = self.map_to_free(&desc, bit, len, first) else { continue };
            fill(&mut map, bit..bit + len, false);
            let behind = clear_run(&map, bit + len, self.blocks_in(group), u32::MAX);
            self.longest_free.raise(group, clear_before(&map, bit) + len + behind);
            if let Some(tid) = handle.tid().filter(|_| !self.planted.is(PlantedBug::EarlyReuse)) {
                self.freed.add(group, bit, len, tid);
            }
            self.store_block_bitmap(handle, &desc, &map, len.into())?;
        }
        Ok(())
    }

    /// The bitmap of a group whose blocks are to be freed. `None` where it cannot be trusted: the blocks then
    /// stay in use, as on Linux, and the file goes without them.
    fn map_to_free(&self, desc: &GroupDesc, bit: u32, len: u32, first: u64) -> Option<Vec<u8>> {
        if self.frees_nothing(Bitmap::Blocks, desc) {
            self.leave_in_use();
            return None;
        }
        let map = self.block_bitmap(desc).and_then(|map| {
            self.was_read(Bitmap::Blocks, desc);
            let used = (bit..bit + len).all(|b| is_set(&map, b));
            rule(used, format_args!("some of {len} blocks from {first} on are free, and are freed"))
                .map_err(|e| e.at(desc.group.place()))?;
            Ok(map)
        });
        let left = |e: &Error| {
            self.pass_over(Bitmap::Blocks, desc, e);
            self.leave_in_use();
        };
        map.inspect_err(left).ok()
    }

    /// Stores a bitmap and its checksum; `freed` more blocks are free than before.
    pub(super) fn store_block_bitmap(
        &self,
        handle: &mut Handle<'_>,
        desc: &GroupDesc,
        map: &[u8],
        freed: i64,
    ) -> Result<()> {
        self.hold_desc(handle, desc.group)?;
        handle.replace(desc.block_bitmap, map)?;
        let csum = self.bitmap_csum(&map[..self.sb.blocks_per_group as usize / 8]);
        let free = (i64::from(desc.free_blocks) + freed).max(0) as u32;
        self.change_desc(handle, desc.group, |d| {
            d.clear(GroupFlags::BLOCK_UNINIT);
            d.set_free_blocks(free);
            if self.sb.has_csum() {
                d.set_block_bitmap_csum(csum);
            }
        })?;
        self.flex_groups()?.change_blocks(desc.group, freed);
        self.space()?.change(|f| f.blocks = f.blocks.saturating_add_signed(freed));
        Ok(())
    }
}

/// The error when nothing is free, except perhaps in a damaged group.
pub(super) fn no_room(damaged: Option<Error>) -> Error {
    match damaged {
        Some(e) => Error::new(ErrorKind::NoSpace, format!("what is free cannot be told, run e2fsck: {e}")),
        None => ErrorKind::NoSpace.into(),
    }
}

/// The result of a look into a group.
enum Looked {
    Taken(BlockAddr, u32),
    /// No run is long enough; this is the longest.
    Shorter(Found),
    /// The group's bitmap cannot be trusted.
    Damaged(Error),
}

/// A run of at most `want` clear bits of `blocks`: at `from`, else the first behind it that has `enough`, else the
/// first from the beginning on, else the longest. With `least` of 1 any run at `from` will do.
fn find(map: &[u8], from: u32, blocks: u32, (want, enough): (u32, u32), least: u32) -> Option<Found> {
    let found = |bit: u32, len: u32| Found { group: GroupNo(0), bit, len };
    let at_goal = if from < blocks { clear_run(map, from, blocks, want) } else { 0 };
    // Blocks that continue the file are worth more than a long run.
    if at_goal >= want.min(GOES_ON) || at_goal > 0 && least == 1 {
        return Some(found(from, at_goal));
    }
    let mut best: Option<Found> = None;
    for (start, end) in [(from, blocks), (0, from.min(blocks))] {
        let mut at = start;
        while let Some(bit) = first_clear(map, at..end) {
            let len = clear_run(map, bit, blocks, want);
            if len >= enough {
                return Some(found(bit, len));
            }
            if best.is_none_or(|b| b.len < len) {
                best = Some(found(bit, len));
            }
            at = bit + len;
        }
    }
    best
}
