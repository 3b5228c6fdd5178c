//! Tests that start the program and check its output and its results, as one test program.
//!
//! The other tests have a program each: tests that mount see the other mounts of the machine, and `lab_kernel` counts
//! processes.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // tests wait for real processes

#[path = "../common/mod.rs"]
mod common;

mod arguments;
mod attributes;
mod commands;
mod cp;
mod cp_across;
mod cp_in;
mod devices;
mod disks;
mod durable;
mod errors;
mod ext4;
mod host_full;
mod json;
mod lab;
mod mkfs;
mod mkfs_ext4;
mod names;
mod repair;
mod roundtrip;
mod same;
mod shells;
mod streams;
mod system;
mod tar_names;
mod tar_records;
mod tour;
mod trim;
mod walks;
#[allow(clippy::disallowed_types)] // the time that a real machine may take
mod zoned_guest;
