//! The common helpers of the tests of Tidegate's crates and of its development commands: oracles and trees.
//!
//! It does: find the independent programs that results are judged by, run the real kernel's file system, make trees
//! and volumes with them, and compare. It does not: know the engine, which it judges from outside.
//!
//! | module | holds |
//! |---|---|
//! | [`oracle`] | the independent programs that results are checked against |
//! | [`overlay`] | images of the states of an exploration, for those programs |
//! | [`manifest`] | a comparable description of every name, attribute and byte of a tree |
//! | [`tree`] | a mounted volume of ours as such a description |
//! | [`uml`] | the real kernel file system, run as an ordinary process |
//! | [`zoned`] | a real kernel with zoned devices, in an emulated machine |
//! | [`fill`] | test trees with every odd corner |
//! | [`exercise`] | a small tree, and the way through it on a damaged volume |
//! | [`power`] | workers whose fsyncs are promises, and what a power cut left of them |
//! | [`ext4`] | ext4 volumes by e2fsprogs and by the kernel |
//! | [`golden`] | F2FS volumes made by the kernel and the reference tools, cached |
//! | [`perfetto`] | Perfetto's trace processor, asked in SQL |
//! | [`workspace`] | where the workspace, its target directory and the helper program are |
//! | [`temp`] | scratch directories that remove themselves |
#![forbid(unsafe_code)]

pub mod exercise;
pub mod ext4;
pub mod fill;
pub mod golden;
pub mod manifest;
pub mod oracle;
pub mod overlay;
pub mod perfetto;
pub mod power;
pub mod temp;
pub mod tree;
pub mod uml;
pub mod workspace;
pub mod zoned;
