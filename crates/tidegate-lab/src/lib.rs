//! The lab: workloads that measure a volume in the process or any mounted directory by the same code.
//!
//! This crate runs workloads from published measurements ([`workload`]) and fio's job files ([`fio`]) on a
//! [`Target`], and returns all measurements as one [`RunResult`]. It makes no devices (see
//! [`tidegate_block::model`]).
//!
//! | module | holds |
//! |---|---|
//! | [`target`] | [`Target`]: a volume on any device, a directory of the host; [`Rig`]: a new volume on a model |
//! | [`workload`] | [`Spec`] and [`run`]: fs_mark, pgioperf, checkpoint storm, streams |
//! | [`experiment`] | the published experiments, and comparisons |
//! | [`kernel`] | Linux's own file systems: in a guest, or mounted on this host |
//! | [`fio`] | job files read, run, and reported as fio does |
//! | [`workers`] | the threads of a run, and the sampling beside them |
//! | [`commit_log`] | the commits of a run, one by one |
//! | [`cpu`] | processor time, as time(1) tells it |
//! | [`record`] | the measurements of one thread |
//! | [`result`] | the result of a run |
//! | [`report`] | outcomes as one HTML page, and as a table for the terminal |
//! | [`error`] | errors |
//!
//! Time, threads and sleep come only from `tidegate_rt`, so runs on a model in simulated time are equal. Of
//! the targets of workloads, only [`target::Directory`] uses `std::fs`. No other lock is taken while the lock `lab->sampler` (10) is held.
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
