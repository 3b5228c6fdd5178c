//! `tidegate chown`.

use crate::global::Global;
use crate::place::Place;
use crate::report;
use std::ffi::OsString;
use tidegate::error::Refusal;
use tidegate::vfs::SetAttr;
use tidegate::{Result, Volume};

/// The most bytes of `/etc/passwd` and `/etc/group` that are looked at.
const MOST: usize = 16 << 20;

/// Arguments of `tidegate chown`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// Directories, with all that is in them; links themselves, and not what they lead to
    #[arg(short = 'R', long)]
    recursive: bool,
    /// A link itself, and not what it leads to
    #[arg(short = 'h', long)]
    no_dereference: bool,
    /// USER, USER:GROUP, USER: for the user's own group, or :GROUP; numbers, or names in the volume's /etc/passwd and
    /// /etc/group
    #[arg(value_name = "OWNER")]
    owner: String,
    /// The files and directories to change
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

/// Changes owners and groups.
///
/// # Errors
/// The volume cannot be opened or does not know a name, or a file cannot be changed.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    // clap itself ends the program after the help.
    let _ = args.help;
    let places: Vec<Place> = args.places.iter().map(|p| Place::parse(p)).collect();
    let volume = global.write_all(&places)?;
    let done = owner(&volume, &args.owner).map(|(uid, gid)| {
        for p in &places {
            let follow = !args.no_dereference && !args.recursive;
            volume.set_each(
                &p.path,
                (follow, args.recursive),
                &|_| Some(SetAttr { uid, gid, ..SetAttr::default() }),
                &mut |e| global.fail(&e),
            );
        }
    });
    report::after_change(global, done, volume)
}

/// The numbers of a user and of a group, each if it is to be set.
fn owner(volume: &Volume, text: &str) -> Result<(Option<u32>, Option<u32>)> {
    let (user, group) = text.split_once(':').map_or((text, None), |(user, group)| (user, Some(group)));
    if user.is_empty() && group.is_none_or(str::is_empty) {
        return Err(tidegate::Error::argument("OWNER", format!("{text:?}: neither a user nor a group")));
    }
    let uid = if user.is_empty() { None } else { Some(number(volume, b"/etc/passwd", user, 2)?) };
    let gid = match group {
        None => None,
        // The user's own group.
        Some("") => Some(entry(volume, b"/etc/passwd", user, 3)?),
        Some(group) => Some(number(volume, b"/etc/group", group, 2)?),
    };
    Ok((uid, gid))
}

/// A number, or the number that a file of the volume has for a name.
fn number(volume: &Volume, file: &[u8], text: &str, field: usize) -> Result<u32> {
    // The highest number means "leave it" to chown(2).
    match text.parse::<u32>() {
        Ok(n) if n != u32::MAX => Ok(n),
        _ => entry(volume, file, text, field),
    }
}

/// A numeric field of the line of `file` for a name; for a user, also for a number.
fn entry(volume: &Volume, file: &[u8], name: &str, field: usize) -> Result<u32> {
    let bytes = match volume.read_small(file, MOST) {
        Err(e) if e.is_not_found() => Vec::new(),
        r => r?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let of_line = |line: &str| {
        let fields: Vec<&str> = line.split(':').collect();
        let is_it = fields.first() == Some(&name) || fields.get(2) == Some(&name);
        is_it.then(|| fields.get(field)?.parse().ok()).flatten()
    };
    let unknown =
        || volume.complain(Refusal::Argument, file, format!("it has no {name}; a number needs no entry"));
    text.lines().find_map(of_line).ok_or_else(unknown)
}
