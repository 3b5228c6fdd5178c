//! The list of extents in a leaf of an extent tree while it changes: extents are joined with their neighbours
//! and cut.

use crate::format::raw::INIT_MAX_LEN;
use crate::format::units::BlockAddr;
use std::ops::Range;

/// Blocks of a file that lie in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First block of the file.
    pub block: u64,
    /// Blocks.
    pub len: u64,
    /// First block on the volume.
    pub start: BlockAddr,
    /// The blocks were never written, and read as zeros.
    pub unwritten: bool,
}

impl Piece {
    pub(super) fn end(&self) -> u64 {
        self.block + self.len
    }

    /// The part of the piece in a range.
    pub(super) fn part(&self, range: &Range<u64>) -> Option<Piece> {
        let (from, to) = (self.block.max(range.start), self.end().min(range.end));
        (from < to).then(|| Piece {
            block: from,
            len: to - from,
            start: self.start.plus(from - self.block),
            ..*self
        })
    }

    /// The most blocks of one extent.
    fn most(&self) -> u64 {
        if self.unwritten { u64::from(INIT_MAX_LEN) - 1 } else { INIT_MAX_LEN.into() }
    }

    fn goes_on(&self, next: &Piece) -> bool {
        self.end() == next.block
            && self.start.plus(self.len) == next.start
            && self.unwritten == next.unwritten
            && self.len + next.len <= self.most()
    }
}

/// Adds a piece to a leaf's list, in extents as long as possible, and joined with a neighbour that it
/// continues; returns its position. `None` when the file has a block there already.
pub(super) fn add_to_leaf(v: &mut Vec<Piece>, piece: Piece) -> Option<usize> {
    let mut at = v.partition_point(|p| p.block < piece.block);
    let clear = |n: Option<&Piece>| n.is_none_or(|p| p.end() <= piece.block || p.block >= piece.end());
    if !clear(at.checked_sub(1).and_then(|n| v.get(n))) || !clear(v.get(at)) {
        return None;
    }
    let mut rest = piece;
    while rest.len > 0 {
        let len = rest.len.min(rest.most());
        at = join(v, at, Piece { len, ..rest }) + 1;
        rest = Piece { block: rest.block + len, len: rest.len - len, start: rest.start.plus(len), ..rest };
    }
    Some(at - 1)
}

/// Puts a piece into a list at a position, joined with neighbours that it continues; returns its position.
fn join(v: &mut Vec<Piece>, at: usize, piece: Piece) -> usize {
    if at > 0 && v[at - 1].goes_on(&piece) {
        v[at - 1].len += piece.len;
        if v.get(at).is_some_and(|next| v[at - 1].goes_on(next)) {
            v[at - 1].len += v.remove(at).len;
        }
        return at - 1;
    }
    if v.get(at).is_some_and(|next| piece.goes_on(next)) {
        v[at] = Piece { len: piece.len + v[at].len, ..piece };
    } else {
        v.insert(at, piece);
    }
    at
}

/// The extent of a leaf that holds a range.
fn holder(v: &[Piece], range: &Range<u64>) -> Option<usize> {
    let at = v.partition_point(|p| p.block <= range.start).checked_sub(1)?;
    (range.start < range.end && v[at].end() >= range.end).then_some(at)
}

/// Takes a range out of the middle of an extent.
pub(super) fn cut_in_two(v: &mut Vec<Piece>, range: &Range<u64>) -> Option<usize> {
    let at = holder(v, range)?;
    let whole = v[at];
    v[at] = whole.part(&(0..range.start))?;
    v.insert(at + 1, whole.part(&(range.end..u64::MAX))?);
    Some(at + 1)
}

/// Splits the extent that crosses the start of a block; returns the position of its second part.
pub(super) fn split_at(v: &mut Vec<Piece>, block: u64) -> Option<usize> {
    let at = v.iter().position(|p| p.block < block && p.end() > block)?;
    let whole = v[at];
    v[at] = whole.part(&(0..block))?;
    v.insert(at + 1, whole.part(&(block..u64::MAX))?);
    Some(at + 1)
}

/// Moves the extents that begin in a range within the file; they stay in order. Returns the range that they
/// had before.
pub(super) fn move_pieces(
    v: &mut Vec<Piece>,
    pick: &Range<u64>,
    to: &dyn Fn(u64) -> u64,
) -> Option<Range<u64>> {
    let mut picked = v.iter().filter(|p| pick.contains(&p.block));
    let first = *picked.next()?;
    let moved = first.block..picked.next_back().unwrap_or(&first).end();
    for p in std::mem::take(v) {
        let block = if pick.contains(&p.block) { to(p.block) } else { p.block };
        let at = v.len();
        join(v, at, Piece { block, ..p });
    }
    Some(moved)
}

/// Marks a range in one extent as `unwritten` or written, which it was not; returns its position. An extent of
/// unwritten blocks must hold the range.
pub(super) fn mark_in_leaf(v: &mut Vec<Piece>, range: &Range<u64>, unwritten: bool) -> Option<usize> {
    let at = holder(v, range).filter(|n| v[*n].unwritten != unwritten)?;
    let whole = v.remove(at);
    let head = whole.part(&(0..range.start));
    if let Some(tail) = whole.part(&(range.end..u64::MAX)) {
        v.insert(at, tail);
    }
    let marked = Piece { unwritten, ..whole.part(range)? };
    let at = at + head.into_iter().map(|head| v.insert(at, head)).count();
    Some(join(v, at, marked))
}

/// Cuts a range out of a leaf's list; no extent may cross both ends of the range.
pub(super) fn cut_leaf(v: &mut Vec<Piece>, range: &Range<u64>, gone: &mut Vec<Piece>) {
    let mut left = Vec::with_capacity(v.len());
    for p in v.drain(..) {
        gone.extend(p.part(range));
        let (head, tail) = (p.part(&(0..range.start)), p.part(&(range.end..u64::MAX)));
        match (head, tail) {
            (Some(_), Some(_)) => left.push(p),
            (head, tail) => left.extend(head.or(tail)),
        }
    }
    *v = left;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Random changes of a list are compared with the same changes of single blocks.
    #[test]
    fn lists_agree_with_blocks() {
        let (mut list, mut blocks) = (Vec::new(), BTreeMap::<u64, (u64, bool)>::new());
        let mut n = 1_u64;
        let (mut cut, mut marked) = (0, 0);
        for _ in 0..20_000 {
            n = n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (start, len, unwritten) = (n >> 33 & 63, 1 + (n >> 40 & 7), n >> 50 & 1 == 0);
            let range = start..start + len;
            let addr = |b: u64| 1000 + b + 100 * (b / 16);
            match n >> 60 & 3 {
                0 | 1 if addr(start + len - 1) - addr(start) == len - 1 => {
                    let piece = Piece { block: start, len, start: BlockAddr(addr(start)), unwritten };
                    let free = range.clone().all(|b| !blocks.contains_key(&b));
                    assert_eq!(add_to_leaf(&mut list, piece).is_some(), free);
                    if free {
                        blocks.extend(range.map(|b| (b, (addr(b), unwritten))));
                    }
                }
                2 => {
                    let all = list.iter().any(|p: &Piece| {
                        p.unwritten != unwritten && p.block <= range.start && p.end() >= range.end
                    });
                    assert_eq!(mark_in_leaf(&mut list, &range, unwritten).is_some(), all);
                    if all {
                        marked += 1;
                        range.for_each(|b| blocks.get_mut(&b).unwrap().1 = unwritten);
                    }
                }
                _ => {
                    if list.iter().any(|p| p.block < range.start && p.end() > range.end) {
                        cut += 1;
                        assert!(cut_in_two(&mut list, &range).is_some());
                    } else {
                        cut_leaf(&mut list, &range, &mut Vec::new());
                    }
                    blocks.retain(|b, _| !range.contains(b));
                }
            }
            let told: BTreeMap<u64, (u64, bool)> = list
                .iter()
                .flat_map(|p| (0..p.len).map(|i| (p.block + i, (p.start.0 + i, p.unwritten))))
                .collect();
            assert_eq!(told, blocks);
            assert!(list.windows(2).all(|w| w[0].end() <= w[1].block && !w[0].goes_on(&w[1])), "{list:?}");
        }
        assert!(cut > 100 && marked > 100, "{cut} {marked}");
    }
}
