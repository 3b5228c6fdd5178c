//! The commands.

mod cat;
pub mod check;
mod checkpoints;
mod chmod;
mod chown;
mod cp;
mod df;
mod guest;
mod info;
mod lab;
mod ln;
mod ls;
mod mkdir;
mod mkfs;
mod mount;
mod mv;
mod rm;
mod rmdir;
mod shells;
mod stat;
mod sync;
mod tar;
mod top;
mod touch;
mod trace;
mod tree;
mod trim;
mod umount;
mod why;

use crate::global::Global;
use clap::Subcommand;
use std::process::ExitCode;
use tidegate::{Error, Result};

/// The commands.
#[derive(Subcommand)]
pub enum Command {
    /// Make a volume, empty or filled from a directory or a tar
    Mkfs(mkfs::Args),
    /// Copy files and trees into a volume or out of one, with all their attributes
    Cp(cp::Args),
    /// List a directory of a volume
    Ls(ls::Args),
    /// Write a file's content to standard output
    Cat(cat::Args),
    /// Show everything known of a file
    Stat(stat::Args),
    /// Show a directory with all below it
    Tree(tree::Args),
    /// Make directories
    Mkdir(mkdir::Args),
    /// Remove files and trees
    Rm(rm::Args),
    /// Remove empty directories
    Rmdir(rmdir::Args),
    /// Move or rename
    Mv(mv::Args),
    /// Make hard or symbolic links
    Ln(ln::Args),
    /// Change permission bits
    Chmod(chmod::Args),
    /// Change owners and groups
    Chown(chown::Args),
    /// Set times; make missing files, empty
    Touch(touch::Args),
    /// Write a tree as a tar to standard output
    Tar(tar::Args),
    /// Show capacity and use
    Df(df::Args),
    /// Discard free blocks of a volume, so that a sparse image shrinks
    Trim(trim::Args),
    /// Show superblock, checkpoint and segments, or the time of checkpoints' steps
    Info(info::Args),
    /// Mount a volume for every program of the machine
    Mount(mount::Args),
    /// Unmount a volume, and wait until all of it is written
    Umount(umount::Args),
    /// Make everything durable that a mounted volume was given
    Sync(sync::Args),
    /// Show a mounted volume at work: write-back, latencies, locks, files
    Top(top::Args),
    /// Record the work of a mounted volume: locks, trace events, a call tree
    Trace(trace::Args),
    /// Explain the slowest fsyncs, syncs and checkpoints of a mounted volume: the causes of their waits, and advice
    Why(why::Args),
    /// Measure the effect of a switch, in simulated time; race volumes and directories
    Lab(lab::Args),
    /// Check a volume, and with --repair mend it; exit status 0: clean, 1: corrected, 4: errors, 8: could not check,
    /// 16: wrong usage
    Check(check::Args),
    /// Print completions for a shell
    Completions(shells::Completions),
    /// Write manual pages, one for each command
    Man(shells::Man),
    /// (In a guest) be process 1
    #[command(hide = true, name = tidegate_uml::INIT)]
    GuestInit(guest::Init),
    /// (In a guest) run a workload
    #[command(hide = true, name = tidegate_lab::kernel::WORK)]
    GuestWork(guest::Work),
    /// (For the lab) do runs
    #[command(hide = true, name = tidegate_lab::experiment::jobs::RUN)]
    LabRun,
}

impl Command {
    /// Runs the command.
    ///
    /// # Errors
    /// One line that begins with the image or path.
    pub fn run(&self, global: &Global) -> Result<ExitCode> {
        let done = match self {
            Command::Check(a) => return check::run(a, global),
            Command::Mkfs(a) => mkfs::run(a, global),
            Command::Cp(a) => cp::run(a, global),
            Command::Ls(a) => ls::run(a, global),
            Command::Cat(a) => cat::run(a, global),
            Command::Stat(a) => stat::run(a, global),
            Command::Tree(a) => tree::run(a, global),
            Command::Mkdir(a) => mkdir::run(a, global),
            Command::Rm(a) => rm::run(a, global),
            Command::Rmdir(a) => rmdir::run(a, global),
            Command::Mv(a) => mv::run(a, global),
            Command::Ln(a) => ln::run(a, global),
            Command::Chmod(a) => chmod::run(a, global),
            Command::Chown(a) => chown::run(a, global),
            Command::Touch(a) => touch::run(a, global),
            Command::Tar(a) => tar::run(a, global),
            Command::Df(a) => df::run(a, global),
            Command::Trim(a) => trim::run(a, global),
            Command::Info(a) => info::run(a, global),
            Command::Mount(a) => mount::run(a, global),
            Command::Umount(a) => umount::run(a, global),
            Command::Sync(a) => sync::run(a, global),
            Command::Top(a) => top::run(a, global),
            Command::Trace(a) => trace::run(a, global),
            Command::Why(a) => why::run(a, global),
            Command::Lab(a) => lab::run(a, global),
            Command::Completions(a) => shells::completions(a, global),
            Command::Man(a) => shells::man(a, global),
            Command::GuestInit(a) => guest::init(a),
            Command::GuestWork(a) => guest::work(a),
            Command::LabRun => lab::run_apart(),
        };
        done.map(|()| ExitCode::SUCCESS)
    }

    /// Whether --lockstat, --trace and --profile can observe the whole command. The lab observes its own
    /// runs.
    pub fn runs_here(&self) -> bool {
        !self.is_mount() && !matches!(self, Command::Trace(_) | Command::Why(_) | Command::Lab(_))
    }

    /// Whether the command shows or starts a mount.
    pub fn is_mount(&self) -> bool {
        matches!(self, Command::Top(_) | Command::Mount(_))
    }

    /// The error with which a check ends because of wrong usage, which has a separate status there.
    pub fn wrong_usage(&self, global: &Global) -> Option<Error> {
        if let Command::Check(args) = self { check::usage(args, global).err() } else { None }
    }

    /// The exit status of a failure.
    pub fn failure(&self) -> u8 {
        if matches!(self, Command::Check(_)) { check::OPERATIONAL } else { 1 }
    }
}
