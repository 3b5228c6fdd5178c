//! The course of a repair: the engine first, then rounds of check and repair.

use super::Repair;
use super::disk::Disk;
use super::finish::HURT;
use super::pack;
use crate::format::gate::Superblock;
use crate::format::raw::*;
use crate::offline::check::{CheckOptions, CheckReport, check};
use crate::segment::zones::ZoneMap;
use crate::{F2fs, F2fsOptions};
use std::sync::Arc;
use tidegate_block::{BioFlags, RequestQueue};
use tidegate_vfs::offline::{Change, OnChange, Outcome, RepairOptions, RepairReport};
use tidegate_vfs::{Bdi, ErrorKind, FileSystem, MemoryLimits, MountOptions, Result, Vfs};

/// Rounds before the repair gives up.
const ROUNDS: u32 = 3;
/// Structures whose faults do not make writing dangerous.
const HARMLESS: [&str; 10] = [
    "dentry-",
    "dir-",
    "inode-",
    "link-count",
    "xattr",
    "sb-copy",
    "cp-valid",
    "cp-free",
    "nat-unreached",
    "nat-none",
];

/// Repairs the volume behind `queue`, which no other thread may use meanwhile. `on_change` hears of each
/// change when it is decided.
///
/// # Errors
/// When there is no superblock or no checkpoint, for features that Tidegate only reads, those of the device,
/// and `NoSpace` for what was fsynced after the last checkpoint: nothing was changed then. Damage that cannot
/// be repaired is in the report.
pub fn repair(
    queue: &Arc<RequestQueue>,
    options: RepairOptions,
    on_change: OnChange<'_>,
) -> Result<RepairReport> {
    let mut report = RepairReport {
        outcome: Outcome::Clean,
        changes: 0,
        rounds: 0,
        notes: Vec::new(),
        check: check(queue, CheckOptions::default())?,
    };
    let mut given_up = false;
    if recover(queue, options, &mut report, &mut given_up)? {
        report.check = check(queue, CheckOptions::default())?;
    }
    loop {
        let hurt = is_hurt(queue)?;
        if report.check.is_clean() && !hurt && !given_up {
            break;
        }
        if report.rounds == ROUNDS || options.dry_run && report.rounds == 1 {
            report.outcome = Outcome::Left;
            return Ok(report);
        }
        refuse(queue)?;
        report.rounds += 1;
        if !round(queue, options, given_up, &mut report, on_change)? {
            report.outcome = Outcome::Left;
            return Ok(report);
        }
        given_up = false;
        if !options.dry_run {
            report.check = check(queue, CheckOptions::default())?;
        }
    }
    report.outcome = if report.rounds > 0 { Outcome::Corrected } else { Outcome::Clean };
    Ok(report)
}

/// One round of repair. It ends a chain of fsynced nodes that is `given_up`; false when the repair was not
/// possible.
fn round(
    queue: &RequestQueue,
    options: RepairOptions,
    given_up: bool,
    report: &mut RepairReport,
    on_change: OnChange<'_>,
) -> Result<bool> {
    mend_superblock(queue, options, report, on_change)?;
    let only_sb =
        report.check.total_problems > 0 && report.check.problems.iter().all(|p| p.rule == "sb-copy");
    if only_sb && report.check.total_problems == report.check.problems.len() as u64 {
        return Ok(true);
    }
    let clean = report.check.is_clean();
    let mut r = Repair::load(queue, options, on_change)?;
    if report.check.problems.iter().any(|p| p.rule.starts_with("nat-bits")) {
        r.change("checkpoint", "nat_bits".into(), "wrong".into(), "made anew".into());
    }
    if given_up || report.check.problems.iter().any(|p| p.rule == "fsync-chain") {
        r.change("checkpoint", "fsynced nodes".into(), "make no sense".into(), "given up".into());
    }
    let done = r.run(clean);
    report.changes += r.changes;
    report.notes.append(&mut r.notes);
    match done {
        Ok(()) => Ok(true),
        Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::NoSpace) => {
            report.notes.push(e.to_string());
            Ok(false)
        }
        Err(e) => Err(e),
    }
}

/// Makes both copies of the superblock equal.
fn mend_superblock(
    queue: &RequestQueue,
    options: RepairOptions,
    report: &mut RepairReport,
    on_change: OnChange<'_>,
) -> Result<()> {
    let (_, good) = pack::superblock(queue)?;
    let mut disk = Disk::new(queue);
    let (from, mut to) = (disk.block(good as u32)?, disk.block(1 - good as u32)?);
    if from[SUPER_OFFSET..] == to[SUPER_OFFSET..] {
        return Ok(());
    }
    to[SUPER_OFFSET..].copy_from_slice(&from[SUPER_OFFSET..]);
    let change = Change {
        what: "superblock",
        place: format!("copy {}", 1 - good),
        from: "damaged or different".into(),
        to: format!("as copy {good}"),
    };
    on_change(&change);
    report.changes += 1;
    if options.dry_run {
        return Ok(());
    }
    disk.write(1 - good as u32, &to[..], BioFlags::PREFLUSH | BioFlags::FUA)
}

/// Whether the checkpoint's flags report an error.
fn is_hurt(queue: &RequestQueue) -> Result<bool> {
    let (sb, _) = pack::superblock(queue)?;
    Ok(pack::checkpoint(&Disk::new(queue), &sb)?.flags.intersects(HURT))
}

/// Whether nodes were fsynced after the last checkpoint.
fn has_chain(queue: &RequestQueue, sb: &Superblock) -> Result<bool> {
    let mut disk = Disk::new(queue);
    let cp = pack::checkpoint(&disk, sb)?;
    let at = cp.chain_start(sb);
    let zones = ZoneMap::load(queue, sb)?;
    let is_lost = |z: ZoneMap| z.is_lost((at.0 - sb.main_blkaddr) / BLOCKS_PER_SEG);
    if !sb.in_main(at) || zones.is_some_and(is_lost) {
        return Ok(false);
    }
    let block = disk.block(at.0)?;
    Ok(cp.node_stamp().is_on(RawNodeFooter::of(&block[..]).cp_ver.get()))
}

/// Refuses volumes that cannot be written faithfully.
fn refuse(queue: &RequestQueue) -> Result<()> {
    let (sb, _) = pack::superblock(queue)?;
    let unsupported = |what: String| Err(tidegate_vfs::Error::new(ErrorKind::Unsupported, what));
    if !sb.read_only_features.is_empty() {
        return unsupported(format!("repair with f2fs feature {}", sb.read_only_features));
    }
    let flags = pack::checkpoint(&Disk::new(queue), &sb)?.flags;
    if flags.intersects(CpFlags::DISABLED | CpFlags::RESIZEFS) {
        return unsupported("repair while checkpointing is disabled or a resize is under way".into());
    }
    Ok(())
}

/// Lets the engine free orphans and roll forward, if that is needed and the engine's maps can be trusted;
/// true if it did.
///
/// `given_up` is set where the chain makes no sense: a new checkpoint must end the chain, or the next opening
/// will try to recover it, too.
fn recover(
    queue: &Arc<RequestQueue>,
    options: RepairOptions,
    report: &mut RepairReport,
    given_up: &mut bool,
) -> Result<bool> {
    let (sb, _) = pack::superblock(queue)?;
    let unclean = report.check.unclean || report.check.orphans > 0 || has_chain(queue, &sb)?;
    if !unclean || !sb.read_only_features.is_empty() {
        return Ok(false);
    }
    if options.dry_run {
        report.notes.push("not cleanly unmounted: a real run recovers first what was fsynced since".into());
        return Ok(false);
    }
    if !is_safe(&report.check) {
        let why = "what was fsynced after the last checkpoint is not recovered: NAT or SIT cannot be trusted";
        report.notes.push(why.into());
        return Ok(false);
    }
    match roll_forward(queue) {
        Ok(()) => Ok(true),
        // A chain that makes no sense now will make none another time.
        Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Stale | ErrorKind::FileTooBig) => {
            report.notes.push(format!("what was fsynced after the last checkpoint is not recovered: {e}"));
            *given_up = true;
            Ok(true)
        }
        // A checkpoint of the repair would end the chain, which may become readable or find room later.
        Err(e) => {
            Err(e.of("nothing repaired, since what was fsynced after the last checkpoint would be lost (opening the volume with disable_roll_forward gives it up)"))
        }
    }
}

fn is_safe(r: &CheckReport) -> bool {
    // Blocks that are marked but unowned do no harm. Where zones have lost content, no zone may be reset
    // before everything was looked at.
    let dangerous = ["in use, but not marked", "behind its zone's write pointer"];
    let harmless = |rule: &str, text: &str| {
        HARMLESS.iter().any(|h| rule.starts_with(h))
            || rule == "sit-valid-map" && !dangerous.iter().any(|d| text.contains(d))
    };
    r.total_problems == r.problems.len() as u64 && r.problems.iter().all(|p| harmless(p.rule, &p.text))
}

fn roll_forward(queue: &Arc<RequestQueue>) -> Result<()> {
    let bdi = Bdi::new(MemoryLimits::default());
    let fs = F2fs::open_hurt(queue.clone(), bdi.clone(), F2fsOptions::default())?;
    if FileSystem::read_only(&*fs).is_some() {
        return Ok(());
    }
    let vfs = Vfs::mount(fs, bdi, MountOptions::default())?;
    vfs.unmount()
}
