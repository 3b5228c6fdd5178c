//! The engine's tests, one program.
//!
//! A test goes here unless it needs a process of its own: `corrupt` measures the memory in use, and `mechanisms`
//! reads the statistics of locks, both of which are the process's.

mod acl;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod agree;
mod bounded;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod chain;
mod ckpt;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)] // only a thread outside can notice a hang
mod common;
mod concurrent;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod cut;
mod discard;
mod failing;
mod fsync;
mod full;
mod gc;
mod golden;
mod kernel;
mod large_dir;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod model;
mod orphans;
mod pinned;
mod power;
mod readahead;
mod repair;
mod roll_forward;
mod sections;
mod small;
mod smoke;
mod streams;
mod streams_kernel;
mod tree;
mod util;
mod xattr_node;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod zoned;
mod zoned_cut;
mod zoned_dead;
mod zoned_finish;
mod zoned_full;
#[allow(clippy::disallowed_types, clippy::disallowed_methods)]
mod zoned_kernel;
mod zoned_order;
mod zoned_repair;
mod zoned_sim;
