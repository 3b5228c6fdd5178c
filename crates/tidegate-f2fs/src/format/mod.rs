//! The bytes of a volume, their units, and the one place that validates them.
//!
//! This module owns no lock and knows no volume: its functions take bytes and give values. Every other module
//! uses it.
//!
//! | module | holds |
//! |---|---|
//! | [`raw`] | structures as they lie on the device |
//! | [`units`] | numbers of blocks, segments and nodes, each of its own type |
//! | [`gate`] | superblock and checkpoint, validated; the features that are supported |
//! | `dentry` | blocks of names: search, insertion, the hash |
#![deny(clippy::as_conversions)]

pub(crate) mod dentry;
pub mod gate;
pub mod raw;
pub mod units;
