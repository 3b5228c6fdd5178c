//! The channel from the reading thread to the applying thread: batches, bounded by bytes.

use super::Item;
use tidegate_rt::channel::{Receiver, Sender, bounded};

/// The most bytes in the channel before the reader waits.
const BOUND: usize = 24 << 20;
/// A batch is sent when it has this many bytes or items.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_ITEMS: usize = 128;
/// The weight of an item beside its content.
const ITEM_BYTES: usize = 512;

/// The applying thread's end.
pub type BatchReceiver = Receiver<Vec<Item>>;

/// The reading thread's end.
pub struct BatchSender {
    to: Sender<Vec<Item>>,
    batch: Vec<Item>,
    bytes: usize,
}

/// The receiver is gone: the import failed in the applying thread, which has the error.
#[derive(Debug)]
pub struct Gone;

/// A channel of batches.
pub fn channel() -> (BatchSender, BatchReceiver) {
    let (to, from) = bounded(BOUND);
    (BatchSender { to, batch: Vec::with_capacity(BATCH_ITEMS), bytes: 0 }, from)
}

impl BatchSender {
    /// Adds an item; sends the batch when it is full.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn push(&mut self, item: Item) -> Result<(), Gone> {
        self.bytes += ITEM_BYTES
            + match &item {
                Item::File { piece: Some(p), .. } | Item::Data(p) => p.buf.len(),
                _ => 0,
            };
        self.batch.push(item);
        if self.bytes >= BATCH_BYTES || self.batch.len() >= BATCH_ITEMS { self.send() } else { Ok(()) }
    }

    /// Sends what is gathered.
    ///
    /// # Errors
    /// [`Gone`].
    pub fn send(&mut self) -> Result<(), Gone> {
        let batch = std::mem::replace(&mut self.batch, Vec::with_capacity(BATCH_ITEMS));
        let bytes = std::mem::take(&mut self.bytes);
        if batch.is_empty() { Ok(()) } else { self.to.send(batch, bytes).map_err(|_| Gone) }
    }
}
