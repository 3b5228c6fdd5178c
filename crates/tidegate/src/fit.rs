//! The size of a volume that is made to fit its content.

use crate::detect::Format;
use crate::error::Subject;
use crate::error::{Error, Refusal, Result};
use crate::estimate::Content;
use crate::new_volume::{Ext4Shape, NewVolume, Room, largest};

/// The smallest volume that is made when no size is given.
const SMALLEST: u64 = 40 << 20;
/// The unit in which a size is chosen: a segment.
const SEGMENT: u64 = 2 << 20;
/// The unit of ext4's sizes, and the smallest ext4 volume: ext4 itself has hardly a lower limit.
const EXT4_STEP: u64 = 64 << 10;
const EXT4_SMALLEST: u64 = 256 << 10;
/// Bytes of the largest block that ext4 is made with.
pub(crate) const LARGEST_BLOCK: u64 = 4096;
/// Inodes that are not for files: the reserved inodes and that of lost+found.
const FIRST_INODES: u64 = 12;
/// The number of inodes for a volume with this content, and some more.
fn enough_inodes(content: &Content) -> u64 {
    content.inodes + content.inodes / 16 + FIRST_INODES
}

/// The options with so many inodes.
fn with_inodes(options: &NewVolume, inodes: u64) -> NewVolume {
    let ext4 = Ext4Shape { inodes: Some(inodes), inode_ratio: None, ..options.ext4.clone() };
    NewVolume { ext4, ..options.clone() }
}

/// The message that a volume of `bytes` bytes has fewer inodes than its content needs, if it has, with the
/// number that would suffice.
fn lacking(options: &NewVolume, content: &Content, bytes: u64) -> Option<String> {
    let free = options.room(&"".into(), bytes).ok()?.inodes.filter(|n| *n < content.inodes)?;
    let (takes, wanted) = (content.inodes, enough_inodes(content));
    Some(format!("the source takes {takes} inodes, and the volume has {free} free: --inodes {wanted}"))
}

/// The message about too few inodes in a volume whose size was given, with a size that has enough.
pub(crate) fn few_inodes(options: &NewVolume, content: &Content, bytes: u64) -> Option<String> {
    let lacking = lacking(options, content, bytes)?;
    let options = &mut with_inodes(options, enough_inodes(content));
    let size = fit(&"".into(), content, 0, options).ok().filter(|n| *n > bytes);
    let size = size.map_or(String::new(), |n| format!(" with --size {}M", n.div_ceil(1 << 20)));
    Some(format!("{lacking}{size} would do"))
}

/// The unit in which a size is chosen, and the smallest size that is made when none is given.
fn steps(format: Format) -> (u64, u64) {
    match format {
        Format::F2fs => (SEGMENT, SMALLEST),
        Format::Ext4 => (EXT4_STEP, EXT4_SMALLEST),
    }
}

/// By how many bytes a volume that was too small after all is made larger.
pub(crate) fn more(format: Format, bytes: u64) -> u64 {
    match format {
        Format::F2fs => (bytes / 16).next_multiple_of(SEGMENT).max(4 * SEGMENT),
        Format::Ext4 => (bytes / 64).next_multiple_of(EXT4_STEP),
    }
}

/// The smallest volume that holds `content` and leaves `free` bytes. ext4 gets more inodes than is usual for
/// its size where the content needs them.
///
/// # Errors
/// `Argument` for options that are possible with no size; `NoRoom` where no size would do, or where the chosen number
/// of inodes is too low.
pub(crate) fn fit(image: &Subject, content: &Content, free: u64, options: &mut NewVolume) -> Result<u64> {
    // This finds errors that do not depend on the size.
    options.room(image, 1 << 30).or_else(|_| options.room(image, 1 << 40))?;
    let (step, smallest) = steps(options.format);
    let format = options.format;
    let holds = |room: &Room| {
        let kept = if free > 0 { room.kept } else { 0 };
        let blocks = content.blocks[room.kind] + free.div_ceil(room.block_size) + kept;
        let spare = match format {
            // A margin for facts that the count cannot know: files that grow meanwhile, and names that
            // collide in few buckets.
            Format::F2fs => blocks / 64 + 256,
            // Blocks that are reserved for data before it has its place: more where there is enough data for several
            // threads.
            Format::Ext4 => blocks / 512 + (blocks / 512).saturating_sub(2),
        };
        room.blocks >= blocks + spare
    };
    let has_inodes = |room: &Room| room.inodes.is_none_or(|n| n >= content.inodes);
    let many = with_inodes(options, enough_inodes(content));
    let chosen = options.ext4.inodes.is_some() || options.ext4.inode_ratio.is_some();
    // Whether the size is enough, and whether that needs more inodes.
    let judge = |bytes: u64| match options.room(image, bytes) {
        Ok(room) if chosen || has_inodes(&room) => (has_inodes(&room) && holds(&room), false),
        Ok(_) => (many.room(image, bytes).is_ok_and(|r| has_inodes(&r) && holds(&r)), true),
        Err(_) => (false, false),
    };
    // A larger volume has no more inodes than were chosen, except for some that fill its groups.
    if options.ext4.inodes.is_some_and(|n| n < enough_inodes(content)) {
        let held = |bytes: u64| options.room(image, bytes).is_ok_and(|room| holds(&room));
        let bytes = smallest_of(smallest, step, largest(format), held);
        if let Some(lacking) = bytes.and_then(|bytes| lacking(options, content, bytes)) {
            return Err(Error::refused(Refusal::NoRoom, image, format!("{lacking} would do")));
        }
    }
    let enough = |bytes: u64| judge(bytes).0;
    let high = smallest_of(smallest, step, largest(format), enough);
    let high = high.ok_or_else(|| {
        Error::refused(Refusal::NoRoom, image, "the content does not fit the largest volume, 16 TiB")
    })?;
    if judge(high).1 {
        *options = many;
    }
    Ok(high)
}

/// The smallest size that is `enough`, in steps from `smallest` on. Choices that a format makes by size, such
/// as a journal or larger blocks, change at powers of two, so a volume may have less space than a slightly
/// smaller one.
fn smallest_of(smallest: u64, step: u64, largest: u64, enough: impl Fn(u64) -> bool) -> Option<u64> {
    let mut low = smallest;
    while low <= largest {
        let next = (low + 1).next_power_of_two();
        let mut high = if low == largest { low } else { next - step };
        if enough(high.max(low)) {
            high = high.max(low);
            while !enough(low) && high - low > step {
                let middle = (low + (high - low) / 2) / step * step;
                if enough(middle) { high = middle } else { low = middle }
            }
            return Some(if enough(low) { low } else { high });
        }
        low = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_size_is_found_though_a_larger_one_may_be_too_small() {
        let find = |enough: &dyn Fn(u64) -> bool| smallest_of(40, 2, 1 << 20, enough);
        assert_eq!(find(&|_| true), Some(40));
        assert_eq!(find(&|n| n >= 41), Some(42));
        assert_eq!(find(&|n| n >= 64), Some(64));
        assert_eq!(find(&|n| (60..64).contains(&n) || n >= 100), Some(60));
        assert_eq!(find(&|n| n >= 65), Some(66));
        assert_eq!(find(&|n| n >= 1 << 20), Some(1 << 20));
        assert_eq!(find(&|_| false), None);
    }

    #[test]
    fn a_volume_does_not_grow_for_inodes_that_a_larger_one_has_not() {
        let with = |inodes| {
            let ext4 = Ext4Shape { inodes: Some(inodes), ..Ext4Shape::default() };
            NewVolume { format: Format::Ext4, ext4, ..NewVolume::default() }
        };
        let content = Content { inodes: 5000, blocks: [5000, 2000], ..Content::default() };
        let told = fit(&"a.img".into(), &content, 0, &mut with(100)).unwrap_err().to_string();
        assert!(told.starts_with("a.img: the source takes 5000 inodes"), "{told}");
        let wanted = told.split("--inodes ").nth(1).and_then(|t| t.strip_suffix(" would do")).unwrap();
        let bytes = fit(&"a.img".into(), &content, 0, &mut with(wanted.parse().unwrap())).unwrap();
        assert!(bytes < 32 << 20, "{bytes}");
    }
}
