//! Tooling around Tidegate: nothing here is shipped, everything here judges what is.
//!
//! | module       | what it holds                                                        |
//! |--------------|----------------------------------------------------------------------|
//! | [`arrows`]   | which file of a crate calls which                                     |
//! | [`mutants`]  | changes that tests must notice                                         |
//! | [`bench`]    | black-box measurements against peers                                  |
//! | [`suite`]    | every check in order                                                  |
//! | [`soak`]     | the mount's tests at length                                           |

#![forbid(unsafe_code)]

pub mod arrows;
pub mod bench;
pub mod mutants;

pub mod soak;
pub mod suite;
