//! File data: the map from pages to blocks, and the way of pages to the device.
//!
//! Locks owned: `sbi->streammap_lock` 490, `sbi->io_order_lock` 568, `io->io_rwsem` 570 (one for each log),
//! `sbi->fsync_node_lock` 575, `sbi->failed_pages` 577, `write_io->bad_sections` 578,
//! `write_io->active_zones` 579. The map of one file is guarded by the inode's `i_dnode` 200. Callers: the
//! VFS's glue, cleaning and the checkpoint.
//!
//! | module | holds |
//! |---|---|
//! | `map` | blocks of pages; promises of blocks |
//! | `extent`, `inline` | what is known of a map without its nodes; data inside the inode |
//! | `first_block` | the block that data which leaves the inode goes to |
//! | `write`, `place` | passes over dirty pages; the places these get |
//! | `stream`, `affinity` | the stream of data that a run goes to; files that are written beside each other |
//! | `write_io`, `in_flight` | bios that grow while pages are placed; bios that have not ended |
//! | `drain` | waiting for them |
//! | `failed_pages`, `rescue` | pages that are not where the map says, since their write failed; writing them elsewhere |
//! | `read_ahead` | pages read before they are wanted |
//! | `truncate` | cutting files and punching holes |

pub(crate) mod affinity;
pub(crate) mod drain;
pub(crate) mod extent;
pub(crate) mod failed_pages;
pub(crate) mod first_block;
pub(crate) mod in_flight;
pub(crate) mod inline;
pub(crate) mod map;
pub(crate) mod place;
pub(crate) mod read_ahead;
pub(crate) mod rescue;
pub(crate) mod stream;
#[cfg(test)]
mod tests;
pub(crate) mod truncate;
pub(crate) mod write;
pub(crate) mod write_io;
