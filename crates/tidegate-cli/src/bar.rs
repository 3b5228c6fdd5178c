//! A progress bar, on a terminal, for operations that take more than a second.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate::Progress;
use tidegate_rt::WaitQueue;
use tidegate_rt::thread::{JoinHandle, spawn};

/// When a bar appears, and how often it moves.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

#[derive(Default)]
struct Stop {
    now: AtomicBool,
    queue: WaitQueue,
}

impl Stop {
    fn wait(&self, d: Duration) -> bool {
        self.queue.wait_timeout(d, || self.now.load(SeqCst))
    }
}

/// A bar that is removed when dropped.
pub struct Bar {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Shows `progress`. It has no colours, so NO_COLOR does not matter.
    pub fn new(progress: &Arc<Progress>, quiet: bool) -> Bar {
        let stop = Arc::new(Stop::default());
        let (s, p) = (stop.clone(), progress.clone());
        let wanted = !quiet && std::io::stderr().is_terminal();
        let thread = wanted.then(|| spawn("tg-progress", move || show(&p, &s)).ok()).flatten();
        Bar { stop, thread }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.stop.now.store(true, SeqCst);
        self.stop.queue.wake_all();
        if let Some(t) = self.thread.take() {
            t.join();
        }
    }
}

/// Shows how much of a waiting time is left, until it is dropped.
pub struct Countdown {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

impl Countdown {
    /// Begins now. Short times are not shown.
    pub fn new(what: &'static str, long: Duration, quiet: bool) -> Countdown {
        let stop = Arc::new(Stop::default());
        let s = stop.clone();
        let wanted = !quiet && long > PATIENCE && std::io::stderr().is_terminal();
        let thread = wanted.then(|| spawn("tg-progress", move || count(what, long, &s)).ok()).flatten();
        Countdown { stop, thread }
    }
}

impl Drop for Countdown {
    fn drop(&mut self) {
        self.stop.now.store(true, SeqCst);
        self.stop.queue.wake_all();
        if let Some(t) = self.thread.take() {
            t.join();
        }
    }
}

fn count(what: &'static str, long: Duration, stop: &Stop) {
    let bar = ProgressBar::with_draw_target(Some(long.as_millis() as u64), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{msg} [{bar:30}] {elapsed}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()).progress_chars("=> "));
    bar.set_message(what);
    loop {
        bar.set_position(bar.elapsed().as_millis() as u64);
        if stop.wait(TICK) {
            break;
        }
    }
    bar.finish_and_clear();
}

fn show(p: &Progress, stop: &Stop) {
    if stop.wait(PATIENCE) {
        return;
    }
    let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    let known = "{msg} [{bar:30}] {binary_bytes}/{binary_total_bytes} {binary_bytes_per_sec}";
    let unknown = "{spinner} {msg} {binary_bytes} {binary_bytes_per_sec}";
    let style = |t: &str| ProgressStyle::with_template(t).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.set_style(style(unknown).progress_chars("=> "));
    let mut has_total = false;
    loop {
        let total = p.total_bytes();
        if total > 0 && !has_total {
            has_total = true;
            bar.set_length(total);
            bar.set_style(style(known).progress_chars("=> "));
        }
        bar.set_position(p.bytes());
        bar.set_message(match p.total_files() {
            0 => format!("{} files", p.files()),
            n => format!("{}/{n} files", p.files() + p.dirs()),
        });
        bar.tick();
        if stop.wait(TICK) {
            break;
        }
    }
    bar.finish_and_clear();
}
