//! Durability: checkpoints of the whole volume, fsync of one file, and recovery after a power cut.
//!
//! Locks owned: `cprc->issue_list` 85, `im->ino_lock[TRANS]` 435. Locks of other folders that it takes: an
//! fsync `i_fsync` 19; a checkpoint `cp_global_sem` 90, and `cp_rwsem` 100 and `node_write` 110 exclusive.
//! Callers: the VFS's glue and cleaning ask for checkpoints; opening a volume asks for recovery.
//!
//! | module | holds |
//! |---|---|
//! | `checkpoint` | the volume as it is at one moment, made durable |
//! | `ckpt_thread`, [`ckpt_stat`] | one thread that writes checkpoints for all who wait; what they cost |
//! | `fsync`, `since_cp` | nodes of one file, marked for recovery; what recovery cannot tell |
//! | `flush` | one device flush for all who wait |
//! | `recover` | rolling marked nodes forward |

pub(crate) mod checkpoint;
pub(crate) mod ckpt_stat;
pub(crate) mod ckpt_thread;
pub(crate) mod flush;
pub(crate) mod fsync;
pub(crate) mod recover;
pub(crate) mod since_cp;
#[cfg(test)]
mod sync_tests;
