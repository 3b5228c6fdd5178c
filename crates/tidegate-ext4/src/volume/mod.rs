//! The volume in memory: every other module works on it.
//!
//! Locks owned: `ext4->flush` 118 and `ext4->buffers` 586 (a volume without a journal), `ext4->conversion` 587,
//! `ext4->ordered` 598, `ei->i_completed_io_lock` 599. Callers: every engine module; the facade calls [`open`].
//!
//! | module | holds |
//! |---|---|
//! | [`sbi`] | [`Ext4`](sbi::Ext4) |
//! | [`open`] | opening a volume |
//! | [`options`] | how to open it |
//! | [`info`] | what it tells of itself |
//! | `announce` | features that it gets in use |
//! | `assemble` | its parts, put together |
//! | `blocks` | its blocks, through the page cache |
//! | `buffers` | blocks that change, of a volume without a journal |
//! | `conversion` | the thread that marks blocks written |
//! | `defaults` | options that its superblock has defaults for |
//! | `handle` | what a change goes through |
//! | `health` | whether it takes changes, and how it is left |
//! | `log` | where its journal lies |
//! | `ordered` | data that a commit waits for |
//! | `overlay` | what its journal holds |
//! | `stats` | what was written |

pub(crate) mod announce;
mod assemble;
pub(crate) mod blocks;
mod buffers;
pub(crate) mod conversion;
mod defaults;
pub(crate) mod handle;
mod health;
pub mod info;
mod log;
pub mod open;
pub mod options;
pub(crate) mod ordered;
pub(crate) mod overlay;
pub mod sbi;
mod stats;
