//! Tooling around Tidegate: nothing here is shipped, everything here judges what is.
//!
//! | module       | what it holds                                                        |
//! |--------------|----------------------------------------------------------------------|
//! | [`arrows`]   | which file of a crate calls which                                     |
//! | [`mutants`]  | changes that tests must notice                                         |
//! | [`bench`](mod@bench)    | black-box measurements against peers                                  |
//! | [`suite`]    | every check in order                                                  |
//! | [`programs`] | the test programs, as many at once as there are CPUs                  |
//! | [`licences`] | whether all that is built in may be given on                          |
//! | [`soak`]     | the mount's tests at length                                           |
//! | [`watched`]  | a command whose children may not run for ever                         |
//! | [`zoned`]    | a script under a real kernel with zoned devices                       |

#![forbid(unsafe_code)]

pub mod arrows;
pub mod bench;
pub mod licences;
pub mod mutants;
pub mod programs;
pub mod soak;
pub mod suite;
pub mod watched;
pub mod zoned;
