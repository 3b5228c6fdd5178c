//! What each position of a switch does, in a simulated world: who waits for whom, and for how long. Each of these
//! tests fails when a position behaves as another does. Times are virtual.

mod bed;
mod checkpoint;
mod flush;
mod writepages;
