//! The workload of `checkpoint_merge`, once: `ckpt_load OPTIONS FILES`.
//!
//! Group 1 (weight 100) makes FILES files in one directory and fsyncs it after each. Group 2 (weight 20)
//! writes one file from front to back, over and over, 4 MiB and an fsync at a time. They share a volume
//! mounted with OPTIONS, behind the elevator `wfq`, on a device in memory that takes a fixed time for a
//! request and for a byte. Prints what it took as JSON.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tidegate::vfs::{Cred, OpenFlags};
use tidegate::{OpenOptions, Volume};
use tidegate_block::*;
use tidegate_f2fs::mkfs;
use tidegate_rt::{Condvar, LockClass, Mutex, clock, thread};

const ROOT: &Cred = &Cred::ROOT;
const DEVICE: u64 = 512 << 20;
const STREAM: u64 = 128 << 20;
const CHUNK: usize = 4 << 20;

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

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [options, files] = &args[..] else { panic!("usage: ckpt_load OPTIONS FILES") };
    let files: u32 = files.parse().expect("a number of files");
    let volume = open(options).expect("a volume");
    let vfs = volume.vfs().clone();
    let dir = vfs.mkdir(ROOT, &vfs.root().expect("the root"), b"a", 0o755).expect("mkdir");
    volume.sync().expect("sync");
    let (stop, streamed) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let stream = {
        let (vfs, stop, streamed) = (vfs.clone(), stop.clone(), streamed.clone());
        let body = move || {
            let _io = group(2);
            let f = vfs.open_path(ROOT, b"/b", OpenFlags::WRITE | OpenFlags::CREATE, 0o644).expect("open");
            let data = vec![0x5a; CHUNK];
            while !stop.load(SeqCst) {
                f.write_at(streamed.load(SeqCst) % STREAM, &data).expect("write");
                f.fsync(false).expect("fsync");
                streamed.fetch_add(CHUNK as u64, SeqCst);
            }
        };
        thread::spawn("stream", body).expect("a thread")
    };
    let before = (volume.ckpt_stats(), streamed.load(SeqCst), clock::now());
    {
        let _io = group(1);
        let d = vfs.open(ROOT, &dir, OpenFlags::READ).expect("open");
        for n in 0..files {
            vfs.create(ROOT, &dir, format!("f{n}").as_bytes(), 0o644).expect("create");
            d.fsync(false).expect("fsync");
        }
    }
    let seconds = clock::now().since(before.2).duration().as_secs_f64();
    let bytes = streamed.load(SeqCst) - before.1;
    let s = volume.ckpt_stats();
    stop.store(true, SeqCst);
    stream.join();
    let steps: Vec<String> =
        s.steps.iter().map(|t| format!("{{\"step\":\"{}\",\"mean_ns\":{}}}", t.name, t.mean_ns)).collect();
    println!(
        "{{\"seconds\":{seconds},\"streamed\":{bytes},\"total_ckpt\":{},\"issued_ckpt\":{},\"peak_ckpt_time_ms\":{},\"steps\":[{}]}}",
        s.total_ckpt - before.0.total_ckpt,
        s.issued_ckpt - before.0.issued_ckpt,
        s.peak_ckpt_time,
        steps.join(",")
    );
    volume.unmount().expect("unmount");
}
