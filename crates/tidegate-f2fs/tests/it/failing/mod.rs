//! Devices whose writes fail, end short or end late, by what they write: errors come to whom the policy
//! says, nothing that was promised is lost, and nothing hangs.
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

/// Whether a case is to be run.
fn wanted(name: &str) -> bool {
    std::env::var("TIDEGATE_CASE").map_or(true, |t| name.contains(&t))
}
