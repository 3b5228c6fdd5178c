//! A sample of a volume. Locks are taken one at a time, and only to read.

use super::*;
use crate::Volume;
use crate::error::show;
use tidegate_rt::{clock, lockstat};
use tidegate_vfs::{FlusherState, Pass, WrittenFile};

impl Volume {
    /// The volume's present activity. Cheap enough to be called each second; never waits for I/O.
    pub fn sample(&self) -> Sample {
        let vfs = self.vfs();
        let bdi = vfs.bdi();
        let limits = bdi.limits();
        let (st, now) = (vfs.statfs(), clock::now());
        let read_only = self.ops().read_only();
        let (commit, frozen) = self.ops().commit_times();
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
            read_only: read_only.map(|why| why.to_string()),
            io: self.queue().stats(),
            writes: self.stats(),
            fsync: bdi.fsync_times().into(),
            commit: commit.into(),
            frozen: frozen.into(),
            commits: self.commit_stats(),
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
