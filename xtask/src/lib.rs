//! Tooling around Tidegate: nothing here is shipped, everything here judges what is.
//!
//! | module       | what it holds                                                        |
//! |--------------|----------------------------------------------------------------------|
//! | [`arrows`]   | which file of a crate calls which                                     |
//! | [`oracle`]   | the independent programs results are checked against                  |
//! | [`manifest`] | a comparable description of every name, attribute and byte of a tree  |
//! | [`mutants`]  | changes that tests must notice                                         |
//! | [`uml`]      | the real kernel file system, run as an ordinary process               |
//! | [`fill`]     | test trees with every odd corner                                      |
//! | [`power`]    | workers whose fsyncs are promises, and what a power cut left of them     |
//! | [`golden`]   | volumes made by the kernel and the reference tools, cached            |
//! | [`perfetto`] | Perfetto's trace processor, asked in SQL                              |
//! | [`bench`]    | black-box measurements against peers                                  |
//! | [`suite`]    | every check in order                                                  |
//! | [`soak`]     | the mount's tests at length                                           |
//! | [`workspace`]| where the workspace, its target directory and this helper binary are  |
//! | [`temp`]     | scratch directories that remove themselves                            |

#![forbid(unsafe_code)]

pub mod arrows;
pub mod bench;
pub mod fill;
pub mod golden;
pub mod manifest;
pub mod mutants;
pub mod oracle;
pub mod perfetto;
pub mod power;
pub mod soak;
pub mod suite;
pub mod temp;
pub mod uml;
pub mod workspace;
