//! What a request queue drives.

use crate::{Errno, Request};

/// A block device. Implementations are shared by threads.
pub trait Device: Send + Sync {
    /// A name for messages, such as the image's path.
    fn name(&self) -> &str;

    /// Size in bytes.
    fn size(&self) -> u64;

    /// Whether writes are refused.
    fn read_only(&self) -> bool;

    /// Which backend serves it, for `info`: `io_uring`, `threads`, `memory`.
    fn backend(&self) -> &'static str;

    /// Does `rq` in the calling thread and returns when it is done; the bios are not ended.
    /// PREFLUSH and FUA are honoured.
    ///
    /// # Errors
    /// The device's errno.
    fn execute(&self, rq: &mut Request) -> Result<(), Errno>;

    /// Whether `rq` is done so quickly in the calling thread that another would only cost time.
    fn is_quick(&self, rq: &Request) -> bool {
        let _ = rq;
        false
    }

    /// Starts `rq`; its bios are ended when it is done, possibly in another thread, possibly before
    /// this returns.
    fn submit(&self, mut rq: Request) {
        let r = self.execute(&mut rq);
        rq.complete(r);
    }
}
