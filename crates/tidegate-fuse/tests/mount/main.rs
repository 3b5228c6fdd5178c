//! Real mounts, checked against the host kernel's ext4, with stock fsck, and against the promises of fsync.
//!
//! | module | holds |
//! |---|---|
//! | `rig` | an image, a process that serves it, a directory |
//! | `ops`, `posix` | scripts of system calls; their results on ext4 and on a mounted volume |
//! | `exercise` | one file, changed in every way, beside a model |
//! | `files` | mappings, caches, locks, ioctls |
//! | `flags` | operations that chattr +i and +a forbid |
//! | `setid` | changes that remove set-id bits |
//! | `load` | several writers at once |
//! | `kill` | kill -9 under load |
//! | `inside` | a serving process that can be inspected |
//! | `errors` | a device whose writes fail, a process that is stopped |
//! | `full` | a volume that is full |
//! | `host` | an image on another file system in user space |
//! | `damage` | a partly damaged volume |
//! | `shutdown` | shutdown of a volume, more or less of it saved; a full sync |
//! | `whiteout` | renames that leave a whiteout, and the union mount that needs them |
//! | `fsx`, `stress`, `programs` | fsx, stress-ng, fio, sqlite, git |
//! | `postgres` | a database whose disk goes away |
//! | `trees` | rsync and tar, into a mount and out of it |
//! | `memory` | many inodes within a budget |
//! | `whole` | two mounts, a full disk, trees copied in and out |
//!
//! Processes that must be separate (the serving process, users without rights) are further instances of this
//! program.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

mod damage;
mod errors;
mod exercise;
mod files;
mod flags;
mod fsx;
mod full;
mod host;
mod inside;
mod kill;
mod load;
mod memory;
mod ops;
mod posix;
mod postgres;
mod programs;
mod rig;
mod setid;
mod shutdown;
mod streams;
mod stress;
mod trees;
mod whiteout;
mod whole;

/// Not a test: the process that serves a mount, when [`rig`] starts it.
#[test]
fn serving_process() {
    rig::serve_if_asked();
}

/// Not a test: a process that serves and can be inspected, when [`inside`] starts it.
#[test]
fn inspected_process() {
    inside::serve_if_asked();
}

/// Not a test: a process that runs a part of a script as another user.
#[test]
fn script_process() {
    ops::run_if_asked();
}
