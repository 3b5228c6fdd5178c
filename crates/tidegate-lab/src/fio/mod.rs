//! Jobs in the manner of fio: fio's job files are read, run on a target, and reported in fio's JSON.
//!
//! Lock owned: `lab->jobs` 11.
//!
//! | module | holds |
//! |---|---|
//! | `parse` | [`JobFile`]: sections, keys, errors with their places |
//! | `units` | sizes and times as fio writes them |
//! | `job` | [`Job`]: one section with its values |
//! | `offsets` | the order of blocks |
//! | [`run`](mod@run) | running jobs: layout of files, threads, waves |
//! | `table` | the results as a table |
//! | [`json`] | the output of fio's `--output-format=json` |

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
