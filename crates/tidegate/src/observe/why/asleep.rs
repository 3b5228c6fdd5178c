//! A thread's time where no span says more: it ran, waited for a processor, or slept until another woke it.

use super::accounts::Sleep;
use super::device::moments;
use super::part::{Cause, Part};
use super::requests::Request;
use super::walk::{SWITCH, Walk};
use tidegate_block::{BioFlags, Op};

/// The place of a thread, as far as spans tell.
#[derive(Clone, Copy)]
pub(super) enum Within<'a> {
    /// In a span of this name.
    Span(&'a str),
    /// In no span.
    Nothing,
}

impl Walk<'_> {
    /// A thread's time from `from` to `to`, in which no span tells what it waited for.
    pub(super) fn plain(&self, thread: u32, within: Within, (from, to): (u64, u64), out: &mut Vec<Part>) {
        let mut at = from;
        for s in self.t.accounts.sleeps(thread, from, to) {
            let (begin, end) = (s.from.max(at), s.to.min(to));
            self.awake(thread, within, (at, begin), out);
            self.asleep(s, (begin, end), out);
            at = end.max(at);
        }
        self.awake(thread, within, (at, to), out);
    }

    /// The parts of the time of a thread that did not sleep.
    fn awake(&self, thread: u32, within: Within, (from, to): (u64, u64), out: &mut Vec<Part>) {
        if from >= to {
            return;
        }
        let (name, ns) = (self.t.name(thread), to - from);
        let what = match within {
            Within::Span(span) => format!("{span} itself"),
            Within::Nothing => format!("{name}, in no span"),
        };
        let here = |a, b| self.t.requests.done_here(thread, a, b);
        let Some(awake) = self.t.accounts.awake(thread, (from, to), here) else {
            out.push(match within {
                Within::Span(_) => Part::new(Cause::Work, what, ns),
                Within::Nothing if ns < SWITCH => {
                    Part::new(Cause::Processor, format!("a switch to {name}, or back"), ns)
                }
                Within::Nothing => {
                    Part::new(Cause::Unknown, format!("{name} had not begun, or had ended"), ns)
                }
            });
            return;
        };
        let part = |cause, why: &str, ns| {
            (ns > 0).then(|| Part::new(cause, why, ns).with(vec![Part::new(Cause::Work, what.clone(), ns)]))
        };
        out.extend(part(Cause::Running, "running", awake.ran));
        out.extend(part(Cause::Processor, "waiting for a CPU", awake.delayed));
        out.extend(part(Cause::Unknown, "asleep, and nothing says why", awake.unknown));
    }

    /// The parts of the time of a thread that slept until another woke it.
    fn asleep(&self, s: &Sleep, (from, to): (u64, u64), out: &mut Vec<Part>) {
        if from >= to {
            return;
        }
        let woken = if s.queue == 0 { None } else { self.t.accounts.woken(s) };
        let end = if to < s.to {
            to
        } else {
            let after = format!("after it was woken ({})", s.place());
            let since = woken.map_or(from, |w| w.0.clamp(from, to));
            self.woken_after(s.thread, after, (since, to), u64::MAX, out)
        };
        let Some((at, waker)) = woken else {
            out.push(match s.queue {
                0 => Part::new(Cause::Pause, format!("a pause of its own ({})", s.place()), end - from),
                _ => {
                    let what = format!("asleep at {}, and nothing says what woke it", s.place());
                    Part::new(Cause::Unknown, what, end - from)
                }
            });
            return;
        };
        let at = at.clamp(from, end);
        self.until_woken(s, waker, (from, at), out);
        if at < end {
            let name = self.t.name(s.thread);
            out.push(match end - at {
                ns if ns < SWITCH => Part::new(Cause::Processor, format!("a switch to {name}, or back"), ns),
                ns => Part::new(Cause::Lock, format!("the lock that goes with {} again", s.place()), ns),
            });
        }
    }

    /// The waker's time meanwhile, or the time of the request whose end it reported.
    fn until_woken(&self, s: &Sleep, waker: u32, (from, to): (u64, u64), out: &mut Vec<Part>) {
        if from >= to {
            return;
        }
        let woken = self.t.accounts.woken(s).map_or(s.to, |w| w.0);
        if let Some(r) = self.ended_before(waker, s.from, woken) {
            return self.for_request(s.thread, r, (from, to), out);
        }
        let doing = self.t.doing(waker, from, to).map(|d| format!(" ({d})")).unwrap_or_default();
        let what = format!("{}{doing}, which wakes it at {}", self.t.name(waker), s.place());
        out.push(Part::new(Cause::Thread, what, to - from).with(self.thread(waker, from, to)));
    }

    /// The request whose end a thread reported when it woke others at `at`: the last one that it ended since `from`, if
    /// it has not slept since.
    fn ended_before(&self, thread: u32, from: u64, at: u64) -> Option<&Request> {
        let r = self.t.requests.last_ended(thread, at).filter(|r| r.done > from && r.by != thread)?;
        self.t.accounts.sleeps(thread, r.done, at).is_empty().then_some(r)
    }

    /// The parts of the time of one request.
    fn for_request(&self, me: u32, r: &Request, (from, to): (u64, u64), out: &mut Vec<Part>) {
        let near: Vec<&Request> = self.t.requests.within(from, to).collect();
        let by = if r.by == me { String::new() } else { format!(" of {}", self.t.name(r.by)) };
        let what = format!("{}{by}", words(r));
        for (a, b) in moments(&near, from, to) {
            let part = if r.is_there(a) {
                let (cause, how) = self.beside(me, &near, &[r], a, (from, to));
                Part::new(cause, format!("{what}: {how}"), b - a)
            } else if r.inserted <= a && a < r.issued {
                Part::new(Cause::Elevator, format!("{what}: in the elevator"), b - a)
            } else if a < r.issued {
                let within = if r.by == me { Vec::new() } else { self.thread(r.by, a, b) };
                Part::new(Cause::Unsent, format!("{what}: not sent yet"), b - a).with(within)
            } else {
                let who = self.t.name(r.ended_by);
                let within = self.thread(r.ended_by, a, b);
                Part::new(Cause::Thread, format!("{who}, which tells of the end"), b - a).with(within)
            };
            out.push(part);
        }
    }
}

/// The description of a request for the thread that waits for it.
pub(super) fn words(r: &Request) -> &'static str {
    match () {
        () if r.is(Op::Flush) => "a flush",
        () if r.flags.intersects(BioFlags::PREFLUSH | BioFlags::FUA) => "a write with a flush",
        () if r.is_write() && r.flags.contains(BioFlags::META) => "metadata",
        () if r.is_write() => "pages",
        () if r.is(Op::Read) => "a read",
        () => "a discard",
    }
}
