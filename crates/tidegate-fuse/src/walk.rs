//! Reading ahead of a program that walks a tree.
//!
//! `find`, `du`, `rsync` and the like list a directory, then the directories in it, one after the other and depth
//! first. While the kernel makes its inodes from one listing, a thread reads the inodes that the next listings will
//! show. It begins once a program lists a directory that was in the previously listed one, and stays a bounded number
//! of inodes ahead. When a directory takes several answers to list, the inodes of the next answer are read first.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use tidegate::vfs::{FileType, Ino, Vfs};
use tidegate_rt::{Condvar, LockClass, Mutex, thread};

static WALK: LockClass = LockClass::new("fuse->walk", 6);

/// About the most inodes that are read for directories that were not listed yet.
const AHEAD: usize = 512;
/// The most directories to come that are remembered.
const TO_COME: usize = 4096;

/// The place of a walking program, and its next directories.
#[derive(Default)]
struct Plan {
    /// Directories that the walker has not come to, the next one last.
    to_come: VecDeque<Ino>,
    /// The directory that is being read.
    reading: Option<Ino>,
    /// Directories whose inodes were read, with their number, in the order of the walk.
    ready: VecDeque<(Ino, usize)>,
    /// A program walks, instead of listing unrelated directories.
    walking: bool,
    /// The directory listed last, and how many of the directories to come were found before it.
    listing: Option<(Ino, usize)>,
    /// The inodes to be read first.
    rest: Option<Rest>,
    /// Counts the walks: inodes that were read for a walk that is over are of no use.
    walks: u64,
    over: bool,
}

/// Inodes that the next answer of a listing will show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rest {
    dir: Ino,
    /// The position where it goes on.
    pos: u64,
    inodes: usize,
}

/// A listing of a directory, as far as one answer goes.
pub(crate) struct Listed<'a> {
    pub dir: Ino,
    /// The first position.
    pub from: u64,
    /// The position where it goes on, if there is more.
    pub next: Option<u64>,
    /// How many inodes it showed.
    pub inodes: usize,
    /// The directories among them.
    pub dirs: &'a [Ino],
}

impl Plan {
    /// Notes an answer to a listing.
    fn answered(&mut self, l: &Listed<'_>) {
        self.rest = l.next.map(|pos| Rest { dir: l.dir, pos, inodes: l.inodes });
        if l.from == 0 {
            self.listed(l.dir, l.dirs);
        } else {
            self.continued(l.dir, l.dirs);
        }
    }

    /// Notes that the directory that is being listed also contains `dirs`.
    fn continued(&mut self, dir: Ino, dirs: &[Ino]) {
        if let Some((_, before)) = self.listing.filter(|(listed, _)| *listed == dir) {
            let at = before.min(self.to_come.len());
            dirs.iter().for_each(|dir| self.to_come.insert(at, *dir));
            self.forget_excess();
        }
    }

    /// Notes that a program listed `dir`, which contains `dirs`.
    fn listed(&mut self, dir: Ino, dirs: &[Ino]) {
        if let Some(i) = self.ready.iter().position(|(ino, _)| *ino == dir) {
            // Its directories have been among those to come since it was read. Directories before it were
            // skipped.
            self.ready.drain(..=i);
            self.walking = true;
            self.listing = None;
            return;
        }
        if self.reading == Some(dir) {
            // The walker has caught up.
            self.ready.clear();
        } else if let Some(i) = self.to_come.iter().rposition(|ino| *ino == dir) {
            self.to_come.truncate(i);
            self.ready.clear();
            self.walking = true;
        } else {
            *self = Plan { walks: self.walks, over: self.over, rest: self.rest, ..Plan::default() };
        }
        self.reading = None;
        // The directory that is being read is not the next one of this walk.
        self.walks += 1;
        self.listing = Some((dir, self.to_come.len()));
        self.come(dirs);
    }

    /// Notes that the walker comes to `dirs` next.
    fn come(&mut self, dirs: &[Ino]) {
        self.to_come.extend(dirs.iter().rev());
        self.forget_excess();
    }

    fn forget_excess(&mut self) {
        let excess = self.to_come.len().saturating_sub(TO_COME);
        self.to_come.drain(..excess);
        if let Some((_, before)) = &mut self.listing {
            *before = before.saturating_sub(excess);
        }
    }

    /// The directory to be read now, if there is one.
    fn next(&mut self) -> Option<Ino> {
        let ahead: usize = self.ready.iter().map(|(_, inodes)| inodes).sum();
        self.reading = if self.walking && ahead < AHEAD { self.to_come.pop_back() } else { None };
        self.reading
    }

    /// Notes that `inodes` inodes of `dir` were read in walk number `walk`, and that `dirs` are among them.
    fn read(&mut self, walk: u64, dir: Ino, inodes: usize, dirs: &[Ino]) {
        if walk == self.walks {
            self.reading = None;
            // An empty directory counts as one inode: a tree may consist of empty directories.
            self.ready.push_back((dir, inodes.max(1)));
            self.come(dirs);
        }
    }
}

/// Directories that are being walked, shared by the threads that serve listings and the thread that reads
/// ahead.
#[derive(Default)]
pub(crate) struct Walk {
    plan: Plans,
    changed: Condvar,
}

struct Plans(Mutex<Plan>);

impl Default for Plans {
    fn default() -> Self {
        Plans(Mutex::new(&WALK, Plan::default()))
    }
}

impl Walk {
    /// Notes that a program that lists a directory was answered.
    pub(crate) fn answered(&self, l: &Listed<'_>) {
        let mut plan = self.plan.0.lock();
        plan.answered(l);
        let has_work = plan.walking || plan.rest.is_some();
        drop(plan);
        if has_work {
            self.changed.notify_all();
        }
    }

    /// Reads ahead until [`Ahead`] is dropped.
    fn run(&self, vfs: &Vfs) {
        // The range of a listing's rest that was read.
        let mut read_before = (Ino(0), 0..0);
        let mut plan = self.plan.0.lock();
        while !plan.over {
            if let Some(Rest { dir, pos, inodes }) = plan.rest.take() {
                drop(plan);
                let known = read_before.0 == dir && read_before.1.contains(&pos);
                let from = if known { read_before.1.end } else { pos };
                read_before = (dir, from..read(vfs, dir, from, inodes).next);
                plan = self.plan.0.lock();
                continue;
            }
            let Some(dir) = plan.next() else {
                self.changed.wait(&mut plan);
                continue;
            };
            let walk = plan.walks;
            drop(plan);
            let found = read(vfs, dir, 0, AHEAD);
            plan = self.plan.0.lock();
            plan.read(walk, dir, found.inodes, &found.dirs);
        }
    }
}

/// The inodes that were read of a directory.
#[derive(Default)]
struct Found {
    inodes: usize,
    dirs: Vec<Ino>,
    /// The position where it goes on.
    next: u64,
}

/// Reads the inodes in `dir` from position `from` on, at most so many. An inode that cannot be read is left
/// to the request for it.
fn read(vfs: &Vfs, dir: Ino, from: u64, most: usize) -> Found {
    let mut found = Found { next: from, ..Found::default() };
    let mut inodes = Vec::new();
    let _ = vfs.iget(dir).and_then(|dir| {
        vfs.readdir(&dir, from, &mut |e| {
            found.next = e.next;
            if e.name != b"." && e.name != b".." {
                inodes.push(e.ino);
                found.dirs.extend((e.file_type == Some(FileType::Directory)).then_some(e.ino));
            }
            inodes.len() < most
        })
    });
    for ino in &inodes {
        let _ = vfs.iget(*ino);
    }
    Found { inodes: inodes.len(), ..found }
}

/// The thread that reads ahead. It ends when this is dropped.
pub(crate) struct Ahead {
    walk: Arc<Walk>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Ahead {
    /// Starts to read ahead of a walk.
    ///
    /// # Errors
    /// Those of starting a thread.
    pub(crate) fn start(walk: Arc<Walk>, vfs: Arc<Vfs>) -> io::Result<Self> {
        let ours = walk.clone();
        let thread = thread::spawn("tg-fuse-walk", move || ours.run(&vfs))?;
        Ok(Ahead { walk, thread: Some(thread) })
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.walk.plan.0.lock().over = true;
        self.walk.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directory `n` of the tree has `2n` and `2n + 1` in it, below `end`.
    fn dirs_in(n: Ino, end: u64) -> Vec<Ino> {
        (2 * n.0..=2 * n.0 + 1).filter(|n| *n < end).map(Ino).collect()
    }

    fn depth_first(n: Ino, end: u64, order: &mut Vec<Ino>) {
        order.push(n);
        dirs_in(n, end).into_iter().for_each(|d| depth_first(d, end, order));
    }

    #[test]
    fn what_is_read_is_what_comes_next() {
        const END: u64 = 1000;
        let mut order = Vec::new();
        depth_first(Ino(1), END, &mut order);
        // The reader is arbitrarily fast, or does some steps at times.
        for steps in [usize::MAX, 0, 1, 3] {
            let (mut plan, mut read) = (Plan::default(), Vec::new());
            for dir in &order {
                plan.listed(*dir, &dirs_in(*dir, END));
                let mut left = steps;
                while left > 0
                    && let Some(next) = plan.next()
                {
                    plan.read(plan.walks, next, 20, &dirs_in(next, END));
                    read.push(next);
                    left -= 1;
                }
                assert!(plan.ready.len() <= AHEAD.div_ceil(20));
            }
            let mut want = order.iter().skip(2);
            assert!(read.iter().all(|r| want.any(|w| w == r)), "in the order of the walk");
            // The first two show that there is a walk.
            assert_eq!(read.len(), if steps == 0 { 0 } else { order.len() - 2 }, "{steps} steps");
        }
    }

    #[test]
    fn who_catches_up_is_still_known() {
        let mut plan = Plan::default();
        plan.listed(Ino(1), &[Ino(2), Ino(3), Ino(4)]);
        plan.listed(Ino(2), &[]);
        let walk = plan.walks;
        assert_eq!(plan.next(), Some(Ino(3)));
        // The directory is listed while it is being read.
        plan.listed(Ino(3), &[Ino(30)]);
        plan.read(walk, Ino(3), 5, &[Ino(30)]);
        assert_eq!(plan.next(), Some(Ino(30)));
        plan.read(plan.walks, Ino(30), 1, &[]);
        assert_eq!(plan.next(), Some(Ino(4)));
    }

    #[test]
    fn a_listing_in_several_answers_is_one() {
        let mut plan = Plan::default();
        plan.listed(Ino(1), &[Ino(2), Ino(3), Ino(4)]);
        let some = |from, next, dirs| Listed { dir: Ino(2), from, next, inodes: 100, dirs };
        let rest = |pos| Some(Rest { dir: Ino(2), pos, inodes: 100 });
        plan.answered(&some(0, Some(50), &[Ino(20), Ino(21)]));
        assert_eq!(plan.rest, rest(50));
        assert_eq!(plan.next(), Some(Ino(20)), "read while the listing goes on");
        plan.read(plan.walks, Ino(20), 5, &[Ino(200)]);
        plan.answered(&some(50, Some(90), &[Ino(22), Ino(23)]));
        assert_eq!(plan.rest, rest(90));
        plan.answered(&some(90, None, &[Ino(24)]));
        assert_eq!(plan.rest, None);
        let mut come: Vec<Ino> = plan.to_come.iter().copied().collect();
        come.reverse();
        assert_eq!(come, [200, 21, 22, 23, 24, 3, 4].map(Ino));
        // Another directory is listed: a result about the old one comes too late.
        plan.listed(Ino(20), &[Ino(200)]);
        plan.answered(&some(90, None, &[Ino(25)]));
        assert!(!plan.to_come.contains(&Ino(25)));
    }

    #[test]
    fn nothing_is_read_for_who_does_not_walk() {
        let mut plan = Plan::default();
        for n in 1..50 {
            plan.listed(Ino(1000 * n), &[Ino(1000 * n + 1), Ino(1000 * n + 2)]);
            assert_eq!(plan.next(), None);
        }
        plan.listed(Ino(49_001), &[]);
        assert_eq!(plan.next(), Some(Ino(49_002)));
    }

    #[test]
    fn a_new_walk_forgets_the_old() {
        let mut plan = Plan::default();
        plan.listed(Ino(1), &[Ino(2), Ino(3)]);
        plan.listed(Ino(2), &[Ino(4)]);
        let (next, walk) = (plan.next().unwrap(), plan.walks);
        assert_eq!(next, Ino(4));
        plan.listed(Ino(10), &[Ino(11)]);
        plan.read(walk, next, 5, &[Ino(5)]);
        assert!(plan.ready.is_empty() && plan.to_come == [Ino(11)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut plan = Plan::default();
        let many: Vec<Ino> = (10..3 * TO_COME as u64).map(Ino).collect();
        plan.listed(Ino(1), &many);
        plan.listed(Ino(10), &[]);
        assert_eq!(plan.to_come.len(), TO_COME - 1);
        assert_eq!(plan.next(), Some(Ino(11)), "the next ones are kept");
    }
}
