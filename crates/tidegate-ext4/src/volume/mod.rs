//! The volume in memory: every other module works on it.
//!
//! Locks owned: `ext4->flush` 118 and `ext4->buffers` 586 (a volume without a journal), `ext4->conversion` 587,
//! `ext4->ordered` 598, `ei->i_completed_io_lock` 599. Callers: every engine module; the facade calls [`open`].
//!
//! | module | holds |
//! |---|---|
//! | [`sbi`] | [`Ext4`](sbi::Ext4) |
//! | [`open`] | opening a volume |
//! | [`options`] | mount options and switches |
//! | [`info`] | description |
//! | `announce` | features that the volume gets in use |
//! | `assemble` | the volume's parts, put together |
//! | `blocks` | the volume's blocks, through the page cache |
//! | `buffers` | changed blocks of a volume without a journal |
//! | `conversion` | the thread that marks blocks written |
//! | `defaults` | the superblock's defaults for options |
//! | `handle` | the handle of a change |
//! | `health` | whether the volume takes changes, and the state in which it is left |
//! | `log` | the place of the journal |
//! | `ordered` | data that a commit waits for |
//! | `overlay` | blocks in the journal |
//! | `stats` | counts of writes |

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
