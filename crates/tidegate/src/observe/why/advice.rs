//! The advice for each cause.

use super::Kind;
use super::part::{Cause, Part};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};

/// A cause matters if its share of the time of all slow operations is at least one in so many.
const MATTERS: u64 = 20;

/// A main cause, and the advice for it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// The cause.
    pub cause: Cause,
    /// Its share of the time of the slow operations that were explained, from 0 to 1. A part within another counts for
    /// both.
    pub share: f64,
    /// The advice, a sentence.
    pub text: String,
}

/// The advice for all explained fsyncs and syncs, or for the checkpoints and commits where there are none.
pub(super) fn of(kinds: &[Kind]) -> Vec<Advice> {
    let (checkpoints, waited_for): (Vec<&Kind>, _) = kinds.iter().partition(|k| !k.operation.is_waited_for());
    let somebody_waited = waited_for.iter().any(|k| !k.slowest.is_empty());
    let kinds = if somebody_waited { waited_for } else { checkpoints };
    let slow = || kinds.iter().flat_map(|k| &k.slowest);
    let all: u64 = slow().map(|s| s.ns).sum();
    let told = told(slow().flat_map(|s| &s.parts));
    let mut told: Vec<_> = told.into_iter().filter(|(_, t)| t.ns * MATTERS >= all.max(1)).collect();
    told.sort_by_key(|(_, t)| (std::cmp::Reverse(t.ns), t.main()));
    let advice = |(text, t): (&str, Told)| {
        let (cause, text) = (t.main()?, text.to_string());
        Some(Advice { cause, share: t.ns as f64 / all as f64, text })
    };
    told.into_iter().filter_map(advice).collect()
}

/// The time that one advice is about.
#[derive(Default)]
struct Told {
    ns: u64,
    /// Of that, the time with each of its causes. One may be within another.
    causes: BTreeMap<Cause, u64>,
}

impl Told {
    /// The longest cause.
    fn main(&self) -> Option<Cause> {
        self.causes
            .iter()
            .max_by_key(|(cause, ns)| (**ns, std::cmp::Reverse(**cause)))
            .map(|(cause, _)| *cause)
    }
}

/// How much time of adjacent parts each advice is about, by the causes of the parts and of the parts within
/// them.
fn told<'a>(parts: impl Iterator<Item = &'a Part>) -> HashMap<&'static str, Told> {
    let mut all: HashMap<&'static str, Told> = HashMap::new();
    for p in parts {
        let mut within = told(p.parts.iter());
        if let Some(text) = text(p.cause) {
            let own = within.entry(text).or_default();
            // An advice that applies to a part and to parts within it counts once.
            own.ns = p.ns;
            own.causes.insert(p.cause, p.ns);
        }
        for (text, t) in within {
            let sum = all.entry(text).or_default();
            sum.ns += t.ns;
            for (cause, ns) in t.causes {
                *sum.causes.entry(cause).or_default() += ns;
            }
        }
    }
    all
}

fn text(cause: Cause) -> Option<&'static str> {
    Some(match cause {
        Cause::DeviceDiscard => {
            "discards: leave discard_io_aware on, as it is from the start (they then wait until the device is idle), or \
             mount with -o nodiscard and run tidegate trim when nobody waits"
        }
        Cause::DeviceShared | Cause::Room => {
            "other requests at the device: have less dirty at once with a smaller -o cache=, since the flusher starts at a \
             share of it, or slow down who writes"
        }
        Cause::Flush | Cause::DeviceFlush => {
            "flushes of the device: fsync less often or from several threads at once (they share a flush), and have less \
             dirty at once with a smaller -o cache="
        }
        Cause::Company => {
            "waiting for other fsyncs: -o noflush_merge has each fsync flush for itself at once"
        }
        Cause::Elevator => "the elevator: give who waits a larger weight or a better I/O priority",
        Cause::Freeze => {
            "operations frozen by checkpoints: have fewer of them, by syncing files instead of directories and of the volume"
        }
        Cause::Checkpoint => {
            "checkpoints that fsyncs asked for: fsync the new files instead of their directory, since a new file's fsync \
             brings its name along; the reason in brackets says what made each one necessary"
        }
        Cause::Handle => {
            "handles of the journal that stayed open while their pages were sent: -o nomap_first=pipelined, as it is from \
             the start, sends nothing under a handle"
        }
        Cause::Commit => {
            "commits of the journal: use fdatasync where only data counts, and fsync the files that matter instead of \
             everything"
        }
        Cause::Lock => {
            "locks: let others who use the same file or directory do less at once; tidegate trace --lockstat counts"
        }
        Cause::Cleaning => "cleaning: leave more of the volume free, or make it larger",
        Cause::Flusher | Cause::SyncPass => {
            "writing all that is dirty: fsync the files that matter instead of the volume, or a smaller -o cache="
        }
        Cause::Processor => {
            "waiting for a CPU: run less beside the mount, give it a better nice value, or more CPUs"
        }
        Cause::Running => "the mount's own work: tidegate trace --profile says on what it is spent",
        Cause::Device => "the device itself: it had nothing else to do, so a faster one is what helps",
        Cause::Unknown => "sleep that nothing names: tidegate trace shows the spans around it",
        Cause::Work | Cause::Unsent | Cause::Step | Cause::Thread | Cause::Pause => return None,
    })
}
