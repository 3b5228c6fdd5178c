//! The state that a power cut must leave: workers that change files and sync them, and the results that are
//! allowed.
//!
//! A worker's operations follow from its seed alone, and each operation ends in an fsync of the changed file.
//! After each operation the worker prints one line, so a reader of the lines knows the promises: the
//! operations are repeated on a [`Model`], and an operation that was under way when the power failed may be
//! there in part.
//!
//! | module    | holds                                                  |
//! |-----------|--------------------------------------------------------|
//! | [`model`] | files as they must be, and the steps that change them   |
//! | [`plan`]  | which steps a worker takes                              |
//! | [`judge`] | reading the lines, and comparing with what is there     |
//! | [`guest`] | the workers on a mounted directory |

pub mod guest;
pub mod judge;
pub mod model;
pub mod plan;

pub use guest::{verify, work};
pub use judge::{Promises, Seen, View};
pub use model::{FileState, Model, Slot, Step, UNIT, content};
pub use plan::{Failure, Op, Store, Worker};
