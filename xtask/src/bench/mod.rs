//! Black-box measurements of the release binary against its peers.
//!
//! A benchmark only reports: whether a bar is met is printed, never asserted,
//! since the machine at hand decides as much as the code does.

mod cases;
mod ckpt;
mod measure;
mod populate;
mod report;
mod tree;

pub use ckpt::{CkptPlan, ckpt};
pub use measure::{Cost, Spread};
pub use populate::{Plan, populate};
