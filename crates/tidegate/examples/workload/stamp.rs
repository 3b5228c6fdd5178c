//! Pages that bear their own numbers, so that reading them back shows misplaced pages.

use crate::target::Result;

pub const PAGE: usize = 4096;

/// Marks a page with two numbers.
pub fn stamp(page: &mut [u8], a: u64, b: u64) {
    page[..8].copy_from_slice(&a.to_le_bytes());
    page[8..16].copy_from_slice(&b.to_le_bytes());
    page[PAGE - 8..].copy_from_slice(&(a ^ b.rotate_left(32)).to_le_bytes());
}

/// Fails when [`stamp`] did not mark the page with these numbers.
pub fn check(page: &[u8], a: u64, b: u64, what: &str) -> Result<()> {
    let mut want = [0; PAGE];
    stamp(&mut want, a, b);
    if page[..16] == want[..16] && page[PAGE - 8..] == want[PAGE - 8..] {
        return Ok(());
    }
    Err(format!("{what}: not what was written there; {:02x?} for {:02x?}", &page[..16], &want[..16]).into())
}
