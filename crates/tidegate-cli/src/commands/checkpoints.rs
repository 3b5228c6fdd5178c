//! `tidegate info --checkpoints`: the time of a checkpoint of this volume, step by step.

use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use crate::units::duration;
use serde_json::json;
use std::sync::Arc;
use tidegate::detect::Format;
use tidegate::error::Refusal;
use tidegate::vfs::{CommitStats, StepStats};
use tidegate::{Error, Result, Volume};
use tidegate_rt::{clock, thread};

/// Threads that ask, and how often each does.
const THREADS: u64 = 4;
const EACH: u64 = 8;

/// Writes checkpoints and shows their statistics.
///
/// # Errors
/// The volume cannot be opened or written.
pub fn run(place: &Place, global: &Global) -> Result<()> {
    let volume = global.write(place)?;
    if volume.format() != Format::F2fs.name() {
        let what =
            "only f2fs has checkpoints to be asked for; `tidegate why` explains the commits of a mount";
        return Err(Error::refused(Refusal::Unsupported, place.to_string(), what));
    }
    let start = clock::now();
    let volume = ask(volume)?;
    let seconds = clock::now().since(start).duration().as_secs_f64();
    let stats = volume.commit_stats();
    let image = volume.image().to_string();
    volume.unmount()?;
    let mut out = Out::new();
    if global.json {
        out.json(&as_json(&stats, seconds))?;
    } else {
        text(&mut out, &stats, &image, seconds)?;
    }
    out.finish()
}

/// All threads ask as fast as they can.
fn ask(volume: Volume) -> Result<Volume> {
    let volume = Arc::new(volume);
    let spawn = |_| {
        let v = volume.clone();
        let body = move || (0..EACH).try_for_each(|_| v.commit(true));
        thread::spawn("ask", body).map_err(|e| Error::Os("starting a thread".into(), e))
    };
    let threads: Vec<_> = (0..THREADS).map(spawn).collect();
    // All of them end before the first error is returned.
    let results: Vec<Result<()>> = threads.into_iter().map(|t| t.and_then(|t| t.join())).collect();
    results.into_iter().collect::<Result<()>>()?;
    Ok(Arc::into_inner(volume).expect("the threads have ended"))
}

fn as_json(s: &CommitStats, seconds: f64) -> serde_json::Value {
    let step = |t: &StepStats| {
        json!({
            "step": t.name, "frozen": t.frozen, "count": t.count,
            "min_ns": t.min_ns, "mean_ns": t.mean_ns, "p99_ns": t.p99_ns, "max_ns": t.max_ns,
        })
    };
    json!({
        "checkpoint_merge": s.merge,
        "threads": THREADS,
        "seconds": seconds,
        "total_ckpt": s.total,
        "issued_ckpt": s.issued,
        "queued_ckpt": s.queued,
        "cur_ckpt_time_ms": s.cur_ms,
        "peak_ckpt_time_ms": s.peak_ms,
        "steps": s.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn text(out: &mut Out, s: &CommitStats, image: &str, seconds: f64) -> Result<()> {
    let switch = if s.merge { "checkpoint_merge" } else { "nocheckpoint_merge" };
    out.line(format_args!("{image}: {THREADS} threads, {switch}, {seconds:.3} s"))?;
    out.line("\nRequests")?;
    out.line(format_args!("  total_ckpt     {:>6}", s.total))?;
    out.line(format_args!("  issued_ckpt    {:>6}", s.issued))?;
    out.line(format_args!("  queued_ckpt    {:>6}", s.queued))?;
    out.line(format_args!("  cur_ckpt_time  {:>6} ms", s.cur_ms))?;
    out.line(format_args!("  peak_ckpt_time {:>6} ms", s.peak_ms))?;
    out.line("\nSteps (* while operations are frozen)")?;
    out.line(format_args!(
        "    {:<31} {:>5} {:>9} {:>9} {:>9} {:>9}",
        "", "Count", "Min", "Mean", "p99", "Max"
    ))?;
    for t in &s.steps {
        let mark = if t.frozen { '*' } else { ' ' };
        let [min, mean, p99, max] = [t.min_ns, t.mean_ns, t.p99_ns, t.max_ns].map(duration);
        out.line(format_args!(
            "  {mark} {:<31} {:>5} {min:>9} {mean:>9} {p99:>9} {max:>9}",
            t.name, t.count
        ))?;
    }
    Ok(())
}
