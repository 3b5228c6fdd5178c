//! The lab: workloads that measure a volume in the process or any mounted directory by the same code.
//!
//! It does: run workloads from published measurements ([`workload`]) and fio's job files ([`fio`]) on a
//! [`Target`], and give everything that was measured as one [`RunResult`]. It does not: make devices (see
//! [`tidegate_block::model`]).
//!
//! | module | holds |
//! |---|---|
//! | [`target`] | [`Target`]: a volume on any device, a directory of the host; [`Rig`]: a new volume on a model |
//! | [`workload`] | [`Spec`] and [`run`]: fs_mark, pgioperf, checkpoint storm, streams |
//! | [`experiment`] | the published experiments, and comparisons |
//! | [`kernel`] | file systems as Linux has them: in a guest, or mounted on this host |
//! | [`fio`] | job files read, run, and reported as fio does |
//! | [`workers`] | the threads of a run, and what is sampled beside them |
//! | [`commit_log`] | the commits of a run, one by one |
//! | [`cpu`] | processor time, as time(1) tells it |
//! | [`record`] | what one thread measures |
//! | [`result`] | what a run gives |
//! | [`report`] | outcomes as one HTML page, and as a table for the terminal |
//! | [`error`] | what can go wrong |
//!
//! Time, threads and sleep come from `tidegate_rt` alone, so a run on a model is the same in simulated time
//! each time. `std::fs` belongs to [`target::Directory`]. The one lock, `lab->sampler` (10), is held while
//! nothing else is taken.
#![forbid(unsafe_code)]

pub mod commit_log;
pub mod cpu;
pub mod error;
pub mod experiment;
pub mod fio;
pub mod kernel;
pub mod record;
pub mod report;
pub mod result;
pub mod target;
pub mod workers;
pub mod workload;

pub use error::{Error, Result};
pub use result::RunResult;
pub use target::{Directory, Rig, Target, TargetFile, VolumeTarget};
pub use workload::{Spec, run};
