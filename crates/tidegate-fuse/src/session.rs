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

/// How long files may stay open after a signal to end.
const GRACE: Duration = Duration::from_secs(3);

/// Mounts `image` at `dir` and serves until it is unmounted, or until SIGTERM, SIGINT or SIGHUP comes (SIGHUP
/// only where it is not ignored, as by nohup). `open` says how the volume is opened; `options` take
/// precedence. `ready` is called once the mount works. Blocks those signals in the calling thread, so it must
/// be called before other threads are started.
///
/// # Errors
/// Each begins with the image or the directory: the image is missing, in use, or no volume; mounting is not
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
    // An allocation that is needed to write pages must not wait for pages that this process is to write. Only
    // the superuser may set this.
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
    // A mount works without the reserve.
    let _reserve = Reserve::keep(options.reserve()).ok();
    let mut options = options.clone();
    options.read_only |= volume.check_writable().is_err();
    let dirsync = options.flags.intersects(MountFlags::SYNCHRONOUS | MountFlags::DIRSYNC);
    let server = Server::new(volume.clone(), View { dirsync, ..options.view.clone() });
    // A mount works without reading ahead.
    let ahead =
        options.walk_ahead.then(|| Ahead::start(server.walk.clone(), server.vfs().clone()).ok()).flatten();
    let source = canonical(image);
    // A mount works without the socket. It is made before mounting, since the image may lie below the mount
    // point.
    let control = Control::start(volume.path(), dir, &volume);
    // Standard error may be closed.
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
        // Nothing is sent: the other end is dropped when the volume is unmounted.
        let _ = wait_unmounted.recv();
    });
    ready(&volume);
    let served = move || ends.send(End::LetGo(transport.run()), 1);
    thread::spawn("tg-fuse-serve", served).map_err(|e| at(dir, e))?;
    // After any end only this thread does the rest.
    let served = match ended.recv() {
        Some(End::LetGo(r)) => r.map_err(|e| at(dir, e)),
        Some(End::Told | End::Destroyed) | None => Ok(()),
    };
    // After an error the mount cannot be used.
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

/// The reason why a mount ends.
enum End {
    /// The kernel has unmounted, or the connection broke.
    LetGo(io::Result<()>),
    /// The kernel has unmounted a block device, and waits until the volume is unmounted.
    Destroyed,
    /// A signal came. Files may still be open: they get errors from here on, and the volume is unmounted
    /// cleanly.
    Told,
}

/// Claims a block device that the kernel is to take over, if the volume takes all of it. `None` where the
/// image is opened in the usual way.
fn claim(image: &Path, options: &MountOptions, open: &OpenOptions) -> Option<Claim> {
    let whole = within(image).1.is_none() && open.offset == 0;
    let may = rustix::process::geteuid().is_root() && !options.auto_unmount;
    if !whole || !may || open.read_only {
        return None;
    }
    // An error is reported where the image is opened.
    Claim::of(image).ok().flatten()
}

/// Whether this process was started with `signal` ignored.
pub fn ignored(signal: Signal) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|l| u64::from_str_radix(l.strip_prefix("SigIgn:")?.trim(), 16).ok());
    mask.unwrap_or(0) & 1 << (signal as u32 - 1) != 0
}

/// Ends the process when a thread panics: other threads would wait for it. The end of the process ends all
/// requests with an error, and the next mount recovers fsynced data.
fn die_of_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        before(info);
        std::process::abort();
    }));
}

/// Unmounts a mount that is no longer served.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = unmount_own(self.0, true, false);
    }
}

fn at(dir: &Path, e: io::Error) -> Error {
    Error::os(path_bytes(dir), e)
}

/// The directory to mount at, as an absolute path. A dead mount there is unmounted first.
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

/// Unmounts the mount at `dir`, in use or not, but not a mount that was made over it or after it.
fn unmount_ours(dir: &Path, ours: Option<(u32, u32)>) {
    if mount::device(dir) == ours && unmount_own(dir, false, true).is_err() {
        // The mount may be gone meanwhile.
        let _ = unmount_own(dir, true, true);
    }
}

/// Waits for a signal, has dirty pages written, and unmounts. If no file is open, the kernel releases the
/// mount, and the server ends before this returns. Returns [`GRACE`] later.
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
