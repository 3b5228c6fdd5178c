//! The bars.

use super::peer::Peer;
use super::{FSYNC, bytes, files_per_second, seconds, speed, trees};
use crate::bench::series::{Series, named, ratio};
use crate::bench::show::Bar;
use crate::bench::workload::Report;

/// Random access to a file: the rate as a multiple of that of fuse2fs.
const RANDOM: f64 = 5.0;
/// Unpacking and copying with io_uring: the time as a multiple of ext4's.
const TREES: f64 = 4.0;

/// Fsyncs on ext4: the rate as a multiple of that of fuse2fs.
const FSYNCS: f64 = 3.0;

/// Our value for `what`, divided by the peer's.
fn to(all: &[Series], what: &str, peer: Peer, value: fn(&Report) -> Option<f64>) -> Option<f64> {
    between(all, what, (Peer::Tidegate, peer), value)
}

/// One peer's value for `what`, divided by the other's.
fn between(
    all: &[Series],
    what: &str,
    (one, other): (Peer, Peer),
    value: fn(&Report) -> Option<f64>,
) -> Option<f64> {
    let of = |p: Peer| named(all, &format!("{what} {}", p.name()));
    ratio(of(one), of(other), value)
}

/// All bars. With io_uring they are higher, since each request costs the program less there.
pub fn bars(all: &[Series], by_uring: bool) -> Vec<Bar> {
    let mut bars = Vec::new();
    for what in [trees::UNTAR, trees::COPY] {
        if by_uring {
            let time = to(all, what, Peer::Ext4, seconds);
            bars.push(Bar::most(format!("{what}: time, to ext4"), TREES, time));
        }
        let rate = to(all, what, Peer::Fuse2fs, files_per_second);
        let least = if by_uring { 8.0 } else { 3.0 };
        bars.push(Bar::least(format!("{what}: files/s, to fuse2fs"), least, rate));
    }
    if by_uring {
        for what in [bytes::RANDOM_WRITE, bytes::RANDOM_READ[0], bytes::RANDOM_READ[1]] {
            let rate = to(all, what, Peer::Ext4, speed);
            bars.push(Bar::least(format!("{what}: MiB/s, to ext4"), 1.0, rate));
        }
    }
    for what in [bytes::WRITE, bytes::READ] {
        let rate = to(all, what, Peer::Ext4, speed);
        bars.push(Bar::least(format!("{what}: MiB/s, to ext4"), 0.8, rate));
    }
    for what in [bytes::RANDOM_WRITE, bytes::RANDOM_READ[0], bytes::RANDOM_READ[1]] {
        let rate = to(all, what, Peer::Fuse2fs, speed);
        bars.push(Bar::least(format!("{what}: MiB/s, to fuse2fs"), RANDOM, rate));
    }
    let rate = to(all, FSYNC, Peer::Ext4, files_per_second);
    bars.push(Bar::above(format!("{FSYNC}: files/s, to ext4"), 1.0, rate));
    let rate = between(all, FSYNC, (Peer::TidegateExt4, Peer::Fuse2fs), files_per_second);
    bars.push(Bar::least(format!("{FSYNC}, ext4 by us: files/s, to fuse2fs"), FSYNCS, rate));
    for cache in trees::CACHES {
        for what in trees::WALKS {
            let what = format!("{what} {cache}");
            let time = to(all, &what, Peer::Ext4, seconds);
            bars.push(Bar::most(format!("{what}: time, to ext4"), walk_bar(&what, by_uring), time));
        }
    }
    bars
}

/// The longest time of a walk, as a multiple of ext4's.
fn walk_bar(what: &str, by_uring: bool) -> f64 {
    if by_uring && what == "git status cold" { 3.0 } else { 2.0 }
}

/// The cost of the transport itself, where a bar may be out of its reach: lines to read beside the bars.
pub fn floors(all: &[Series]) -> Vec<String> {
    let of = |what: &str, p: Peer| named(all, &format!("{what} {}", p.name()));
    let verdict = |met: bool| match met {
        true => "the transport leaves room for the bar",
        false => "no server on this transport met the bar in this run",
    };
    let trees = [trees::UNTAR, trees::COPY].map(|w| (w.to_string(), TREES));
    let streams = [bytes::WRITE, bytes::READ].map(|w| (w.to_string(), 1.0 / 0.8));
    let walks = trees::WALKS.map(|w| format!("{w} cold")).map(|w| (w.clone(), walk_bar(&w, true)));
    let times = trees.into_iter().chain(streams).chain(walks).filter_map(|(what, bar)| {
        let time = ratio(of(&what, Peer::Floor), of(&what, Peer::Ext4), seconds)?;
        let verdict = verdict(time <= bar);
        Some(format!("{what}: a server that only answers takes {time:.2} x ext4's time: {verdict}"))
    });
    let rates = bytes::RANDOM_READ.into_iter().filter_map(|what| {
        let rate = ratio(of(what, Peer::Floor), of(what, Peer::Fuse2fs), speed)?;
        let verdict = verdict(rate >= RANDOM);
        Some(format!("{what}: a server that only answers reaches {rate:.2} x fuse2fs's rate: {verdict}"))
    });
    times.chain(rates).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bar_compares_with_its_peer() {
        let series = |name: &str, seconds| Series {
            name: name.into(),
            reports: vec![Report { seconds, files: 10, bytes: 1 << 20, ..Report::default() }],
            failed: None,
        };
        let all = [
            series("untar tidegate", 2.0),
            series("untar ext4", 1.0),
            series("untar fuse2fs", 12.0),
            series("du warm tidegate", 1.0),
            series("du warm ext4", 1.0),
        ];
        let found = |bars: &[Bar], what: &str| {
            let bar = bars.iter().find(|b| b.what.starts_with(what)).unwrap();
            (bar.value, bar.met)
        };
        let by_uring = bars(&all, true);
        assert_eq!(found(&by_uring, "untar: time"), (Some(2.0), Some(true)));
        assert_eq!(found(&by_uring, "untar: files/s"), (Some(6.0), Some(false)));
        assert_eq!(found(&by_uring, "du warm"), (Some(1.0), Some(true)));
        assert_eq!(found(&by_uring, "copy: time"), (None, None));
        let by_dev = bars(&all, false);
        assert_eq!(found(&by_dev, "untar"), (Some(6.0), Some(true)));
        assert_eq!([by_uring.len(), by_dev.len()], [4 + 3 + 2 + 3 + 2 + 6, 2 + 2 + 3 + 2 + 6]);
        assert!(floors(&all).is_empty());
        let floored = [series("untar floor", 5.0), series("untar ext4", 1.0)];
        let lines = floors(&floored);
        assert!(
            lines.len() == 1
                && lines[0].contains("5.00 x")
                && lines[0].contains("no server on this transport")
        );
    }
}
