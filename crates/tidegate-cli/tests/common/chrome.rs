//! Checks a file against the Trace Event Format: what Perfetto's importer drops or warns of, and what
//! Perfetto shows.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use tidegate_testing::oracle;
use tidegate_testing::perfetto;

/// A trace that is well-formed.
#[derive(Debug, Default)]
pub struct Trace {
    /// Names of events, metadata included, and how often they are there.
    pub names: BTreeMap<String, usize>,
    /// Of all events but metadata, the first and last time in microseconds.
    pub span: (f64, f64),
    /// Slices and instants by name: how many there are, and their nanoseconds.
    pub slices: BTreeMap<String, (u64, u64)>,
    /// Names of threads.
    pub threads: BTreeSet<(u64, String)>,
}

/// The state of the check while events go by.
#[derive(Default)]
struct Check {
    found: Trace,
    /// Slices that are open, by thread.
    open: BTreeMap<(u64, u64), Vec<(String, f64)>>,
    /// Asynchronous slices that are open, by process, category and number, with their names.
    requests: BTreeMap<(u64, String, String), (String, f64)>,
    named: BTreeSet<(u64, u64)>,
    used: BTreeSet<(u64, u64)>,
    last: f64,
}

/// Reads a trace. The error says what is wrong with it.
pub fn check(text: &str) -> Result<Trace, String> {
    let v: Value = serde_json::from_str(text).map_err(|e| e.to_string())?;
    let events = v["traceEvents"].as_array().ok_or("no array traceEvents")?;
    if !["ms", "ns"].contains(&v["displayTimeUnit"].as_str().unwrap_or("ms")) {
        return Err("displayTimeUnit is neither ms nor ns".into());
    }
    let mut check = Check::default();
    for e in events {
        check.event(e).map_err(|why| format!("{why}: {e}"))?;
    }
    check.end()
}

/// Reads the trace in a file, and has Perfetto read it if it is installed: both must see equal content.
pub fn check_file(path: &Path) -> Trace {
    let found = check(&fs::read_to_string(path).unwrap()).unwrap();
    if oracle::skip_or_fail("node") || oracle::skip_or_fail("perfetto") {
        return found;
    }
    let queries = [
        "SELECT name, COUNT(*), SUM(dur) FROM slice WHERE dur >= 0 GROUP BY name",
        // Thread 0 is the trace processor's own.
        "SELECT tid, name FROM thread WHERE tid > 0",
        "SELECT name, value FROM stats WHERE severity != 'info' AND value > 0",
    ];
    let rows = perfetto::query(path, &queries).unwrap();
    let [slices, threads, faults] = rows.as_slice() else { panic!("{rows:?}") };
    let number = |v: &Value| v.as_u64().unwrap();
    let name = |v: &Value| v.as_str().unwrap().to_owned();
    let slices: BTreeMap<_, _> =
        slices.iter().map(|r| (name(&r[0]), (number(&r[1]), number(&r[2])))).collect();
    assert_eq!(slices, found.slices);
    assert_eq!(threads.iter().map(|r| (number(&r[0]), name(&r[1]))).collect::<BTreeSet<_>>(), found.threads);
    assert!(faults.is_empty(), "{faults:?}");
    found
}

fn number(e: &Value, field: &str) -> Result<u64, String> {
    e[field].as_u64().ok_or(format!("{field} is no whole number"))
}

fn text(e: &Value, field: &str) -> Result<String, String> {
    let text = e[field].as_str().filter(|t| !t.is_empty());
    text.map(str::to_owned).ok_or(format!("{field} is missing"))
}

impl Check {
    fn event(&mut self, e: &Value) -> Result<(), String> {
        let ph = text(e, "ph")?;
        if !e["args"].is_null() && !e["args"].is_object() {
            return Err("args is no object".into());
        }
        // The end of a slice needs no name.
        if ph != "E" {
            *self.found.names.entry(text(e, "name")?).or_default() += 1;
        }
        let pid = number(e, "pid")?;
        if ph == "M" {
            return self.metadata(e, pid);
        }
        let thread = (pid, number(e, "tid")?);
        self.used.insert(thread);
        let ts = e["ts"].as_f64().filter(|t| t.is_finite() && *t >= 0.0).ok_or("ts is no time")?;
        if ts < self.last {
            return Err(format!("it goes back from {}", self.last));
        }
        self.last = ts;
        if self.found.span == (0.0, 0.0) {
            self.found.span.0 = ts;
        }
        self.found.span.1 = ts;
        let open = self.open.entry(thread).or_default();
        match ph.as_str() {
            "B" => open.push((text(e, "name")?, ts)),
            "E" => {
                let (name, since) = open.pop().ok_or("an end without a beginning")?;
                self.slice(name, since, ts);
            }
            "i" => {
                let scope = e["s"].as_str().unwrap_or("t");
                ["t", "p", "g"].contains(&scope).then_some(()).ok_or("an unknown scope")?;
                self.slice(text(e, "name")?, ts, ts);
            }
            "b" | "e" => self.request(e, ph == "b", ts)?,
            other => return Err(format!("phase {other} is not one of ours")),
        }
        Ok(())
    }

    fn metadata(&mut self, e: &Value, pid: u64) -> Result<(), String> {
        text(&e["args"], "name")?;
        match e["name"].as_str() {
            Some("process_name") => Ok(()),
            Some("thread_name") if self.named.insert((pid, number(e, "tid")?)) => {
                self.found.threads.insert((number(e, "tid")?, text(&e["args"], "name")?));
                Ok(())
            }
            _ => Err("metadata that is unknown, or a thread's second name".into()),
        }
    }

    /// Events of one asynchronous slice share process, category, number and name.
    fn request(&mut self, e: &Value, begins: bool, ts: f64) -> Result<(), String> {
        let key = (number(e, "pid")?, text(e, "cat")?, text(&e["id2"], "local")?);
        let name = text(e, "name")?;
        if begins {
            let other = self.requests.insert(key, (name, ts));
            return other.is_none().then_some(()).ok_or("its number is in use".into());
        }
        let (begun, since) = self.requests.remove(&key).ok_or("an end without a beginning")?;
        if begun != name || since > ts {
            return Err(format!("it ends {begun} of {since}"));
        }
        self.slice(name, since, ts);
        Ok(())
    }

    fn slice(&mut self, name: String, since: f64, until: f64) {
        let nanos = |micros: f64| (micros * 1e3).round() as u64;
        let (n, took) = self.found.slices.entry(name).or_default();
        (*n, *took) = (*n + 1, *took + nanos(until) - nanos(since));
    }

    fn end(self) -> Result<Trace, String> {
        if let Some((thread, slices)) = self.open.iter().find(|(_, s)| !s.is_empty()) {
            return Err(format!("thread {thread:?} leaves {} slices open", slices.len()));
        }
        if let Some(left) = self.requests.keys().next() {
            return Err(format!("{left:?} has no end"));
        }
        match self.used.difference(&self.named).next() {
            Some(thread) => Err(format!("thread {thread:?} has no name")),
            None => Ok(self.found),
        }
    }
}
