//! The common part of devices in memory: requests on bytes that are kept in units of one size.

use crate::bio::Op;
use crate::{Errno, Request};
use std::ops::Range;

/// Bytes of a device, in memory.
pub(crate) trait Bytes {
    /// The number of bytes.
    fn size(&self) -> u64;
    /// Copies `to.len()` bytes at `pos` out.
    fn read_at(&self, pos: u64, to: &mut [u8]);
    /// Copies `from` in at `pos`.
    fn write_at(&self, pos: u64, from: &[u8]);
    /// Zeroes `len` bytes at `pos`.
    fn zero(&self, pos: u64, len: u64);
}

/// Executes a request. Fails with `IO` when part of it is not on the device.
pub(crate) fn execute(of: &impl Bytes, rq: &mut Request) -> Result<(), Errno> {
    let mut at = rq.sector.bytes();
    if at.checked_add(rq.bytes).is_none_or(|end| end > of.size()) {
        return Err(Errno::IO);
    }
    match rq.op {
        Op::Read => rq.for_each_target(|t| {
            of.read_at(at, t);
            at += t.len() as u64;
        }),
        Op::Write => rq.for_each_source(|s| {
            of.write_at(at, s);
            at += s.len() as u64;
        }),
        Op::Discard | Op::WriteZeroes => of.zero(at, rq.bytes),
        Op::Flush => {}
        Op::ZoneReset | Op::ZoneFinish => return Err(Errno::OPNOTSUPP),
    }
    Ok(())
}

/// Splits `len` bytes at `pos` where units of `unit` bytes end. For each part: the unit, the first byte in
/// it, and the range in the caller's memory.
pub(crate) fn pieces(pos: u64, len: u64, unit: usize) -> impl Iterator<Item = (u64, usize, Range<usize>)> {
    let unit = unit as u64;
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = pos + done;
        let n = (unit - at % unit).min(len - done);
        (n > 0).then(|| {
            done += n;
            (at / unit, (at % unit) as usize, (done - n) as usize..done as usize)
        })
    })
}
