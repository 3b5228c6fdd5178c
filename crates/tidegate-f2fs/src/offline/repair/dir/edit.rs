//! Changes of single entries.

use super::*;

impl Repair<'_, '_> {
    pub(super) fn edit(&mut self, d: &Dir, block: usize, f: impl FnOnce(Layout, &mut [u8])) -> Result<()> {
        let place = d.blocks[block];
        let mut b = self.disk.block(place.addr)?;
        f(d.layout, &mut b[..]);
        self.disk.put(place.addr, place.place, b);
        Ok(())
    }

    pub(super) fn entry_change(&mut self, d: &Dir, name: &[u8], from: String, to: &str) {
        self.change("dentry", format!("inode {} {}", d.ino, shown(name)), from, to.into());
    }
}
