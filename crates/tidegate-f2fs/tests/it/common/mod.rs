//! The helpers that the tests share.

pub mod edit;
pub mod image;
pub mod mounted;
pub mod posix;
pub mod rig;
pub mod rules;
pub mod tree;
pub mod volume;
pub mod watch;
pub mod zoned;
pub mod zones;
