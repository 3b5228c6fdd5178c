//! The device below a request queue.

use crate::{Errno, Request, Zone, Zoning};

/// Name, size and kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceInfo<'a> {
    /// A name for messages, such as the image's path.
    pub name: &'a str,
    /// Size in bytes.
    pub size: u64,
    /// Whether writes are refused.
    pub read_only: bool,
    /// The backend that serves the device, for `info`: `io_uring`, `threads`, `memory`.
    pub backend: &'static str,
    /// The properties of a zoned device that are the same for all its zones.
    pub zones: Option<Zoning>,
}

/// A block device. Implementations are shared by threads.
pub trait Device: Send + Sync {
    /// Name, size and kind of the device. A wrapper returns those of the device below it.
    fn info(&self) -> DeviceInfo<'_>;

    /// A name for messages, such as the image's path.
    fn name(&self) -> &str {
        self.info().name
    }

    /// Size in bytes.
    fn size(&self) -> u64 {
        self.info().size
    }

    /// Whether writes are refused.
    fn read_only(&self) -> bool {
        self.info().read_only
    }

    /// The backend that serves the device.
    fn backend(&self) -> &'static str {
        self.info().backend
    }

    /// All zones, by address, conventional zones included. Empty for a device that has no zones.
    ///
    /// # Errors
    /// The device's errno.
    fn report_zones(&self) -> Result<Vec<Zone>, Errno> {
        Ok(Vec::new())
    }

    /// The zone that holds byte `pos`. `None` for a device that has no zones, and past the end of the device.
    ///
    /// # Errors
    /// The device's errno.
    fn report_zone(&self, pos: u64) -> Result<Option<Zone>, Errno> {
        let all = self.report_zones()?;
        Ok(all.into_iter().find(|z| (z.start..z.start + z.len).contains(&pos)))
    }

    /// Executes `rq` in the calling thread and returns when it is done. The bios are not ended. PREFLUSH and
    /// FUA are honoured.
    ///
    /// # Errors
    /// The device's errno.
    fn execute(&self, rq: &mut Request) -> Result<(), Errno>;

    /// Whether `rq` is done so quickly in the calling thread that a switch to another thread would only cost
    /// time.
    fn is_quick(&self, rq: &Request) -> bool {
        let _ = rq;
        false
    }

    /// Starts `rq`. Its bios are ended when it is done, possibly in another thread, possibly before this
    /// function returns.
    fn submit(&self, mut rq: Request) {
        let r = self.execute(&mut rq);
        rq.complete(r);
    }

    /// Starts several requests, in this order.
    fn submit_all(&self, requests: Vec<Request>) {
        requests.into_iter().for_each(|rq| self.submit(rq));
    }
}
