//! The rest of an operation when all its waits have names: its thread ran, or waited for a processor, or it
//! is not known.

use super::part::{Cause, Part, joined};

/// Divides the work of an operation's own thread into time that it ran and time that it waited for a processor. If the
/// system does not tell the latter, the thread may have waited all the time that it did not run.
pub(super) fn split(parts: Vec<Part>, processor: Option<(u64, Option<u64>)>) -> Vec<Part> {
    let work = of(&parts, Cause::Work);
    let Some((ran, delayed)) = processor.filter(|_| work > 0) else { return parts };
    // Running time in other parts of the thread is already known from closer accounts.
    let running = work.min(ran.saturating_sub(of(&parts, Cause::Running)));
    let left = work - running;
    // A thread that is woken also waits for a processor: that time already has its name.
    let waited = delayed.map(|d| d.saturating_sub(of(&parts, Cause::Processor)));
    let waiting = waited.map_or(left, |w| w.min(left));
    divided(parts, &|p| {
        let share = |of: u64| (u128::from(p.ns) * u128::from(of) / u128::from(work)) as u64;
        let (running, waiting) = (share(running), share(waiting));
        let unknown = p.ns - running - waiting;
        let within = |ns| vec![Part::new(Cause::Work, p.what.clone(), ns)];
        vec![
            Part::new(Cause::Running, "running", running).with(within(running)),
            Part::new(Cause::Processor, "waiting for a CPU", waiting).with(within(waiting)),
            Part::new(Cause::Unknown, "asleep, and nothing says why", unknown).with(within(unknown)),
        ]
    })
}

/// Divides a thread's work into the time that it ran, `ran` in all, and the rest, which stays work of which nothing is
/// known.
pub(super) fn running(parts: Vec<Part>, ran: u64) -> Vec<Part> {
    let work = of(&parts, Cause::Work);
    let running = work.min(ran);
    if running == 0 {
        return parts;
    }
    divided(parts, &|p| {
        let running = (u128::from(p.ns) * u128::from(running) / u128::from(work)) as u64;
        let within = vec![Part::new(Cause::Work, p.what.clone(), running)];
        vec![
            Part::new(Cause::Running, "running", running).with(within),
            Part::new(Cause::Work, p.what.clone(), p.ns - running),
        ]
    })
}

/// Whether the parts within this one belong to its own thread.
fn is_own(p: &Part) -> bool {
    matches!(p.cause, Cause::Step | Cause::Cleaning)
}

fn of(parts: &[Part], cause: Cause) -> u64 {
    parts
        .iter()
        .map(|p| {
            if p.cause == cause {
                p.ns
            } else if is_own(p) {
                of(&p.parts, cause)
            } else {
                0
            }
        })
        .sum()
}

fn divided(parts: Vec<Part>, f: &impl Fn(&Part) -> Vec<Part>) -> Vec<Part> {
    let mut out = Vec::new();
    for p in parts {
        match p.cause {
            Cause::Work => out.extend(f(&p)),
            _ if is_own(&p) => {
                let within = divided(p.parts.clone(), f);
                out.push(p.with(within));
            }
            _ => out.push(p),
        }
    }
    joined(out)
}
