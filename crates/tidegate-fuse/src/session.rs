//! One mount, from opening the image to its clean end.

use crate::control::Control;
use crate::mount::{self, is_dead, unmount, unmount_own};
use crate::options::MountOptions;
use crate::server::{Server, View};
use crate::transport::{self, Connection};
use crate::walk::Ahead;
use nix::sys::signal::{SigSet, Signal};
use rustix::mount::MountFlags;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tidegate::error::{Refusal, path_bytes};
use tidegate::within::{canonical, within};
use tidegate::{Error, OpenOptions, Result, Volume};
use tidegate_block::Reserve;
use tidegate_block::claim::Claim;
use tidegate_rt::{channel, thread};

/// How long files that are open when we are told to end may stay so.
const GRACE: Duration = Duration::from_secs(3);

/// Mounts `image` at `dir` and serves until it is unmounted, or SIGTERM, SIGINT or SIGHUP comes (the last not
/// where it is ignored, as nohup has it). `open` says how the volume is opened; `options` go before. `ready`
/// is called once the mount works. Blocks those signals in the calling thread: to be called before others are
/// started.
///
/// # Errors
/// Each begins with the image or the directory: the image is missing, in use, no volume; mounting is not
/// allowed; the last write at unmounting failed.
pub fn serve(
    image: &Path,
    dir: &Path,
    options: &MountOptions,
    open: OpenOptions,
    ready: impl FnOnce(&Volume),
) -> Result<()> {
    let mut signals = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect::<SigSet>();
    if !ignored(Signal::SIGHUP) {
        signals.add(Signal::SIGHUP);
    }
    signals.thread_block().map_err(|e| Error::Os("signals".into(), e.into()))?;
    die_of_panics();
    // Memory that we need to write pages must not wait for pages that we are to write. For the superuser.
    let _ = rustix::process::configure_io_flusher_behavior(true);
    let dir = &mountpoint(dir)?;
    let open = OpenOptions {
        read_only: options.read_only,
        memory: options.memory(),
        noatime: options.noatime,
        ..open
    };
    let mut claim = claim(image, options, &open);
    let open = OpenOptions { claimed: claim.is_some(), ..open };
    let volume = Arc::new(Volume::open(image, &open)?);
    // A mount works without.
    let _reserve = Reserve::keep(options.reserve()).ok();
    let mut options = options.clone();
    options.read_only |= volume.check_writable().is_err();
    let dirsync = options.flags.intersects(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC);
    let server = Server::new(volume.clone(), View { dirsync, ..options.view.clone() });
    // A mount works without this, too.
    let ahead =
        options.walk_ahead.then(|| Ahead::start(server.walk.clone(), server.vfs().clone()).ok()).flatten();
    let source = canonical(image);
    // A mount works without. Before it, since the image may lie below where it is mounted.
    let control = Control::start(volume.path(), dir, &volume);
    // Nobody may be there to hear it.
    let tell = |e: &_| drop(writeln!(std::io::stderr(), "tidegate: note: no control socket: {e}"));
    let control = control.inspect_err(tell).ok();
    let fd =
        mount::mount(&source.to_string_lossy(), dir, &options, claim.as_mut()).map_err(|e| at(dir, e))?;
    let mounted = Mounted(dir);
    let (threads, keep_awake) = (options.threads, options.keep_awake);
    let connection = Connection { fd, mountpoint: dir.clone(), threads, keep_awake };
    let transport =
        transport::connect(options.transport, server.clone(), connection).map_err(|e| at(dir, e))?;
    mount::tune(dir);
    server.dirty_bound.mounted(&server, dir);
    let (ends, ended) = channel::bounded(3);
    let (told, s, d, ours) = (ends.clone(), server.clone(), dir.clone(), mount::device(dir));
    let signalled = move || {
        end_on_signal(&signals, &s, || unmount_ours(&d, ours));
        told.send(End::Told, 1)
    };
    thread::spawn("tg-fuse-signals", signalled).map_err(|e| at(dir, e))?;
    let (unmounted, wait_unmounted) = channel::bounded::<()>(1);
    let destroyed = ends.clone();
    server.at_end(move || {
        let _ = destroyed.send(End::Destroyed, 1);
        // Nothing is sent: the other end goes away when the volume is unmounted.
        let _ = wait_unmounted.recv();
    });
    ready(&volume);
    let served = move || ends.send(End::LetGo(transport.run()), 1);
    thread::spawn("tg-fuse-serve", served).map_err(|e| at(dir, e))?;
    // After any end it is this thread that does the rest, and alone.
    let served = match ended.recv() {
        Some(End::LetGo(r)) => r.map_err(|e| at(dir, e)),
        Some(End::Told | End::Destroyed) | None => Ok(()),
    };
    // After an error nobody can use what is mounted.
    match served {
        Ok(()) => std::mem::forget(mounted),
        Err(_) => drop(mounted),
    }
    let waiting = control.map(Control::end).unwrap_or_default();
    drop(ahead);
    server.detach();
    let result = volume.vfs().unmount().map_err(|e| volume.error(e));
    drop(unmounted);
    let ended = served.and(result);
    waiting.tell(&ended);
    ended
}

/// Why a mount ends.
enum End {
    /// The kernel has let go, or the connection broke.
    LetGo(io::Result<()>),
    /// The kernel has let go of a block device, and waits until the volume is unmounted.
    Destroyed,
    /// A signal came. Files may still be open: they see errors from here on, and the volume is left clean.
    Told,
}

/// Claims a block device that the kernel is to take over, of which all is the volume; `None` where the image
/// is opened as any other.
fn claim(image: &Path, options: &MountOptions, open: &OpenOptions) -> Option<Claim> {
    let whole = within(image).1.is_none() && open.offset == 0;
    let may = rustix::process::geteuid().is_root() && !options.auto_unmount;
    if !whole || !may || open.read_only {
        return None;
    }
    // The fault is reported where the image is opened.
    Claim::of(image).ok().flatten()
}

/// Whether the starter of this process has it ignore `signal`.
pub fn ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) & 1 << (signal as u32 - 1) != 0
}

/// A thread that panics would leave others waiting for it. The end of the process ends all requests with an
/// error, and the next mount recovers what was fsynced.
fn die_of_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        std::process::abort();
    }));
}

/// Unmounts a mount that nobody serves.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount_own(self.0, true, false);
    }
}

fn at(dir: &Path, e: io::Error) -> Error {
    Error::os(path_bytes(dir), e)
}

/// The directory to mount at, absolute. One whose last mount died is cleared first.
fn mountpoint(dir: &Path) -> Result<PathBuf> {
    if is_dead(dir) {
        unmount(dir, true).map_err(|e| at(dir, e))?;
    }
    let found = std::fs::canonicalize(dir).map_err(|e| at(dir, e))?;
    if !found.is_dir() {
        return Err(Error::refused(Refusal::NotADirectory, dir, "not a directory"));
    }
    Ok(found)
}

/// Unmounts what is at `dir`, in use or not; but not what somebody mounted over ours, or is there since.
fn unmount_ours(dir: &Path, ours: Option<(u32, u32)>) {
    if mount::device(dir) == ours && unmount_own(dir, false, true).is_err() {
        // The mount may have gone meanwhile.
        let _ = unmount_own(dir, true, true);
    }
}

/// Waits for a signal, unmounts, and has what is open written. Nothing may be open: then the kernel lets go,
/// and the server ends first. Returns [`GRACE`] later.
fn end_on_signal(signals: &SigSet, server: &Arc<Server>, unmount: impl FnOnce()) {
    if signals.wait().is_err() {
        return;
    }
    // Pages that the kernel has not written yet come first.
    if let Some(kernel) = server.kernel() {
        kernel.write_back_all();
    }
    unmount();
    // The volume may be mounted elsewhere, too.
    thread::sleep(GRACE);
    if let Some(kernel) = server.kernel() {
        for node in server.written_nodes() {
            kernel.write_back(node, 0);
        }
    }
}
