//! The jbd2 journal: blocks of a volume change in transactions, each of which is there as a whole after a power
//! cut, or not at all.
//!
//! It does: read and validate a journal, recover the volume it belongs to, cache the volume's metadata,
//! commit changes of it, and bring them to where they belong. It does not: know the format of that volume. A
//! volume says where its log lies ([`Log`]) and which blocks change.
//!
//! | module | holds |
//! |---|---|
//! | [`units`] | [`Tid`], [`LogBlock`], [`FsBlock`] |
//! | [`format`](mod@format) | the log's bytes, validated |
//! | `log` | [`Log`]: where the log lies |
//! | `io` | blocks smaller than a page, bios that are waited for together |
//! | [`recover`](mod@recover) | [`recover()`], [`Replay`]: what a log holds for its volume |
//! | [`cache`] | [`Cache`]: metadata blocks in memory |
//! | [`journal`] | [`Journal`], [`Handle`]: blocks change in transactions |
//! | `commit` | transactions go to the log |
//! | `checkpoint` | committed blocks go to where they belong |
//! | [`stats`] | figures and trace points |
//!
//! `docs/journal.md` has a picture of the log's bytes.

#![forbid(unsafe_code)]

pub mod cache;
mod checkpoint;
mod commit;
pub mod format;
mod io;
pub mod journal;
mod log;
pub mod recover;
pub mod stats;
pub mod units;

pub use cache::{Block, BufferState, Cache, CacheStats};
pub use format::Superblock;
pub use journal::{CommitHooks, Credits, Handle, Journal, JournalMode, JournalOptions, Reserved};
pub use log::{Log, Run};
pub use recover::{Changed, Replay, recover, salvage};
pub use stats::{CommitTimes, JournalStats, RunStats};
pub use units::{FsBlock, LogBlock, Tid};
