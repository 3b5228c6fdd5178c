//! Check, repair and the engine agree. A volume that a repair calls good opens, with its fsynced files, can
//! be read to its end, and is clean for the stock checker. A volume that cannot be brought there is refused.

mod chain;
mod contents;
mod extents;
mod format;
mod killed;
mod packs;
mod rig;
mod superblock;

fn skip() -> bool {
    ["mkfs.f2fs", "fsck.f2fs"].iter().any(|o| tidegate_testing::oracle::skip_or_fail(o))
}
