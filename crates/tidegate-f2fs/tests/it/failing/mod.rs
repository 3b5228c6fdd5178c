//! Devices whose writes fail, end short or end late, by the kind of block: errors reach the threads that the
//! policy names, nothing that was promised is lost, and nothing hangs.
//!
//! A failure names its case and seed; `TIDEGATE_CASE=text` runs only those whose names contain the text.

mod classes;
mod data;
mod late;
mod load;
mod names;
mod packs;
mod reads;
mod rig;

/// Whether a case shall run.
fn wanted(name: &str) -> bool {
    std::env::var("TIDEGATE_CASE").map_or(true, |t| name.contains(&t))
}
