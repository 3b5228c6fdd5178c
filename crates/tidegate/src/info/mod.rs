//! A volume's own structures, for people and for machines.
//!
//! | module | holds |
//! |---|---|
//! | `f2fs`, `ext4` | the words for each format |

mod ext4;
mod f2fs;

use serde_json::Value;
use tidegate_ext4::VolumeInfo as Ext4Info;
use tidegate_f2fs::VolumeInfo as F2fsInfo;

/// The content of a volume's superblock, its last commit and its tables.
pub struct Info(Of);

enum Of {
    F2fs(Box<F2fsInfo>),
    Ext4(Box<Ext4Info>),
}

impl Info {
    pub(crate) fn f2fs(info: F2fsInfo) -> Self {
        Info(Of::F2fs(Box::new(info)))
    }

    pub(crate) fn ext4(info: Ext4Info) -> Self {
        Info(Of::Ext4(Box::new(info)))
    }

    /// The volume's identity.
    pub fn uuid(&self) -> [u8; 16] {
        match &self.0 {
            Of::F2fs(i) => i.uuid,
            Of::Ext4(i) => i.uuid,
        }
    }

    /// Its name.
    pub fn label(&self) -> &str {
        match &self.0 {
            Of::F2fs(i) => &i.label,
            Of::Ext4(i) => &i.label,
        }
    }

    /// Names and first blocks of the areas of the volume. Empty where it is divided into equal groups.
    pub fn areas(&self) -> Vec<(&'static str, u64)> {
        match &self.0 {
            Of::F2fs(i) => i.areas.iter().map(|(name, block)| (*name, u64::from(*block))).collect(),
            Of::Ext4(_) => Vec::new(),
        }
    }

    /// All of it as JSON. `backend` is the I/O backend.
    pub fn json(&self, backend: &str) -> Value {
        match &self.0 {
            Of::F2fs(i) => f2fs::json(i, backend),
            Of::Ext4(i) => ext4::json(i, backend),
        }
    }

    /// All of it as lines of text. `image` and `backend` are the names of the volume and of its I/O backend.
    pub fn lines(&self, image: &str, backend: &str) -> Vec<String> {
        match &self.0 {
            Of::F2fs(i) => f2fs::lines(i, image, backend),
            Of::Ext4(i) => ext4::lines(i, image, backend),
        }
    }
}
