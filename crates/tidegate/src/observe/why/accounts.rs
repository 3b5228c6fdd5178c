//! How long each thread ran on a processor, where it slept, and which thread woke it.

use std::collections::HashMap;
use tidegate_rt::trace::Event;
use tidegate_rt::trace::causes::{DELAYED, LONG_CALL, QUEUE, RAN, UNKNOWN};

/// How long a thread has run on processors, and waited for one, until a time.
#[derive(Clone, Copy)]
struct Processor {
    at: u64,
    ran: u64,
    delayed: Option<u64>,
}

/// A sleep of a thread.
#[derive(Clone, Copy)]
pub(super) struct Sleep {
    pub thread: u32,
    pub from: u64,
    pub to: u64,
    /// 0 where only time ends the sleep.
    pub queue: u64,
    file: &'static str,
    line: u64,
}

impl Sleep {
    /// The place in the source.
    pub fn place(&self) -> String {
        let file = self.file.rsplit_once("crates/").map_or(self.file, |(_, file)| file);
        format!("{file}:{}", self.line)
    }
}

/// How a thread that was awake spent an interval, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Awake {
    pub ran: u64,
    pub delayed: u64,
    /// It slept in the kernel, outside the calls that are recorded.
    pub unknown: u64,
}

/// The accounts of a recording, by thread.
#[derive(Default)]
pub(super) struct Accounts {
    processor: HashMap<u32, Vec<Processor>>,
    sleeps: HashMap<u32, Vec<Sleep>>,
    /// Sleeps that have not ended.
    open: HashMap<u32, Sleep>,
    /// When a thread woke the sleepers of a queue, and which thread.
    wakes: HashMap<u64, Vec<(u64, u32)>>,
    /// Waits for locks.
    locked: HashMap<u32, Vec<(u64, u64)>>,
}

fn number(e: &Event, name: &str) -> u64 {
    e.args.iter().find(|a| a.0 == name).map_or(0, |a| a.1)
}

impl Accounts {
    /// Adds an account of a thread.
    pub fn account(&mut self, e: &Event) {
        let delayed = Some(number(e, DELAYED)).filter(|d| *d != UNKNOWN);
        let sample = Processor { at: e.at.0, ran: number(e, RAN), delayed };
        self.processor.entry(e.thread).or_default().push(sample);
    }

    /// Adds the beginning of a sleep.
    pub fn falls_asleep(&mut self, e: &Event) {
        let (file, line) = e.args[0];
        let queue = number(e, QUEUE);
        self.open.insert(e.thread, Sleep { thread: e.thread, from: e.at.0, to: e.at.0, queue, file, line });
    }

    /// Adds the end of a sleep.
    pub fn slept(&mut self, e: &Event) {
        if let Some(mut s) = self.open.remove(&e.thread) {
            s.to = e.at.0;
            self.sleeps.entry(e.thread).or_default().push(s);
        }
    }

    /// Adds that a thread wakes others.
    pub fn wakes(&mut self, e: &Event) {
        self.wakes.entry(number(e, QUEUE)).or_default().push((e.at.0, e.thread));
    }

    /// Adds a wait for a lock.
    pub fn waited(&mut self, thread: u32, from: u64, to: u64) {
        self.locked.entry(thread).or_default().push((from, to));
    }

    /// Ends the sleeps of threads that sleep at the end of the recording.
    pub fn close(&mut self, last: u64) {
        for (thread, s) in std::mem::take(&mut self.open) {
            self.sleeps.entry(thread).or_default().push(Sleep { to: last.max(s.from), ..s });
        }
    }

    /// Sleeps of a thread that are in an interval, in order.
    pub fn sleeps(&self, thread: u32, from: u64, to: u64) -> &[Sleep] {
        let all = self.sleeps.get(&thread).map_or(&[][..], |s| s);
        let first = all.partition_point(|s| s.to <= from);
        let last = all.partition_point(|s| s.from < to);
        all.get(first..last).unwrap_or(&[])
    }

    /// When a sleep was ended, and by which thread.
    pub fn woken(&self, s: &Sleep) -> Option<(u64, u32)> {
        let all = self.wakes.get(&s.queue)?;
        let last = all[..all.partition_point(|w| w.0 <= s.to)].last()?;
        (last.0 >= s.from && last.1 != s.thread).then_some(*last)
    }

    /// How long a thread ran on a processor from `from` to `to`, and how long it waited for one.
    pub fn processor(&self, thread: u32, from: u64, to: u64) -> Option<(u64, Option<u64>)> {
        self.accounted(thread, from, to).map(|(first, last)| difference(first, last))
    }

    /// How long the thread ran at least: the accounts may lie before `from` and after `to`.
    pub fn ran_at_least(&self, thread: u32, from: u64, to: u64) -> u64 {
        self.accounted(thread, from, to).map_or(0, |(first, last)| {
            difference(first, last).0.saturating_sub((from - first.at) + (last.at - to))
        })
    }

    /// The last account before an interval and the first after it.
    fn accounted(&self, thread: u32, from: u64, to: u64) -> Option<(Processor, Processor)> {
        let all = self.processor.get(&thread)?;
        let first = all[..all.partition_point(|p| p.at <= from)].last()?;
        let last = all.get(all.partition_point(|p| p.at < to))?;
        Some((*first, *last))
    }

    /// A thread's time in an interval in which it neither slept nor waited for a lock. `None` where the
    /// accounts around the interval also cover long waits, which they do not distinguish. `more` gives
    /// further waits in an interval.
    pub fn awake(
        &self,
        thread: u32,
        (from, to): (u64, u64),
        more: impl Fn(u64, u64) -> Vec<u64>,
    ) -> Option<Awake> {
        let long = |(a, b): (Processor, Processor)| {
            more(a.at, b.at).into_iter().chain(self.waits(thread, a.at, b.at)).any(|w| w >= LONG_CALL.0)
        };
        let (first, last) = self.around(thread, from, to).into_iter().find(|pair| !long(*pair))?;
        let (ran, delayed) = difference(first, last);
        let asked = to - from;
        let all = last.at - first.at;
        let waited: u64 =
            more(first.at, last.at).into_iter().chain(self.waits(thread, first.at, last.at)).sum();
        // Where the system does not tell the delay, the thread may have waited for a processor all the time
        // that it did not run.
        let delayed = delayed.unwrap_or(all.saturating_sub(ran));
        // A delay at the end of a short wait is counted in both.
        let known = ran + delayed + waited - delayed.min(waited);
        let unknown = all.saturating_sub(known);
        // If the accounts lie within the interval, the whole interval is taken to be like the part between
        // them.
        let unknown = if all < asked { share(asked, unknown, all) } else { unknown.min(asked) };
        let known = u128::from(asked - unknown);
        let ran = match u128::from(ran + delayed) {
            0 => known,
            both => known * u128::from(ran) / both,
        } as u64;
        Some(Awake { ran, delayed: asked - unknown - ran, unknown })
    }

    /// Pairs of accounts for an interval, the best first: around the interval, or within it and covering at
    /// least half of it, since an account is taken a moment after the time that it is for.
    fn around(&self, thread: u32, from: u64, to: u64) -> Vec<(Processor, Processor)> {
        let Some(all) = self.processor.get(&thread) else { return Vec::new() };
        let (before, after) = (all.partition_point(|p| p.at <= from), all.partition_point(|p| p.at < to));
        let (outer, inner) = (before.checked_sub(1), Some(before));
        let ends = [Some(after), after.checked_sub(1)];
        let pairs = [(outer, ends[0]), (inner, ends[0]), (outer, ends[1]), (inner, ends[1])];
        let found = pairs.into_iter().filter_map(|(a, b)| Some((*all.get(a?)?, *all.get(b?)?)));
        let of_half = |(a, b): &(Processor, Processor)| {
            b.at.min(to).saturating_sub(a.at.max(from)) * 2 >= to - from && a.at < b.at
        };
        found.filter(of_half).collect()
    }

    /// A thread's sleeps and waits for locks in an interval.
    fn waits(&self, thread: u32, from: u64, to: u64) -> impl Iterator<Item = u64> {
        let within = move |a: u64, b: u64| b.min(to).saturating_sub(a.max(from));
        let slept = self.sleeps(thread, from, to).iter().map(move |s| within(s.from, s.to));
        let locks = self.locked.get(&thread).map_or(&[][..], |l| l);
        let near = locks[locks.partition_point(|l| l.1 <= from)..].iter().take_while(move |l| l.0 < to);
        slept.chain(near.map(move |l| within(l.0, l.1)))
    }

    /// The last part of a wait that ended at `to`, in which the thread could have gone on and waited for a
    /// processor. Only calls that took long, `call` in all, are recorded with it.
    pub fn delay(&self, thread: u32, from: u64, to: u64, call: u64) -> Option<u64> {
        let delayed = self.processor(thread, from, to)?.1?;
        Some(if call < LONG_CALL.0 { 0 } else { delayed.min(to.saturating_sub(from)) })
    }
}

/// The share of `of` that `part` is of `all`.
fn share(of: u64, part: u64, all: u64) -> u64 {
    (u128::from(of) * u128::from(part) / u128::from(all.max(1))) as u64
}

/// The difference between two accounts.
fn difference(first: Processor, last: Processor) -> (u64, Option<u64>) {
    let delayed = last.delayed.zip(first.delayed).map(|(l, f)| l.saturating_sub(f));
    (last.ran.saturating_sub(first.ran), delayed)
}
