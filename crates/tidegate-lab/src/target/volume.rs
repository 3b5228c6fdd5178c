//! A volume in this process, on any device.

use super::{Counts, OpenHow, Target, TargetFile};
use crate::error::{Error, Result};
use crate::result::LockStat;
use tidegate::Volume;
use tidegate::observe::lockstat::Class;
use tidegate_rt::lockstat;
use tidegate_vfs::{CommitRun, CommitStats, Cred, ErrorKind, File, OpenFlags, SetAttr};

/// A volume in this process.
pub struct VolumeTarget {
    volume: Volume,
}

struct VolumeFile {
    path: String,
    file: File,
}

fn of(path: &str) -> impl Fn(tidegate_vfs::Error) -> Error + '_ {
    |source| Error::Vfs { path: path.to_string(), source }
}

impl VolumeTarget {
    /// A target that works on `volume`.
    pub fn new(volume: Volume) -> Self {
        VolumeTarget { volume }
    }

    /// The volume.
    pub fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Unmounts it.
    ///
    /// # Errors
    /// Those of [`Volume::unmount`].
    pub fn unmount(self) -> Result<()> {
        Ok(self.volume.unmount().map(drop)?)
    }
}

impl Target for VolumeTarget {
    fn describe(&self) -> String {
        let device = self.volume.queue().device();
        format!("{} on {} ({})", self.volume.format(), device.name(), device.backend())
    }

    fn mkdir(&self, path: &str) -> Result<()> {
        Ok(self.volume.mkdir(path.as_bytes(), 0o755, true)?)
    }

    fn open(&self, path: &str, how: OpenHow) -> Result<Box<dyn TargetFile>> {
        let mut flags = OpenFlags::READ | OpenFlags::WRITE;
        flags.set(OpenFlags::CREATE, how.create);
        flags.set(OpenFlags::TRUNC, how.truncate);
        let file =
            self.volume.vfs().open_path(&Cred::ROOT, path.as_bytes(), flags, 0o644).map_err(of(path))?;
        Ok(Box::new(VolumeFile { path: path.to_string(), file }))
    }

    fn open_dir(&self, path: &str) -> Result<Box<dyn TargetFile>> {
        let dir = self.volume.resolve(path.as_bytes(), true)?;
        let file = self.volume.vfs().open(&Cred::ROOT, &dir, OpenFlags::READ).map_err(of(path))?;
        Ok(Box::new(VolumeFile { path: path.to_string(), file }))
    }

    fn touch(&self, path: &str) -> Result<()> {
        let vfs = self.volume.vfs();
        let parent = vfs.resolve_parent(&Cred::ROOT, path.as_bytes()).map_err(of(path))?;
        let made = match vfs.create(&Cred::ROOT, &parent.dir, parent.name, 0o644) {
            Err(e) if e.kind() == ErrorKind::Exists => {
                vfs.resolve(&Cred::ROOT, path.as_bytes(), true).and_then(|f| {
                    let now = Some(vfs.now());
                    vfs.setattr(&Cred::ROOT, &f, &SetAttr { atime: now, mtime: now, ..SetAttr::default() })
                })
            }
            made => made.map(drop),
        };
        made.map_err(of(path))
    }

    fn unlink(&self, path: &str) -> Result<()> {
        Ok(self.volume.remove(path.as_bytes(), false)?)
    }

    fn exists(&self, path: &str) -> Result<bool> {
        match self.volume.vfs().resolve(&Cred::ROOT, path.as_bytes(), false) {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(of(path)(e)),
        }
    }

    fn remove_tree(&self, path: &str) -> Result<()> {
        Ok(self.volume.remove(path.as_bytes(), true)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.volume.sync()?)
    }

    fn counts(&self) -> Counts {
        let (q, s) = (self.volume.queue().stats(), self.volume.stats());
        let fixed = [
            ("queue.read_bios", q.read_bios),
            ("queue.read_bytes", q.read_bytes),
            ("queue.write_bios", q.write_bios),
            ("queue.write_bytes", q.write_bytes),
            ("queue.write_requests", q.write_requests),
            ("queue.flushes", q.flushes),
            ("queue.discards", q.discards),
            ("queue.zone_refused", q.zone_refused),
            ("queue.congested", q.congested),
            ("queue.congested_ns", q.congested_ns),
            ("queue.congested_holding_ns", q.congested_holding_ns),
            ("queue.kib_us", q.kib_us),
            ("fs.data_bios", s.data.bios),
            ("fs.data_blocks", s.data.blocks),
            ("fs.metadata_bios", s.metadata.bios),
            ("fs.metadata_blocks", s.metadata.blocks),
            ("fs.log_bios", s.log.bios),
            ("fs.log_blocks", s.log.blocks),
            ("fs.commits", s.commits),
            ("fs.commit_ns", s.commit_ns),
            ("fs.fsyncs", s.fsyncs),
            ("fs.fsync_commits", s.fsync_commits),
            ("fs.data_fragments", s.data_fragments),
            ("fs.split_bios", s.split_bios),
            ("fs.user_data_blocks", s.user_data_blocks),
            ("fs.discarded_bytes", s.discarded_bytes),
        ];
        let mut counts: Counts = fixed.into_iter().map(|(k, v)| (k.to_string(), v)).collect();
        counts.extend(s.own.iter().map(|(name, n)| (format!("fs.{name}"), *n)));
        for e in self.volume.queue().elevator_stats() {
            let name = |what| format!("elevator.g{}.c{}.{what}", e.group, e.class);
            counts.insert(name("requests"), e.requests);
            counts.insert(name("bytes"), e.bytes);
            counts.insert(name("wait_ns"), e.wait_total.0);
            counts.insert(name("idled"), e.idled);
        }
        counts
    }

    fn commits(&self) -> Option<CommitStats> {
        Some(self.volume.commit_stats())
    }

    fn recent_commits(&self) -> Vec<CommitRun> {
        self.volume.recent_commits()
    }

    fn drop_pages(&self, path: &str) -> Result<bool> {
        self.volume.resolve(path.as_bytes(), true)?.mapping.reclaim(false);
        Ok(true)
    }

    fn locks(&self) -> Vec<LockStat> {
        if !lockstat::enabled() {
            return Vec::new();
        }
        let one = |l: lockstat::LockStat| {
            let all = l.all();
            LockStat {
                table: Class::of(&l),
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

    fn set_group_weight(&self, group: u32, weight: u32) -> bool {
        self.volume.queue().set_group_weight(group, weight);
        true
    }

    fn fragments(&self, path: &str) -> Result<Option<u64>> {
        let inode = self.volume.resolve(path.as_bytes(), true)?;
        self.volume.ops().fragments(&inode).map(Some).map_err(of(path))
    }
}

impl TargetFile for VolumeFile {
    fn size(&self) -> Result<u64> {
        Ok(self.file.size())
    }

    fn write_at(&self, pos: u64, data: &[u8]) -> Result<()> {
        self.file.write_at(pos, data).map(drop).map_err(of(&self.path))
    }

    fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<usize> {
        self.file.read_at(pos, to).map_err(of(&self.path))
    }

    fn fsync(&self, datasync: bool) -> Result<()> {
        self.file.fsync(datasync).map_err(of(&self.path))
    }

    fn truncate(&self, size: u64) -> Result<()> {
        self.file.truncate(size).map_err(of(&self.path))
    }
}
