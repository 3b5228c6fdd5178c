//! The socket on which a running mount reports its work, for `tidegate top` and `tidegate trace`.
//!
//! It is named after the image, so that image and directory both lead to it, and lies in a directory that only the
//! mounting user may enter. A program asks with a line of JSON and gets lines of JSON; a recording follows its line as
//! chunks of bytes. The mount never waits for a client: each client has a thread of its own and a bounded time to read
//! an answer, and the number of clients is bounded.
//!
//! Lock owned: `control->waiting` 4.
//!
//! | module | holds |
//! |---|---|
//! | [`protocol`] | questions and answers |
//! | [`address`] | the place of the socket of an image or of a mounted directory |
//! | `service` | the mount's side |
//! | [`client`] | the client's side |

pub mod address;
pub mod client;
pub mod protocol;
mod service;

pub use client::{Client, Ending};
pub(crate) use service::Control;
