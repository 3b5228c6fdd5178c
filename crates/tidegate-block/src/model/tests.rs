//! The devices as a whole: they keep bytes, refuse wrong requests, and end every request.

use super::*;
use crate::bio::{Bio, BioData, Sector, Segment};
use crate::{PageBuf, RequestQueue};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

fn write(pos: u64, pages: usize, byte: u8) -> Bio {
    let mut buf = PageBuf::zeroed(pages);
    buf.fill(byte);
    let segment = Segment::pages(Arc::new(buf), 0, pages);
    Bio::write(Sector::from_bytes(pos), vec![segment], BioFlags::empty())
}

fn byte_at(q: &RequestQueue, pos: u64) -> u8 {
    match q.submit_wait(Bio::read(Sector::from_bytes(pos), vec![PageBuf::zeroed(1)], BioFlags::empty())) {
        Ok(BioData::Read(v)) => v[0][0],
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_are_read_as_they_are_written() {
    for p in Preset::ALL {
        assert_eq!(p.to_string().parse(), Ok(p));
        let d = Model::new(p, 8 << 30);
        assert_eq!((d.name(), d.size(), d.backend(), d.read_only()), (p.name(), 8 << 30, "model", false));
    }
    let e = "floppy".parse::<Preset>().unwrap_err().to_string();
    assert!(e.contains("\"floppy\"") && Preset::ALL.iter().all(|p| e.contains(p.name())), "{e}");
}

#[test]
fn what_is_written_is_read_and_every_request_ends() {
    for p in Preset::ALL {
        let q = RequestQueue::new(Model::new(p, 8 << 30), p.spec().queue_limits());
        let ended = Arc::new(AtomicU64::new(0));
        for i in 0..40 {
            let ended = ended.clone();
            q.submit(write(i * 16384, 4, i as u8 + 1).on_end(move |r, _| {
                r.unwrap();
                ended.fetch_add(1, SeqCst);
            }));
        }
        q.drain();
        q.flush().unwrap();
        assert_eq!(ended.load(SeqCst), 40, "{p}");
        for i in 0..40 {
            assert_eq!(byte_at(&q, i * 16384 + 12288), i as u8 + 1, "{p}");
        }
        let past = q.submit_wait(write(8 << 30, 1, 1)).map(drop);
        assert_eq!(past, Err(Errno::IO), "{p}");
        q.submit_wait(Bio::discard(Sector(0), 16384)).unwrap();
        assert_eq!((byte_at(&q, 0), byte_at(&q, 16384)), (0, 2), "{p}");
    }
}

#[test]
fn zones_are_written_in_order_and_reset_as_a_whole() {
    const MIB: u64 = 1 << 20;
    let mut spec = Preset::Zns.spec();
    spec.zones = Some(ZoneSpec { size: 2 * MIB, capacity: MIB, conventional: 1, max_open: 2, max_active: 2 });
    let d = Model::with_spec("zns", spec, 11 * MIB);
    assert_eq!((d.size(), d.zones().len()), (10 * MIB, 5));
    let q = RequestQueue::new(d.clone(), spec.queue_limits());
    // A queue would hold back a write that comes early.
    let put = |pos, pages| d.execute(&mut Request::new(write(pos, pages, 7)));
    // Writes are accepted anywhere in the first zone, but not across its end.
    assert_eq!((put(MIB, 1), put(0, 2), put(2 * MIB - 4096, 2)), (Ok(()), Ok(()), Err(Errno::IO)));
    // Writes to other zones are accepted only at the write pointer.
    assert_eq!(put(2 * MIB + 4096, 1), Err(Errno::IO));
    assert_eq!((put(2 * MIB, 1), put(2 * MIB, 1), put(2 * MIB + 4096, 1)), (Ok(()), Err(Errno::IO), Ok(())));
    assert_eq!(d.zones()[1].pointer, 2 * MIB + 8192);
    // Two zones may be active at once; a full one no longer counts.
    assert_eq!((put(4 * MIB, 1), put(6 * MIB, 1)), (Ok(()), Err(Errno::OVERFLOW)));
    assert_eq!((put(4 * MIB + 4096, 254), put(6 * MIB, 1)), (Ok(()), Err(Errno::OVERFLOW)));
    assert_eq!((put(5 * MIB - 4096, 1), put(6 * MIB, 1)), (Ok(()), Ok(())));
    assert_eq!((d.zones()[2].state, put(5 * MIB, 1)), (ZoneState::Full, Err(Errno::IO)));
    // A discard does nothing; a reset is for whole zones.
    let reset = |pos, len| {
        let bio = Bio::range(Op::ZoneReset, Sector::from_bytes(pos), len, BioFlags::empty());
        q.submit_wait(bio).map(drop)
    };
    q.submit_wait(Bio::discard(Sector::from_bytes(2 * MIB), 2 * MIB)).unwrap();
    assert_eq!(reset(2 * MIB, MIB), Err(Errno::INVAL));
    assert_eq!((byte_at(&q, 2 * MIB), d.zones()[1].state.is_active()), (7, true));
    reset(2 * MIB, 2 * MIB).unwrap();
    let z = d.zones()[1];
    assert_eq!((byte_at(&q, 2 * MIB), z.state, z.pointer), (0, ZoneState::Empty, 2 * MIB));
    assert_eq!((d.finish_zone(1), d.finish_zone(0)), (Ok(()), Err(Errno::INVAL)));
    assert_eq!(put(2 * MIB, 1), Err(Errno::IO));
    assert_eq!((reset(0, 2 * MIB), reset(2 * MIB, 8 * MIB)), (Err(Errno::INVAL), Ok(())));
    assert!(d.zones()[1..].iter().all(|z| z.state == ZoneState::Empty));
}
