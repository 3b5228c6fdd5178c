//! `tidegate ls`.

use crate::entry::{self, Entry};
use crate::global::Global;
use crate::out::Out;
use crate::place::Place;
use serde::Serialize;
use std::ffi::OsString;
use std::sync::Arc;
use tidegate::error::{path_bytes, show};
use tidegate::paths::join;
use tidegate::trail::{Met, Trail};
use tidegate::vfs::{FileType, Ino, Inode};
use tidegate::{Result, Volume};

/// Arguments of `tidegate ls`.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub struct Args {
    /// One entry a line, with mode, links, owner, group, size and time (UTC)
    #[arg(short)]
    long: bool,
    /// With -l: sizes with units, such as 1.5K
    #[arg(short, long)]
    human_readable: bool,
    /// Directories below, too
    #[arg(short = 'R', long)]
    recursive: bool,
    /// Names that begin with a dot, too
    #[arg(short, long)]
    all: bool,
    /// List directories themselves, not their entries
    #[arg(short, long)]
    directory: bool,
    /// End each name with a zero byte instead of a line's end
    #[arg(short = '0', long, conflicts_with_all = ["long", "recursive"])]
    zero: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    /// The places to list
    #[arg(required = true, value_name = "IMAGE:/PATH")]
    places: Vec<OsString>,
}

#[derive(Serialize)]
struct Listing {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    entries: Vec<Described>,
}

/// An entry for JSON, as far as it is known.
#[derive(Serialize)]
#[serde(untagged)]
enum Described {
    Whole(Box<Entry>),
    Broken { name: String, name_hex: Option<String>, error: String },
}

/// A name in a directory, or a place by itself.
struct Item {
    name: Vec<u8>,
    ino: Ino,
    is_dir: bool,
    /// The inode, which is read only if more than the name is to be shown. `Err` if it cannot be read.
    inode: Option<Result<Arc<Inode>>>,
}

/// The state of a run, from place to place.
struct Lister<'a> {
    args: &'a Args,
    global: &'a Global,
    out: Out,
    json: Vec<Listing>,
    /// Whether nothing was printed yet.
    first: bool,
}

/// Lists the places. An obstacle to a part is reported, and the rest is listed.
///
/// # Errors
/// Those of printing.
pub fn run(args: &Args, global: &Global) -> Result<()> {
    // clap itself ends the program after the help.
    let _ = args.help;
    let mut lister = Lister { args, global, out: Out::new(), json: Vec::new(), first: true };
    for place in args.places.iter().map(|p| Place::parse(p)) {
        let Some(volume) = global.or_fail(global.read(&place)) else { continue };
        lister.place(&volume, &place)?;
        global.or_fail(volume.unmount());
    }
    if global.json {
        lister.out.json(&lister.json)?;
    }
    lister.out.finish()
}

impl Lister<'_> {
    fn place(&mut self, volume: &Volume, place: &Place) -> Result<()> {
        let headed = self.args.places.len() > 1 || self.args.recursive;
        let mut met = Met::default();
        let top = self.global.or_fail(self.top(volume, &place.path));
        let mut stack = Vec::from_iter(top.map(|inode| (inode.ino, Trail::new(&place.path))));
        while let Some((ino, at)) = stack.pop() {
            let items = self.items(volume, ino, &at, &mut met);
            let Some((items, is_dir)) = self.global.or_fail(items) else { continue };
            if self.args.recursive && is_dir {
                let below = items.iter().rev().filter(|i| i.is_dir);
                stack.extend(below.map(|i| (i.ino, at.below(&i.name))));
            }
            let path = at.path();
            if self.global.json {
                let entries = items.into_iter().map(|i| self.described(volume, &path, is_dir, i)).collect();
                let (shown, path_hex) = (String::from_utf8_lossy(&path), entry::hex_unless_text(&path));
                self.json.push(Listing { path: shown.into_owned(), path_hex, entries });
                continue;
            }
            if headed && is_dir {
                let gap = if self.first { "" } else { "\n" };
                self.out.line(format_args!("{gap}{}:{}:", show(path_bytes(&place.image)), show(&path)))?;
            }
            self.first = false;
            if self.args.long { self.long(volume, &path, is_dir, items)? } else { self.short(&items)? }
        }
        Ok(())
    }

    /// The inode at `path`, where a listing begins.
    fn top(&self, volume: &Volume, path: &[u8]) -> Result<Arc<Inode>> {
        let follow = !(self.args.long || self.args.directory);
        match volume.resolve(path, follow) {
            // A dangling link is listed itself.
            Err(e) if follow && e.is_not_found() => volume.resolve(path, false),
            r => r,
        }
    }

    /// The items to list for inode `ino` at `at`, by name, and whether they are the entries of a directory.
    fn items(&self, volume: &Volume, ino: Ino, at: &Trail, met: &mut Met) -> Result<(Vec<Item>, bool)> {
        let inode = volume.vfs().iget(ino).map_err(|e| volume.error_at(&at.path(), e))?;
        if !inode.is_dir() || self.args.directory {
            let item = Item { name: at.path(), ino, is_dir: inode.is_dir(), inode: Some(Ok(inode)) };
            return Ok((vec![item], false));
        }
        met.enter(volume, &inode, at)?;
        let more = self.args.long || self.global.json;
        let mut items = Vec::new();
        for e in volume.list_dir(&inode).map_err(|e| volume.error_at(&at.path(), e))? {
            if !self.args.all && e.name.starts_with(b".") {
                continue;
            }
            let read = more || self.args.recursive && e.file_type.is_none();
            let missing = |x| volume.error_at(&at.below(&e.name).path(), x);
            let inode = read.then(|| volume.vfs().iget(e.ino).map_err(missing));
            let kind = match &inode {
                Some(Ok(i)) => Some(i.file_type),
                _ => e.file_type,
            };
            items.push(Item { name: e.name, ino: e.ino, is_dir: kind == Some(FileType::Directory), inode });
        }
        Ok((items, true))
    }

    fn described(&self, volume: &Volume, path: &[u8], is_dir: bool, item: Item) -> Described {
        let whole = if is_dir { join(path, &item.name) } else { path.to_vec() };
        let inode = item.inode.unwrap_or_else(|| volume.resolve(&whole, false));
        match inode.and_then(|i| Entry::new(volume, &i, &item.name, &whole, false)) {
            Ok(entry) => Described::Whole(Box::new(entry)),
            Err(e) => {
                self.global.fail(&e);
                let name = String::from_utf8_lossy(&item.name).into_owned();
                let name_hex = entry::hex_unless_text(&item.name);
                Described::Broken { name, name_hex, error: e.to_string() }
            }
        }
    }

    fn short(&mut self, items: &[Item]) -> Result<()> {
        for item in items {
            if self.args.zero {
                self.out.bytes(&item.name)?;
                self.out.bytes(b"\0")?;
            } else {
                let name = self.out.name(&item.name).into_owned();
                self.out.pieces(&[&name])?;
            }
        }
        Ok(())
    }

    fn long(&mut self, volume: &Volume, path: &[u8], is_dir: bool, items: Vec<Item>) -> Result<()> {
        let mut rows = Vec::with_capacity(items.len());
        for item in items {
            let whole = if is_dir { join(path, &item.name) } else { path.to_vec() };
            let inode = item.inode.unwrap_or_else(|| volume.resolve(&whole, false));
            rows.push(self.row(volume, &whole, &item.name, self.global.or_fail(inode).as_deref()));
        }
        let width = |i: usize| rows.iter().map(|r| r.columns[i].len()).max().unwrap_or(0);
        let w = [width(0), width(1), width(2), width(3)];
        for Row { mode, columns: c, time, name } in &rows {
            let [w0, w1, w2, w3] = w;
            let before =
                format!("{mode} {:>w0$} {:>w1$} {:>w2$} {:>w3$} {time:>16} ", c[0], c[1], c[2], c[3]);
            self.out.pieces(&[before.as_bytes(), name])?;
        }
        Ok(())
    }

    /// A line of the long form, with question marks where the inode cannot be read.
    fn row(&self, volume: &Volume, whole: &[u8], name: &[u8], inode: Option<&Inode>) -> Row {
        let mut name = self.out.name(name).into_owned();
        let Some(inode) = inode else {
            return Row {
                mode: "??????????".into(),
                columns: ["?"; 4].map(String::from),
                time: "?".into(),
                name,
            };
        };
        let a = inode.attr().clone();
        if a.file_type == FileType::Symlink {
            let target = volume.vfs().readlink(inode).map_err(|e| volume.error_at(whole, e));
            let target = self.global.or_fail(target).unwrap_or_else(|| b"?".to_vec());
            name.extend_from_slice(b" -> ");
            name.extend_from_slice(&self.out.name(&target));
        }
        let columns = [
            a.nlink.to_string(),
            a.uid.to_string(),
            a.gid.to_string(),
            entry::size(&a, self.args.human_readable),
        ];
        Row { mode: entry::letters(&a), columns, time: entry::mtime(&a), name }
    }
}

/// A line of the long form.
struct Row {
    mode: String,
    columns: [String; 4],
    time: String,
    name: Vec<u8>,
}
