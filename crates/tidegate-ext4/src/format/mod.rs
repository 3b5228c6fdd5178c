//! The bytes of the format, their units, their checksums, and the one place that validates them.
//!
//! This module owns no lock and knows no volume: its functions take bytes and give values. Callers: every
//! other module.
//!
//! | module | holds |
//! |---|---|
//! | [`raw`] | structures as they lie on the volume |
//! | [`units`] | block numbers, group numbers |
//! | [`gate`] | superblock and group descriptors, validated against the device |
//! | [`block_map`] | geometry of the block map |
//! | [`crc`] | crc32c and crc16 as the format chains them |
//! | [`hash`] | the hashes of names |
#![deny(clippy::as_conversions)]

pub mod block_map;
pub mod crc;
pub mod gate;
pub mod hash;
pub mod raw;
pub mod units;
