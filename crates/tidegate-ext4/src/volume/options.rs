//! How to open a volume.

use tidegate_vfs::{Error, ErrorKind, Result};

/// How to open a volume.
#[derive(Clone, Debug, Default)]
pub struct Ext4Options {
    /// Change nothing.
    pub read_only: bool,
    /// Look at the volume as it is, without what its journal holds (`norecovery`, `noload`); for reading alone.
    pub norecovery: bool,
    /// Change the volume. For tests of what writes: not offered before a power cut at any moment has been shown to lose
    /// nothing that was promised.
    pub write: bool,
}

impl Ext4Options {
    /// Applies an option, spelled as for mount(8); false if there is none of this name.
    ///
    /// # Errors
    /// `InvalidArgument` when it has a value and takes none.
    pub fn set(&mut self, option: &str) -> Result<bool> {
        let (name, value) = option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
        match name {
            "ro" => self.read_only = true,
            "norecovery" | "noload" => self.norecovery = true,
            _ => return Ok(false),
        }
        if value.is_some() {
            let what = format!("option \"{option}\": {name} takes no value");
            return Err(Error::new(ErrorKind::InvalidArgument, what));
        }
        Ok(true)
    }
}
