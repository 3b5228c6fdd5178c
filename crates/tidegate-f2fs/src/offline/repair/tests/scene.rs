//! A damaged volume of one test, and its judges.

use crate::offline::check::tests::volume::{Edits, Volume};
use crate::offline::check::{CheckOptions, CheckReport, check};
use crate::offline::repair::{RepairOptions, RepairReport, repair};
use crate::{F2fs, F2fsOptions};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;
use tidegate_block::{MemoryDevice, Op, QueueLimits, Recorder, RequestQueue};
use tidegate_vfs::*;

/// The bytes of a volume that are not zero.
pub struct Base {
    size: usize,
    parts: Vec<(usize, Vec<u8>)>,
}

const PART: usize = 65536;

impl Base {
    pub fn of(v: &Volume) -> Base {
        let parts = v.bytes.chunks(PART).enumerate().filter(|(_, p)| p.iter().any(|b| *b != 0));
        Base { size: v.bytes.len(), parts: parts.map(|(n, p)| (n * PART, p.to_vec())).collect() }
    }
}

pub struct Scene {
    device: Arc<MemoryDevice>,
    recorder: Arc<Recorder>,
    size: usize,
    /// The reported changes, one on each line.
    pub told: Vec<String>,
}

impl Scene {
    pub fn of(base: &Base, edits: &Edits) -> Scene {
        let device = Arc::new(MemoryDevice::new(base.size as u64));
        for (at, bytes) in base.parts.iter().chain(edits) {
            device.write_at(*at as u64, bytes);
        }
        let recorder = Arc::new(Recorder::new(device.clone()));
        Scene { device, recorder, size: base.size, told: Vec::new() }
    }

    /// Offset and bytes of every write since the last call.
    pub fn writes(&self) -> Vec<(u64, Vec<u8>)> {
        let writes = self.recorder.take().into_iter().filter(|r| r.op == Op::Write);
        writes.map(|r| (r.sector.0 * 512, r.data)).collect()
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.device.write_at(at, bytes);
    }

    fn queue(&self) -> Arc<RequestQueue> {
        Arc::new(RequestQueue::new(self.recorder.clone(), QueueLimits::default()))
    }

    pub fn repair(&mut self, options: RepairOptions) -> Result<RepairReport> {
        let queue = self.queue();
        let told = &mut self.told;
        told.clear();
        repair(&queue, options, &mut |c| told.push(c.to_string()))
    }

    pub fn check(&self) -> CheckReport {
        check(&self.queue(), CheckOptions::default()).unwrap()
    }

    /// The faults that fsck.f2fs finds.
    pub fn judge(&self) -> std::result::Result<(), String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        self.save(file.as_file());
        let out = Command::new("fsck.f2fs").arg("--dry-run").arg(file.path()).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        let good = out.status.success() && !text.contains("[Fail]") && !text.contains("[ASSERT]");
        let bad = |l: &&str| l.contains("Fail") || l.contains("ASSERT") || l.contains("FIX");
        if good { Ok(()) } else { Err(text.lines().filter(bad).take(20).collect::<Vec<_>>().join("\n")) }
    }

    fn save(&self, file: &std::fs::File) {
        use std::os::unix::fs::FileExt;
        file.set_len(self.size as u64).unwrap();
        let mut part = vec![0; PART];
        for at in (0..self.size).step_by(PART) {
            self.device.read_at(at as u64, &mut part);
            if part.iter().any(|b| *b != 0) {
                file.write_all_at(&part, at as u64).unwrap();
            }
        }
    }

    /// Every path with its type, link count and content.
    pub fn contents(&self) -> BTreeMap<String, (String, Vec<u8>)> {
        let bdi = Bdi::new(MemoryLimits::default());
        let options = F2fsOptions { read_only: true, ..Default::default() };
        let fs = F2fs::open(self.queue(), bdi.clone(), options).unwrap();
        let vfs = Vfs::mount(fs, bdi, MountOptions::default()).unwrap();
        let mut all = BTreeMap::new();
        let mut dirs = vec![(String::new(), vfs.root().unwrap())];
        while let Some((path, dir)) = dirs.pop() {
            for e in vfs.entries(&dir).unwrap().into_iter().filter(|e| e.name != b"." && e.name != b"..") {
                let path = format!("{path}/{}", String::from_utf8_lossy(&e.name));
                let inode = vfs.lookup(&dir, &e.name).unwrap();
                let a = inode.attr().clone();
                let mut content = Vec::new();
                match a.file_type {
                    FileType::Directory => dirs.push((path.clone(), inode)),
                    FileType::Symlink => content = vfs.readlink(&inode).unwrap(),
                    _ => {
                        content = vec![0; a.size as usize];
                        let f = vfs.open(&Cred::ROOT, &inode, OpenFlags::READ).unwrap();
                        f.read_at(0, &mut content).unwrap();
                    }
                }
                all.insert(path, (format!("{:?} {:o}", a.file_type, a.mode), content));
            }
        }
        all
    }
}
