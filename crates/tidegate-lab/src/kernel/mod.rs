//! Linux's own file systems: in a guest of user-mode-linux, or mounted on this host.
//!
//! A guest needs no root. It runs the running program as its process 1 and as the process that works there.
//! The program must have the commands [`tidegate_uml::INIT`] and [`WORK`], as `tidegate` does.
//!
//! | module | holds |
//! |---|---|
//! | `named` | volumes by name: `f2fs,nocheckpoint_merge` |
//! | `fresh` | new images, made by the format's own program |
//! | `guest` | a workload in a guest: the host's side and the guest's |
//! | `host` | a loop mount on the host |

mod fresh;
mod guest;
mod host;
mod named;

pub use guest::{Guest, Ran, Shares, WORK, work};
pub use named::{Format, Named, What};

pub(crate) use fresh::directory;
pub(crate) use host::with_mounted;
pub(crate) use named::joined;
