//! The number of streams of each kind of data, as options give it.

use crate::segment::log::{Log, MAX_LOGS, MAX_STREAMS};
use crate::volume::options::F2fsOptions;
use tidegate_vfs::switch::SwitchValue;
use tidegate_vfs::{Error, ErrorKind, Result};

/// Streams of one kind of data: from 1 to 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Streams(u8);

impl Streams {
    /// One log, as in Linux.
    pub const ONE: Streams = Streams(1);

    /// `n` streams; `None` when that is none, or more than a volume can have.
    pub fn new(n: u8) -> Option<Streams> {
        (1..=MAX_STREAMS).contains(&usize::from(n)).then_some(Streams(n))
    }

    /// The number of streams.
    pub fn get(self) -> u8 {
        self.0
    }
}

impl SwitchValue for Streams {
    fn parse(text: &str) -> Option<Self> {
        text.parse().ok().and_then(Streams::new)
    }

    fn spelled(self) -> String {
        self.0.to_string()
    }

    fn expected() -> String {
        format!("a number from 1 to {MAX_STREAMS}")
    }

    fn to_bits(self) -> u64 {
        self.0.into()
    }

    fn from_bits(bits: u64) -> Self {
        u8::try_from(bits).ok().and_then(Streams::new).unwrap_or(Streams::ONE)
    }
}

impl F2fsOptions {
    /// Checks that the numbers of streams are possible together.
    ///
    /// # Errors
    /// `InvalidArgument` when there are too many streams in all.
    pub(crate) fn check_streams(&self) -> Result<()> {
        let data = [self.hot_streams, self.warm_streams, self.cold_streams].map(Streams::get);
        let (data, most): (u8, usize) = (data.iter().sum(), MAX_LOGS - Log::NODES.len());
        if usize::from(data) <= most {
            return Ok(());
        }
        let what = format!(
            "hot_streams, warm_streams and cold_streams make {data} streams; a volume has at most {most} beside the \
             {} logs of nodes: give fewer",
            Log::NODES.len()
        );
        Err(Error::new(ErrorKind::InvalidArgument, what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_at_most_what_logs_of_nodes_leave() {
        let all = |list| {
            let mut o = F2fsOptions::default();
            o.parse(list).unwrap();
            o.check_streams()
        };
        all("hot_streams=3,warm_streams=5,cold_data_streams=5").unwrap();
        all("warm_data_streams=11").unwrap();
        let e = all("hot_streams=3,warm_streams=6,cold_streams=5").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert_eq!(
            e.what(),
            "hot_streams, warm_streams and cold_streams make 14 streams; a volume has at most 13 beside the 3 logs \
             of nodes: give fewer"
        );
    }
}
