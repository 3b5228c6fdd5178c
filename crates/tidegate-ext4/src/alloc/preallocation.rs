//! Blocks kept for files that grow, so that files written beside each other stay whole, and for small files, so that those
//! written one after the other lie one behind the other: Linux's preallocations of an inode and of a locality group
//! (`ext4_prealloc_space`).
//!
//! docs/ext4.md has a picture.
//!
//! They are kept in memory alone: bitmaps and counts have them as free, and a volume with no other room gives them to
//! any file.

use crate::format::units::GroupNo;
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use tidegate_rt::{LockClass, Mutex};

static PA_LOCK: LockClass = LockClass::new("ext4->pa_lock", 524);

/// Owners that blocks are kept for at once; the one that has had them for longest loses them to one more.
const MOST: usize = 1024;
/// Bytes that are kept for a file at most.
const MOST_BYTES: u64 = 2 << 20;
/// A first piece of so many bytes has blocks kept behind it; one that is smaller may be all of its file (Linux:
/// `s_mb_stream_request`).
const LARGE: u64 = 64 << 10;

/// Bytes that are kept for small files at once (Linux: `s_mb_group_prealloc`).
const FOR_SMALL_FILES: u64 = 2 << 20;

/// A file that takes blocks for data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Grower {
    /// Its inode.
    pub ino: u32,
    /// The group of that.
    pub group: GroupNo,
    /// The block of the file that its new piece begins with.
    pub at: u64,
    /// Its size in bytes.
    pub size: u64,
    /// It is open: more may come.
    pub open: bool,
}

/// The owner of kept blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Keeper {
    /// A file that grows.
    File(u32),
    /// The small files whose inodes lie in a group: a locality group. Linux has one for each CPU; the writers of a group
    /// take its lock anyway.
    Group(u32),
}

impl Grower {
    /// The owner of the blocks that are kept behind a new piece.
    pub(super) fn keeper(&self) -> Keeper {
        match self.open && self.at == 0 && self.size < LARGE {
            true => Keeper::Group(self.group.0),
            false => Keeper::File(self.ino),
        }
    }

    /// How many blocks are kept behind a new piece of `len` blocks of a file of its own: as Linux has it, the file grows to
    /// a power of two.
    fn wants(&self, len: u32, block_size: u32) -> u32 {
        let (len, block_size) = (u64::from(len), u64::from(block_size));
        if !self.open || self.at == 0 && len * block_size < LARGE {
            return 0;
        }
        let end = self.at + len;
        let wanted = (end + 1).checked_next_power_of_two().map_or(0, |size| size - end);
        wanted.min(MOST_BYTES / block_size) as u32
    }
}

/// The blocks that are kept, by owner.
pub(crate) struct Preallocations(Mutex<State>);

#[derive(Default)]
struct State {
    /// The owners of blocks in a group.
    groups: HashMap<u32, Vec<(Keeper, Range<u32>)>>,
    /// The group of each owner's blocks.
    keepers: HashMap<Keeper, u32>,
    /// Owners in the order in which they first got blocks; some have none any more.
    order: VecDeque<Keeper>,
}

impl State {
    fn forget(&mut self, keeper: Keeper) {
        let Some(group) = self.keepers.remove(&keeper) else { return };
        if let Some(kept) = self.groups.get_mut(&group) {
            kept.retain(|k| k.0 != keeper);
            if kept.is_empty() {
                self.groups.remove(&group);
            }
        }
    }

    /// Keeps bits of a group for an owner, in place of those it had.
    fn keep(&mut self, keeper: Keeper, group: GroupNo, bits: Range<u32>) {
        let known = self.keepers.contains_key(&keeper);
        self.forget(keeper);
        if bits.is_empty() {
            return;
        }
        self.groups.entry(group.0).or_default().push((keeper, bits));
        self.keepers.insert(keeper, group.0);
        if !known {
            self.order.push_back(keeper);
        }
        while self.keepers.len() > MOST || self.order.len() > 2 * MOST {
            let Some(oldest) = self.order.pop_front() else { break };
            if oldest != keeper {
                self.forget(oldest);
            }
        }
    }

    /// Takes bits of a group out of what an owner has; the longer rest stays.
    fn take_out(&mut self, keeper: Keeper, group: GroupNo, bits: Range<u32>) {
        let Some((at, kept)) = self.of(keeper).map(|(at, kept)| (at, kept.clone())) else { return };
        if at != group || kept.end <= bits.start || bits.end <= kept.start {
            return;
        }
        let rests = [kept.start..bits.start.max(kept.start), bits.end.min(kept.end)..kept.end];
        if let Some(longest) = rests.into_iter().max_by_key(ExactSizeIterator::len) {
            self.keep(keeper, group, longest);
        }
    }

    fn of(&self, keeper: Keeper) -> Option<(GroupNo, &Range<u32>)> {
        let group = *self.keepers.get(&keeper)?;
        let kept = self.groups.get(&group)?.iter().find(|k| k.0 == keeper)?;
        Some((GroupNo(group), &kept.1))
    }
}

impl Default for Preallocations {
    fn default() -> Self {
        Preallocations(Mutex::new(&PA_LOCK, State::default()))
    }
}

impl Preallocations {
    /// Bits of a group that are kept from a file whose next block had best be bit `goal`. A small file that grows may go on
    /// in what is kept for small files, and so may a file that lies right before that: small files then go on behind it.
    pub(super) fn kept_from(&self, file: Option<&Grower>, group: GroupNo, goal: u32) -> Vec<Range<u32>> {
        let state = self.0.lock();
        let own = file.and_then(|f| state.of(Keeper::File(f.ino))).filter(|(at, _)| *at == group);
        let begins = |first: u32| first == goal || own.as_ref().is_some_and(|(_, bits)| bits.end == first);
        let is_open_to = |(keeper, bits): &(Keeper, Range<u32>)| {
            file.is_some_and(|f| match keeper {
                Keeper::File(ino) => *ino == f.ino,
                Keeper::Group(n) => *n == f.group.0 && (f.size < LARGE || begins(bits.start)),
            })
        };
        let kept = state.groups.get(&group.0).into_iter().flatten();
        kept.filter(|k| !is_open_to(k)).map(|k| k.1.clone()).collect()
    }

    /// The group and the first bit that are kept for small files, if the file is one and begins.
    pub(super) fn next_of(&self, file: &Grower) -> Option<(GroupNo, u32)> {
        let keeper = Some(file.keeper()).filter(|k| matches!(k, Keeper::Group(_)))?;
        self.0.lock().of(keeper).map(|(group, bits)| (group, bits.start))
    }

    /// Keeps bits of a group behind the new piece `bits` of a file, in place of those that were kept for it. `clear` tells
    /// how many of a number of bits behind the piece are free; the group has `free` blocks. Small files use up what is kept
    /// for them before they get more.
    pub(super) fn keep_behind(
        &self,
        file: &Grower,
        (group, bits): (GroupNo, Range<u32>),
        (free, block_size): (u32, u32),
        clear: impl FnOnce(u32) -> u32,
    ) {
        let (keeper, end) = (file.keeper(), bits.end);
        let mut state = self.0.lock();
        let most = match keeper {
            Keeper::File(_) => file.wants(bits.end - bits.start, block_size),
            Keeper::Group(_) => {
                state.forget(Keeper::File(file.ino));
                match state.of(keeper).filter(|(at, kept)| *at == group && kept.contains(&bits.start)) {
                    Some((_, kept)) => kept.end.saturating_sub(end),
                    // Little is kept where little is free.
                    None => (FOR_SMALL_FILES / u64::from(block_size)).min(u64::from(free) / 8) as u32,
                }
            }
        };
        let kept = end + clear(most);
        if keeper == Keeper::File(file.ino) {
            state.take_out(Keeper::Group(file.group.0), group, bits.start..kept);
        }
        state.keep(keeper, group, end..kept);
    }

    /// Keeps nothing more for a file.
    pub(crate) fn drop_of(&self, ino: u32) {
        self.0.lock().forget(Keeper::File(ino));
    }

    /// Keeps nothing more for anybody; whether something was kept.
    pub(super) fn drop_all(&self) -> bool {
        let mut state = self.0.lock();
        let any = !state.keepers.is_empty();
        *state = State::default();
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bits that are kept from a large file.
    fn others(kept: &Preallocations, group: u32, ino: Option<u32>) -> Vec<Range<u32>> {
        let file = ino.map(|ino| Grower { ino, group: GroupNo(group), at: 0, size: LARGE, open: true });
        kept.kept_from(file.as_ref(), GroupNo(group), 0)
    }

    #[test]
    fn a_file_that_grows_has_blocks_up_to_a_power_of_two() {
        let grower = |at, open| Grower { ino: 12, group: GroupNo(0), at, size: 0, open };
        let wants = |at, len| grower(at, true).wants(len, 4096);
        assert_eq!([wants(0, 1), wants(0, 15), wants(0, 16), wants(0, 17)], [0, 0, 16, 15]);
        assert_eq!([wants(1, 1), wants(2, 1), wants(3, 1), wants(7, 1)], [2, 1, 4, 8]);
        assert_eq!([wants(5000, 1), wants(u64::MAX - 8, 1)], [512, 0]);
        assert_eq!(grower(5000, false).wants(1, 4096), 0);
        assert_eq!(grower(5000, true).wants(1, 1024), 2048);
    }

    #[test]
    fn blocks_are_kept_from_others() {
        let kept = Preallocations::default();
        kept.0.lock().keep(Keeper::File(12), GroupNo(0), 5..9);
        kept.0.lock().keep(Keeper::File(13), GroupNo(0), 20..30);
        kept.0.lock().keep(Keeper::File(12), GroupNo(0), 6..14);
        assert_eq!(others(&kept, 0, Some(13)), vec![6..14]);
        assert_eq!(others(&kept, 0, None).len(), 2);
        assert!(others(&kept, 1, None).is_empty());
        kept.0.lock().keep(Keeper::File(13), GroupNo(1), 0..3);
        assert!(others(&kept, 0, Some(12)).is_empty());
        kept.drop_of(12);
        assert_eq!(others(&kept, 1, Some(12)), vec![0..3]);
        assert!(kept.drop_all() && !kept.drop_all());
    }

    #[test]
    fn a_small_file_that_grows_goes_on_in_the_blocks_of_small_files() {
        let (kept, group) = (Preallocations::default(), GroupNo(0));
        let file = |ino, at, size| Grower { ino, group, at, size, open: true };
        let keep = |file: &Grower, bits| kept.keep_behind(file, (group, bits), (32768, 4096), |most| most);
        keep(&file(12, 0, 4096), 100..101);
        assert_eq!(kept.next_of(&file(13, 0, 4096)), Some((group, 101)));
        assert_eq!(others(&kept, 0, Some(14)), vec![101..613]);
        assert!(kept.kept_from(Some(&file(12, 1, 8192)), group, 0).is_empty());
        keep(&file(12, 1, 8192), 101..102);
        assert_eq!(kept.next_of(&file(13, 0, 4096)), Some((group, 104)), "two are kept behind file 12");
        assert_eq!(kept.kept_from(Some(&file(13, 0, 4096)), group, 0), vec![102..104]);
        keep(&file(13, 0, 4096), 104..105);
        // File 12 grows out of the small ones.
        let grown = file(12, 16, 2 * LARGE);
        assert!(kept.kept_from(Some(&grown), group, 105).is_empty());
        assert_eq!(kept.kept_from(Some(&grown), group, 106), vec![105..613]);
        // A file that begins again as a small one has nothing of its own.
        keep(&file(12, 0, 4096), 105..106);
        assert_eq!(others(&kept, 0, None), vec![106..613]);
    }

    #[test]
    fn the_file_that_has_had_blocks_for_longest_loses_them() {
        let kept = Preallocations::default();
        for ino in 0..2 * MOST as u32 {
            kept.0.lock().keep(Keeper::File(ino), GroupNo(0), 8..16);
            kept.0.lock().keep(Keeper::File(ino), GroupNo(0), 9..16);
        }
        assert_eq!(others(&kept, 0, None).len(), MOST);
        assert_eq!(others(&kept, 0, Some(2 * MOST as u32 - 1)).len(), MOST - 1);
        assert!(kept.0.lock().order.len() <= 2 * MOST);
        // A file that comes and goes again and again.
        for _ in 0..10 * MOST {
            kept.0.lock().keep(Keeper::File(5), GroupNo(3), 1..2);
            kept.drop_of(5);
        }
        assert!(kept.0.lock().order.len() <= 2 * MOST + 1);
    }
}
