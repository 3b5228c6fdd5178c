//! `tidegate touch`.

use crate::global::Global;
use crate::mode::umask;
use crate::place::Place;
use crate::{report, units};
use std::ffi::OsString;
use tidegate::vfs::SetAttr;
use tidegate::{Result, Timespec, Volume};

/// Arguments of `tidegate touch`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The time of the last read alone, unless -m is given, too
    #[arg(short)]
    access: bool,
    /// The time of the last change of content alone, unless -a is given, too
    #[arg(short)]
    modification: bool,
    /// Leave out missing files
    #[arg(short = 'c', long)]
    no_create: bool,
    /// A link itself, and not what it leads to; implies -c
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// The time in UTC, such as 2024-02-29T12:00:00, or seconds since 1970, such as @1709208000; now, unless given
    #[arg(short, long, value_parser = units::point_in_time, value_name = "TIME")]
    date: Option<Timespec>,
    /// The files to change or make
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Sets times, and makes missing files.
///
/// # Errors
/// The volume cannot be opened, or a file cannot be changed or made.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    // clap itself ends the program after the help.
    let _ = args.help;
    let places: Vec<Place> = args.places.iter().map(|p| Place::parse(p)).collect();
    let fixed = global.open_options(false)?.fixed_time;
    let time = args.date.or(fixed).unwrap_or_else(tidegate_rt::clock::realtime);
    let both = args.access == args.modification;
    let set = SetAttr {
        atime: (both || args.access).then_some(time),
        mtime: (both || args.modification).then_some(time),
        ..SetAttr::default()
    };
    let volume = global.write_all(&places)?;
    let mode = 0o666 & !umask();
    for p in &places {
        if global.or_fail(is_there(args, &volume, &p.path, mode)) == Some(true) {
            let follow = !args.no_dereference;
            volume.set_each(&p.path, (follow, false), &|_| Some(set.clone()), &mut |e| global.fail(&e));
        }
    }
    report::after_change(global, Ok(()), volume)
}

/// Whether there is a file, or one was made.
fn is_there(args: &Args, volume: &Volume, path: &[u8], mode: u32) -> Result<bool> {
    if args.no_create || args.no_dereference {
        return volume.find(path, !args.no_dereference).map(|found| found.is_some());
    }
    volume.touch(path, mode).map(|_| true)
}
