//! The settings of a simulated run.

use crate::clock::Nanos;

/// The time that the program's work takes on the simulated CPUs. All other work takes no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Entry into a system call and return from it.
    pub syscall: Nanos,
    /// A copy of 4096 bytes.
    pub copy_page: Nanos,
    /// Taking or releasing an uncontended lock.
    pub lock: Nanos,
    /// Waking a sleeping task: the time of the waking task.
    pub wake: Nanos,
    /// The time from a wake-up until the woken task is ready. No CPU is busy with it.
    pub wake_up: Nanos,
    /// A switch of a CPU to another task.
    pub switch: Nanos,
    /// Writing to a page of the cache, beside its copy.
    pub cache_page: Nanos,
    /// Taking a dirty page for writing and putting it into a bio.
    pub write_page: Nanos,
    /// Finding and noting a place on the device: for each page where pages are placed one by one, for each run of pages
    /// where runs are placed at once.
    pub place: Nanos,
    /// A bio, from its beginning to its completion.
    pub bio: Nanos,
}

impl Costs {
    /// No work takes time.
    pub const FREE: Costs = Costs {
        syscall: Nanos(0),
        copy_page: Nanos(0),
        lock: Nanos(0),
        wake: Nanos(0),
        wake_up: Nanos(0),
        switch: Nanos(0),
        cache_page: Nanos(0),
        write_page: Nanos(0),
        place: Nanos(0),
        bio: Nanos(0),
    };
}

impl Costs {
    /// The costs in a virtual machine, where the hypervisor sends the interrupt to another CPU: a wake-up
    /// takes 7 µs of the waking task, and the other task runs after 4. Measured by `cargo run --release -p
    /// tidegate-rt --example wake_up` (the quicker tenth) on two CPUs of an AMD EPYC under Firecracker.
    pub fn of_virtual_machine() -> Costs {
        Costs { wake: Nanos(7_000), wake_up: Nanos(4_000), ..Costs::default() }
    }
}

impl Default for Costs {
    /// Round figures between published ones for servers and desktops of about 2020, none of them fitted to a
    /// result:
    ///
    /// - a system call, 0.2 µs: an empty one takes 0.1 µs without mitigations and 0.3 with them
    ///   (<https://blog.i0.pm/posts/the-cost-of-a-syscall-measured-190303/>);
    /// - a copy at 10 GB/s, as STREAM reports for one core of a server;
    /// - a lock that is free, 20 ns: 17 to 25 in the lists of "latency numbers every programmer should know" after
    ///   J. Dean and P. Norvig;
    /// - a switch between threads, 1.5 µs: 1.2 to 1.5 on one CPU, and with a wake-up on another one two to three
    ///   times that (E. Bendersky, "Measuring context switching and memory overheads for Linux threads", 2018);
    /// - a page of the cache, 0.4 µs: as much as its copy, since pages of 4 KiB made large reads a factor of two to
    ///   three slower (K. Overstreet, linux-mm, 25 February 2024);
    /// - a page to be written, 1.8 µs, and its place, 1.4 µs: in the trace of Linux's commit bb96a8d5 one
    ///   thread places 126 pages in 406 µs, and of `f2fs_write_single_data_page` in the call tree of N.
    ///   Tehrany's notes on F2FS (2022) 44 % are allocation, the node's block and the address;
    /// - a bio, 5 µs: in that trace 9 µs lie between a bio of one page and the next one of one node, less the page's
    ///   and its place.
    fn default() -> Self {
        Costs {
            syscall: Nanos(200),
            copy_page: Nanos(400),
            lock: Nanos(20),
            wake: Nanos(0),
            wake_up: Nanos(3_000),
            switch: Nanos(1_500),
            cache_page: Nanos(400),
            write_page: Nanos(1_800),
            place: Nanos(1_400),
            bio: Nanos(5_000),
        }
    }
}

/// A simulated run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The seed of every choice of the run.
    pub seed: u64,
    /// CPUs; at least 1.
    pub cpus: usize,
    /// The costs of work.
    pub costs: Costs,
    /// Whether a task that wants a lock exclusive spins while every holder is on a CPU, for at most a slice, before it
    /// sleeps: as Linux's mutexes and rw semaphores do (`MUTEX_SPIN_ON_OWNER`, `RWSEM_SPIN_ON_OWNER`).
    pub spin: bool,
    /// The charges that may add up before other tasks move. A smaller value finds more orders, a larger one
    /// is faster.
    pub quantum: Nanos,
    /// How long a task keeps its CPU while others are ready for it.
    pub slice: Nanos,
    /// One in so many meetings of tasks is delayed by up to [`Config::slice`], so that rare orders also
    /// occur; 0 for none.
    pub jitter: u32,
    /// The wall clock at the beginning, in seconds since 1970.
    pub epoch: i64,
    /// Keep at most so many trace events, the latest.
    pub trace: usize,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            seed: 0,
            cpus: 2,
            costs: Costs::default(),
            spin: true,
            quantum: Nanos(1_000),
            slice: Nanos(3_000_000),
            jitter: 0,
            epoch: 1_600_000_000,
            trace: 0,
        }
    }
}
