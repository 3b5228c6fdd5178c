//! Volumes without room.

use super::work::split;
use super::*;

impl Worker {
    /// The result of a change; nothing if there was no room.
    pub(super) fn done<T>(&mut self, r: tidegate_vfs::Result<T>, what: &str) -> Option<T> {
        match r {
            Ok(done) => Some(done),
            Err(e) if e.kind() == ErrorKind::NoSpace => {
                self.full += 1;
                None
            }
            Err(e) => panic!("{what}: {e}"),
        }
    }

    /// Handles a write or an allocation for which there was no room: some of it may be there, and nothing
    /// else.
    pub(super) fn after_full(&mut self, path: &str, wanted: &[u8]) {
        let f = self.file(path);
        let mut now = vec![0; f.size() as usize];
        let n = f.read_at(0, &mut now).unwrap();
        assert_eq!(n, now.len(), "{path}");
        let data = &mut self.things.get_mut(&self.paths[path]).unwrap().data;
        let byte = |of: &[u8], n: usize| of.get(n).copied().unwrap_or(0);
        let other = (0..n).find(|n| now[*n] != byte(data, *n) && now[*n] != byte(wanted, *n));
        let bounds = data.len().min(wanted.len())..=data.len().max(wanted.len());
        assert!(
            other.is_none() && bounds.contains(&n),
            "{path}: {n} of {bounds:?} bytes, {other:?} is another"
        );
        *data = now;
    }

    /// Fills the volume until little room is left.
    pub(super) fn fill(&mut self) {
        let path = self.new_path();
        let (parent, name) = split(&path);
        self.begin_at(&[&path]);
        let made = self.v.create(ROOT, &self.get(parent), name.as_bytes(), 0o644);
        if self.done(made, &path).is_none() {
            return;
        }
        self.next += 1;
        let thing = Thing { kind: FileType::Regular, data: Vec::new(), mode: 0o644, xattrs: BTreeMap::new() };
        self.things.insert(self.next, thing);
        self.paths.insert(path.clone(), self.next);
        let left = self.rng.below(1 << 20);
        let (f, mut at) = (self.file(&path), 0);
        let room = |v: &Vfs| {
            let s = v.statfs();
            (s.blocks_available * u64::from(s.block_size)).saturating_sub(left)
        };
        while room(&self.v) > 0 {
            let piece = vec![0xB5; room(&self.v).min(256 << 10) as usize];
            match f.write_at(at, &piece) {
                Ok(_) => at += piece.len() as u64,
                r => {
                    self.done(r, &path);
                    return self.after_full(&path, &vec![0xB5; at as usize + piece.len()]);
                }
            }
            self.things.get_mut(&self.next).unwrap().data.resize(at as usize, 0xB5);
        }
    }
}
