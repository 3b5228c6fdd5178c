use super::threads::ENDED_RINGS;
use super::*;
use crate::thread;

/// Recording belongs to the process, so one test runs at a time.
static ONE: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

fn event(name: &'static str, i: u64) {
    let point: &'static EventPoint<1> = Box::leak(Box::new(EventPoint::new(name, ["i"])));
    point.record([i]);
}

fn span(name: &'static str, i: u64) -> Span {
    let point: &'static SpanPoint<1> = Box::leak(Box::new(SpanPoint::new(name, ["i"])));
    point.enter([i])
}

fn named<'a>(r: &'a Recorded, name: &str) -> Vec<&'a Event> {
    r.events.iter().filter(|e| e.name == name).collect()
}

#[test]
fn a_full_ring_keeps_the_newest() {
    let _one = ONE.lock();
    enable(Some(3));
    (0..5).for_each(|i| event("n", i));
    enable(None);
    event("n", 9);
    let r = take();
    assert_eq!(named(&r, "n").iter().map(|e| e.args[0].1).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(r.dropped, 2);
    assert_eq!(r.complete_from, named(&r, "n")[0].at);
}

#[test]
fn numbers_stay_with_their_events() {
    let _one = ONE.lock();
    enable(Some(100_000));
    static NONE: EventPoint<0> = EventPoint::new("packed", []);
    static ONE_NUMBER: EventPoint<1> = EventPoint::new("packed", ["a"]);
    static TWO: EventPoint<2> = EventPoint::new("packed", ["a", "b"]);
    static THREE: EventPoint<3> = EventPoint::new("packed", ["a", "b", "c"]);
    static FOUR: EventPoint<4> = EventPoint::new("packed", ["a", "b", "c", "d"]);
    for i in 0..5_000 {
        match i % 5 {
            0 => NONE.record([]),
            1 => ONE_NUMBER.record([i]),
            2 => TWO.record([i; 2]),
            3 => THREE.record([i; 3]),
            _ => FOUR.record([i; 4]),
        }
    }
    enable(None);
    let r = take();
    let seen = named(&r, "packed");
    assert_eq!(seen.len(), 5_000);
    for (i, e) in seen.iter().enumerate() {
        let found: Vec<_> = e.args.iter().filter(|a| !a.0.is_empty()).collect();
        assert_eq!(found.len(), i % 5);
        assert!(found.iter().zip(["a", "b", "c", "d"]).all(|(a, n)| **a == (n, i as u64)), "{e:?}");
    }
}

#[test]
fn what_is_taken_while_points_are_new_is_whole() {
    const EVENTS: u64 = 2_000;
    let _one = ONE.lock();
    enable(Some(4_000));
    let body = || (0..EVENTS).for_each(|i| event(format!("late {i}").leak(), i));
    let thread = thread::spawn("late", body).unwrap();
    let mut seen: Vec<Event> = Vec::new();
    let mut dropped = 0;
    let mut takes = |seen: &mut Vec<Event>| {
        let r = take();
        dropped += r.dropped;
        seen.extend(r.events);
    };
    while !thread.is_finished() {
        // The sleep lets some chunks be read while more are written.
        thread::sleep(std::time::Duration::from_micros(300));
        takes(&mut seen);
    }
    thread.join();
    thread::sleep(std::time::Duration::from_millis(50));
    enable(None);
    takes(&mut seen);
    seen.retain(|e| e.name.starts_with("late "));
    assert_eq!(seen.len() as u64 + dropped, EVENTS);
    assert!(seen.iter().all(|e| e.name == format!("late {}", e.args[0].1)));
    assert!(seen.is_sorted_by_key(|e| e.at));
}

#[test]
fn what_ended_threads_recorded_is_kept_within_a_bound() {
    let _one = ONE.lock();
    enable(Some(10));
    let threads = 3 * ENDED_RINGS as u64;
    for t in 0..threads {
        let body = move || (0..10).for_each(|i| event("ended", t * 10 + i));
        thread::spawn(&format!("t{t}"), body).unwrap().join();
    }
    // A join may return before the thread's own state is dropped: its records are then found later.
    thread::sleep(std::time::Duration::from_millis(50));
    enable(None);
    let r = take();
    let seen = named(&r, "ended");
    assert_eq!(seen.len() as u64 + r.dropped, threads * 10);
    assert!(seen.len() <= 10 * (ENDED_RINGS + 1) && seen.len() >= 10 * ENDED_RINGS, "{}", seen.len());
    let last = seen.last().unwrap();
    assert_eq!((last.args[0].1, &*r.threads[&last.thread]), (threads * 10 - 1, "t11"));
}

#[test]
fn spans_are_recorded_when_they_end_in_their_recording() {
    let _one = ONE.lock();
    let place = Location::caller();
    enable(Some(100));
    let earlier = span("earlier", 0);
    enable(None);
    enable(Some(100));
    drop(earlier);
    {
        let _outer = span("outer", 7);
        event("point", 8);
        let _inner = span("inner", 0);
        contention("lock", 7, (clock::stamp(), clock::stamp()), place);
    }
    let open = span("open", 0);
    enable(None);
    drop(open);
    let r = take();
    let mine = r.events.iter().filter(|e| e.thread == crate::thread::id());
    use Phase::*;
    let want = [
        ("outer", Begin, 7),
        ("point", Instant, 8),
        ("inner", Begin, 0),
        ("lock", ContentionBegin, place.line().into()),
        ("lock", ContentionEnd, 0),
        ("inner", End, 0),
        ("outer", End, 0),
    ];
    assert_eq!(mine.map(|e| (e.name, e.phase, e.args[0].1)).collect::<Vec<_>>(), want);
    assert!(r.events.is_sorted_by_key(|e| e.at));
}

#[test]
fn spans_make_a_tree() {
    let _one = ONE.lock();
    enable_calls(true);
    let body = || {
        for _ in 0..3 {
            let _outer = span("outer", 0);
            for _ in 0..2 {
                let _inner = span("inner", 0);
                thread::sleep(std::time::Duration::from_millis(1));
            }
            contention("lock", 7, (clock::stamp(), Nanos(clock::stamp().0 + 5_000_000)), Location::caller());
        }
        enable_calls(false);
        let _after = span("after", 0);
    };
    thread::spawn("tree", body).unwrap().join();
    let r = take();
    assert!(named(&r, "outer").is_empty(), "events were not asked for");
    let tree = r.calls.iter().find(|t| t.thread == "tree").unwrap();
    let found: Vec<_> = tree.nodes.iter().map(|n| (n.name, n.parent, n.count, n.is_lock)).collect();
    let want = [("outer", None, 3, false), ("inner", Some(0), 6, false), ("lock", Some(0), 3, true)];
    assert_eq!(found, want);
    let [outer, inner, lock] = &tree.nodes[..] else { unreachable!() };
    assert!(lock.total_ns >= 15_000_000 && inner.total_ns >= 6_000_000);
    assert_eq!(inner.self_ns, inner.total_ns);
    assert!(outer.self_ns <= outer.total_ns);
}

#[test]
fn an_open_span_is_in_the_tree_up_to_now() {
    let _one = ONE.lock();
    enable_calls(true);
    let outer = span("open outer", 0);
    {
        let _inner = span("open inner", 0);
        thread::sleep(std::time::Duration::from_millis(2));
        let r = take();
        let nodes: Vec<_> = r.calls.iter().flat_map(|t| &t.nodes).collect();
        let inner = nodes.iter().find(|n| n.name == "open inner").unwrap();
        assert!(inner.total_ns >= 2_000_000);
    }
    enable_calls(false);
    drop(outer);
    // Records after this call are in the next one.
    let r = take();
    let nodes: Vec<_> = r.calls.iter().flat_map(|t| &t.nodes).collect();
    assert_eq!(nodes.iter().find(|n| n.name == "open inner").unwrap().count, 1);
}

#[test]
fn events_make_the_same_trees() {
    let e = |at, name, phase| Event { at: Nanos(at), thread: 1, name, phase, args: NO_ARGS };
    use Phase::*;
    let events = [
        e(1, "cut", End),
        e(10, "outer", Begin),
        e(20, "lock", ContentionBegin),
        e(50, "lock", ContentionEnd),
        e(60, "point", Instant),
        e(110, "outer", End),
        e(120, "open", Begin),
    ];
    let trees = CallTree::of_events(&events, |t| format!("thread {t}"));
    let found: Vec<_> = trees[0].nodes.iter().map(|n| (n.name, n.total_ns, n.self_ns)).collect();
    assert_eq!((&*trees[0].thread, found), ("thread 1", vec![("outer", 100, 70), ("lock", 30, 30)]));
}

/// A search that began outside a simulated world counts from the beginning of that world, which has another
/// clock.
#[test]
fn a_simulated_sleep_begins_by_its_own_clock() {
    let _one = ONE.lock();
    let pause = std::time::Duration::from_micros(10);
    crate::clock::prepare_stamps();
    thread::sleep(100 * pause);
    enable_causes(true);
    enable(Some(1000));
    let free = sim::Config { costs: sim::Costs::FREE, ..sim::Config::default() };
    sim::run_with(&free, move || thread::sleep(pause)).unwrap();
    enable(None);
    enable_causes(false);
    let r = take();
    let of = |phase| named(&r, causes::SLEEP).into_iter().find(|e| e.phase == phase).map(|e| e.at);
    let (begin, end) = of(Phase::Begin).zip(of(Phase::End)).unwrap();
    assert!(end.since(begin).duration() >= pause, "{begin:?} to {end:?}");
}

/// A wait that time ended names no waker.
#[test]
fn a_wait_that_is_over_in_time_names_no_queue() {
    let _one = ONE.lock();
    enable_causes(true);
    enable(Some(1000));
    static CLASS: crate::LockClass = crate::LockClass::new("timed", 1);
    let (lock, condvar) = (crate::Mutex::new(&CLASS, ()), crate::Condvar::new());
    let pause = std::time::Duration::from_millis(1);
    condvar.wait_for(&mut lock.lock(), pause);
    crate::wait::WaitQueue::new().wait_timeout(pause, || false);
    enable(None);
    enable_causes(false);
    let r = take();
    let queues = named(&r, causes::SLEEP).into_iter().filter(|e| e.phase == Phase::Begin);
    let queues: Vec<_> = queues.map(|e| e.args.iter().find(|a| a.0 == causes::QUEUE).map(|a| a.1)).collect();
    assert_eq!(queues, [Some(0); 2]);
}

/// Of open spans, only timed ones are reported by a search for causes.
#[test]
fn a_timed_span_that_lasts_is_told() {
    let _one = ONE.lock();
    static OUTER: SpanPoint<1> = SpanPoint::timed("lasting outer", ["n"]);
    static INNER: SpanPoint<1> = SpanPoint::timed("lasting inner", ["n"]);
    let lasting = || {
        let own = |l: &Lasting| l.thread == thread::id();
        take().lasting.into_iter().filter(own).map(|l| l.name).collect::<Vec<_>>()
    };
    let before = OUTER.enter([1]);
    assert!(lasting().is_empty());
    let since = clock::stamp();
    enable_causes(true);
    enable(Some(1000));
    let outer = OUTER.enter([1]);
    let untimed = span("lasting, not timed", 0);
    let inner = INNER.enter([1]);
    enable(None);
    enable_causes(false);
    assert_eq!(lasting(), ["lasting outer", "lasting inner"]);
    drop((inner, untimed));
    let left = take().lasting.into_iter().find(|l| l.thread == thread::id()).unwrap();
    assert!(left.name == "lasting outer" && left.since >= since, "{left:?}");
    drop((outer, before));
    assert!(lasting().is_empty());
}

/// A search that begins during a long operation also reports the spans in which threads are, and their processor time.
#[test]
fn what_began_before_a_look_for_causes_is_recorded_from_its_beginning() {
    let _one = ONE.lock();
    static OUTER: SpanPoint<1> = SpanPoint::new("before the look", ["n"]);
    static CLASS: crate::LockClass = crate::LockClass::new("held before the look", 1);
    let lock = std::sync::Arc::new(crate::Mutex::new(&CLASS, ()));
    let held = lock.lock();
    let outer = OUTER.enter([7]);
    let (starts, started) = std::sync::mpsc::channel();
    let other = {
        let lock = lock.clone();
        let work = move || {
            starts.send(rustix::thread::gettid()).unwrap();
            drop(lock.lock());
        };
        thread::spawn("waits", work)
    };
    let state = format!("/proc/self/task/{}/stat", started.recv().unwrap().as_raw_nonzero());
    while !std::fs::read_to_string(&state).unwrap().contains(") S ") {
        thread::sleep(std::time::Duration::from_millis(1));
    }
    clock::prepare_stamps();
    let before = clock::stamp();
    enable_causes(true);
    enable(Some(1000));
    let began = clock::stamp();
    while clock::stamp().since(began) < Nanos(5_000_000) {}
    drop(outer);
    drop(held);
    other.unwrap().join();
    enable(None);
    enable_causes(false);
    let r = take();
    let own: Vec<&Event> = r.events.iter().filter(|e| e.thread == thread::id()).collect();
    let account = own.iter().find(|e| e.name == causes::PROCESSOR).unwrap();
    let begin = own.iter().find(|e| e.name == "before the look").unwrap();
    assert_eq!((begin.phase, begin.args[0]), (Phase::Begin, ("n", 7)));
    assert!(before <= begin.at && begin.at <= began, "{before:?}, {begin:?}, {began:?}");
    assert!(account.at == begin.at && account.args[0].1 > 0, "{account:?}, {begin:?}");
    let waits = named(&r, "held before the look");
    let wait = waits.iter().find(|e| e.phase == Phase::ContentionBegin).unwrap();
    // Both times are equal if the thread was already waiting.
    assert!(wait.at >= begin.at, "{wait:?}, {begin:?}");
}
