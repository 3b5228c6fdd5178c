//! Real mounts, judged by the host kernel's ext4, by stock fsck, and by what fsync promised.
//!
//! | module | holds |
//! |---|---|
//! | `rig` | an image, a process that serves it, a directory |
//! | `ops`, `posix` | scripts of system calls; the same on ext4 and on ours |
//! | `exercise` | one file, every way of changing it, beside a model |
//! | `files` | mappings, caches, locks, ioctls |
//! | `load` | several writers at once |
//! | `kill` | kill -9 under load |
//! | `whole` | two mounts, a full disk, trees copied in and out, memory |
//!
//! Processes that must be others (the one that serves, users without rights) are this program again.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod exercise;
mod files;
mod kill;
mod load;
mod ops;
mod posix;
mod rig;
mod whole;

/// Not a test: the process that serves a mount, when [`rig`] starts it.
#[test]
fn serving_process() {
    rig::serve_if_asked();
}

/// Not a test: a process that runs a part of a script as somebody.
#[test]
fn script_process() {
    ops::run_if_asked();
}
