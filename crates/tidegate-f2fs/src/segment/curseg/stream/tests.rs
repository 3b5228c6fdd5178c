use crate::format::raw::RawSummary;
use crate::segment::log::{Log, LogId};
use crate::segment::policy::Reserve;
use crate::testing::new_volume;
use crate::volume::sbi::F2fs;
use tidegate_vfs::VolumeOps;
use zerocopy::FromZeros;

const STREAM: LogId = LogId { kind: Log::WarmData, stream: 1 };

/// The log that gives the block when a stream's block is asked for.
fn giver(fs: &F2fs, log: LogId) -> LogId {
    let _op = fs.cp_rwsem.read();
    fs.allocate_extents(log, Reserve::Data, 1, |_| RawSummary::new_zeroed()).unwrap()[0].log
}

#[test]
fn a_stream_that_was_refused_is_so_until_the_next_checkpoint() {
    let open = new_volume();
    VolumeOps::remount(&*open.fs, "warm_streams=2").unwrap();
    let fs = &open.fs;
    fs.sit.exclude(Some(vec![0xFF; fs.sb.main_segments as usize / 8 + 1]));
    assert_eq!(giver(fs, STREAM), Log::WarmData.into());
    fs.sit.exclude(None);
    assert_eq!(giver(fs, STREAM), Log::WarmData.into(), "nobody looks again");
    fs.cursegs.checkpointed();
    assert_eq!(giver(fs, STREAM), STREAM);
}

/// Blocks of metadata that the second of two checkpoints writes, with the streams unchanged since the first.
fn written_by_an_idle_checkpoint(options: &str) -> u64 {
    let open = new_volume();
    VolumeOps::remount(&*open.fs, options).unwrap();
    for stream in 0..4 {
        giver(&open.fs, LogId { kind: Log::WarmData, stream });
    }
    let mut written = 0;
    for _ in 0..2 {
        let before = open.fs.stats().log.blocks;
        VolumeOps::commit(&*open.fs, true).unwrap();
        written = open.fs.stats().log.blocks - before;
    }
    written
}

#[test]
fn a_checkpoint_writes_no_summary_twice() {
    let one = written_by_an_idle_checkpoint("");
    assert!(one > 0);
    assert_eq!(written_by_an_idle_checkpoint("warm_streams=4"), one);
}
