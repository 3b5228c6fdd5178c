//! Parts of a tree that do not go in, since something of another kind has their place in the volume.
//!
//! The reading thread is ahead and sends them all the same. They are passed over here, so that the rest goes on.

use super::{DirId, Item, LinkTo, Place};
use std::collections::HashSet;

/// The parts of a source that do not go in.
#[derive(Default)]
pub struct LeftOut {
    dirs: HashSet<DirId>,
    /// Files with several names whose first one did not go in, by the reader's number.
    links: HashSet<u64>,
    /// Pieces of a file that does not go in are coming.
    file: bool,
}

impl LeftOut {
    /// A directory, and all that comes below it.
    pub fn dir(&mut self, id: DirId) {
        self.dirs.insert(id);
    }

    /// Something else, with its number; `more` of it comes.
    pub fn leaf(&mut self, link: Option<u64>, more: bool) {
        self.links.extend(link);
        self.file |= more;
    }

    /// Whether `to` leads to something that did not go in.
    pub fn is_target(&self, to: &LinkTo) -> bool {
        matches!(to, LinkTo::Seen(n) if self.links.contains(n))
    }

    /// Whether `item` belongs to these parts.
    pub fn takes(&mut self, item: &Item) -> bool {
        let below =
            |dirs: &HashSet<DirId>, place: &Place| matches!(place, Place::In(id, _) if dirs.contains(id));
        match item {
            Item::Dir { place, id, .. } if below(&self.dirs, place) => self.dir(*id),
            Item::Leave(id) => return self.dirs.remove(id),
            Item::File { place, link, more, .. } if below(&self.dirs, place) => self.leaf(*link, *more),
            Item::Special { place, link, .. } if below(&self.dirs, place) => self.leaf(*link, false),
            Item::Link { place, .. } => return below(&self.dirs, place),
            Item::Data(_) => return self.file,
            Item::End(_) | Item::Broken => return std::mem::take(&mut self.file),
            _ => return false,
        }
        true
    }
}
