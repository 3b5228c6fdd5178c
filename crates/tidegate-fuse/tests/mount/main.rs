//! Real mounts, judged by the host kernel's ext4, by stock fsck, and by what fsync promised.
//!
//! | module | holds |
//! |---|---|
//! | `rig` | an image, a process that serves it, a directory |
//! | `ops`, `posix` | scripts of system calls; the same on ext4 and on ours |
//! | `exercise` | one file, every way of changing it, beside a model |
//! | `files` | mappings, caches, locks, ioctls |
//! | `flags` | what chattr +i and +a forbid |
//! | `setid` | who takes set-id bits from a file |
//! | `load` | several writers at once |
//! | `kill` | kill -9 under load |
//! | `inside` | a serving process that can be looked into |
//! | `errors` | a device whose writes fail, a process that is stopped |
//! | `full` | a volume that is full |
//! | `host` | an image on another file system in user space |
//! | `damage` | a volume of which a part is damaged |
//! | `shutdown` | ending a volume, more or less of it saved; syncing all of it |
//! | `whiteout` | renames that leave a whiteout, and the union mount that wants them |
//! | `fsx`, `stress`, `programs` | fsx, stress-ng, fio, sqlite, git |
//! | `postgres` | a database whose disk goes away |
//! | `trees` | rsync and tar, there and back |
//! | `memory` | many inodes within a budget |
//! | `whole` | two mounts, a full disk, trees copied in and out |
//!
//! Processes that must be others (the one that serves, users without rights) are this program again.
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

/// Not a test: one that serves and can be looked into, when [`inside`] starts it.
#[test]
fn inspected_process() {
    inside::serve_if_asked();
}

/// Not a test: a process that runs a part of a script as somebody.
#[test]
fn script_process() {
    ops::run_if_asked();
}
