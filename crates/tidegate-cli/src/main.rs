//! The `tidegate` program: makes, fills, reads and looks into volumes without mounting them.
//!
//! | module | holds |
//! |---|---|
//! | `arguments` | the command line as a whole |
//! | `commands` | the commands, one file each |
//! | `place` | `IMAGE:/path` |
//! | `global` | options of every command, and how they open a volume |
//! | `watch` | --lockstat, --trace, --profile |
//! | `units`, `mode` | sizes, UUIDs, times and permission bits as people write them |
//! | `out` | standard output: text, JSON, readers that go away |
//! | `bar`, `report` | progress while it runs, the summary afterwards |
//! | `failures`, `interrupt` | failures after which a command goes on; signals that end a command |
//! | `mount_helper` | calls by mount(8) |
//! | `syslog` | the system's log, for a mount in the background |
//! | `entry` | an inode in the form that `ls`, `stat` and `tree` show |
#![forbid(unsafe_code)]

mod arguments;
mod bar;
mod commands;
mod entry;
mod failures;
mod global;
mod interrupt;
mod mode;
mod mount_helper;
mod out;
mod place;
mod report;
mod syslog;
mod units;
mod watch;

use clap::Parser;
use commands::check;
use std::process::ExitCode;
use tidegate::{Error, Result};

/// The status of a process that SIGPIPE ended, as in a shell.
const PIPE: u8 = 141;
/// Characters of a line of help, without its indent.
const HELP_WIDTH: usize = 76;

/// F2FS and ext4 images in user space: make, fill, change, mount, check and explain them; ext2 and ext3 but
/// for making
#[derive(Parser)]
#[command(name = "tidegate", version)]
struct Cli {
    #[command(flatten)]
    global: global::Global,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    if arguments::ask_for_options(&args) {
        return print_options();
    }
    let cli = match mount_helper::arguments(args.iter().cloned()) {
        Some(args) => arguments::parse(std::iter::once("tidegate".into()).chain(args)),
        None => arguments::parse(args.iter().cloned()),
    };
    let cli = match cli {
        Err(e) if e.use_stderr() && arguments::are_of("check", &args) => {
            let _ = e.print();
            return ExitCode::from(check::USAGE);
        }
        r => r.unwrap_or_else(|e| e.exit()),
    };
    raise_file_limit();
    outlive_file_size_limit();
    if let Some(e) = cli.command.wrong_usage(&cli.global) {
        cli.global.fail(&e);
        return ExitCode::from(check::USAGE);
    }
    let failure = cli.command.failure();
    match run(&cli) {
        Ok(_) if cli.global.has_failed() => ExitCode::from(failure),
        Ok(code) => code,
        Err(e) if e.is_broken_pipe() => ExitCode::from(PIPE),
        Err(e) => {
            cli.global.fail(&e);
            ExitCode::from(failure)
        }
    }
}

fn print_options() -> ExitCode {
    let mut out = out::Out::new();
    let help = tidegate_fuse::options::help();
    let lines = help.iter().try_for_each(|(word, what)| {
        out.line(word)?;
        out::wrapped(what, HELP_WIDTH).iter().try_for_each(|line| out.line(format_args!("    {line}")))
    });
    match lines.and_then(|()| out.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(PIPE),
    }
}

/// Runs the command, with the observation that was asked for. A failure of the command takes precedence over
/// one of the observation.
fn run(cli: &Cli) -> Result<ExitCode> {
    if cli.command.is_mount() && cli.global.watch.anything() {
        return Err(Error::argument("--lockstat, --trace, --profile", "of a mount: use tidegate trace DIR"));
    }
    let watching = if cli.command.runs_here() { cli.global.watch.begin()? } else { None };
    let done = cli.command.run(&cli.global);
    let watched = watching.map_or(Ok(()), |w| w.end(cli.global.opened().as_deref()));
    done.and_then(|code| watched.map(|()| code))
}

/// Raises the limit of open files: measuring a tree keeps a directory open until the directories in it are counted, and
/// wide and deep trees need more than the usual limit.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    const WANTED: u64 = 65_536;
    let now = getrlimit(Resource::Nofile);
    let wanted = now.maximum.map_or(WANTED, |m| m.min(WANTED));
    if now.current.is_some_and(|c| c < wanted) {
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum: now.maximum });
    }
}

/// Blocks SIGXFSZ, which a write beyond `ulimit -f` sends and which ends a process. Where it is blocked, the write
/// fails with EFBIG, and the volume reports that. Threads that are started later inherit this.
fn outlive_file_size_limit() {
    use nix::sys::signal::{SigSet, Signal};
    let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
}
