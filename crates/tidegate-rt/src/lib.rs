//! The runtime below every other Tidegate crate: time, threads, locks, waiting, tracing.
//!
//! It does: give one API for the services of the operating system that a concurrent program needs, name every
//! lock by a [`LockClass`], count the cost of locks, and record trace events in per-thread rings. It does
//! not: do I/O, know file systems, or keep anything for a volume. Lock statistics and trace switches are
//! those of the process, as in a kernel they are those of the machine.
//!
//! Callers see no type of `std::thread`, `std::sync` locks or `std::time`: this API has two implementations,
//! the operating system and, inside [`sim::run`], a simulated world (virtual time, one thread at a time, in
//! an order that a seed chooses).
//!
//! | module | holds |
//! |---|---|
//! | [`clock`] | monotonic [`Nanos`], wall-clock [`Timespec`] |
//! | [`thread`] | spawn, sleep, parallelism |
//! | [`class`] | [`LockClass`]: name and rank; the debug check of lock order |
//! | [`device_wait`] | waits for a device with locks held that others need: counted; checked in debug builds |
//! | [`hash`] | [`HashMap`](hash::HashMap), [`HashSet`](hash::HashSet): hashed by seeds of their own |
//! | [`lock`] | [`Mutex`], [`RwLock`], [`Condvar`] |
//! | [`wait`] | [`WaitQueue`]: wait for a condition, wake all |
//! | [`channel`] | a channel bounded by weight |
//! | [`histogram`] | counts of times and sizes |
//! | [`lockstat`] | statistics by class, switched at run time |
//! | [`rng`] | seeded numbers |
//! | [`sim`] | the simulated world |
//! | [`trace`], [`profile`] | trace points and their rings; trees of calls |
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_types, clippy::disallowed_methods)] // this crate is what the rule points to

pub mod channel;
pub mod class;
pub mod clock;
pub mod device_wait;
pub mod hash;
pub mod histogram;
pub mod lock;
pub mod lockstat;
pub mod profile;
pub mod rng;
pub mod sim;
pub mod thread;
pub mod trace;
pub mod wait;

pub use class::LockClass;
pub use clock::{Nanos, Timespec};
pub use histogram::{Distribution, Histogram};
pub use lock::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use wait::WaitQueue;
