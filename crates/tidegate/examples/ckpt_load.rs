//! The workload of `checkpoint_merge`, once: `ckpt_load OPTIONS FILES`.
//!
//! Group 1 (weight 100) makes FILES files in one directory and fsyncs it after each; beside that it writes
//! one file from front to back, over and over, 128 KiB at a time, waiting for nothing. Group 2 (weight 20)
//! does what group 1 does with files, in a directory of its own, without end: its checkpoints are what
//! group 1 would wait for. They share a volume mounted with OPTIONS, behind the elevator `wfq` with strict
//! guarantees, on a device in memory that takes a fixed time for a request and for a byte. Prints what
//! group 1's files took, as JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use tidegate::vfs::{Cred, OpenFlags, Vfs};
use tidegate::{OpenOptions, Volume};
use tidegate_block::*;
use tidegate_f2fs::{CkptStats, mkfs};
use tidegate_rt::{Condvar, LockClass, Mutex, clock, thread};

const ROOT: &Cred = &Cred::ROOT;
const DEVICE: u64 = 512 << 20;
const STREAM: u64 = 128 << 20;
const CHUNK: usize = 128 << 10;

static QUEUE: LockClass = LockClass::new("ckpt_load", 980);

/// Serves one request at a time: 100 µs and 100 MB/s, a flush 500 µs.
struct Slow {
    memory: MemoryDevice,
    requests: Mutex<VecDeque<(Request, Option<Arc<Answer>>)>>,
    work: Condvar,
}

struct Answer {
    result: Mutex<Option<(Request, Result<(), Errno>)>>,
    done: Condvar,
}

impl Slow {
    fn serve(&self) {
        loop {
            let mut q = self.requests.lock();
            let (mut rq, answer) = loop {
                match q.pop_front() {
                    Some(next) => break next,
                    None => self.work.wait(&mut q),
                }
            };
            drop(q);
            let flushes = rq.flags.intersection(BioFlags::PREFLUSH | BioFlags::FUA).bits().count_ones()
                + (rq.op == Op::Flush) as u32;
            let moved = if matches!(rq.op, Op::Read | Op::Write) { rq.bytes } else { 0 };
            thread::sleep(Duration::from_nanos(100_000 + moved * 10 + flushes as u64 * 500_000));
            let r = self.memory.execute(&mut rq);
            match answer {
                None => rq.complete(r),
                Some(a) => {
                    *a.result.lock() = Some((rq, r));
                    a.done.notify_all();
                }
            }
        }
    }

    fn push(&self, rq: Request, answer: Option<Arc<Answer>>) {
        self.requests.lock().push_back((rq, answer));
        self.work.notify_one();
    }
}

impl Device for Slow {
    fn name(&self) -> &str {
        "slow"
    }
    fn size(&self) -> u64 {
        self.memory.size()
    }
    fn read_only(&self) -> bool {
        false
    }
    fn backend(&self) -> &'static str {
        "model"
    }
    fn execute(&self, rq: &mut Request) -> Result<(), Errno> {
        let answer = Arc::new(Answer { result: Mutex::new(&QUEUE, None), done: Condvar::new() });
        self.push(std::mem::replace(rq, Request::new(Bio::flush())), Some(answer.clone()));
        let mut result = answer.result.lock();
        loop {
            match result.take() {
                Some((back, r)) => {
                    *rq = back;
                    return r;
                }
                None => answer.done.wait(&mut result),
            }
        }
    }
    fn submit(&self, rq: Request) {
        self.push(rq, None);
    }
}

fn open(options: &str) -> tidegate::Result<Volume> {
    let memory = MemoryDevice::new(DEVICE);
    let requests = Mutex::new(&QUEUE, VecDeque::new());
    let device = Arc::new(Slow { memory, requests, work: Condvar::new() });
    let server = device.clone();
    thread::spawn("slow", move || server.serve()).expect("a thread");
    let queue =
        RequestQueue::with_elevator(device, QueueLimits::default(), Elevator::Wfq(Default::default()));
    queue.set_group_weight(1, 100);
    queue.set_group_weight(2, 20);
    mkfs::mkfs(&queue, &mkfs::MkfsOptions::default()).expect("mkfs");
    let mut how = OpenOptions::default();
    how.f2fs.parse(options).expect("options");
    Volume::from_queue("slow", Arc::new(queue), &how)
}

fn group(group: u32) -> IoContextGuard {
    IoContext { group, ..Default::default() }.enter()
}

/// Makes a file in `dir` and fsyncs it, while `more` says so with their number.
fn touch(vfs: &Arc<Vfs>, dir: &[u8], more: impl Fn(u64) -> bool) -> u64 {
    let inode = vfs.mkdir(ROOT, &vfs.root().expect("the root"), dir, 0o755).expect("mkdir");
    let d = vfs.open(ROOT, &inode, OpenFlags::READ).expect("open");
    let mut n = 0;
    while more(n) {
        vfs.create(ROOT, &inode, format!("f{n}").as_bytes(), 0o644).expect("create");
        d.fsync(false).expect("fsync");
        n += 1;
    }
    n
}

/// Writes a file over and over until told to stop; bytes written.
fn stream(vfs: &Arc<Vfs>, stop: &AtomicBool) -> u64 {
    let f = vfs.open_path(ROOT, b"/stream", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("open");
    let (data, mut n) = (vec![0x5a; CHUNK], 0);
    while !stop.load(SeqCst) {
        f.write_at(n % STREAM, &data).expect("write");
        n += CHUNK as u64;
    }
    n
}

fn report(s: &CkptStats, seconds: f64, streamed: u64, background: u64) {
    let steps: Vec<String> =
        s.steps.iter().map(|t| format!("{{\"step\":\"{}\",\"mean_ns\":{}}}", t.name, t.mean_ns)).collect();
    println!("{{\"seconds\":{seconds},\"streamed\":{streamed},\"background\":{background},");
    println!("\"total_ckpt\":{},\"issued_ckpt\":{},", s.total_ckpt, s.issued_ckpt);
    println!("\"peak_ckpt_time_ms\":{},\"steps\":[{}]}}", s.peak_ckpt_time, steps.join(","));
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [options, files] = &args[..] else { panic!("usage: ckpt_load OPTIONS FILES") };
    let files: u64 = files.parse().expect("a number of files");
    let volume = open(options).expect("a volume");
    let stop = Arc::new(AtomicBool::new(false));
    let beside = |name, number, work: fn(&Arc<Vfs>, &AtomicBool) -> u64| {
        let (vfs, stop) = (volume.vfs().clone(), stop.clone());
        let body = move || {
            let _io = group(number);
            work(&vfs, &stop)
        };
        thread::spawn(name, body).expect("a thread")
    };
    let stream = beside("stream", 1, stream);
    let background = beside("background", 2, |vfs, stop| touch(vfs, b"background", |_| !stop.load(SeqCst)));
    let start = clock::now();
    {
        let _io = group(1);
        touch(volume.vfs(), b"foreground", |n| n < files);
    }
    let seconds = clock::now().since(start).duration().as_secs_f64();
    let stats = volume.ckpt_stats();
    stop.store(true, SeqCst);
    report(&stats, seconds, stream.join(), background.join());
    volume.unmount().expect("unmount");
}
