//! How long processors had each thread, where it slept, and which thread woke it.

use std::collections::HashMap;
use tidegate_rt::trace::Event;
use tidegate_rt::trace::causes::{DELAYED, LONG_CALL, QUEUE, RAN, UNKNOWN};

/// How long processors had a thread, and how long it waited for one, until a time.
#[derive(Clone, Copy)]
struct Processor {
    at: u64,
    ran: u64,
    delayed: Option<u64>,
}

/// A thread slept.
#[derive(Clone, Copy)]
pub(super) struct Sleep {
    pub thread: u32,
    pub from: u64,
    pub to: u64,
    /// 0 where time alone ends it.
    pub queue: u64,
    file: &'static str,
    line: u64,
}

impl Sleep {
    /// Where in the source.
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
    /// It slept in the kernel, where no call of ours says so.
    pub unknown: u64,
}

/// All of a recording, by thread.
#[derive(Default)]
pub(super) struct Accounts {
    processor: HashMap<u32, Vec<Processor>>,
    sleeps: HashMap<u32, Vec<Sleep>>,
    /// Sleeps that have not ended.
    open: HashMap<u32, Sleep>,
    /// When a waker woke those that slept at a queue.
    wakes: HashMap<u64, Vec<(u64, u32)>>,
    /// Waits for locks.
    locked: HashMap<u32, Vec<(u64, u64)>>,
}

fn number(e: &Event, name: &str) -> u64 {
    e.args.iter().find(|a| a.0 == name).map_or(0, |a| a.1)
}

impl Accounts {
    /// Takes an account of a thread.
    pub fn account(&mut self, e: &Event) {
        let delayed = Some(number(e, DELAYED)).filter(|d| *d != UNKNOWN);
        let sample = Processor { at: e.at.0, ran: number(e, RAN), delayed };
        self.processor.entry(e.thread).or_default().push(sample);
    }

    /// Takes that a thread begins to sleep.
    pub fn falls_asleep(&mut self, e: &Event) {
        let (file, line) = e.args[0];
        let queue = number(e, QUEUE);
        self.open.insert(e.thread, Sleep { thread: e.thread, from: e.at.0, to: e.at.0, queue, file, line });
    }

    /// Takes that it is over.
    pub fn slept(&mut self, e: &Event) {
        if let Some(mut s) = self.open.remove(&e.thread) {
            s.to = e.at.0;
            self.sleeps.entry(e.thread).or_default().push(s);
        }
    }

    /// Takes that a thread wakes others.
    pub fn wakes(&mut self, e: &Event) {
        self.wakes.entry(number(e, QUEUE)).or_default().push((e.at.0, e.thread));
    }

    /// Takes a wait for a lock.
    pub fn waited(&mut self, thread: u32, from: u64, to: u64) {
        self.locked.entry(thread).or_default().push((from, to));
    }

    /// A thread that sleeps at the end of the recording does so until then.
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

    /// When a sleep was ended, and by whom.
    pub fn woken(&self, s: &Sleep) -> Option<(u64, u32)> {
        let all = self.wakes.get(&s.queue)?;
        let last = all[..all.partition_point(|w| w.0 <= s.to)].last()?;
        (last.0 >= s.from && last.1 != s.thread).then_some(*last)
    }

    /// How long a processor had a thread from `from` to `to`, and how long it waited for one.
    pub fn processor(&self, thread: u32, from: u64, to: u64) -> Option<(u64, Option<u64>)> {
        self.accounted(thread, from, to).map(|(first, last)| difference(first, last))
    }

    /// How long a processor had it at the least: the accounts may lie before `from` and behind `to`.
    pub fn ran_at_least(&self, thread: u32, from: u64, to: u64) -> u64 {
        self.accounted(thread, from, to).map_or(0, |(first, last)| {
            difference(first, last).0.saturating_sub((from - first.at) + (last.at - to))
        })
    }

    /// The last account before an interval and the first behind it.
    fn accounted(&self, thread: u32, from: u64, to: u64) -> Option<(Processor, Processor)> {
        let all = self.processor.get(&thread)?;
        let first = all[..all.partition_point(|p| p.at <= from)].last()?;
        let last = all.get(all.partition_point(|p| p.at < to))?;
        Some((*first, *last))
    }

    /// A thread's time in an interval in which it neither slept nor waited for a lock. Nothing where the
    /// accounts around it are of long waits, too: they do not tell these apart. `more` are waits in an
    /// interval beside these.
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
        // Without a word of the system it may have waited for a processor all the time that it did not run.
        let delayed = delayed.unwrap_or(all.saturating_sub(ran));
        // A delay at the end of a short wait is in both.
        let known = ran + delayed + waited - delayed.min(waited);
        let unknown = all.saturating_sub(known);
        // Of accounts within it, all of it is as these are.
        let unknown = if all < asked { share(asked, unknown, all) } else { unknown.min(asked) };
        let known = u128::from(asked - unknown);
        let ran = match u128::from(ran + delayed) {
            0 => known,
            both => known * u128::from(ran) / both,
        } as u64;
        Some(Awake { ran, delayed: asked - unknown - ran, unknown })
    }

    /// Pairs of accounts for an interval, the best first: around it, or within and of half of it at the
    /// least, where one is taken a moment after what it is of.
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

    /// Of a wait that ended at `to`, how long the thread could have gone on and waited for a processor: its
    /// last part. Only calls that took long, `call` in all, say so.
    pub fn delay(&self, thread: u32, from: u64, to: u64, call: u64) -> Option<u64> {
        let delayed = self.processor(thread, from, to)?.1?;
        Some(if call < LONG_CALL.0 { 0 } else { delayed.min(to.saturating_sub(from)) })
    }
}

/// As much of `of` as `part` is of `all`.
fn share(of: u64, part: u64, all: u64) -> u64 {
    (u128::from(of) * u128::from(part) / u128::from(all.max(1))) as u64
}

/// From one account to another.
fn difference(first: Processor, last: Processor) -> (u64, Option<u64>) {
    let delayed = last.delayed.zip(first.delayed).map(|(l, f)| l.saturating_sub(f));
    (last.ran.saturating_sub(first.ran), delayed)
}
