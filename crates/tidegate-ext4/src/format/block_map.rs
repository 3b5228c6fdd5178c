//! The geometry of the block map of ext2 and ext3. Its first numbers lie in the inode; three more numbers there lead to
//! blocks full of numbers, through one, two and three levels of them.
//!
//! ```text
//! block of the file:  0 .. 12 | 12 .. 12+n | .. +n*n   | .. +n*n*n     n numbers in a block
//! levels to it:         none  |     1      |     2     |     3
//! ```

/// Block numbers in the inode that lead directly to data.
pub const DIRECT: u64 = 12;
/// The most levels of blocks of numbers.
pub const LEVELS: u32 = 3;

/// The level that leads to block `at` of a file, which is no direct one, and the block's offset in that level's span.
/// `None` for a block that no number leads to.
pub fn level_of(at: u64, per_block: u64) -> Option<(u32, u64)> {
    let mut rest = at - DIRECT;
    for level in 1..=LEVELS {
        let span = per_block.pow(level);
        if rest < span {
            return Some((level, rest));
        }
        rest -= span;
    }
    None
}

/// For each distance from the data, from 1: the first block of a file that has a block of numbers at that distance, and
/// how many blocks each such block leads to.
pub fn spans(per_block: u64) -> [(u64, u64); 3] {
    let (n, nn) = (per_block, per_block * per_block);
    [(DIRECT, n), (DIRECT + n, nn), (DIRECT + n + nn, nn * n)]
}
