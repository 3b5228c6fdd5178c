//! The mechanics of one disk: an arm that seeks, a platter that turns.
//!
//! Seek time grows with the square root of the distance, from the single-track time on. The factor is chosen
//! so that seeks between random places take the average of the data sheet (the mean of the root of a random
//! distance is 8/15). Data lies on one spiral of one density, so reading on at the end of a track costs no
//! more time, as in a sustained rate.

use super::timing::transfer;
use tidegate_rt::Nanos;

/// The abilities of an arm and a platter. Times are nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mechanics {
    /// One revolution.
    pub revolution: u64,
    /// Single-track seek before a read, and before a write.
    pub track_seek: [u64; 2],
    /// Average seek before a read, and before a write.
    pub average_seek: [u64; 2],
    /// Sustained rate, bytes a second.
    pub rate: u64,
}

impl Mechanics {
    /// Bytes on a track.
    pub fn track(&self) -> u64 {
        ((u128::from(self.rate) * u128::from(self.revolution)) / 1_000_000_000) as u64
    }

    /// Time to move the arm over `distance` of `size` bytes.
    pub fn seek(&self, distance: u64, size: u64, write: bool) -> u64 {
        if distance < self.track() {
            return 0;
        }
        let (single, average) = (self.track_seek[write as usize], self.average_seek[write as usize]);
        let factor = average.saturating_sub(single) as f64 * 15.0 / 8.0;
        single + (factor * (distance as f64 / size as f64).sqrt()) as u64
    }

    /// Time from `at` until byte `pos` passes the head.
    pub fn rotation(&self, pos: u64, at: Nanos) -> u64 {
        let track = self.track();
        let angle = (u128::from(pos % track) * u128::from(self.revolution) / u128::from(track)) as u64;
        (angle + self.revolution - at.0 % self.revolution) % self.revolution
    }

    /// Time from `at` until the head, last at `head`, is at byte `pos`.
    pub fn position(&self, head: u64, pos: u64, size: u64, at: Nanos, write: bool) -> u64 {
        let seek = self.seek(head.abs_diff(pos), size, write);
        seek + self.rotation(pos, Nanos(at.0 + seek))
    }

    /// The time in which `bytes` pass under the head.
    pub fn transfer(&self, bytes: u64) -> u64 {
        transfer(bytes, self.rate)
    }
}
