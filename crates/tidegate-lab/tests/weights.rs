//! Weights on a volume as in experiment M5: UFS, the elevator with strict guarantees, groups of weight 100
//! and 20, in simulated time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tidegate_block::{Elevator, IoContext, Preset, WfqOptions};
use tidegate_lab::target::OpenHow;
use tidegate_lab::{Rig, Target};
use tidegate_rt::{Nanos, clock, sim, thread};
use tidegate_vfs::MemoryLimits;

const RUN: Duration = Duration::from_secs(6);
/// Bytes of each file.
const LEN: u64 = 64 << 20;
const HEAVY: u32 = 100;
const LIGHT: u32 = 20;

fn rig() -> Rig {
    Rig {
        elevator: Elevator::Wfq(WfqOptions { strict_guarantees: true, ..WfqOptions::default() }),
        // A thread that flushes for others would do so in its own group.
        options: "nocheckpoint_merge,noflush_merge".into(),
        // The flusher has work all the time, and reads are not served from memory.
        memory: MemoryLimits {
            cache: 32 << 20,
            dirty: 16 << 20,
            background: 1 << 20,
            ..MemoryLimits::default()
        },
        ..Rig::new(Preset::Ufs, 1 << 30)
    }
}

fn lasts() -> bool {
    clock::now() < Nanos(RUN.as_nanos() as u64)
}

/// Reads a file over and over during the run, in I/O group `group`.
fn reader(t: &Arc<dyn Target>, group: u32) -> thread::JoinHandle<()> {
    let t = t.clone();
    let body = move || {
        let _io = IoContext { group, ..IoContext::default() }.enter();
        let file = t.open("/read", OpenHow::default()).unwrap();
        let (mut at, mut data) = (0, vec![0; 256 << 10]);
        while lasts() {
            assert_eq!(file.read_at(at, &mut data).unwrap(), data.len());
            at = (at + data.len() as u64) % LEN;
        }
    };
    thread::spawn("reader", body).unwrap()
}

/// Writes a file over and over during the run, in I/O group `group`; with `fsync` each piece is synced.
fn writer(t: &Arc<dyn Target>, group: u32, fsync: bool) -> thread::JoinHandle<()> {
    let t = t.clone();
    let body = move || {
        let _io = IoContext { group, ..IoContext::default() }.enter();
        let file = t.open(&format!("/{group}"), OpenHow { create: true, ..OpenHow::default() }).unwrap();
        let data = vec![group as u8; 256 << 10];
        let mut at = 0;
        while lasts() {
            file.write_at(at, &data).unwrap();
            at = (at + data.len() as u64) % LEN;
            if fsync {
                file.fsync(true).unwrap();
            }
        }
    };
    thread::spawn("writer", body).unwrap()
}

/// The elevator's work for each group.
fn counts(t: &Arc<dyn Target>, what: &str) -> BTreeMap<u32, u64> {
    let of = |group: u32| {
        let name = format!("elevator.g{group}.c2.{what}");
        (group, t.counts().get(&name).copied().unwrap_or(0))
    };
    (0..3).map(of).collect()
}

/// Bytes by group after `work`, and the number of times that the device was kept idle.
fn run(
    seed: u64,
    weights: &'static [(u32, u32)],
    work: fn(&Arc<dyn Target>),
) -> (BTreeMap<u32, u64>, BTreeMap<u32, u64>) {
    println!("seed {seed}, weights {weights:?}");
    sim::run(seed, 8, move || {
        let volume = Arc::new(rig().build().unwrap());
        let t = volume.clone() as Arc<dyn Target>;
        let file = t.open("/read", OpenHow { create: true, ..OpenHow::default() }).unwrap();
        let piece = vec![1; 1 << 20];
        (0..LEN >> 20).for_each(|n| file.write_at(n << 20, &piece).unwrap());
        drop(file);
        t.sync().unwrap();
        let before = counts(&t, "bytes");
        weights.iter().for_each(|(group, weight)| assert!(t.set_group_weight(*group, *weight)));
        work(&t);
        let mut bytes = counts(&t, "bytes");
        bytes.iter_mut().for_each(|(group, n)| *n -= before[group]);
        let counted = (bytes, counts(&t, "idled"));
        drop(t);
        Arc::into_inner(volume).unwrap().unmount().unwrap();
        counted
    })
}

#[track_caller]
fn shares_are_by_weight(bytes: &BTreeMap<u32, u64>, heavy: u32, light: u32) {
    let ratio = bytes[&heavy] as f64 / bytes[&light] as f64;
    assert!((3.5..6.5).contains(&ratio), "group {heavy} beside group {light}: {bytes:?}, {ratio:.2}");
}

/// Two threads fsync their writes, each in its group.
#[test]
fn fsyncs_are_served_by_weight() {
    for seed in 0..2 {
        let (bytes, idled) = run(seed, &[(1, HEAVY), (2, LIGHT)], |t| {
            let both = [writer(t, 1, true), writer(t, 2, true)];
            both.into_iter().for_each(thread::JoinHandle::join);
        });
        shares_are_by_weight(&bytes, 1, 2);
        assert!(idled[&1] > 0 && idled[&2] > 0, "{idled:?}");
    }
}

/// A reader runs beside the flusher, for which no thread waits and which is in the root group.
#[test]
fn the_flusher_is_served_by_weight() {
    for seed in 0..2 {
        let beside = |t: &Arc<dyn Target>| {
            let both = [reader(t, 1), writer(t, 2, false)];
            both.into_iter().for_each(thread::JoinHandle::join);
        };
        let (bytes, _) = run(seed, &[(1, HEAVY), (0, LIGHT)], beside);
        shares_are_by_weight(&bytes, 1, 0);
        let (bytes, idled) = run(seed, &[(1, LIGHT), (0, HEAVY)], beside);
        shares_are_by_weight(&bytes, 0, 1);
        assert!(idled[&0] > 0, "nobody waited for the flusher: {idled:?}");
    }
}
