//! The journal's bytes: raw structures, checksums, and the gate to validated values.
//!
//! | module | holds |
//! |---|---|
//! | [`raw`] | the structures as they lie in the log, big-endian, unchecked |
//! | `checksum` | crc32c of csum v2 and v3, crc32 of v1 |
//! | `gate` | [`Superblock`]: a journal's superblock, validated |
//! | `block` | headers, tags, revoke records and commit records of log blocks, validated |
//! | `write` | writing these blocks |
//! | [`fc`] | the fast-commit area's tags |
//!
//! Facts: `Documentation/filesystems/ext4/journal.rst` of Linux, and the behaviour of stock tools on journals
//! in the tests.
#![deny(clippy::as_conversions)]

mod block;
mod checksum;
pub mod fc;
mod gate;
pub mod raw;
mod write;

pub(crate) use block::{Tag, TagLayout, header, revoked, tags};
pub(crate) use checksum::Crc32Be;
pub use gate::{Checksums, Compat, Incompat, Superblock};
pub(crate) use write::{descriptor, record, revokes, tag, upgraded};
