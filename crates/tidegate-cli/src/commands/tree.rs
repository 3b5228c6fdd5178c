//! `tidegate tree`.

use crate::entry::Entry;
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::sync::Arc;
use tidegate::trail::{Met, Trail};
use tidegate::vfs::{FileType, Ino, Inode};
use tidegate::{Result, Volume};

/// Arguments of `tidegate tree`.
#[derive(clap::Args)]
pub struct Args {
    /// Names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    /// Directories only
    #[arg(short, long)]
    directories: bool,
    /// How many levels to go down, at least 1
    #[arg(short = 'L', long, value_name = "N")]
    level: Option<NonZeroUsize>,
    /// Where to begin
    #[arg(value_name = "IMAGE:/PATH")]
    place: OsString,
}

/// A name in a directory. Its inode is read only if more than the name is to be shown.
struct Item {
    name: Vec<u8>,
    ino: Ino,
    kind: Option<FileType>,
    inode: Option<Arc<Inode>>,
}

/// The entries of a directory that are still to be shown, and its path.
struct Level {
    rest: std::vec::IntoIter<Item>,
    at: Trail,
}

/// Shows a tree. An obstacle to a part is reported, and the rest is shown.
///
/// # Errors
/// The place is no directory; those of printing.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    let place = Place::parse(&args.place);
    let volume = global.read(&place)?;
    let top = volume.resolve_dir(&place.path)?;
    let mut met = Met::default();
    let mut out = Out::new();
    let mut json = Vec::new();
    if !global.json {
        out.line(&place)?;
    }
    let (mut files, mut dirs) = (0, 0);
    let mut stack = Vec::from_iter(global.or_fail(level(
        &volume,
        &mut met,
        top.ino,
        Trail::new(&place.path),
        args,
        global,
    )));
    let mut indent: Vec<&str> = Vec::new();
    while let Some(top) = stack.last_mut() {
        let Some(item) = top.rest.next() else {
            stack.pop();
            indent.pop();
            continue;
        };
        let at = top.at.below(&item.name);
        let is_last = top.rest.len() == 0;
        let is_dir = item.kind == Some(FileType::Directory);
        *(if is_dir { &mut dirs } else { &mut files }) += 1;
        if global.json {
            let path = at.path();
            let entry = item.inode.as_deref().map(|i| Entry::new(&volume, i, &path, &path, false));
            json.extend(entry.and_then(|e| global.or_fail(e)));
        } else {
            let branch = if is_last { "└── " } else { "├── " };
            let (name, link) = (out.name(&item.name).into_owned(), arrow(&volume, &at, &item, global, &out));
            out.pieces(&[indent.concat().as_bytes(), branch.as_bytes(), &name, &link])?;
        }
        if is_dir
            && args.level.is_none_or(|l| stack.len() < l.get())
            && let Some(below) = global.or_fail(level(&volume, &mut met, item.ino, at, args, global))
        {
            indent.push(if is_last { "    " } else { "│   " });
            stack.push(below);
        }
    }
    global.or_fail(volume.unmount());
    if global.json {
        out.json(&json)?;
    } else {
        out.line(format_args!("\n{dirs} directories, {files} files"))?;
    }
    out.finish()
}

/// The text after a name: the target of a link, or that the inode cannot be read.
fn arrow(volume: &Volume, at: &Trail, item: &Item, global: &Global, out: &Out) -> Vec<u8> {
    match (&item.inode, item.kind) {
        (Some(inode), Some(FileType::Symlink)) => {
            let target = volume.vfs().readlink(inode).map_err(|e| volume.error_at(&at.path(), e));
            let target = global.or_fail(target).unwrap_or_else(|| b"?".to_vec());
            [b" -> ", &*out.name(&target)].concat()
        }
        (None, Some(FileType::Symlink) | None) => b" [unreadable]".to_vec(),
        _ => Vec::new(),
    }
}

/// Begins the directory `ino` at `at`.
fn level(volume: &Volume, met: &mut Met, ino: Ino, at: Trail, args: &Args, global: &Global) -> Result<Level> {
    let fails = |e| volume.error_at(&at.path(), e);
    let dir = volume.vfs().iget(ino).map_err(fails)?;
    met.enter(volume, &dir, &at)?;
    let mut items = Vec::new();
    for e in volume.list_dir(&dir).map_err(fails)? {
        if !args.all && e.name.starts_with(b".") {
            continue;
        }
        let mut item = Item { name: e.name, ino: e.ino, kind: e.file_type, inode: None };
        if global.json || matches!(item.kind, None | Some(FileType::Symlink)) {
            let fails = |x| volume.error_at(&at.below(&item.name).path(), x);
            item.inode = global.or_fail(volume.vfs().iget(e.ino).map_err(fails));
            item.kind = item.inode.as_ref().map(|i| i.file_type).or(item.kind);
        }
        if item.kind == Some(FileType::Directory) || !args.directories {
            items.push(item);
        }
    }
    Ok(Level { rest: items.into_iter(), at })
}
