//! A few bios of a run, in the order of submission: around a split bio, if there is one.

use serde::{Deserialize, Serialize};
use tidegate::observe::Observed;
use tidegate::observe::bios::{self, DATA, SentBio};

/// Number of bios shown, and the most if the other part of a split bio comes late.
const LINES: usize = 6;
const MOST: usize = 14;
/// Number of bios shown before the split one.
const BEFORE: usize = 1;

/// A few bios of a run, around a split one if there is one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excerpt {
    /// The bios, in order of time.
    pub lines: Vec<SentBio>,
    /// Bios of file data in the whole recording.
    pub bios: u64,
    /// Split bios among them.
    pub split: u64,
    /// Events that the recording lost: then some bios are not counted.
    pub dropped: u64,
}

impl Excerpt {
    /// The excerpt of a recording with events; none if no bio was sent.
    pub(super) fn of(observed: &Observed) -> Option<Excerpt> {
        let sent = bios::sent(observed);
        let data = sent.iter().filter(|b| b.what == DATA);
        let (bios, split) = (data.clone().count() as u64, data.filter(|b| b.split).count() as u64);
        // The excerpt is from the middle if no bio was split.
        let at = nearest_split(&sent).unwrap_or(sent.len() / 2);
        let from = at.saturating_sub(BEFORE).min(sent.len().saturating_sub(LINES));
        let other = other_part(&sent, at).map_or(0, |n| at - from + n + 1);
        let lines: Vec<SentBio> = sent.into_iter().skip(from).take(other.clamp(LINES, MOST)).collect();
        let dropped = observed.recorded.dropped;
        (!lines.is_empty()).then_some(Excerpt { lines, bios, split, dropped })
    }
}

/// The split bio whose other part was sent soonest after it.
fn nearest_split(sent: &[SentBio]) -> Option<usize> {
    let distance = |i: &usize| other_part(sent, *i).unwrap_or(usize::MAX);
    (0..sent.len()).filter(|i| sent[*i].split).min_by_key(distance)
}

/// The number of bios after bio `i` until the one that continues it.
fn other_part(sent: &[SentBio], i: usize) -> Option<usize> {
    let end = sent[i].sector + sent[i].size / 512;
    sent[i..].iter().position(|b| b.what == DATA && b.sector == end)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bio(sector: u64, blocks: u64, split: bool) -> SentBio {
        SentBio { what: DATA.into(), sector, size: blocks * 4096, split, ..SentBio::default() }
    }

    #[test]
    fn the_parts_of_a_bio_stand_together() {
        let far = [bio(0, 1, true), bio(100, 4, false), bio(200, 4, false), bio(8, 3, false)];
        let near = [bio(300, 1, true), bio(308, 3, false)];
        let all = [&far[..], &near[..]].concat();
        assert_eq!(
            (nearest_split(&all), other_part(&all, 0), other_part(&all, 4)),
            (Some(4), Some(3), Some(1))
        );
        assert_eq!(nearest_split(&far[1..]), None);
    }
}
