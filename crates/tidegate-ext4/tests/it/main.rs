//! Tests of ext4 volumes, in one program. The volumes are made by mke2fs, written by Linux, damaged at
//! random, and checked by Linux and e2fsprogs.

mod ahead;
mod apart;
mod bitmaps;
mod changed;
mod checked;
mod common;
mod crash;
mod damaged;
mod datasync;
mod defaults;
mod encrypted;
mod failing;
mod fast_commits;
mod flagged;
mod foreign;
mod fuzz_body;
mod fuzzed;
mod golden;
mod grown;
mod hashes;
mod hostile;
mod indirect;
mod journaled;
mod killed;
mod listed;
mod made;
mod mazes;
mod mkfs;
mod mkfs_judged;
mod model;
mod old;
mod overtaken;
mod placed;
mod places;
mod plugged;
mod punched;
mod refused;
mod repaired;
mod reserve;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // they drive and await other processes
mod rig;
mod scattered;
mod shifted;
mod small_blocks;
mod small_groups;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // the judging programs need real time
mod soaked;
mod switches;
mod trimmed;
mod undone;
mod unread;
mod written;
mod zeroed;
