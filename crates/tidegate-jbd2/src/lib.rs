//! The jbd2 journal: blocks of a volume change in transactions, each of which is there as a whole after a power
//! cut, or not at all.
//!
//! It does: read and validate a journal, and recover the volume it belongs to. It does not: know the format of that
//! volume. A volume says where its log lies ([`Log`]) and which blocks change.
//!
//! | module | holds |
//! |---|---|
//! | [`units`] | [`Tid`], [`LogBlock`], [`FsBlock`] |
//! | [`format`](mod@format) | the log's bytes, validated |
//! | `log` | [`Log`]: where the log lies |
//! | `io` | blocks smaller than a page, bios that are waited for together |
//! | [`recover`](mod@recover) | [`recover()`], [`Replay`]: what a log holds for its volume |
//!
//! `docs/journal.md` has a picture of the log's bytes.

#![forbid(unsafe_code)]

pub mod format;
mod io;
mod log;
pub mod recover;
pub mod units;

pub use format::Superblock;
pub use log::{Log, Run};
pub use recover::{Replay, recover};
pub use units::{FsBlock, LogBlock, Tid};
