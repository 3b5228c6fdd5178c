//! A sample of a volume. Locks are taken one at a time and for a look only.

use super::*;
use crate::Volume;
use crate::error::show;
use std::collections::BTreeMap;
use tidegate_rt::{Distribution, clock, lockstat};
use tidegate_vfs::{FlusherState, Pass, WrittenFile};

impl Volume {
    /// What the volume does now. Cheap enough to be asked each second, and never waits for I/O.
    pub fn sample(&self) -> Sample {
        let vfs = self.vfs();
        let bdi = vfs.bdi();
        let limits = bdi.limits();
        let (st, now) = (vfs.statfs(), clock::now());
        let read_only = self.ops().read_only();
        let (checkpoint, frozen) = self.ops().commit_times();
        Sample {
            at_ns: now.0,
            up_seconds: now.since(self.opened_at()).duration().as_secs_f64(),
            image: self.image().to_string(),
            mountpoint: None,
            format: self.format().to_string(),
            space: Space {
                total_bytes: st.blocks * u64::from(st.block_size),
                available_bytes: st.blocks_available * u64::from(st.block_size),
                files: st.files.saturating_sub(st.files_free),
            },
            memory: Memory {
                dirty_bytes: bdi.dirty_bytes(),
                writeback_bytes: bdi.writeback_bytes(),
                cached_bytes: bdi.cached_bytes(),
                dirty_limit: limits.dirty,
                background_limit: limits.background,
                cache_limit: limits.cache,
            },
            flusher: flusher(bdi.flusher_state(), read_only.is_some()),
            read_only,
            io: io(self),
            writes: writes(self),
            fsync: bdi.fsync_times().into(),
            checkpoint: checkpoint.into(),
            frozen: frozen.into(),
            ckpt: ckpt(self),
            files: vfs.files_being_written(MAX_FILES).into_iter().map(file).collect(),
            locks: if lockstat::enabled() { locks() } else { Vec::new() },
        }
    }
}

fn flusher(state: FlusherState, read_only: bool) -> Flusher {
    let state_is = |s: &str| Flusher { state: s.into(), ..Flusher::default() };
    match state {
        FlusherState::Idle if read_only => state_is("none"),
        FlusherState::Idle => state_is("idle"),
        FlusherState::Waiting => state_is("waiting"),
        FlusherState::Writing(pass, ino) => {
            let why = match pass {
                Pass::Sync => "sync",
                Pass::Background => "background",
                Pass::Periodic => "periodic",
            };
            Flusher { state: "writing".into(), why: Some(why.into()), ino: ino.map(|i| i.0) }
        }
    }
}

fn io(volume: &Volume) -> Io {
    let queue = volume.queue();
    let (q, (reads, writes)) = (queue.stats(), queue.bio_sizes());
    Io {
        read_bios: q.read_bios,
        read_bytes: q.read_bytes,
        write_bios: q.write_bios,
        write_bytes: q.write_bytes,
        write_requests: q.write_requests,
        flushes: q.flushes,
        discards: q.discards,
        congested: q.congested,
        in_flight: queue.in_flight() as u64,
        sizes: sizes(&reads, &writes),
    }
}

fn sizes(reads: &Distribution, writes: &Distribution) -> Vec<SizeClass> {
    let mut by_size: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let class = |largest: u64| 1 << largest.checked_ilog2().unwrap_or(0);
    for (largest, n) in &reads.buckets {
        by_size.entry(class(*largest)).or_default().0 += n;
    }
    for (largest, n) in &writes.buckets {
        by_size.entry(class(*largest)).or_default().1 += n;
    }
    by_size.into_iter().map(|(bytes, (reads, writes))| SizeClass { bytes, reads, writes }).collect()
}

fn writes(volume: &Volume) -> Writes {
    let s = volume.stats();
    Writes {
        data_bios: s.data.bios,
        data_blocks: s.data.blocks,
        node_bios: s.metadata.bios,
        node_blocks: s.metadata.blocks,
        meta_bios: s.log.bios,
        meta_blocks: s.log.blocks,
        split_bios: s.split_bios,
        fsyncs: s.fsyncs,
        fsync_checkpoints: s.fsync_commits,
        gc_segments: s.own("gc_segments"),
        discarded_bytes: s.discarded_bytes,
    }
}

fn ckpt(volume: &Volume) -> Ckpt {
    let c = volume.commit_stats();
    let step = |s: &tidegate_vfs::StepStats| Step {
        name: s.name.to_string(),
        frozen: s.frozen,
        count: s.count,
        mean_ns: s.mean_ns,
        p99_ns: s.p99_ns,
        max_ns: s.max_ns,
    };
    Ckpt { queued: c.queued, issued: c.issued, total: c.total, steps: c.steps.iter().map(step).collect() }
}

fn file(f: WrittenFile) -> FileSample {
    let internal = f.internal.then(|| match f.ino.0 {
        1 => "[nodes]".to_string(),
        2 => "[metadata]".to_string(),
        _ => "[internal]".to_string(),
    });
    FileSample {
        ino: f.ino.0,
        path: internal.or_else(|| f.path.map(|p| show(&p))),
        dirty_bytes: f.dirty * tidegate_block::PAGE_SIZE as u64,
        writeback_bytes: f.writeback * tidegate_block::PAGE_SIZE as u64,
        age_seconds: f.age.as_secs_f64(),
    }
}

fn locks() -> Vec<LockSample> {
    let one = |s: lockstat::LockStat| {
        let all = s.all();
        LockSample {
            class: s.class.to_string(),
            contentions: all.contentions,
            wait_total_ns: all.wait.total,
            wait_max_ns: all.wait.max,
            acquisitions: all.acquisitions,
            hold_total_ns: all.hold.total,
            hold_max_ns: all.hold.max,
        }
    };
    lockstat::snapshot().into_iter().map(one).collect()
}
