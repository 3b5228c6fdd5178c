//! The samples of the last seconds.

use std::collections::VecDeque;
use tidegate::Sample;
use tidegate::sample::Rates;

/// The number of samples over which latencies are taken.
const WINDOW: usize = 10;
/// The number of bandwidths that are kept: as many as a wide terminal shows.
const BANDWIDTHS: usize = 512;

/// The samples of the view: the last one, and the changes between earlier ones.
#[derive(Default)]
pub struct History {
    samples: VecDeque<Sample>,
    /// The changes since the previous sample.
    pub now: Rates,
    /// The changes since the oldest sample.
    pub window: Rates,
    /// Bytes written for each second, newest first.
    pub written: VecDeque<u64>,
    /// Bytes read for each second, newest first.
    pub read: VecDeque<u64>,
}

impl History {
    /// Adds a sample.
    pub fn push(&mut self, sample: Sample) {
        if let (Some(before), Some(oldest)) = (self.samples.back(), self.samples.front()) {
            self.now = sample.since(before);
            self.window = sample.since(oldest);
            for (list, rate) in
                [(&mut self.written, self.now.write_bytes), (&mut self.read, self.now.read_bytes)]
            {
                list.push_front(rate as u64);
                list.truncate(BANDWIDTHS);
            }
        }
        self.samples.push_back(sample);
        if self.samples.len() > WINDOW + 1 {
            self.samples.pop_front();
        }
    }

    /// The last sample.
    pub fn sample(&self) -> Option<&Sample> {
        self.samples.back()
    }
}
