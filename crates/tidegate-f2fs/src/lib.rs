//! F2FS.
pub mod gate;
pub mod raw;
pub mod units;
