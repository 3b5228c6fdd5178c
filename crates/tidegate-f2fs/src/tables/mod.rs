//! The tables of the metadata area, and the volume's counts.
//!
//! Locks owned: `nm_i->build_lock` 395, `nm_i->nat_tree_lock` 400, `sit_i->sentry_lock` 510, `meta->ahead`
//! 720. Callers: nodes, logs, cleaning and the checkpoint. Of the folders above, it knows the logs by their
//! names and counts, and zones as the bounds of sections.
//!
//! | module | holds |
//! |---|---|
//! | `meta` | the metadata area through the page cache |
//! | `nat` | where each node is, and the node numbers that are free |
//! | `sit` | the blocks of each segment that are valid, and the segments that are free |
//! | `journal` | changed entries of both tables that a checkpoint pack carries |
//! | `summary` | the owners of blocks, as a checkpoint pack has them |
//! | `counts` | promised blocks and nodes |

pub(crate) mod counts;
pub(crate) mod journal;
pub(crate) mod meta;
pub(crate) mod nat;
pub(crate) mod sit;
pub(crate) mod summary;
