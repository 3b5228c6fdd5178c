//! Makes a tar.

use super::{Exported, Item, Piece};
use crate::error::{Error, Result};
use crate::node::Meta;
use crate::tar::sparse;
use crate::tar::writer::{Entry, Writer};
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use tidegate_rt::channel::Receiver;
use tidegate_vfs::FileType;

/// Headers and small files are gathered up to this many bytes.
const BUFFER: usize = 256 << 10;

struct Tar {
    to: Writer<BufWriter<Box<dyn Write + Send>>>,
    /// Name of the first item.
    top: Vec<u8>,
    /// Lengths of the paths on the way down.
    stack: Vec<usize>,
    path: Vec<u8>,
    links: HashMap<u64, Vec<u8>>,
    sockets: u64,
    socket: String,
    /// Bytes of content that are still missing in the last entry.
    due: u64,
    /// Its path, if it comes in several steps.
    large: Vec<u8>,
    cut: u64,
    first_cut: String,
}

/// Writes the received items as a tar, which errors call `stream`. `top` is the name of the first item.
///
/// # Errors
/// The stream's.
pub fn write(
    to: Box<dyn Write + Send>,
    stream: &str,
    top: Vec<u8>,
    from: Receiver<Vec<Item>>,
) -> Result<Exported> {
    let mut tar = Tar {
        top,
        to: Writer::new(BufWriter::with_capacity(BUFFER, to)),
        stack: Vec::new(),
        path: Vec::new(),
        links: HashMap::new(),
        sockets: 0,
        socket: String::new(),
        due: 0,
        large: Vec::new(),
        cut: 0,
        first_cut: String::new(),
    };
    let mut run = || -> io::Result<()> {
        while let Some(batch) = from.recv() {
            batch.into_iter().try_for_each(|item| tar.apply(item))?;
        }
        Ok(())
    };
    run().and_then(|()| tar.to.finish().map(drop)).map_err(|e| Error::Os(stream.into(), e))?;
    let mut notes = match tar.sockets {
        0 => Vec::new(),
        1 => vec![format!("a tar cannot hold sockets: {}", tar.socket)],
        n => vec![format!("a tar cannot hold sockets: {n} of them, the first {}", tar.socket)],
    };
    match tar.cut {
        0 => {}
        1 => notes.push(format!("zeros stand for what could not be read of {}", tar.first_cut)),
        n => notes.push(format!(
            "zeros stand for what could not be read of {n} files, the first {}",
            tar.first_cut
        )),
    }
    Ok(Exported { notes })
}

impl Tar {
    fn apply(&mut self, item: Item) -> io::Result<()> {
        match item {
            Item::Dir { name, meta } => {
                let path = self.below(&name);
                self.entry(&path, &meta, b"", false, 0, None)?;
                self.stack.push(path.len());
                self.path = path;
                Ok(())
            }
            Item::Leave => {
                self.stack.pop();
                self.path.truncate(self.stack.last().copied().unwrap_or(0));
                Ok(())
            }
            Item::File { name, meta, size, ranges, pieces, more, link } => {
                let path = self.below(&name);
                self.entry(&path, &meta, b"", false, size, ranges.as_deref().filter(|_| size > 0))?;
                self.due = ranges.as_deref().map_or(size, sparse::bytes);
                if more {
                    self.large.clone_from(&path);
                }
                self.remember(link, path);
                pieces.iter().try_for_each(|p| self.data(p))
            }
            Item::Data(p) => self.data(&p),
            Item::End => Ok(()),
            Item::Abandon => self.fill_up(),
            Item::Special { name, meta, target, link } => {
                let path = self.below(&name);
                if meta.kind == FileType::Socket {
                    self.sockets += 1;
                    if self.sockets == 1 {
                        self.socket = crate::error::show(&path);
                    }
                    return Ok(());
                }
                self.entry(&path, &meta, &target, false, 0, None)?;
                self.remember(link, path);
                Ok(())
            }
            Item::Link { name, to, meta } => {
                let path = self.below(&name);
                match self.links.get(&to).cloned() {
                    Some(first) => self.entry(&path, &meta, &first, true, 0, None),
                    None => Ok(()), // of a socket
                }
            }
        }
    }

    fn data(&mut self, p: &Piece) -> io::Result<()> {
        self.due = self.due.saturating_sub(p.len as u64);
        self.to.data(&p.run.bytes()[..p.len])
    }

    /// Fills the entry up to its size with zeros, as the size is already in its header.
    fn fill_up(&mut self) -> io::Result<()> {
        if self.cut == 0 {
            self.first_cut = crate::error::show(&self.large);
        }
        self.cut += 1;
        let zeros = [0; 64 << 10];
        while self.due > 0 {
            let n = self.due.min(zeros.len() as u64);
            self.to.data(&zeros[..n as usize])?;
            self.due -= n;
        }
        Ok(())
    }

    /// The path of `name` here. The top has an empty name.
    fn below(&self, name: &[u8]) -> Vec<u8> {
        if name.is_empty() { self.top.clone() } else { crate::paths::join(&self.path, name) }
    }

    fn remember(&mut self, link: Option<u64>, path: Vec<u8>) {
        if let Some(n) = link {
            self.links.insert(n, path);
        }
    }

    fn entry(
        &mut self,
        path: &[u8],
        meta: &Meta,
        link: &[u8],
        hard_link: bool,
        size: u64,
        ranges: Option<&[(u64, u64)]>,
    ) -> io::Result<()> {
        self.to.entry(&Entry { path, meta, link, hard_link, size, ranges })
    }
}
