//! Operations on open files.

use super::compare::bytes;
use super::ops::{Op, Place, name};
use super::{Handle, Outcome, Rig, pattern, text};
use crate::common::posix::{Id, R, Resolved, Verdict, W, X};
use tidegate_vfs::{Cred, ErrorKind, FallocateFlags, FileType, OpenFlags};

/// Most files open at once.
const MOST_OPEN: usize = 6;
/// A read updates access times older than this in any case, in seconds.
const DAY: i64 = 24 * 3600;

/// Blocks that a write of `len` bytes may take at worst: its own, and every node above them.
fn cost(len: u64) -> u64 {
    let pages = len / 4096 + 2;
    pages + pages / 1018 * 2 + 12
}

impl Rig {
    pub(super) fn open(&mut self, cred: &Cred, at: Place, flags: OpenFlags, mode: u32) -> Outcome {
        let dir = self.dir(at.0);
        let path = [&self.model.path(dir)[..], b"/", &name(at.1)].concat();
        self.open_path(cred, &path, flags, mode)
    }

    pub(super) fn open_node(&mut self, cred: &Cred, node: u8, flags: OpenFlags) -> Outcome {
        let files: Vec<Id> = self
            .model
            .linked()
            .into_iter()
            .filter(|i| self.model.get(*i).kind == FileType::Regular)
            .collect();
        let Some(id) = files.get(node as usize % files.len().max(1)) else { return Ok(()) };
        let path = self.model.path(*id);
        self.open_path(cred, &path, flags - OpenFlags::CREATE, 0o644)
    }

    fn open_path(&mut self, cred: &Cred, path: &[u8], flags: OpenFlags, mode: u32) -> Outcome {
        if self.handles.len() >= MOST_OPEN {
            self.handles.remove(0);
        }
        let exclusive = flags.contains(OpenFlags::CREATE | OpenFlags::EXCL);
        let follow = !flags.contains(OpenFlags::NOFOLLOW) && !exclusive;
        let found = self.model.resolve(cred, path, follow);
        let verdict = match &found {
            Resolved::Fails(kind) => Verdict::default()
                .fails(true, *kind)
                .might(path.split(|b| *b == b'/').any(|n| n.len() > 255), ErrorKind::NameTooLong),
            Resolved::Found(id) => self.can_open(cred, *id, flags),
            Resolved::Missing(dir, name) if flags.contains(OpenFlags::CREATE) => {
                self.model.can_make(cred, *dir, name)
            }
            Resolved::Missing(_, name) => Verdict::default()
                .fails(true, ErrorKind::NotFound)
                .might(name.len() > 255, ErrorKind::NameTooLong),
        };
        let free = self.free_blocks();
        let answer = self.vfs.open_path(cred, path, flags, mode);
        let Some(file) = self.judge(verdict, 4, free, answer)? else { return Ok(()) };
        let id = match found {
            Resolved::Found(id) => {
                // A file that was just made is not truncated, and keeps its set-id bits.
                if flags.contains(OpenFlags::TRUNC) && self.model.get(id).kind == FileType::Regular {
                    self.model.truncate(id, cred, 0);
                }
                id
            }
            Resolved::Missing(dir, name) => self.model.make(cred, dir, &name, FileType::Regular, mode),
            Resolved::Fails(_) => unreachable!("judged"),
        };
        self.handles.push(Handle { file, id, flags, cred: cred.clone() });
        Ok(())
    }

    fn can_open(&self, cred: &Cred, id: Id, flags: OpenFlags) -> Verdict {
        let n = self.model.get(id);
        let mut want = 0;
        want |= if flags.contains(OpenFlags::READ) { R } else { 0 };
        want |= if flags.intersects(OpenFlags::WRITE | OpenFlags::TRUNC) { W } else { 0 };
        let creates = flags.contains(OpenFlags::CREATE);
        let closed = !self.model.may(cred, id, want);
        // An open of an existing name may be refused for want of the right to create it.
        let parent_closed = creates && n.links.iter().any(|l| !self.model.may(cred, l.0, W | X));
        let link = n.kind == FileType::Symlink;
        let exclusive = creates && flags.contains(OpenFlags::EXCL);
        Verdict::default()
            .fails(exclusive, ErrorKind::Exists)
            .fails(link && !exclusive, ErrorKind::TooManySymlinks)
            .fails(closed && !exclusive && !link, ErrorKind::PermissionDenied)
            .fails(n.is_dir() && (want & W != 0 || creates) && !exclusive, ErrorKind::IsADirectory)
            .fails(!n.is_dir() && flags.contains(OpenFlags::DIRECTORY), ErrorKind::NotADirectory)
            .might(parent_closed, ErrorKind::PermissionDenied)
    }

    pub(super) fn with_handle(&mut self, op: &Op) -> Outcome {
        let (Op::Close { file }
        | Op::Write { file, .. }
        | Op::Read { file, .. }
        | Op::Truncate { file, .. }
        | Op::Fallocate { file, .. }
        | Op::Seek { file, .. }
        | Op::Fsync { file, .. }) = op
        else {
            unreachable!("needs no file")
        };
        if self.handles.is_empty() {
            return Ok(());
        }
        let h = *file as usize % self.handles.len();
        match op {
            Op::Close { .. } => drop(self.handles.remove(h)),
            Op::Write { pos, len, seed, .. } => return self.write(h, *pos, &pattern(*seed, *len)),
            Op::Read { pos, len, .. } => return self.read(h, *pos, *len),
            Op::Truncate { size, .. } => return self.truncate(h, *size),
            Op::Fallocate { flags, pos, len, .. } => return self.fallocate(h, *flags, *pos, *len),
            Op::Seek { pos, target, .. } => {
                let h = &self.handles[h];
                if self.model.get(h.id).kind != FileType::Regular {
                    return Ok(());
                }
                let answer = h.file.seek(*pos, *target).map_err(|e| e.kind());
                return self.model.judge_seek(h.id, self.vfs.fs().block_size(), *pos, *target, answer);
            }
            Op::Fsync { data, .. } => return self.handles[h].file.fsync(*data).map_err(text("fsync")),
            _ => unreachable!("needs no file"),
        }
        Ok(())
    }

    pub(super) fn write(&mut self, h: usize, pos: u64, data: &[u8]) -> Outcome {
        let Handle { id, flags, cred, .. } = &self.handles[h];
        let (id, flags, cred) = (*id, *flags, cred.clone());
        let at = if flags.contains(OpenFlags::APPEND) { self.model.get(id).size } else { pos };
        let verdict = self.model.can_use(id, flags, OpenFlags::WRITE);
        let verdict = match data.is_empty() {
            true => verdict.might(true, ErrorKind::FileTooBig), // an empty range lies nowhere
            false => self.model.can_reach(verdict, at.checked_add(data.len() as u64)),
        };
        let free = self.free_blocks();
        let failed = self.no_space;
        let answer = self.handles[h].file.write_at(pos, data);
        if let Some(went) = self.judge(verdict, cost(data.len() as u64), free, answer)? {
            if went != at {
                return Err(format!("written at {went}, should be at {at}"));
            }
            self.model.write(id, &cred, at, data);
        } else if self.no_space > failed {
            self.adopt_prefix(h, at, data)?;
        }
        Ok(())
    }

    /// Reads an open file, however it was opened, without side effects.
    fn peek(&self, h: usize, pos: u64, len: usize) -> Result<Vec<u8>, String> {
        let inode = self.handles[h].file.inode();
        let file = self.vfs.open(&Cred::ROOT, inode, OpenFlags::READ | OpenFlags::NOATIME);
        let mut is = vec![0; len];
        let got = file.map_err(text("open"))?.read_at(pos, &mut is).map_err(text("read"))?;
        is.truncate(got);
        Ok(is)
    }

    /// After a write that failed for want of space, the file has none of it or its first part, and is
    /// otherwise unchanged.
    fn adopt_prefix(&mut self, h: usize, at: u64, data: &[u8]) -> Outcome {
        let id = self.handles[h].id;
        let is = self.peek(h, at, data.len())?;
        let taken = is.iter().zip(data).take_while(|(i, d)| i == d).count();
        let old = self.model.get(id).size;
        let size = self.handles[h].file.size();
        if size != old && (size < old || size != at + taken as u64) {
            return Err(format!("a failed write of {taken} bytes at {at} left {size} bytes of {old}"));
        }
        let was = self.model.read(id, at, data.len());
        bytes(at + taken as u64, &is[taken..], was.get(taken..).unwrap_or_default())
            .map_err(|e| format!("behind the {taken} bytes a failed write took: {e}"))?;
        let n = self.model.get_mut(id);
        n.data.write(at, &data[..taken]);
        n.size = size;
        n.loose_mode |= 0o6000;
        (n.mtime, n.ctime) = (None, None);
        Ok(())
    }

    fn read(&mut self, h: usize, pos: u64, len: usize) -> Outcome {
        let (id, flags) = (self.handles[h].id, self.handles[h].flags);
        let verdict = self.model.can_use(id, flags, OpenFlags::READ);
        let mut buf = vec![0xAA; len];
        let answer = self.handles[h].file.read_at(pos, &mut buf);
        let Some(n) = self.judge(verdict, 0, u64::MAX, answer)? else { return Ok(()) };
        bytes(pos, &buf[..n], &self.model.read(id, pos, len))?;
        if buf[n..].iter().any(|b| *b != 0xAA) {
            return Err("wrote behind what it says it read".into());
        }
        if !flags.contains(OpenFlags::NOATIME) {
            self.read_touches(id, n > 0);
        }
        Ok(())
    }

    /// Relatime: a read updates the access time when it is not younger than a change, or a day old. For reads
    /// that return nothing POSIX leaves it open.
    fn read_touches(&mut self, id: Id, got_some: bool) {
        let now = self.model.now;
        let n = self.model.get_mut(id);
        n.atime = match (n.atime, n.mtime, n.ctime) {
            (Some(a), Some(m), Some(c)) if a > m && a > c && now.secs - a.secs < DAY => Some(a),
            (Some(_), Some(_), Some(_)) if got_some => Some(now),
            _ => None,
        };
    }

    fn truncate(&mut self, h: usize, size: u64) -> Outcome {
        let Handle { id, flags, cred, .. } = &self.handles[h];
        let (id, cred) = (*id, cred.clone());
        let verdict = self.model.can_use(id, *flags, OpenFlags::WRITE);
        let verdict = self.model.can_reach(verdict, Some(size));
        let free = self.free_blocks();
        let answer = self.handles[h].file.truncate(size);
        if self.judge(verdict, cost(4096), free, answer)?.is_some() {
            self.model.truncate(id, &cred, size);
        }
        Ok(())
    }

    fn fallocate(&mut self, h: usize, flags: FallocateFlags, pos: u64, len: u64) -> Outcome {
        let Handle { id, flags: opened, cred, .. } = &self.handles[h];
        let (id, cred) = (*id, cred.clone());
        let verdict = self.model.can_use(id, *opened, OpenFlags::WRITE);
        let verdict = self.model.can_fallocate(verdict, flags, pos, len);
        let free = self.free_blocks();
        let failed = self.no_space;
        let answer = self.handles[h].file.fallocate(flags, pos, len);
        if self.judge(verdict, cost(len), free, answer)?.is_some() {
            self.model.fallocate(id, &cred, flags, pos, len);
        } else if self.no_space > failed {
            self.adopt_zeroed(h, pos, len)?;
        }
        Ok(())
    }

    /// After an allocation that failed midway, each byte of the range is unchanged or zero. Set-id bits are
    /// cleared before.
    fn adopt_zeroed(&mut self, h: usize, pos: u64, len: u64) -> Outcome {
        let id = self.handles[h].id;
        let end = (pos + len).min(self.model.get(id).size);
        let was = self.model.read(id, pos, end.saturating_sub(pos) as usize);
        let is = self.peek(h, pos, was.len())?;
        if is.iter().zip(&was).any(|(i, w)| i != w && *i != 0) {
            return Err("a failed allocation left what was never there".into());
        }
        let n = self.model.get_mut(id);
        n.data.write(pos, &is);
        n.loose_mode |= 0o6000;
        (n.atime, n.mtime, n.ctime) = (None, None, None);
        Ok(())
    }
}
