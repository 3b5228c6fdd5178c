//! Runs the cases, each in a thread of its own, and judges how they end.

use crate::cases::{Case, orphaned, summed};
use crate::fuzz_body::{clean, exercise};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, Once};
use std::thread;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(10);
const MAX_GROWTH: usize = 300 << 20;
/// Failures after which a test gives up; after hangs, which take time, it gives up sooner.
const ENOUGH: usize = 20;

static PANICS: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// Keeps the place of each panic with the name of its thread, since a joined thread does not tell it.
pub fn keep_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let name = thread::current().name().unwrap_or("?").to_string();
            // Panics of the tests themselves take the usual way.
            if info.location().is_none_or(|at| at.file().contains("tests/corrupt/")) {
                return before(info);
            }
            PANICS.lock().unwrap().push((name, info.to_string()));
        }));
    });
}

/// Takes the panics of a thread, or of all threads that run no case.
fn panics_of(name: Option<&str>) -> String {
    let mut all = PANICS.lock().unwrap();
    let mine = |who: &str| name.map_or(!who.starts_with("case "), |n| who == n);
    let found: Vec<String> =
        all.iter().filter(|(who, _)| mine(who)).map(|(who, what)| format!("[{who}] {what}")).collect();
    all.retain(|(who, _)| !mine(who));
    found.join("; ")
}

/// Memory of this process in bytes.
fn memory() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

/// Growth of this process's memory since the volumes were made.
pub fn growth() -> usize {
    static START: AtomicUsize = AtomicUsize::new(0);
    if START.load(Relaxed) == 0 {
        clean();
        orphaned();
        summed();
        let _ = START.compare_exchange(0, memory(), Relaxed, Relaxed);
    }
    memory().saturating_sub(START.load(Relaxed))
}

/// Fails once when all cases together leave too much memory behind: later cases would tell no more.
fn leaking(name: &str) -> Result<(), String> {
    static TOLD: AtomicBool = AtomicBool::new(false);
    let grown = growth();
    if grown < MAX_GROWTH || TOLD.swap(true, Relaxed) {
        return Ok(());
    }
    Err(format!("up to {name}, the cases of all tests together left {} MiB in use", grown >> 20))
}

/// Runs `f` in a thread named after the case; returns the fault of the run. A thread that hangs is left
/// behind, since nothing can end it.
pub fn guarded<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> Result<T, String> {
    let (send, done) = channel();
    let name = format!("case {name}");
    let worker = thread::Builder::new().name(name.clone());
    let worker = worker.spawn(move || drop(send.send(f()))).unwrap();
    let (start, before) = (Instant::now(), growth());
    let result = loop {
        match done.recv_timeout(Duration::from_millis(100)) {
            Ok(v) => break v,
            Err(RecvTimeoutError::Disconnected) => {
                let _ = worker.join();
                return Err(format!("{name} panicked: {}", panics_of(Some(&name))));
            }
            Err(RecvTimeoutError::Timeout) if growth() > before + MAX_GROWTH => {
                return Err(format!("{name}: {} MiB more in use while it runs", (growth() - before) >> 20));
            }
            Err(RecvTimeoutError::Timeout) if start.elapsed() > LIMIT => {
                return Err(format!("{name} hangs: not done in {LIMIT:?}"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
    };
    let _ = worker.join();
    let others = panics_of(None);
    if !others.is_empty() {
        return Err(format!("{name}, or one at the same time, made another thread panic: {others}"));
    }
    leaking(&name)?;
    Ok(result)
}

pub fn wanted(name: &str) -> bool {
    std::env::var("TIDEGATE_CASE").map_or(true, |text| name.contains(&text))
}

/// Runs all cases and fails with the names of the cases that got no answer.
pub fn run_all(cases: Vec<Case>) {
    keep_panics();
    growth();
    let start = Instant::now();
    let (mut failures, mut mounted) = (Vec::new(), 0);
    let cases: Vec<Case> = cases.into_iter().filter(|c| wanted(&c.name)).collect();
    let count = cases.len();
    for case in cases {
        let device = case.sample.damaged(&case.patches, case.fix);
        match guarded(&case.name, move || exercise(device)) {
            Ok(seen) => mounted += usize::from(seen.mounted),
            Err(e) => {
                eprintln!("FAILED: {e}");
                failures.push(e);
            }
        }
        if failures.len() >= ENOUGH || start.elapsed() > 3 * LIMIT {
            break;
        }
    }
    println!("{count} cases, {mounted} mounted, {:?}, {} MiB more", start.elapsed(), growth() >> 20);
    report(&failures);
}

pub fn report(failures: &[String]) {
    assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
}
