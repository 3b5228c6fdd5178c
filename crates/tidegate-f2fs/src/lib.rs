//! F2FS.
pub mod raw;
pub mod units;
