//! The mount's side of the socket.

use super::address;
use super::protocol::{self, Answer, Ask, ChunkWriter, Found, Record, VERSION, What, Why};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, recv};
use std::io::{self, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tidegate::observe::why::explain;
use tidegate::observe::{Observed, Recording, Wanted, lockstat as lockstat_table};
use tidegate::vfs::Ino;
use tidegate::{Result, Volume};
use tidegate_rt::{LockClass, Mutex, clock, lockstat, thread, wait};

/// The most clients that ask at one time.
const MAX_CLIENTS: usize = 16;
/// The most clients that wait for the end.
const MAX_WAITING: usize = 64;
/// The mount hangs up on a client that asks nothing for so long.
const IDLE: Duration = Duration::from_secs(60);
/// The mount hangs up on a client that reads nothing for so long.
const STUCK: Duration = Duration::from_secs(10);
/// A pause when no connection can be accepted.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest recording.
const LONGEST: Duration = Duration::from_secs(3600);
/// Most events of each thread that a recording keeps.
const MAX_EVENTS: usize = 1 << 20;
/// Most operations of each kind that are explained.
const MAX_EXPLAINED: usize = 1000;
/// There is one recording at a time, as rings and trees belong to the process.
const BUSY: &str = "somebody else is recording: try again when they have ended";

static WAITING: LockClass = LockClass::new("control->waiting", 4);

/// The socket of a mount. It is removed when dropped.
pub(crate) struct Control {
    path: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    /// The reference is weak, so it keeps the volume neither open nor locked.
    volume: Weak<Volume>,
    /// Absolute paths: a process in the background leaves the directory in which it was started.
    image: String,
    mountpoint: String,
    device: (u32, u32),
    clients: AtomicUsize,
    over: AtomicBool,
    /// Clients that wait for the report on the end. `None` once the socket is removed.
    waiting: Mutex<Option<Vec<UnixStream>>>,
}

impl Control {
    /// Listens for questions about the mount of `image` at `dir`. A socket that a dead process left is
    /// replaced.
    ///
    /// # Errors
    /// There is no place for the socket, or another mount of the image (read-only, as this one) has it.
    pub(crate) fn start(image: &Path, dir: &Path, volume: &Arc<Volume>) -> io::Result<Control> {
        let path = address::to_serve(image)?;
        let listener = listen(&path)?;
        let shared = Arc::new(Shared {
            volume: Arc::downgrade(volume),
            image: std::fs::canonicalize(image)?.display().to_string(),
            mountpoint: dir.display().to_string(),
            device: address::device(image),
            clients: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            waiting: Mutex::new(&WAITING, Some(Vec::new())),
        });
        let control = Control { path, shared: shared.clone() };
        thread::spawn("tg-control", move || accept(&listener, &shared))?;
        Ok(control)
    }

    /// Ends the socket. Returns the clients that wait for the report on the end, and tells them that the
    /// mount ends.
    pub(crate) fn end(self) -> Waiting {
        let waiting = Waiting(self.shared.waiting.lock().take().unwrap_or_default());
        waiting.send(&Answer { v: VERSION, ..Answer::default() });
        waiting
    }
}

/// The clients that wait for the report on the end.
#[derive(Default)]
pub(crate) struct Waiting(Vec<UnixStream>);

impl Waiting {
    /// Reports the end to the clients. They wait for the process to end, so they stay connected.
    pub(crate) fn tell(self, ended: &Result<()>) {
        let error = ended.as_ref().err().map(|e| e.to_string());
        self.send(&Answer { v: VERSION, error, ..Answer::default() });
        std::mem::forget(self.0);
    }

    fn send(&self, answer: &Answer) {
        for stream in &self.0 {
            // A client that hung up needs no answer.
            let _ = protocol::write(&mut &*stream, answer);
        }
    }
}

/// Whether the client has hung up.
fn has_gone(stream: &UnixStream) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(recv(stream, &mut [0; 1], flags), Ok((_, 0)))
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.over.store(true, SeqCst);
        // Wakes the accepting thread.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).is_ok() {
                return Err(io::Error::other("another mount of the image has the control socket"));
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        r => r?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    while !shared.over.load(SeqCst) {
        let Ok((stream, _)) = listener.accept() else {
            thread::sleep(AGAIN);
            continue;
        };
        if shared.over.load(SeqCst) || !may_ask(&stream) {
            continue;
        }
        if shared.clients.fetch_add(1, SeqCst) < MAX_CLIENTS {
            let s = shared.clone();
            let body = move || {
                // A client that hangs up, or does not read, gets no error.
                let _ = serve(&stream, &s);
                s.clients.fetch_sub(1, SeqCst);
            };
            if thread::spawn("tg-control-ask", body).is_ok() {
                continue;
            }
        }
        shared.clients.fetch_sub(1, SeqCst);
    }
}

/// Whether the client may ask: the superuser may, and the owner of this process.
fn may_ask(stream: &UnixStream) -> bool {
    socket_peercred(stream).is_ok_and(|c| c.uid.is_root() || c.uid == rustix::process::geteuid())
}

/// Records for as long as asked, or until the mount or its client ends. `None` while another recording is
/// running.
fn recorded(seconds: f64, wanted: Wanted, shared: &Shared, stream: &UnixStream) -> Option<Observed> {
    let events = wanted.events.map(|n| n.clamp(1, MAX_EVENTS));
    let recording = Recording::start(Wanted { events, ..wanted })?;
    let start = clock::now();
    let long = Duration::try_from_secs_f64(seconds).unwrap_or_default().min(LONGEST);
    while !shared.over.load(SeqCst) && !has_gone(stream) {
        let Some(left) = wait::remaining(start, long) else { break };
        thread::sleep(left.min(AGAIN));
    }
    Some(Observed { device: shared.device, ..recording.finish() })
}

/// Explains why the slowest operations of a recording were slow, with the names of their files.
fn explained(why: &Why, observed: &Observed, shared: &Shared) -> Answer {
    let mut report = explain(observed, why.over_ns, why.most.min(MAX_EXPLAINED));
    if let Some(volume) = shared.volume.upgrade() {
        let slow = || report.kinds.iter().flat_map(|k| &k.slowest);
        let paths = volume.vfs().cached_paths(slow().filter_map(|s| s.ino).map(Ino).collect());
        for s in report.kinds.iter_mut().flat_map(|k| &mut k.slowest) {
            let path = s.ino.and_then(|ino| paths.get(&Ino(ino)));
            s.path = path.map(|p| String::from_utf8_lossy(p).into_owned());
        }
    }
    Answer { v: VERSION, why: Some(Box::new(report)), ..Answer::default() }
}

/// Sends the parts of a recording.
fn send(r: &Record, observed: &Observed, mut to: &UnixStream) -> io::Result<()> {
    let (events, dropped) = (observed.recorded.events.len() as u64, observed.recorded.dropped);
    let recorded = Some(Found { events, dropped });
    protocol::write(&mut to, &Answer { v: VERSION, recorded, ..Answer::default() })?;
    if r.locks {
        let mut w = ChunkWriter::new(to);
        lockstat_table::write(&observed.locks, &mut w)?;
        w.finish()?;
    }
    if let Some(form) = r.trace {
        let mut w = ChunkWriter::new(to);
        form.write(observed, &mut w)?;
        w.finish()?;
    }
    if let Some(form) = r.profile {
        let mut w = ChunkWriter::new(to);
        form.write(observed, &mut w)?;
        w.finish()?;
    }
    Ok(())
}

fn serve(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(IDLE))?;
    stream.set_write_timeout(Some(STUCK))?;
    let (mut from, mut to) = (BufReader::new(stream), stream);
    // Statistics are collected as long as the connection lasts.
    let mut collecting = None;
    while let Some(question) = protocol::read_question(&mut from)? {
        let Some(volume) = shared.volume.upgrade().filter(|_| !shared.over.load(SeqCst)) else {
            return protocol::write(&mut to, &Answer::error("the mount has ended"));
        };
        match question {
            Err(why) => protocol::write(&mut to, &Answer::error(why))?,
            Ok(Ask { what: What::Sample { locks }, .. }) => {
                if locks && collecting.is_none() {
                    collecting = Some(lockstat::collect());
                }
                let mut sample = Box::new(volume.sample());
                drop(volume);
                sample.image = shared.image.clone();
                sample.mountpoint = Some(shared.mountpoint.clone());
                protocol::write(&mut to, &Answer { v: VERSION, sample: Some(sample), ..Answer::default() })?;
            }
            Ok(Ask { what: What::Set { switches }, .. }) => {
                let error = volume.remount(&switches).err().map(|e| e.to_string());
                drop(volume);
                protocol::write(&mut to, &Answer { v: VERSION, error, ..Answer::default() })?;
            }
            Ok(Ask { what: What::End, .. }) => {
                drop(volume);
                let stream = stream.try_clone()?;
                if let Some(waiting) = &mut *shared.waiting.lock() {
                    waiting.retain(|s| !has_gone(s));
                    if waiting.len() < MAX_WAITING {
                        // This is the first of three answers: the second says that the mount ends, the third how. The
                        // client unmounts when it has the first, so the lock is held until the client is on the list
                        // for the others.
                        protocol::write(&mut to, &Answer { v: VERSION, ..Answer::default() })?;
                        waiting.push(stream);
                        return Ok(());
                    }
                }
                return protocol::write(
                    &mut to,
                    &Answer::error("the mount has ended, or too many wait for it"),
                );
            }
            Ok(Ask { what: What::Record(record), .. }) => {
                drop(volume);
                let events = record.trace.is_some().then_some(record.events);
                let calls = record.profile.is_some();
                let wanted = Wanted { locks: record.locks, events, calls, causes: false };
                match recorded(record.seconds, wanted, shared, stream) {
                    Some(observed) => send(&record, &observed, to)?,
                    None => protocol::write(&mut to, &Answer::error(BUSY))?,
                }
            }
            Ok(Ask { what: What::Why(why), .. }) => {
                drop(volume);
                let wanted = Wanted { events: Some(why.events), causes: true, ..Wanted::default() };
                let answer = match recorded(why.seconds, wanted, shared, stream) {
                    Some(observed) => explained(&why, &observed, shared),
                    None => Answer::error(BUSY),
                };
                protocol::write(&mut to, &answer)?;
            }
        }
    }
    Ok(())
}
