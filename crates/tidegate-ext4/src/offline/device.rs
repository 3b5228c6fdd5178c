//! Reads of the volume's blocks as its journal would leave them, through a small cache that reads ahead.

use crate::volume::overlay::Overlay;
use std::collections::VecDeque;
use std::rc::Rc;
use tidegate_block::{BioFlags, PAGE_SIZE, PageBuf, RequestQueue, Sector};
use tidegate_rt::hash::HashMap;
use tidegate_vfs::{Error, Result};

/// Pages read at once when a block in one of them is wanted.
const WINDOW: u64 = 16;
/// Windows kept: 8 MiB.
const WINDOWS: usize = 128;

/// The device, and the journal's blocks for it.
pub(in crate::offline) struct Reader<'q> {
    queue: &'q RequestQueue,
    block_size: u64,
    windows: HashMap<u64, Rc<PageBuf>>,
    /// The windows in the order in which they were read.
    order: VecDeque<u64>,
    overlay: Option<Overlay>,
}

impl<'q> Reader<'q> {
    pub(in crate::offline) fn new(queue: &'q RequestQueue, block_size: u32) -> Self {
        let (windows, order) = (HashMap::default(), VecDeque::new());
        Reader { queue, block_size: block_size.into(), windows, order, overlay: None }
    }

    /// From now on, reads blocks of the journal in place of the volume's.
    pub(in crate::offline) fn lay_over(&mut self, overlay: Overlay) {
        self.overlay = Some(overlay);
    }

    /// Removes the overlay and returns it.
    pub(in crate::offline) fn lift(&mut self) -> Option<Overlay> {
        self.overlay.take()
    }

    /// The bytes of `block`.
    pub(in crate::offline) fn block(&mut self, block: u64) -> Result<Vec<u8>> {
        let size = self.block_size as usize;
        let mut bytes = vec![0; size];
        if let Some(overlay) = &self.overlay
            && overlay.read(block, &mut bytes)?
        {
            return Ok(bytes);
        }
        let past = || Error::corrupt("behind the end of the image").at_block(block);
        let at = block.checked_mul(self.block_size).ok_or_else(past)?;
        let span = WINDOW * PAGE_SIZE as u64;
        let window = match self.window(at / span) {
            Ok(window) => window,
            // Only one sector of the window may be bad.
            Err(e) => return self.alone(at, size).ok_or_else(|| e.at_block(block)),
        };
        let skip = (at % span) as usize;
        bytes.copy_from_slice(window.get(skip..skip + size).ok_or_else(past)?);
        Ok(bytes)
    }

    /// `size` bytes from byte `at` on, in a read of their own.
    fn alone(&self, at: u64, size: usize) -> Option<Vec<u8>> {
        const PAGE: u64 = PAGE_SIZE as u64;
        if (at / PAGE + 1) * PAGE > self.queue.device().size() {
            return None;
        }
        let page = self.queue.read_wait(Sector::from_bytes(at / PAGE * PAGE), 1, BioFlags::META).ok()?;
        Some(page[(at % PAGE) as usize..][..size].to_vec())
    }

    fn window(&mut self, number: u64) -> Result<Rc<PageBuf>> {
        if let Some(found) = self.windows.get(&number) {
            return Ok(found.clone());
        }
        let read = Rc::new(self.read(number * WINDOW)?);
        if self.order.len() >= WINDOWS
            && let Some(old) = self.order.pop_front()
        {
            self.windows.remove(&old);
        }
        self.order.push_back(number);
        self.windows.insert(number, read.clone());
        Ok(read)
    }

    /// Reads pages from number `first` on. The device may end inside its last page.
    fn read(&self, first: u64) -> Result<PageBuf> {
        const PAGE: u64 = PAGE_SIZE as u64;
        let end = self.queue.device().size() / 512 * 512;
        let of = |e| Error::device(e, format!("reading at byte {}", first * PAGE));
        let pages = (end / PAGE).saturating_sub(first).min(WINDOW);
        let mut bytes = Vec::new();
        if pages > 0 {
            let sector = Sector::from_bytes(first * PAGE);
            let head = self.queue.read_wait(sector, pages as usize, BioFlags::META).map_err(of)?;
            if pages == WINDOW || end.is_multiple_of(PAGE) {
                return Ok(head);
            }
            bytes.extend_from_slice(&head);
        }
        if end >= PAGE && !end.is_multiple_of(PAGE) {
            let last = self.queue.read_wait(Sector::from_bytes(end - PAGE), 1, BioFlags::META).map_err(of)?;
            bytes.extend_from_slice(&last[(PAGE - end % PAGE) as usize..]);
        }
        Ok(PageBuf::from_slice(&bytes))
    }
}
