use super::*;
use crate::{MemoryDevice, PageBuf, QueueLimits, RequestQueue, Sector};

fn rig(rules: impl IntoIterator<Item = Rule>) -> (Arc<MemoryDevice>, Arc<Faulty>, RequestQueue) {
    let memory = Arc::new(MemoryDevice::new(1 << 20));
    let faulty = Faulty::new(memory.clone(), rules);
    (memory, faulty.clone(), RequestQueue::new(faulty, QueueLimits::default()))
}

fn write(page: u64, pages: usize, byte: u8) -> Bio {
    let mut buf = PageBuf::zeroed(pages);
    buf.fill(byte);
    let segment = Segment::pages(Arc::new(buf), 0, pages);
    Bio::write(Sector(page * 8), vec![segment], BioFlags::empty())
}

/// A device that goes away does not wait for the time of late requests.
fn go_away(faulty: &Faulty) {
    let (shared, thread) = {
        let mut later = faulty.later.lock();
        (later.0.clone().unwrap(), later.1.take().unwrap())
    };
    shared.0.lock().over = true;
    shared.1.notify_one();
    thread.join();
}

#[test]
fn rules_choose_by_number_place_and_chance() {
    let (_, faulty, q) =
        rig([Rule::new(Fault::Fail(Errno::NOSPC)).op(Op::Write).within(4096..8192).which(1..2)]);
    let results: Vec<_> =
        [0, 1, 2, 1, 1].into_iter().map(|p| q.submit_wait(write(p, 1, 1)).map(drop)).collect();
    assert_eq!(results, [Ok(()), Ok(()), Ok(()), Err(Errno::NOSPC), Ok(())]);
    assert_eq!(faulty.failed(), 1);
    let fails = |seed| {
        faulty.set([Rule::new(Fault::Fail(Errno::IO)).chance(250, seed)]);
        (0..400).map(|_| q.submit_wait(write(0, 1, 1)).is_err()).collect::<Vec<_>>()
    };
    let first = fails(1);
    assert_eq!(first, fails(1));
    assert_ne!(first, fails(2));
    let n = first.iter().filter(|f| **f).count();
    assert!((50..150).contains(&n), "{n} of 400");
    faulty.set([]);
    q.submit_wait(write(0, 1, 1)).unwrap();
}

#[test]
fn short_requests_do_their_beginning() {
    let (memory, faulty, q) = rig([Rule::new(Fault::Short(4096 + 600, Errno::IO))]);
    q.submit_wait(write(0, 3, 7)).unwrap_err();
    let mut bytes = vec![0; 3 * 4096];
    memory.read_at(0, &mut bytes);
    let end = bytes.iter().take_while(|b| **b == 7).count();
    assert_eq!((end, bytes[end..].iter().all(|b| *b == 0)), (4096 + 512, true));
    let mut rq = Request::new(Bio::read(Sector(0), vec![PageBuf::zeroed(2)], BioFlags::empty()));
    assert_eq!(faulty.execute(&mut rq), Err(Errno::IO));
    rq.for_each_target(|t| assert_eq!((t[4607], t[4608]), (7, 0xdb)));
}

#[test]
fn late_requests_end_after_others() {
    let (memory, faulty, q) =
        rig([Rule::new(Fault::Late(Duration::from_secs(3600))).within(0..4096).op(Op::Write)]);
    let ended = Arc::new(AtomicU64::new(0));
    let e = ended.clone();
    q.submit(write(0, 1, 9).on_end(move |r, _| {
        r.unwrap();
        e.store(1, SeqCst);
    }));
    q.submit_wait(write(1, 1, 9)).unwrap();
    assert_eq!((ended.load(SeqCst), faulty.late()), (0, 1));
    go_away(&faulty);
    let mut byte = [0];
    memory.read_at(4095, &mut byte);
    assert_eq!((ended.load(SeqCst), byte), (1, [9]));
}

#[test]
fn a_seed_shuffles_the_order_of_completions() {
    let (_, _, q) = rig([Rule::new(Fault::Shuffled(Duration::from_millis(40))).chance(1000, 5)]);
    let order = Arc::new(Mutex::new(&LATE, Vec::new()));
    for i in 0..16 {
        let order = order.clone();
        q.submit(write(i, 1, 1).on_end(move |_, _| order.lock().push(i)));
    }
    q.drain();
    let mut seen = order.lock().clone();
    assert_ne!(seen, (0..16).collect::<Vec<_>>());
    seen.sort_unstable();
    assert_eq!(seen, (0..16).collect::<Vec<_>>());
}

#[test]
fn writes_of_bytes_that_are_still_being_written_are_counted() {
    let late = Rule::new(Fault::Late(Duration::from_secs(3600))).op(Op::Write).which(0..1);
    let (_, faulty, q) = rig([late]);
    q.submit(write(4, 2, 1));
    q.submit_wait(write(6, 1, 1)).unwrap();
    q.submit_wait(write(3, 1, 1)).unwrap();
    let before = faulty.overlaps();
    q.submit_wait(write(5, 2, 1)).unwrap();
    let after = faulty.overlaps();
    go_away(&faulty);
    assert_eq!((before, after), (0, 1));
}
