//! An image, opened by the library.

use crate::target::{Counts, OpenFile, Result, Target};
use std::path::Path;
use tidegate::vfs::{Cred, File, OpenFlags};
use tidegate::{OpenOptions, Volume};

pub struct Image(Volume);

impl Image {
    pub fn open(path: &Path, options: &str, cache: Option<u64>) -> Result<Self> {
        let mut open = OpenOptions::default();
        if let Some(cache) = cache {
            open.memory = open.memory.with_cache(cache);
        }
        open.parse(options)?;
        let volume = Volume::open(path, &open)?;
        volume.check_writable()?;
        Ok(Image(volume))
    }
}

impl Target for Image {
    fn mkdir(&self, path: &str) -> Result<()> {
        let vfs = self.0.vfs();
        let parent = vfs.resolve_parent(&Cred::ROOT, path.as_bytes())?;
        vfs.mkdir(&Cred::ROOT, &parent.dir, parent.name, 0o755)?;
        Ok(())
    }

    fn open(&self, path: &str, create: bool) -> Result<Box<dyn OpenFile>> {
        let mut flags = OpenFlags::READ | OpenFlags::WRITE;
        flags.set(OpenFlags::CREATE | OpenFlags::EXCL, create);
        Ok(Box::new(self.0.vfs().open_path(&Cred::ROOT, path.as_bytes(), flags, 0o644)?))
    }

    fn unlink(&self, path: &str) -> Result<()> {
        let vfs = self.0.vfs();
        let parent = vfs.resolve_parent(&Cred::ROOT, path.as_bytes())?;
        Ok(vfs.unlink(&Cred::ROOT, &parent.dir, parent.name)?)
    }

    fn sync(&self) -> Result<()> {
        Ok(self.0.sync()?)
    }

    fn available(&self) -> Result<u64> {
        let st = self.0.vfs().statfs();
        Ok(st.blocks_available * u64::from(st.block_size))
    }

    fn counts(&self) -> Counts {
        let (q, s) = (self.0.queue().stats(), self.0.stats());
        Counts::from([
            ("flushes", q.flushes),
            ("writes", q.write_bios),
            ("written_bytes", q.write_bytes),
            ("discards", q.discards),
            ("reads", q.read_bios),
            ("commits", s.commits),
            ("fsync_commits", s.fsync_commits),
            ("data_bios", s.data.bios),
            ("data_blocks", s.data.blocks),
            ("metadata_blocks", s.metadata.blocks),
            ("log_blocks", s.log.blocks),
            ("user_data_blocks", s.user_data_blocks),
            ("data_fragments", s.data_fragments),
            ("split_bios", s.split_bios),
            ("in_place_blocks", s.own("in_place_blocks")),
            ("ssr_segments", s.own("ssr_segments")),
            ("gc_segments", s.own("gc_segments")),
            ("gc_data_blocks", s.own("gc_data_blocks")),
        ])
    }

    fn fragments(&self, path: &str) -> Result<Option<u64>> {
        let inode = self.0.vfs().resolve(&Cred::ROOT, path.as_bytes(), true)?;
        Ok(Some(self.0.ops().fragments(&inode)?))
    }

    fn close(&self) -> Result<()> {
        Ok(self.0.vfs().unmount()?)
    }
}

impl OpenFile for File {
    fn size(&self) -> Result<u64> {
        Ok(File::size(self))
    }

    fn write_at(&self, pos: u64, data: &[u8]) -> Result<()> {
        File::write_at(self, pos, data)?;
        Ok(())
    }

    fn read_at(&self, pos: u64, to: &mut [u8]) -> Result<()> {
        let n = File::read_at(self, pos, to)?;
        if n < to.len() { Err(format!("{n} of {} bytes at {pos}", to.len()).into()) } else { Ok(()) }
    }

    fn fsync(&self) -> Result<()> {
        Ok(File::fsync(self, false)?)
    }
}
