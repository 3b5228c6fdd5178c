//! Black-box measurements of the shipped program against its peers.
//!
//! A benchmark only reports: whether a bar is met is printed, never asserted,
//! since the machine at hand decides as much as the code does.
//!
//! | module                                    | what it holds                                      |
//! |-------------------------------------------|----------------------------------------------------|
//! | [`cli`]                                   | what can be asked for                              |
//! | `populate`, `cases`, `tree`, `report`     | volumes filled, emptied, streamed into and opened  |
//! | `fsync`, `commit`, `writepages`, `streams`, `gc`, `scattered` | workloads in an open volume                        |
//! | `ckpt`                                    | the lab's m5, in real time                         |
//! | `trace`                                   | what looking into the engine costs                 |
//! | `mount`                                   | our mount, fuse2fs and ext4 side by side           |
//! | `workload`, `image`                       | running those, and the image they run on           |
//! | `series`, `measure`, `show`               | rounds, medians, tables and bars                   |

mod cases;
mod ckpt;
pub mod cli;
mod commit;
mod fsync;
mod gc;
mod image;
mod measure;
mod mount;
mod populate;
mod report;
mod scattered;
mod series;
mod show;
mod streams;
mod trace;
mod tree;
mod workload;
mod writepages;

pub use cli::Task;
pub use measure::{Cost, Spread};
