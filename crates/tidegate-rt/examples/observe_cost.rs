//! The cost of observation: nanoseconds of one lock, span and event, on one thread that does nothing else,
//! with all observation off and with each kind on.
//!
//! ```sh
//! cargo run --release -p tidegate-rt --example observe_cost
//! ```
#![forbid(unsafe_code)]

use tidegate_rt::trace::{self, EventPoint, SpanPoint};
use tidegate_rt::{LockClass, Mutex, clock, lockstat};

/// A lock that is held across operations: each hold is timed. And a lock that is held for a moment: some
/// holds are timed.
static OUTER: LockClass = LockClass::new("example->outer", 20);
static INNER: LockClass = LockClass::new("example->inner", 700);

static SPAN: SpanPoint<3> = SpanPoint::new("span", ["ino", "pos", "len"]);
static EVENT: EventPoint<3> = EventPoint::new("event", ["ino", "pos", "len"]);

const TIMES: u32 = 200_000;

/// The least time of several runs, in nanoseconds.
fn each(mut f: impl FnMut()) -> f64 {
    let once = |f: &mut dyn FnMut()| {
        let start = clock::now();
        (0..TIMES).for_each(|_| f());
        clock::now().since(start).0 as f64 / f64::from(TIMES)
    };
    (0..15).map(|_| once(&mut f)).fold(f64::MAX, f64::min)
}

fn row(what: &str) {
    let (outer, inner) = (Mutex::new(&OUTER, 0u64), Mutex::new(&INNER, 0u64));
    let numbers = [5, 4096, 4096];
    println!(
        "{what:<10} {:>8.1} {:>8.1} {:>8.1} {:>8.1}",
        each(|| *outer.lock() += 1),
        each(|| *inner.lock() += 1),
        each(|| drop(SPAN.enter(numbers))),
        each(|| EVENT.record(numbers)),
    );
}

fn main() {
    println!("{:<10} {:>8} {:>8} {:>8} {:>8}   ns", "", "outer", "inner", "span", "event");
    row("off");
    lockstat::enable(true);
    row("lockstat");
    lockstat::enable(false);
    trace::enable(Some(65_536));
    row("trace");
    trace::enable(None);
    drop(trace::take());
    trace::enable_calls(true);
    row("profile");
    println!("{:<10} {:>8.1}", "clock", each(|| _ = std::hint::black_box(clock::now())));
    println!("{:<10} {:>8.1}", "stamp", each(|| _ = std::hint::black_box(clock::stamp())));
}
