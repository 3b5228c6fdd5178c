//! The course of a repair: the journal first, then rounds of check and repair.

use super::disk::Disk;
use super::{Repair, groups, superblock};
use crate::fast_commit;
use crate::format::crc::crc32c;
use crate::format::gate::{Journal, Superblock, name_features};
use crate::format::raw::*;
use crate::offline::bits::Bits;
use crate::offline::check::{CheckOptions, refuse, whole};
use crate::volume::open::load_superblock;
use crate::volume::overlay::Overlay;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tidegate_block::RequestQueue;
use tidegate_jbd2::{Log, Replay, salvage};
use tidegate_vfs::offline::{Change, OnChange, Outcome, RepairOptions, RepairReport};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::{FromBytes, IntoBytes};

/// Rounds before the repair gives up.
const ROUNDS: u32 = 6;

/// Repairs the volume behind `queue`, which no other thread may use meanwhile. `on_change` hears of each
/// change when it is decided.
///
/// # Errors
/// When there is no superblock, when tables cannot be found, for features that are not repaired (by name),
/// and those of the device: nothing was changed then except for a journal that was replayed. Damage that
/// cannot be repaired is in the report.
pub fn repair(
    queue: &Arc<RequestQueue>,
    options: RepairOptions,
    on_change: OnChange<'_>,
) -> Result<RepairReport> {
    let is_sound = || whole(queue, CheckOptions::default()).is_ok_and(|checked| checked.report.is_clean());
    let sound = superblock::depends_on_copies(queue) && is_sound();
    let found = superblock::find(queue, sound)?;
    refuse(&found.sb)?;
    // Without tables nothing can be repaired, and nothing may be written.
    groups::load(&mut Disk::new(queue, found.sb.block_size), &found.sb)?;
    let mut flow = Flow {
        queue,
        options,
        on_change,
        report: RepairReport {
            outcome: Outcome::Clean,
            changes: 0,
            rounds: 0,
            notes: Vec::new(),
            check: Default::default(),
        },
        sound,
        // Its faults are repaired below.
        believed: true,
        trees: BTreeSet::new(),
        doubted: BTreeSet::new(),
    };
    if let Some((from, to)) = found.mended {
        refuse_changes(&found.sb)?;
        flow.tell("superblock", "the first", from, to);
        if options.dry_run {
            flow.report.notes.push("what follows from the superblock is not looked at in a dry run".into());
            flow.report.outcome = Outcome::Left;
            return Ok(flow.report);
        }
        Disk::new(queue, found.sb.block_size).write_superblock(&found.sb.raw)?;
    }
    flow.run()
}

/// A repair as a whole.
struct Flow<'q, 'c> {
    queue: &'q Arc<RequestQueue>,
    options: RepairOptions,
    on_change: OnChange<'c>,
    report: RepairReport,
    /// The volume was sound before anything was changed, read by its first superblock.
    sound: bool,
    /// The copies were compared with the first superblock, which has not changed since.
    believed: bool,
    /// Directories whose hash trees the last check found damaged.
    trees: BTreeSet<u32>,
    /// Groups whose count of never used inodes is not trusted.
    doubted: BTreeSet<u32>,
}

impl Flow<'_, '_> {
    fn tell(&mut self, what: &'static str, place: &str, from: String, to: String) {
        self.report.changes += 1;
        (self.on_change)(&Change { what, place: place.into(), from, to });
    }

    fn check(&mut self) -> Result<()> {
        let checked = whole(self.queue, CheckOptions::default())?;
        (self.report.check, self.trees) = (checked.report, checked.trees);
        Ok(())
    }

    fn run(mut self) -> Result<RepairReport> {
        let mut overlay = self.replay()?;
        // There may be damage that the check does not report.
        let unasked = match self.check() {
            Ok(()) => self.report.check.is_clean() && self.has_bad_copy()?,
            // A table that cannot be read has copies, or is rewritten.
            Err(e) if e.kind() == ErrorKind::Io => true,
            Err(e) => return Err(e),
        };
        let mut again = unasked || self.report.check.orphans > 0;
        while !self.report.check.is_clean() || again {
            if self.report.rounds == ROUNDS || self.options.dry_run && self.report.rounds == 1 {
                self.report.outcome = Outcome::Left;
                return Ok(self.report);
            }
            self.report.rounds += 1;
            let Some(had_orphans) = self.round(overlay.take())? else {
                self.report.outcome = Outcome::Left;
                return Ok(self.report);
            };
            // Another round clears times of deletion that were a list.
            again = had_orphans || self.options.dry_run && unasked;
            if !self.options.dry_run {
                self.check()?;
            }
        }
        self.report.outcome = if self.report.changes > 0 { Outcome::Corrected } else { Outcome::Clean };
        Ok(self.report)
    }

    /// Whether a copy of the superblock or of descriptors is useless and can be repaired: a check does not
    /// look at copies.
    fn has_bad_copy(&self) -> Result<bool> {
        let sb = load_superblock(self.queue)?;
        if refuse_changes(&sb).is_err() {
            return Ok(false);
        }
        let mut disk = Disk::new(self.queue, sb.block_size);
        Ok(superblock::has_bad_copy(&mut disk, &sb) || groups::has_bad_copy(&mut disk, &sb)?)
    }

    /// The first superblock; its copies are consulted if it may have changed since they were.
    fn superblock(&mut self) -> Result<Superblock> {
        let found = superblock::find(self.queue, self.sound || self.believed)?;
        self.believed |= found.mended.is_none();
        Ok(found.sb)
    }

    /// One round; true if there were orphans, none if the repair was not possible.
    fn round(&mut self, overlay: Option<Overlay>) -> Result<Option<bool>> {
        let sb = self.superblock()?;
        refuse_changes(&sb)?;
        let mut r = Repair::load(self.queue, sb, self.options, self.on_change, overlay)?;
        r.bad_trees = self.trees.clone();
        for g in &self.doubted {
            r.descs[*g as usize].trusted = false;
        }
        r.find_journal(self.queue)?;
        let done = r.run();
        if done.is_err() && !r.doubted.is_subset(&self.doubted) {
            // Nothing was written so far.
            let (found, overlay) = (std::mem::take(&mut r.doubted), r.disk.lift());
            for g in found.difference(&self.doubted.clone()) {
                let place = format!("{g}, unused inodes");
                self.tell("group", &place, "names lead to some".into(), "all are looked at".into());
            }
            self.doubted.extend(found);
            return self.round(overlay);
        }
        self.report.changes += r.changes;
        r.notes.retain(|n| !self.report.notes.contains(n));
        self.report.notes.append(&mut r.notes);
        let had_orphans = !r.orphans.is_empty();
        match done {
            Ok(()) => Ok(Some(had_orphans)),
            Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::NoSpace | ErrorKind::FileTooBig) => {
                self.report.notes.push(e.to_string());
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Replays the journal, if it has content or records an error. A dry run gets the content instead.
    fn replay(&mut self) -> Result<Option<Overlay>> {
        let sb = superblock::find(self.queue, self.sound)?.sb;
        let flagged = sb.incompat.contains(Incompat::RECOVER);
        if sb.journal == Journal::Device && flagged {
            let why = "repair while a journal on a device of its own holds changes";
            return Err(Error::new(ErrorKind::Unsupported, why));
        }
        let mut r = Repair::load(self.queue, sb, self.options, self.on_change, None)?;
        let Some(found) = r.find_journal(self.queue)? else {
            if flagged {
                let what = "the journal cannot be read: what it held is lost";
                self.report.notes.push(what.into());
            }
            return Ok(None);
        };
        let sb = r.sb;
        let log = Arc::new(found.log);
        let (replay, damage) = salvage(log.clone(), sb.blocks)?;
        self.report.notes.extend(damage.iter().map(|e| format!("the journal: {e}: left out")));
        let errno = replay.errno();
        if replay.is_clean() && !flagged && errno == 0 {
            return Ok(None);
        }
        refuse_changes(&sb)?;
        if !replay.is_clean() {
            let stats = replay.stats();
            let held = format!("{} transactions", stats.transactions);
            self.tell("journal", "log", held, "replayed".into());
        }
        if errno != 0 {
            self.tell("journal", "superblock", format!("error {errno}"), "none".into());
        }
        let mut overlay = self.lay_over(&sb, replay, &log)?;
        if self.options.dry_run {
            self.report.notes.push("a real run replays the journal first".into());
            return Ok((!overlay.replay().is_clean()).then_some(overlay));
        }
        if overlay.settle(self.queue)? {
            overlay = Overlay::new(salvage(log, sb.blocks)?.0);
        }
        let replay = overlay.replay();
        replay.write_blocks(self.queue)?;
        // The journal may have had another superblock.
        self.believed = false;
        if errno != 0 {
            self.mark(|raw| {
                let state = State::from_bits_retain(raw.s_state.get()) | State::ERROR;
                raw.s_state = state.bits().into();
            })?;
        }
        replay.mark_clean()?;
        if errno != 0 {
            self.forget_errno(sb.block_size, found.head)?;
        }
        self.mark(|raw| {
            let f = Incompat::from_bits_retain(raw.s_feature_incompat.get()) - Incompat::RECOVER;
            raw.s_feature_incompat = f.bits().into();
        })?;
        Ok(None)
    }

    /// The content of the journal, with its fast commits unless they are damaged, or run into damage.
    fn lay_over(&mut self, sb: &Superblock, replay: Replay, log: &Arc<Log>) -> Result<Overlay> {
        let fast = replay.has_fast_commits();
        let left_out = match fast_commit::lay_over(self.queue, sb, replay) {
            Ok(overlay) if overlay.lacks_fast_commits() => {
                let what = "repair of a volume whose journal holds fast commits, and that is not changed: use e2fsck";
                return Err(Error::new(ErrorKind::Unsupported, what));
            }
            Ok(overlay) => {
                if fast {
                    self.tell("journal", "fast commits", "held".into(), "replayed".into());
                }
                return Ok(overlay);
            }
            Err(e) if matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::NoSpace) => e,
            Err(e) => return Err(e),
        };
        self.report.notes.push(format!("{left_out}: left out"));
        Ok(Overlay::new(salvage(log.clone(), sb.blocks)?.0))
    }

    /// Changes the superblock alone.
    fn mark(&mut self, change: impl FnOnce(&mut RawSuperblock)) -> Result<()> {
        let mut sb = self.superblock()?;
        change(&mut sb.raw);
        superblock::seal(&mut sb.raw);
        Disk::new(self.queue, sb.block_size).write_superblock(&sb.raw)?;
        self.believed = true;
        Ok(())
    }

    /// Clears the error in the journal whose first block is `head`.
    fn forget_errno(&self, block_size: u32, head: u64) -> Result<()> {
        use tidegate_jbd2::format::raw as jbd2;
        let mut disk = Disk::new(self.queue, block_size);
        let mut block = disk.block(head)?;
        let Ok((mut raw, _)) = jbd2::RawSuperblock::read_from_prefix(&block) else { return Ok(()) };
        raw.s_errno = 0.into();
        if raw.s_header.h_blocktype.get() == jbd2::SUPERBLOCK_V2 && raw.s_checksum.get() != 0 {
            raw.s_checksum = 0.into();
            raw.s_checksum = crc32c(!0, raw.as_bytes()).into();
        }
        block[..size_of::<jbd2::RawSuperblock>()].copy_from_slice(raw.as_bytes());
        disk.write_block(head, &block)
    }
}

/// Refuses volumes that are not changed, with the names of the features.
fn refuse_changes(sb: &Superblock) -> Result<()> {
    let named = [
        ("mmp", sb.incompat.contains(Incompat::MMP)),
        ("quota", sb.ro_compat.contains(RoCompat::QUOTA)),
        ("read-only", sb.ro_compat.contains(RoCompat::READONLY)),
        ("snapshot", sb.ro_compat.contains(RoCompat::HAS_SNAPSHOT)),
    ];
    if let Some((name, _)) = named.iter().find(|n| n.1) {
        let what = format!("repair of an ext4 volume with {name}: use e2fsck");
        return Err(Error::new(ErrorKind::Unsupported, what));
    }
    let unknown = sb.ro_compat - RoCompat::all();
    let compat = sb.compat - superblock::KNOWN;
    if unknown.is_empty() && compat.is_empty() {
        return Ok(());
    }
    let names = name_features(compat, Incompat::empty(), unknown);
    let what = format!("repair of an ext4 volume with features that are not known: {names}");
    Err(Error::new(ErrorKind::Unsupported, what))
}

impl<'q, 'c> Repair<'q, 'c> {
    /// Loads the state for a round; an overlay is read in place of the volume's blocks.
    fn load(
        queue: &'q Arc<RequestQueue>,
        sb: Superblock,
        options: RepairOptions,
        on_change: OnChange<'c>,
        overlay: Option<Overlay>,
    ) -> Result<Self> {
        let mut disk = Disk::new(queue, sb.block_size);
        if let Some(overlay) = overlay {
            disk.lay_over(overlay);
        }
        let found = groups::load(&mut disk, &sb)?;
        let blocks = || Bits::new(sb.blocks);
        let inodes = u64::from(sb.raw.s_inodes_count.get()) + 1;
        let mut r = Repair {
            disk,
            before: sb.raw.clone(),
            descs: found.all,
            used: blocks(),
            meta: blocks(),
            seen: blocks(),
            map_blocks: blocks(),
            sealed_nodes: None,
            shared: BTreeSet::new(),
            claims: 0,
            walked: 0,
            context: false,
            used_inodes: Bits::new(inodes),
            states: vec![Vec::new(); sb.groups as usize],
            orphans: BTreeSet::new(),
            attributes: BTreeMap::new(),
            rebuild: BTreeMap::new(),
            remake: BTreeMap::new(),
            bad_trees: BTreeSet::new(),
            lost_found: None,
            next_block: 0,
            full: false,
            doubted: BTreeSet::new(),
            resize_top: None,
            journal_lost: false,
            journal_inode: None,
            journal_head: None,
            from_copies: found.from_copies,
            options,
            on_change,
            changes: 0,
            notes: Vec::new(),
            sb,
        };
        r.next_block = r.sb.first_data_block.0 + 1;
        r.mark_tables();
        Ok(r)
    }
}
