//! The effect of each position of a switch, in a simulated world: which thread waits for which, and how long.
//! Each of these tests fails when a position behaves like another. Times are virtual. One further test has
//! real threads.

mod bed;
mod checkpoint;
mod drain;
mod flush;
#[path = "../it/common/image.rs"]
#[allow(dead_code)] // as for `volume`
mod image;
mod positions;
#[path = "../it/common/volume.rs"]
#[allow(dead_code, clippy::disallowed_types)] // shared with other tests, which use more of it
mod volume;
mod writepages;
