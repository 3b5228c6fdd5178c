//! Jobs in the manner of fio: its job files read, run on a target, and reported in its JSON.
//!
//! Lock owned: `lab->jobs` 11.
//!
//! | module | holds |
//! |---|---|
//! | `parse` | [`JobFile`]: sections, keys, what is not understood and where |
//! | `units` | sizes and times as fio writes them |
//! | `job` | [`Job`]: one section with its values |
//! | `offsets` | which block is next |
//! | [`run`](mod@run) | running jobs: layout of files, threads, waves |
//! | `table` | the same for people |
//! | [`json`] | what fio prints with `--output-format=json` |

mod job;
pub mod json;
mod offsets;
mod parse;
pub mod run;
mod table;
mod units;

pub use job::{Job, Pattern};
pub use parse::{JobFile, ParseError};
pub use run::{Outcome, run};
pub use table::table;
