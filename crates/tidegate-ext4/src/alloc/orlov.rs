//! The group for a new inode, by Orlov's rule.
//!
//! Directories in the root are spread over the flex groups, as they hold different things; deeper ones stay in the flex
//! group of their parent while that has room. Linux then takes the first group of the flex group that has a free inode, so
//! that files of many directories share blocks of bitmaps and of the inode table, and few of these go through the journal.
//! Threads that write in directories of the root of their own would wait for each other's group, so these are dealt out to
//! as many groups as there are CPUs:
//!
//! ```text
//!   flex group     0            1                     2
//!   groups         0 1 2 … 15   16   17   18 … 31     32  33  34 … 47      two CPUs
//!   directories    /            a c  b d              e   f
//! ```
//!
//! A file goes to the group of its directory.

use super::flex::{FlexGroups, FlexSums};
use crate::format::raw::{InodeFlags, ROOT_INO};
use crate::format::units::{BlockAddr, GroupNo};
use crate::inode::ei;
use crate::volume::sbi::Ext4;
use tidegate_vfs::{Inode, Result};

/// So many groups of a flex group are looked at: it may be as large as the volume.
const MOST_LOOKED_AT: usize = 256;

impl Ext4 {
    /// A goal for an inode's first blocks: the inode's group.
    pub(crate) fn goal_of(&self, ino: u32) -> BlockAddr {
        self.sb.group_start(self.inode_group(ino).0)
    }

    /// The groups to look for an inode in that is to get a name in `parent`, the best one first, full ones left out as far
    /// as they are known.
    ///
    /// # Errors
    /// Those of reading descriptors.
    pub(super) fn groups_for_inode(
        &self,
        parent: &Inode,
        is_dir: bool,
    ) -> Result<impl Iterator<Item = GroupNo>> {
        let flex = self.flex_groups()?;
        let own = self.inode_group(parent.ino.0 as u32).0;
        let first = if is_dir { self.group_for_directory(flex, parent, own)? } else { own };
        let (start, number) = (flex.number_of(first), flex.number());
        // The last of these are the groups before the first one.
        let rest = (0..=number).flat_map(move |n| {
            let groups = flex.groups_with_inodes((start + n) % number);
            match n {
                0 => groups.start.max(first.0 + 1)..groups.end,
                _ if n == number => groups.start..groups.end.min(first.0),
                _ => groups,
            }
        });
        Ok(std::iter::once(first).chain(rest.map(GroupNo)))
    }

    fn group_for_directory(&self, flex: &FlexGroups, parent: &Inode, own: GroupNo) -> Result<GroupNo> {
        let (free, number) = (self.space()?.now(), u64::from(flex.number()));
        let (inodes, blocks) = (free.inodes / number, free.blocks / number);
        let start = flex.number_of(own);
        let all = || (0..flex.number()).map(|n| (start + n) % flex.number()).map(|n| (n, flex.sums(n)));
        let emptiest = |least: (u64, u64)| {
            let has_room = |s: &FlexSums| s.inodes >= least.0.max(1) && s.blocks >= least.1;
            all().filter(|(_, s)| has_room(s)).min_by_key(|(_, s)| s.directories)
        };
        if parent.ino.0 == u64::from(ROOT_INO) || ei(parent).is(InodeFlags::TOPDIR) {
            let chosen = emptiest((inodes, blocks)).or_else(|| emptiest((1, 1)));
            return self.group_in_flex(flex, chosen.map_or(start, |(n, _)| n));
        }
        let of_flex = |n: u32| u64::from(n) * u64::from(flex.size());
        let (of_all, in_all) = (of_flex(self.sb.inodes_per_group), of_flex(self.sb.blocks_per_group));
        let most = free.directories / number + of_all / 16;
        let least = (inodes.saturating_sub(of_all / 4).max(1), blocks.saturating_sub(in_all / 4));
        let fits = |s: &FlexSums| s.directories < most && s.inodes >= least.0 && s.blocks >= least.1;
        match all().find(|(_, s)| fits(s)) {
            Some((n, _)) if n != start => self.group_in_flex(flex, n),
            _ => Ok(own),
        }
    }

    /// The group with the fewest directories among the first groups of a flex group that have room, as many as there are
    /// CPUs; else the first that has an inode.
    fn group_in_flex(&self, flex: &FlexGroups, n: u32) -> Result<GroupNo> {
        let (mut seen, mut best, mut any) = (0, None, None);
        for group in flex.groups_with_inodes(n).map(GroupNo).take(MOST_LOOKED_AT) {
            let desc = self.group(group)?;
            if desc.free_inodes == 0 {
                continue;
            }
            any.get_or_insert(group);
            // A group that tables fill has no room for data.
            if desc.free_blocks < self.sb.blocks_per_group / 8 {
                continue;
            }
            if best.is_none_or(|(dirs, _)| desc.used_dirs < dirs) {
                best = Some((desc.used_dirs, group));
            }
            seen += 1;
            if seen == self.groups_for_directories {
                break;
            }
        }
        Ok(best.map(|(_, group)| group).or(any).unwrap_or(GroupNo(flex.first(n))))
    }
}
