//! The content of a file that may be terabytes long and almost empty.

use std::collections::BTreeMap;

const PAGE: u64 = 4096;

/// Pages that were written; everything else is zero.
#[derive(Clone, Debug, Default)]
pub struct Sparse {
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// Splits `len` bytes at `pos` at page boundaries: page, offset in the page, range of the caller's bytes.
fn pieces(pos: u64, len: usize) -> impl Iterator<Item = (u64, usize, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = pos + done as u64;
        let off = (at % PAGE) as usize;
        let n = (PAGE as usize - off).min(len - done);
        (n > 0).then(|| {
            done += n;
            (at / PAGE, off, done - n..done)
        })
    })
}

impl Sparse {
    pub fn write(&mut self, pos: u64, data: &[u8]) {
        for (page, off, part) in pieces(pos, data.len()) {
            let p = self.pages.entry(page).or_insert_with(|| vec![0; PAGE as usize].into());
            p[off..off + part.len()].copy_from_slice(&data[part]);
        }
    }

    pub fn read(&self, pos: u64, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        for (page, off, part) in pieces(pos, len) {
            if let Some(p) = self.pages.get(&page) {
                let n = part.len();
                out[part].copy_from_slice(&p[off..off + n]);
            }
        }
        out
    }

    /// Zeroes `from..to`.
    pub fn zero(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        let (first, last) = (from / PAGE, (to - 1) / PAGE);
        for (&page, p) in self.pages.range_mut(first..=last) {
            let a = from.saturating_sub(page * PAGE).min(PAGE) as usize;
            let b = to.saturating_sub(page * PAGE).min(PAGE) as usize;
            p[a..b].fill(0);
        }
        self.pages.retain(|_, p| p.iter().any(|&b| b != 0));
    }

    /// The first byte at or after `pos` that is not zero.
    pub fn next_nonzero(&self, pos: u64) -> Option<u64> {
        self.pages.range(pos / PAGE..).find_map(|(&page, p)| {
            let from = pos.saturating_sub(page * PAGE).min(PAGE) as usize;
            p[from..].iter().position(|&b| b != 0).map(|i| page * PAGE + (from + i) as u64)
        })
    }

    /// Whether `from..to` is all zeros.
    pub fn is_zero(&self, from: u64, to: u64) -> bool {
        self.next_nonzero(from).is_none_or(|at| at >= to)
    }
}
