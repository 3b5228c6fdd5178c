//! The jbd2 journal: blocks of a volume change in transactions. After a power cut, all of a transaction is
//! there or nothing.
//!
//! This crate reads and validates a journal, recovers the volume it belongs to, caches the volume's metadata,
//! commits changes of it, and writes them to their places. It does not know the format of that volume. The
//! volume says where its log lies ([`Log`]) and which blocks change.
//!
//! | module | holds |
//! |---|---|
//! | [`units`] | [`Tid`], [`LogBlock`], [`FsBlock`] |
//! | [`format`](mod@format) | the log's bytes, validated |
//! | `log` | [`Log`]: the place of the log |
//! | `io` | blocks smaller than a page, common waits for bios |
//! | [`recover`](mod@recover) | [`recover()`], [`Replay`]: the content of a log for its volume |
//! | [`cache`] | [`Cache`]: metadata blocks in memory |
//! | [`journal`] | [`Journal`], [`Handle`]: blocks change in transactions |
//! | `commit` | writing transactions to the log |
//! | `checkpoint` | writing committed blocks to their places |
//! | [`stats`] | statistics and trace points |
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

pub use cache::{Block, BufferState, Cache, CacheStats, Verified};
pub use format::Superblock;
pub use journal::{CommitHooks, Credits, Handle, Journal, JournalMode, JournalOptions, Reserved};
pub use log::{Log, Run};
pub use recover::{Changed, Replay, recover, salvage};
pub use stats::{CommitTimes, JournalStats, RunStats};
pub use units::{FsBlock, LogBlock, Tid};
