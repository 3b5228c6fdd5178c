//! Problems with the inode that they are about.

use super::Checker;
use crate::format::raw::*;
use crate::format::units::BlockAddr;
use tidegate_vfs::Result;

/// Most names in a path that a report shows.
const MAX_PATH: usize = 64;

impl Checker<'_> {
    /// Whether `nid` is a possible number of a file's node.
    pub(super) fn known_nid(&self, nid: u32) -> bool {
        nid != 0 && nid < self.sb.max_nid && nid != self.sb.node_ino && nid != self.sb.meta_ino
    }

    /// Notes a problem of inode `ino`, with the inode's path if it can be found.
    pub(super) fn at(&mut self, rule: &'static str, ino: u32, text: impl FnOnce() -> String) -> Result<()> {
        let path = if self.found.wanted() { self.path(ino)? } else { None };
        self.found.add(rule, || match path {
            Some(path) => format!("inode {ino} ({path}): {}", text()),
            None => format!("inode {ino}: {}", text()),
        });
        Ok(())
    }

    /// The path of `ino`, from the names that inodes remember.
    fn path(&mut self, ino: u32) -> Result<Option<String>> {
        let mut names = Vec::new();
        let mut at = ino;
        while at != self.sb.root_ino {
            let addr = self.nat.entry(at).block_addr.get();
            if names.len() > MAX_PATH || !self.sb.in_main(BlockAddr(addr)) {
                return Ok(None);
            }
            let block = self.dev.block(addr)?;
            let Ok((raw, _)) = <RawInode as zerocopy::FromBytes>::read_from_prefix(&block[..]) else {
                return Ok(None);
            };
            let Some(name) = raw.i_name.get(..raw.i_namelen.get() as usize).filter(|n| !n.is_empty()) else {
                return Ok(None);
            };
            names.push(String::from_utf8_lossy(name).escape_debug().to_string());
            at = raw.i_pino.get();
        }
        names.reverse();
        Ok(Some(format!("/{}", names.join("/"))))
    }
}
