//! File content: writing, cutting, allocating, finding data.

use super::{Id, Model, Verdict};
use tidegate_vfs::{Cred, ErrorKind, FallocateFlags, FileType, OpenFlags, SeekTarget};

impl Model {
    /// Errors of `what` through a file opened with `flags`.
    pub fn can_use(&self, id: Id, flags: OpenFlags, what: OpenFlags) -> Verdict {
        let kind = self.get(id).kind;
        let shut = !flags.contains(what);
        Verdict::default()
            .fails(shut, ErrorKind::BadFile)
            .might(shut, ErrorKind::InvalidArgument)
            .fails(kind == FileType::Directory, ErrorKind::IsADirectory)
            .fails(!matches!(kind, FileType::Directory | FileType::Regular), ErrorKind::InvalidArgument)
    }

    pub fn can_reach(&self, v: Verdict, end: Option<u64>) -> Verdict {
        v.fails(end.is_none_or(|e| e > self.max_size), ErrorKind::FileTooBig)
    }

    /// A change of content by an unprivileged user clears the set-id bits; a privileged user may keep them.
    fn drop_set_id(&mut self, id: Id, cred: &Cred) {
        let n = self.get_mut(id);
        let drop = if n.mode & 0o010 != 0 { 0o6000 } else { 0o4000 };
        if cred.is_root() {
            n.loose_mode |= drop & n.mode;
        } else {
            n.mode &= !drop;
        }
    }

    pub fn write(&mut self, id: Id, cred: &Cred, pos: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let n = self.get_mut(id);
        n.data.write(pos, data);
        n.size = n.size.max(pos + data.len() as u64);
        self.touch(id, true);
        self.drop_set_id(id, cred);
    }

    /// The bytes that a read returns.
    pub fn read(&self, id: Id, pos: u64, len: usize) -> Vec<u8> {
        let n = self.get(id);
        n.data.read(pos, n.size.saturating_sub(pos).min(len as u64) as usize)
    }

    pub fn truncate(&mut self, id: Id, cred: &Cred, size: u64) {
        let n = self.get_mut(id);
        n.data.zero(size, u64::MAX);
        n.size = size;
        self.touch(id, true);
        self.drop_set_id(id, cred);
    }

    pub fn can_fallocate(&self, v: Verdict, flags: FallocateFlags, offset: u64, len: u64) -> Verdict {
        let punch = flags.contains(FallocateFlags::PUNCH_HOLE);
        let lone = punch && !flags.contains(FallocateFlags::KEEP_SIZE);
        let both = punch && flags.contains(FallocateFlags::ZERO_RANGE);
        let v = v
            .fails(len == 0 || lone || both, ErrorKind::InvalidArgument)
            .might(lone || both, ErrorKind::Unsupported)
            .fails(!punch && !self.ahead, ErrorKind::Unsupported);
        self.can_reach(v, offset.checked_add(len))
    }

    pub fn fallocate(&mut self, id: Id, cred: &Cred, flags: FallocateFlags, offset: u64, len: u64) {
        let end = offset + len;
        let n = self.get_mut(id);
        if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
            n.data.zero(offset, end);
        }
        if !flags.contains(FallocateFlags::KEEP_SIZE) {
            n.size = n.size.max(end);
        }
        self.touch(id, true);
        // Systems differ on whether allocation counts as a change of content.
        let _ = cred;
        self.get_mut(id).loose_mode |= 0o6000;
    }

    /// The fault of an answer to a search for data or a hole, if there is one. Holes are whole blocks of `block` bytes.
    pub fn judge_seek(
        &self,
        id: Id,
        block: u64,
        pos: u64,
        target: SeekTarget,
        answer: Result<u64, ErrorKind>,
    ) -> Result<(), String> {
        let n = self.get(id);
        let wrong =
            |why: &str| Err(format!("seek {target:?} from {pos} in {} bytes: {answer:?}: {why}", n.size));
        match (target, answer) {
            (_, r) if pos >= n.size => match r {
                Err(ErrorKind::NoDeviceOrAddress) => Ok(()),
                _ => wrong("past the end"),
            },
            (SeekTarget::Data, Err(ErrorKind::NoDeviceOrAddress)) => match n.data.next_nonzero(pos) {
                None => Ok(()),
                Some(at) => wrong(&format!("there is data at {at}")),
            },
            (SeekTarget::Data, Ok(at)) => {
                if at < pos || at >= n.size {
                    return wrong("outside");
                }
                match n.data.is_zero(pos, at) {
                    true => Ok(()),
                    false => wrong("skipped data"),
                }
            }
            (SeekTarget::Hole, Ok(at)) => {
                if at < pos || at > n.size {
                    return wrong("outside");
                }
                let end = (at + 1).next_multiple_of(block);
                match at == n.size || n.data.is_zero(at, end) {
                    true => Ok(()),
                    false => wrong("the hole holds data"),
                }
            }
            _ => wrong("not an answer"),
        }
    }
}
