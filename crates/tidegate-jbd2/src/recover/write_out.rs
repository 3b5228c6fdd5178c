//! Writes the log's blocks to their places, in the order that keeps the volume recoverable at every moment.

use super::Replay;
use crate::io::{Pending, write_bio};
use crate::units::{FsBlock, LogBlock};
use tidegate_block::{BioFlags, Plug, RequestQueue};
use tidegate_vfs::{Error, ErrorKind, Result};
use zerocopy::IntoBytes;

/// Most bytes of neighbouring blocks in one bio.
const BIO_BYTES: usize = 256 << 10;

impl Replay {
    /// Writes the log's blocks to the volume, durably, and then marks the log as clean. The caller clears the
    /// volume's own mark that it needs recovery after this. Does nothing for a clean log.
    ///
    /// # Errors
    /// The device's; the log can be recovered again. `Unsupported` when fast commits follow: the caller makes
    /// their changes, gives them to [`Replay::settle`], and recovers the log anew.
    pub fn write_out(&self, volume: &RequestQueue) -> Result<()> {
        if self.has_fast_commits() {
            let what = "the journal holds fast commits (feature fast_commit), which are not replayed here";
            return Err(Error::new(ErrorKind::Unsupported, what));
        }
        if self.is_clean() {
            return Ok(());
        }
        self.write_blocks(volume)?;
        self.mark_clean()
    }

    /// Writes the log's blocks to the volume and makes them durable.
    ///
    /// # Errors
    /// The device's; the log can be recovered again.
    pub fn write_blocks(&self, volume: &RequestQueue) -> Result<()> {
        let size = self.log.block_size() as usize;
        let device = |e| Error::device(e, "replaying the journal");
        let pending = Pending::new();
        {
            let mut plug = Plug::new(volume);
            let mut run: (FsBlock, Vec<u8>) = Default::default();
            let mut send = |(first, bytes): (FsBlock, Vec<u8>)| {
                if !bytes.is_empty() {
                    let flags = BioFlags::META | BioFlags::SYNC;
                    plug.add(pending.watch(write_bio(first.0 * size as u64, &bytes, flags)));
                }
            };
            let mut block = vec![0; size];
            for at in self.blocks() {
                self.read(at, &mut block)?;
                let follows = run.0.0 + (run.1.len() / size) as u64 == at.0;
                if !follows || run.1.len() + size > BIO_BYTES {
                    send(std::mem::replace(&mut run, (at, Vec::new())));
                }
                run.1.extend_from_slice(&block);
            }
            send(run);
        }
        pending.wait().map_err(device)?;
        volume.flush().map_err(device)
    }

    /// Marks the log as clean, durably. Its content must be on the volume, durably. Does nothing for a clean
    /// log.
    ///
    /// # Errors
    /// The device's.
    pub fn mark_clean(&self) -> Result<()> {
        if self.is_clean() {
            return Ok(());
        }
        let mut block = self.log.read_block(LogBlock(0))?;
        let raw = self.sb.bytes(self.next_tid(), None);
        block[..raw.as_bytes().len()].copy_from_slice(raw.as_bytes());
        self.log.write(LogBlock(0), &block, BioFlags::PREFLUSH | BioFlags::FUA)
    }
}
