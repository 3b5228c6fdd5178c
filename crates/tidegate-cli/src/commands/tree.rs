//! `tidegate tree`.

use crate::entry::Entry;
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use std::ffi::OsString;
use std::sync::Arc;
use tidegate::error::show;
use tidegate::paths::join;
use tidegate::vfs::{FileType, Inode};
use tidegate::{Result, Volume};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    /// Directories only
    #[arg(short, long)]
    directories: bool,
    /// How many levels to go down
    #[arg(short = 'L', long, value_name = "N")]
    level: Option<usize>,
    /// Where to begin
    #[arg(value_name = "IMAGE:/PATH")]
    place: OsString,
}

/// Entries still to be shown in a directory, and its path.
struct Level {
    rest: std::vec::IntoIter<(Vec<u8>, Arc<Inode>)>,
    path: Vec<u8>,
}

/// Shows a tree.
///
/// # Errors
/// What is in the way.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let place = Place::parse(&args.place);
    let volume = global.read(&place)?;
    volume.resolve_dir(&place.path)?;
    let mut out = Out::new();
    let mut json = Vec::new();
    if !global.json {
        out.line(&place)?;
    }
    let (mut files, mut dirs) = (0, 0);
    let mut stack = vec![level(&volume, place.path.clone(), args)?];
    let mut indent = Vec::new();
    while let Some(top) = stack.last_mut() {
        let Some((name, inode)) = top.rest.next() else {
            stack.pop();
            indent.pop();
            continue;
        };
        let path = join(&top.path, &name);
        let is_last = top.rest.len() == 0;
        if inode.is_dir() {
            dirs += 1
        } else {
            files += 1
        }
        if global.json {
            json.push(Entry::new(&volume, &inode, &path, &path, false)?);
        } else {
            let branch = if is_last { "└── " } else { "├── " };
            let arrow = match inode.file_type {
                FileType::Symlink => {
                    let t = volume.vfs().readlink(&inode).map_err(|e| volume.complain(&path, e))?;
                    format!(" -> {}", show(&t))
                }
                _ => String::new(),
            };
            out.line(format_args!("{}{branch}{}{arrow}", indent.concat(), show(&name)))?;
        }
        if inode.is_dir() && args.level.is_none_or(|l| stack.len() < l) {
            indent.push(if is_last { "    " } else { "│   " });
            stack.push(level(&volume, path, args)?);
        }
    }
    volume.unmount()?;
    if global.json {
        out.json(&json)?;
    } else {
        out.line(format_args!("\n{dirs} directories, {files} files"))?;
    }
    out.finish()
}

fn level(volume: &Volume, path: Vec<u8>, args: &Args) -> Result<Level> {
    let mut entries = Vec::new();
    for e in volume.list(&path)? {
        if !args.all && e.name.starts_with(b".") {
            continue;
        }
        let inode = volume.vfs().iget(e.ino).map_err(|x| volume.complain(&join(&path, &e.name), x))?;
        if inode.is_dir() || !args.directories {
            entries.push((e.name, inode));
        }
    }
    Ok(Level { rest: entries.into_iter(), path })
}
