//! `tidegate mount`: a volume as a file system of the machine.
//!
//! In the background another process serves: this process starts the program again, waits for the message
//! that the mount works, and ends.

use crate::global::Global;
use crate::out::{self, Out};
use crate::syslog;
use rustix::fs::{major, minor};
use serde_json::json;
use std::cell::Cell;
use std::ffi::OsString;
use std::io::{IsTerminal, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tidegate::devices;
use tidegate::within::within;
use tidegate::{Error, OpenOptions, Result, Volume};
use tidegate_fuse::MountOptions;
use tidegate_fuse::options::HELD_CACHE;
use tidegate_fuse::transport::TransportKind;
use tidegate_fuse::transport::dev::{ENABLE_URING, uring_is_off};

/// The message of the serving process that the mount works.
const READY: &[u8] = b"ready\n";
/// The environment variable that tells a process to serve.
const SERVING: &str = "TIDEGATE_MOUNT_SERVING";

#[derive(clap::Args)]
pub struct Args {
    /// The image or device; `disk.img@1M` for a volume that begins so far into a disk
    image: PathBuf,
    /// The directory to mount it at
    directory: PathBuf,
    /// Change nothing: -o ro
    #[arg(long, short)]
    read_only: bool,
    /// Stay in the foreground
    #[arg(long, short)]
    foreground: bool,
    /// Say how the mount could be made faster, even if standard error is no terminal
    #[arg(long, short)]
    verbose: bool,
    /// Look at the arguments and mount nothing, as mount -f has it
    #[arg(long, hide = true)]
    fake: bool,
}

pub fn run(args: &Args, global: &Global) -> Result<()> {
    let asked = asked(args, global)?;
    if asked.remount && !args.fake {
        remount(args, &asked, global)?;
        return tell(args, global);
    }
    if args.fake {
        options(args, global)?;
        return tell(args, global);
    }
    if args.foreground {
        return serve(args, global, |volume| {
            global.tell_opened(volume);
            global.or_fail(tell(args, global));
        });
    }
    if std::env::var_os(SERVING).is_none() {
        start(args)?;
        return tell(args, global);
    }
    let _ = rustix::process::setsid();
    // The program was started as /proc/self/exe, and ps(1) would show the name `exe`.
    let _ = std::fs::write("/proc/self/comm", "tidegate");
    let left = Cell::new(false);
    let served = serve(args, global, |volume| {
        global.tell_opened(volume);
        leave_terminal();
        left.set(true);
    });
    served.inspect_err(|e| {
        if left.get() {
            syslog::error(&e.to_string());
        }
    })
}

/// With --json, prints where it is mounted.
fn tell(args: &Args, global: &Global) -> Result<()> {
    if !global.json {
        return Ok(());
    }
    let [image, directory] = [&args.image, &args.directory].map(|p| p.display().to_string());
    let mut out = Out::new();
    out.json(&json!({ "image": image, "directory": directory }))?;
    out.finish()
}

/// The options of -o.
fn asked(args: &Args, global: &Global) -> Result<MountOptions> {
    let more = if args.read_only { ",ro" } else { "" };
    MountOptions::parse(&(global.options() + more)).map_err(|e| Error::argument("-o", e))
}

/// Changes an existing mount.
fn remount(args: &Args, options: &MountOptions, global: &Global) -> Result<()> {
    let dir = &args.directory;
    let about = |e| Error::os(tidegate::error::path_bytes(dir), e);
    // mount(8) adds the words of fstab. The offset and the devices of a mount cannot change, so these words
    // are ignored.
    let is_kept = |word: &&str| ["offset=", "device="].iter().any(|place| word.starts_with(place));
    let switches: Vec<&str> = options.switches.split(',').filter(|w| !w.is_empty() && !is_kept(w)).collect();
    tidegate_fuse::control::address::mount_of(dir).map_err(about)?;
    let kept = options.words_that_stay();
    if !kept.is_empty() && !global.quiet {
        let what = "stays as it was mounted: ro, rw, the flags of mount(2) and switches of the volume can be changed";
        out::note(format_args!("{}: {what}", kept.join(", ")));
    }
    // Switches alone leave the kernel's flags as they are, and are for the user who mounted, too. mount(8)'s helper puts
    // `suid` and `dev` there by itself.
    let words = global.options();
    let is_other = |w: &&str| {
        !["", "remount", "suid", "dev"].contains(w) && !options.switches.split(',').any(|switch| switch == *w)
    };
    let others = words.split(',').filter(is_other);
    if args.read_only || switches.is_empty() || others.count() > 0 {
        tidegate_fuse::mount::remount(dir, options).map_err(about)?;
    }
    if !switches.is_empty() {
        tidegate_fuse::control::Client::connect(dir)?.set(&switches.join(","))?;
    }
    Ok(())
}

fn options(args: &Args, global: &Global) -> Result<(MountOptions, OpenOptions)> {
    let mut options = asked(args, global)?;
    let behind = devices::behind(&args.image, &global.mount_options(true, &options.switches)?);
    let all = std::iter::once(&args.image).chain(&behind);
    let unwritable = all.filter(|_| !options.read_only).find_map(|path| Some((path, unwritable(path)?)));
    if let Some((path, why)) = unwritable {
        options.read_only = true;
        let path = tidegate::error::show(tidegate::error::path_bytes(path));
        out::note(format_args!("{path}: cannot be written ({why}): mounted read-only"));
    }
    if let Some(cache) = global.cache {
        tidegate_fuse::options::check_cache(cache).map_err(|e| Error::argument("--cache", e))?;
        options.cache = Some(cache);
    }
    if let Some(asked) = options.cache
        && let Some(limit) = tidegate::cgroup::memory_limit()
        && asked.max(HELD_CACHE) > limit
        && !global.quiet
    {
        let [asked, limit] = [asked, limit].map(|n| format!("{}M", n >> 20));
        out::note(format_args!(
            "cache={asked}: this process may use {limit} only (its cgroup's memory limit)"
        ));
    }
    if options.cache() < HELD_CACHE && !global.quiet {
        let [asked, least] = [options.cache(), HELD_CACHE].map(|n| format!("{}M", n >> 20));
        out::note(format_args!("cache={asked}: a mount that is used takes up to {least} in any case"));
    }
    let open = global.mount_options(options.read_only, &options.switches)?;
    Ok((options, open))
}

/// The reason why an image can be read but not written, where that is so. mount(8) also falls back to a
/// read-only mount.
fn unwritable(image: &Path) -> Option<std::io::Error> {
    use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
    let (image, _) = within(image);
    if is_protected(&image) {
        return Some(ReadOnlyFilesystem.into());
    }
    let why = std::fs::OpenOptions::new().write(true).open(&image).err()?;
    let is_that = matches!(why.kind(), PermissionDenied | ReadOnlyFilesystem);
    (is_that && std::fs::File::open(image).is_ok()).then_some(why)
}

/// Whether a block device is set to take no writes (`blockdev --setro`). It can be opened for writing all the same.
fn is_protected(device: &Path) -> bool {
    let Some(m) = device.metadata().ok().filter(|m| m.file_type().is_block_device()) else { return false };
    let path = format!("/sys/dev/block/{}:{}/ro", major(m.rdev()), minor(m.rdev()));
    std::fs::read_to_string(path).is_ok_and(|s| s.trim() == "1")
}

/// Prints what would make requests cheaper, if a person reads the output.
fn tell_of_uring(args: &Args, options: &MountOptions, global: &Global) {
    let read = args.verbose || std::io::stderr().is_terminal();
    if read && !global.quiet && !global.json && options.transport == TransportKind::Best && uring_is_off() {
        out::note(format_args!(
            "requests come faster by io_uring, which the superuser turns on: echo Y > {ENABLE_URING}"
        ));
    }
}

fn serve(args: &Args, global: &Global, ready: impl FnOnce(&Volume)) -> Result<()> {
    let (options, open) = options(args, global)?;
    tell_of_uring(args, &options, global);
    tidegate_fuse::serve(&args.image, &args.directory, &options, open, ready)
}

/// Reports that the mount works, and leaves the terminal and the directory in which it was started. Errors
/// from here on go to the system's log.
fn leave_terminal() {
    let mut out = std::io::stdout();
    let _ = out.write_all(READY).and_then(|()| out.flush());
    if let Ok(null) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
    let _ = std::env::set_current_dir("/");
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        syslog::error(&info.to_string());
        before(info);
    }));
}

/// Starts the serving process and waits for its message.
fn start(args: &Args) -> Result<()> {
    let about = |e| Error::os(tidegate::error::path_bytes(&args.image), e);
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut child = Command::new("/proc/self/exe")
        .arg0("tidegate")
        .args(crate::mount_helper::arguments(std::env::args_os()).unwrap_or(words))
        .env(SERVING, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(about)?;
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        let mut byte = [0; 64];
        while !said.ends_with(READY) {
            match out.read(&mut byte) {
                Ok(0) | Err(_) => break,
                Ok(n) => said.extend_from_slice(&byte[..n]),
            }
        }
    }
    if said.ends_with(READY) {
        return Ok(());
    }
    // The server has printed the reason on standard error, which it shares with this process.
    let status = child.wait().map_err(about)?;
    std::process::exit(status.code().unwrap_or(1));
}
