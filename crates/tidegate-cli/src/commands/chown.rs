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

const PASSWD: &[u8] = b"/etc/passwd";
const GROUP: &[u8] = b"/etc/group";

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
    let uid = if user.is_empty() { None } else { Some(number(volume, PASSWD, user, 2)?) };
    let gid = match group {
        None => None,
        // The user's own group.
        Some("") => Some(own_group(volume, user)?),
        Some(group) => Some(number(volume, GROUP, group, 2)?),
    };
    Ok((uid, gid))
}

/// The number that a file of the volume has for a name, or the number itself.
fn number(volume: &Volume, file: &[u8], text: &str, field: usize) -> Result<u32> {
    match (entry(volume, file, text, field)?, text.parse::<u32>()) {
        (Some(n), _) => Ok(n),
        // The highest number means "leave it" to chown(2).
        (None, Ok(n)) if n != u32::MAX => Ok(n),
        _ => Err(unknown(volume, file, text)),
    }
}

/// The number of a user's own group.
fn own_group(volume: &Volume, user: &str) -> Result<u32> {
    let found = entry(volume, PASSWD, user, 3)?;
    found.ok_or_else(|| unknown(volume, PASSWD, user))
}

fn unknown(volume: &Volume, file: &[u8], name: &str) -> tidegate::Error {
    volume.complain(Refusal::Argument, file, format!("it has no {name}; a number needs no entry"))
}

/// A numeric field of a line of `file`: of the line with that name, or else of the one with that number.
fn entry(volume: &Volume, file: &[u8], name: &str, field: usize) -> Result<Option<u32>> {
    let bytes = match volume.read_small(file, MOST) {
        Err(e) if e.is_not_found() => return Ok(None),
        r => r?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines = || text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let at = |n: usize| lines().find(|fields| fields.get(n) == Some(&name));
    Ok(at(0).or_else(|| at(2)).and_then(|fields| fields.get(field)?.parse().ok()))
}
