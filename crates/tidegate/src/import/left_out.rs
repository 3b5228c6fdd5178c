//! Parts of a tree that are left out, since something of another kind has their place in the volume.
//!
//! The reading thread is ahead and sends these parts all the same. They are skipped here, and the rest goes in.

use super::{DirId, Item, LinkTo, Place};
use std::collections::HashSet;

/// The parts of a source that are left out.
#[derive(Default)]
pub struct LeftOut {
    dirs: HashSet<DirId>,
    /// Files with several names whose first name was left out, by the reader's number.
    links: HashSet<u64>,
    /// Pieces of a file that is left out are being received.
    file: bool,
}

impl LeftOut {
    /// Leaves out a directory and all below it.
    pub fn dir(&mut self, id: DirId) {
        self.dirs.insert(id);
    }

    /// Leaves out another item, with its number. `more` of it follows.
    pub fn leaf(&mut self, link: Option<u64>, more: bool) {
        self.links.extend(link);
        self.file |= more;
    }

    /// Whether `to` leads to a file that was left out.
    pub fn is_target(&self, to: &LinkTo) -> bool {
        matches!(to, LinkTo::Seen(n) if self.links.contains(n))
    }

    /// Whether `item` belongs to a part that is left out.
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
