//! The volume in memory: how it gets there, its switches, and what it tells of itself.
//!
//! Its locks: `cp_global_sem` 90, `writepages` 95, `cp_rwsem` 100, `node_write` 110, `ino_lock` 430,
//! `inode_lock[DIR_INODE]` 440, `stat_lock` 520, `ckpt` 560, `stop_reason` 600. Every engine module works on
//! [`sbi::F2fs`]; [`open`](mod@open) is called by the facade.
//!
//! | module | holds |
//! |---|---|
//! | [`sbi`], `assemble` | the volume's parts and locks; putting them together |
//! | `health` | whether it takes changes, and what ends that |
//! | [`open`](mod@open) | superblock, checkpoint, summaries and orphans, read in this order |
//! | [`options`] | mount options and switches |
//! | [`planted`] | bugs on purpose |
//! | [`info`], [`stats`] | what the volume is and what it did |

pub(crate) mod assemble;
pub(crate) mod health;
pub mod info;
pub mod open;
pub mod options;
pub mod planted;
pub mod sbi;
pub mod stats;
