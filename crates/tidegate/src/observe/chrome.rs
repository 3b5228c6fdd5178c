//! Events as Chrome's trace JSON, which Perfetto reads.
//!
//! Spans and waits for locks are slices of their thread, and points are instants. A request at the device is
//! an asynchronous slice from `block_rq_issue` to `block_rq_complete`, in whichever thread it is completed.

use super::Observed;
use super::words::{addresses, arg, block_type, cp_reason, page_write, rw, rwbs};
use std::collections::{HashMap, VecDeque};
use std::io::{self, Write};
use tidegate_rt::Nanos;
use tidegate_rt::trace::{Event, Phase};

/// Everything is one process.
const PID: u32 = 1;

/// A request: sector, length, kind.
type Key = (u64, u64, u64);

struct Json<'a, W> {
    to: W,
    first: bool,
    /// Names of the slices that are open, by thread.
    open: HashMap<u32, Vec<&'static str>>,
    /// The requests that are at the device, with their numbers, in order of issue.
    requests: HashMap<Key, VecDeque<(u64, &'a Event)>>,
    issued: u64,
}

/// Writes the events.
///
/// # Errors
/// Those of writing.
pub fn write(observed: &Observed, to: &mut impl Write) -> io::Result<()> {
    let r = &observed.recorded;
    let mut json = Json { to, first: true, open: HashMap::new(), requests: HashMap::new(), issued: 0 };
    write!(json.to, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    json.item(&format!(
        "{{\"ph\":\"M\",\"pid\":{PID},\"name\":\"process_name\",\"args\":{{\"name\":\"tidegate\"}}}}"
    ))?;
    for (thread, name) in &r.threads {
        let name = quoted(name);
        json.item(&format!(
            "{{\"ph\":\"M\",\"pid\":{PID},\"tid\":{thread},\"name\":\"thread_name\",\"args\":{{\"name\":{name}}}}}"
        ))?;
    }
    r.events.iter().try_for_each(|e| json.event(e))?;
    json.close(r.events.last().map_or(observed.until, |e| e.at.max(observed.until)))?;
    let (n, d) = (r.events.len(), r.dropped);
    writeln!(json.to, "\n],\"otherData\":{{\"entries\":\"{n}\",\"dropped\":\"{d}\"}}}}")
}

impl<'a, W: Write> Json<'a, W> {
    fn item(&mut self, text: &str) -> io::Result<()> {
        let comma = if std::mem::take(&mut self.first) { "\n" } else { ",\n" };
        self.to.write_all(comma.as_bytes())?;
        self.to.write_all(text.as_bytes())
    }

    fn put(&mut self, ph: &str, thread: u32, at: Nanos, rest: &str) -> io::Result<()> {
        let (micros, nanos) = (at.0 / 1000, at.0 % 1000);
        self.item(&format!(
            "{{\"ph\":\"{ph}\",\"pid\":{PID},\"tid\":{thread},\"ts\":{micros}.{nanos:03}{rest}}}"
        ))
    }

    fn event(&mut self, e: &'a Event) -> io::Result<()> {
        match (e.phase, e.name) {
            (Phase::Begin, name) => {
                self.begin(e, &format!(",\"cat\":\"span\",\"name\":{}{}", quoted(name), args(e)))
            }
            (Phase::ContentionBegin, class) => {
                let place = quoted(&format!("{}:{}", e.args[0].0, e.args[0].1));
                let name = quoted(&format!("lock {class}"));
                self.begin(e, &format!(",\"cat\":\"lock\",\"name\":{name},\"args\":{{\"at\":{place}}}"))
            }
            (Phase::End | Phase::ContentionEnd, name) => {
                let open = self.open.entry(e.thread).or_default();
                // The beginning may have been dropped.
                match open.pop_if(|n| *n == name) {
                    Some(_) => self.put("E", e.thread, e.at, ""),
                    None => Ok(()),
                }
            }
            (Phase::Instant, "block_rq_issue") => {
                self.issued += 1;
                self.requests.entry(key(e)).or_default().push_back((self.issued, e));
                self.request("b", e, e.at, self.issued)
            }
            (Phase::Instant, "block_rq_complete") => {
                match self.requests.get_mut(&key(e)).and_then(VecDeque::pop_front) {
                    Some((id, _)) => self.request("e", e, e.at, id),
                    None => Ok(()),
                }
            }
            (Phase::Instant, name) => {
                let rest = format!(",\"s\":\"t\",\"cat\":\"event\",\"name\":{}{}", quoted(name), args(e));
                self.put("i", e.thread, e.at, &rest)
            }
        }
    }

    fn begin(&mut self, e: &Event, rest: &str) -> io::Result<()> {
        self.open.entry(e.thread).or_default().push(e.name);
        self.put("B", e.thread, e.at, rest)
    }

    fn request(&mut self, ph: &str, e: &Event, at: Nanos, id: u64) -> io::Result<()> {
        let name = quoted(&format!("request {}", rwbs(e)));
        // The number is local to the process, so a viewer shows the request in the process.
        let rest = format!(",\"cat\":\"block\",\"id2\":{{\"local\":\"{id:#x}\"}},\"name\":{name}{}", args(e));
        self.put(ph, e.thread, at, &rest)
    }

    /// Ends the slices that are still open.
    fn close(&mut self, at: Nanos) -> io::Result<()> {
        let mut requests: Vec<_> = self.requests.drain().flat_map(|(_, r)| r).collect();
        requests.sort_unstable_by_key(|r| r.0);
        for (id, e) in requests {
            self.request("e", e, at, id)?;
        }
        let mut open: Vec<(u32, usize)> = self.open.iter().map(|(t, spans)| (*t, spans.len())).collect();
        open.sort_unstable();
        for (thread, n) in open {
            for _ in 0..n {
                self.put("E", thread, at, ",\"args\":{\"unfinished\":true}")?;
            }
        }
        Ok(())
    }
}

fn key(e: &Event) -> Key {
    let n = |name| arg(e, name).unwrap_or(0);
    (n("sector"), n("bytes"), n("op"))
}

fn args(e: &Event) -> String {
    if e.name == "f2fs_submit_page_write" {
        let ((old, new), (pages, bio)) = (addresses(e), page_write(e));
        let n = |name| arg(e, name).unwrap_or(0);
        let (ino, index, rw, what) = (n("ino"), n("index"), quoted(&rw(&bio)), block_type(&bio));
        return format!(
            ",\"args\":{{\"ino\":{ino},\"index\":{index},\"oldaddr\":{old},\"newaddr\":{new},\"pages\":{pages},\
             \"rw\":{rw},\"type\":\"{what}\"}}"
        );
    }
    let mut fields: Vec<String> = (e.args.iter().filter(|a| !a.0.is_empty()))
        .map(|(name, n)| match (*name, e.name) {
            // The flags are the low 16 bits; the bits above them are the processor.
            ("flags", "f2fs_submit_write_bio") => format!("\"flags\":{}", n & 0xFFFF),
            ("reason", "f2fs_fsync_checkpoint") => format!("\"cp_reason\":{}", quoted(cp_reason(*n))),
            _ => format!("{}:{n}", quoted(name)),
        })
        .collect();
    if e.name == "f2fs_submit_write_bio" {
        fields.push(format!("\"type\":\"{}\"", block_type(e)));
    }
    if fields.is_empty() { String::new() } else { format!(",\"args\":{{{}}}", fields.join(",")) }
}

/// `text` as a JSON string.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if (c as u32) < 0x20 => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::{event, observed};
    use super::*;
    use serde_json::Value;

    fn written(events: Vec<Event>) -> Vec<Value> {
        let mut out = Vec::new();
        write(&observed(events, 1), &mut out).unwrap();
        let v: Value = serde_json::from_slice(&out).unwrap();
        assert_eq!(v["otherData"]["dropped"], "1");
        v["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] != "M").cloned().collect()
    }

    #[test]
    fn slices_nest_whatever_was_dropped() {
        use Phase::*;
        let found = written(vec![
            event(5, 3, "cut off", End, &[]),
            event(10, 3, "outer", Begin, &[("ino", 7)]),
            event(20, 3, "i_rwsem", ContentionBegin, &[("a \"b\".rs", 1)]),
            event(1030, 3, "i_rwsem", ContentionEnd, &[]),
            event(1040, 3, "cut off", End, &[]),
            event(1050, 4, "other", Begin, &[]),
        ]);
        let short: Vec<_> =
            found.iter().map(|e| (e["ph"].as_str().unwrap(), e["tid"].as_u64().unwrap())).collect();
        assert_eq!(short, [("B", 3), ("B", 3), ("E", 3), ("B", 4), ("E", 3), ("E", 4)]);
        assert_eq!(found[0]["args"]["ino"], 7);
        assert_eq!(
            (found[1]["name"].as_str(), found[1]["args"]["at"].as_str()),
            (Some("lock i_rwsem"), Some("a \"b\".rs:1"))
        );
        assert_eq!(found[2]["ts"].as_f64(), Some(1.03));
    }

    #[test]
    fn requests_are_paired() {
        let rq = |at, name, sector| {
            event(
                at,
                3,
                name,
                Phase::Instant,
                &[("sector", sector), ("bytes", 4096), ("op", 1), ("flags", 1)],
            )
        };
        let found = written(vec![
            rq(1, "block_rq_issue", 8),
            rq(2, "block_rq_issue", 16),
            rq(3, "block_rq_complete", 16),
            rq(4, "block_rq_complete", 8),
            rq(5, "block_rq_complete", 24),
            rq(6, "block_rq_issue", 32),
        ]);
        let short: Vec<_> =
            found.iter().map(|e| (e["ph"].as_str().unwrap(), e["id2"]["local"].as_str().unwrap())).collect();
        let want = [("b", "0x1"), ("b", "0x2"), ("e", "0x2"), ("e", "0x1"), ("b", "0x3"), ("e", "0x3")];
        assert_eq!(short, want);
        assert_eq!(found[0]["name"], "request WS");
    }
}
