//! The volume in memory: opening it, its switches, and its reports.
//!
//! Locks owned: `sbi->cp_global_sem` 90, `sbi->writepages` 95, `sbi->cp_rwsem` 100, `sbi->node_write` 110,
//! `im->ino_lock` 430, `sbi->inode_lock[DIR_INODE]` 440, `sbi->zone_mgmt` 480, `sbi->stat_lock` 520,
//! `sbi->ckpt` 560, `sbi->stop_reason` 600. Callers: every engine module works on [`sbi::F2fs`]; the facade
//! calls [`open`](mod@open).
//!
//! | module | holds |
//! |---|---|
//! | [`sbi`], `assemble` | the volume's parts and locks; putting them together |
//! | `devices` | whether the devices of a volume on several are its own |
//! | `health` | whether the volume takes changes; stopping it |
//! | [`open`](mod@open) | superblock, checkpoint, summaries and orphans, read in this order |
//! | [`options`] | mount options and switches |
//! | [`info`], `stats` | description and statistics |

pub(crate) mod assemble;
pub(crate) mod devices;
pub(crate) mod health;
pub mod info;
pub mod open;
pub mod options;
pub mod sbi;
pub(crate) mod stats;
