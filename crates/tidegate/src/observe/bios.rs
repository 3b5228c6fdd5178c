//! Bios in the order in which they were sent, and which of them were split.
//!
//! A bio is split when it was sent early, in the middle of a file's pages that are adjacent on the device: another bio
//! goes on at its end with the next page of the file.

use super::Observed;
use super::text::{head, submit_write_bio};
use super::words::{addresses, arg, block_type, cpu, page_write, rw};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fmt;
use tidegate_rt::trace::{Event, Phase};

/// The value of [`SentBio::what`] for bios with file data.
pub const DATA: &str = "DATA";

/// A bio that was sent. It is shown as `trace_pipe` shows `f2fs_submit_write_bio`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentBio {
    /// The thread's name.
    pub thread: String,
    /// Its number.
    pub tid: u32,
    /// The processor, where it is known.
    pub cpu: Option<u32>,
    /// The time, in nanoseconds on the run's clock.
    pub at_ns: u64,
    /// Major and minor number of the device.
    pub device: (u32, u32),
    /// The kind of write, such as `WRITE_SYNC`.
    pub rw: String,
    /// `DATA`, `NODE` or `META`.
    pub what: String,
    /// Its first sector, of 512 bytes.
    pub sector: u64,
    /// Bytes.
    pub size: u64,
    /// The bio was split: another bio goes on in the middle of the file where this one ends.
    pub split: bool,
}

impl fmt::Display for SentBio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bio = submit_write_bio(self.device, &self.rw, &self.what, (self.sector, self.size));
        f.write_str(&head(&self.thread, self.tid, self.cpu, self.at_ns))?;
        f.write_str(&bio)
    }
}

/// A place where pages of a file begin or end: the inode number, and the index of the page there.
type Page = (u64, u64);

/// Sectors of a block.
const SECTORS: u64 = 8;

/// Every bio of a recording, in order of time.
pub fn sent(observed: &Observed) -> Vec<SentBio> {
    let mut bios: Vec<SentBio> = Vec::new();
    // Maps by sector: the pages that begin or end there, and the data bio that ends there.
    let (mut begins, mut ends) = (HashMap::<u64, Page>::new(), HashMap::<u64, Page>::new());
    let mut last: HashMap<u64, usize> = HashMap::new();
    let mut cut: Vec<usize> = Vec::new();
    for e in &observed.recorded.events {
        if e.name == "f2fs_submit_page_write" && e.phase != Phase::End {
            let n = |name| arg(e, name).unwrap_or(0);
            let (pages, from) = (page_write(e).0, u64::from(addresses(e).1) * SECTORS);
            begins.insert(from, (n("ino"), n("index")));
            ends.insert(from + pages * SECTORS, (n("ino"), n("index") + pages));
        }
        if e.name != "f2fs_submit_write_bio" {
            continue;
        }
        let bio = of(e, observed);
        if bio.what == DATA {
            let goes_on = begins.get(&bio.sector).is_some_and(|p| ends.get(&bio.sector) == Some(p));
            cut.extend(last.get(&bio.sector).filter(|_| goes_on));
            last.insert(bio.sector + bio.size / 512, bios.len());
        }
        bios.push(bio);
    }
    // A full bio does not count as split.
    let largest = bios.iter().filter(|b| b.what == DATA).map(|b| b.size).max().unwrap_or(0);
    for i in cut {
        bios[i].split = bios[i].size < largest;
    }
    bios
}

fn of(e: &Event, observed: &Observed) -> SentBio {
    let n = |name| arg(e, name).unwrap_or(0);
    SentBio {
        thread: observed.recorded.threads.get(&e.thread).cloned().unwrap_or_else(|| "thread".into()),
        tid: e.thread,
        cpu: cpu(e),
        at_ns: e.at.0,
        device: observed.device,
        rw: rw(e),
        what: block_type(e).into(),
        sector: n("sector"),
        size: n("size"),
        split: false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::text::tests::{event, observed};
    use super::*;

    const SYNC: u64 = 1;

    /// The event that `pages` pages of a file from `index` on get the blocks from `block` on.
    fn pages(at: u64, ino: u64, index: u64, block: u64, pages: u64) -> Event {
        let args = [("ino", ino), ("index", index), ("addrs", block), ("what", pages)];
        event(at, 3, "f2fs_submit_page_write", Phase::Begin, &args)
    }

    fn bio(at: u64, thread: u32, log: u64, block: u64, pages: u64) -> Event {
        let flags = SYNC | u64::from(thread) << 16;
        let args = [("sector", block * 8), ("size", pages * 4096), ("log", log), ("flags", flags)];
        event(at, thread, "f2fs_submit_write_bio", Phase::Instant, &args)
    }

    #[test]
    fn a_bio_that_is_cut_short_is_found() {
        let events = vec![
            // A whole file; a file whose first page went alone; a node; the rest of that file.
            pages(1, 5, 0, 100, 128),
            bio(2, 3, 1, 100, 128),
            pages(3, 6, 0, 228, 1),
            bio(4, 9, 1, 228, 1),
            bio(5, 9, 4, 900, 1),
            pages(6, 6, 1, 229, 127),
            bio(7, 3, 1, 229, 127),
            // The next file begins where that file ends, and consists of two full bios.
            pages(8, 7, 0, 356, 256),
            bio(9, 3, 1, 356, 128),
            bio(10, 3, 1, 484, 128),
        ];
        let bios = sent(&observed(events, 0));
        let split: Vec<u64> = bios.iter().filter(|b| b.split).map(|b| b.sector / 8).collect();
        assert_eq!((bios.len(), split), (6, vec![228]));
        let lines: Vec<String> = bios.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines[1],
            "          thread-9       [008] .....     0.000000: f2fs_submit_write_bio: dev = (8,1), rw = WRITE_SYNC, DATA, \
             sector = 1824, size = 4096"
        );
        assert!(lines[2].contains("NODE") && lines[3].contains("tg-flusher-3 "), "{lines:?}");
        let unknown = SentBio { cpu: None, ..bios[0].clone() }.to_string();
        assert!(unknown.contains(" [---] ....."), "{unknown}");
    }
}
