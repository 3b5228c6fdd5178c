//! The logs by name: one of each kind, and extra streams of data.

use crate::format::raw::{NR_CURSEG_DATA_TYPE, NR_CURSEG_TYPE};
use crate::volume::stats::BlockKind;

/// A kind of log; the numbers are those of `CURSEG_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Log {
    HotData = 0,
    WarmData = 1,
    ColdData = 2,
    HotNode = 3,
    WarmNode = 4,
    ColdNode = 5,
}

/// Most logs of a volume: three of nodes, the rest streams of data.
pub(crate) const MAX_LOGS: usize = 16;

/// Most streams of one kind of data; each other kind has one then.
pub(crate) const MAX_STREAMS: usize = MAX_LOGS - (NR_CURSEG_TYPE - 1);

/// Slots for logs: the logs that a checkpoint names, then the extra streams of each kind of data.
pub(crate) const LOG_SLOTS: usize = NR_CURSEG_TYPE + (MAX_STREAMS - 1) * NR_CURSEG_DATA_TYPE;

/// A log: the only one of its kind, or one of several streams. A checkpoint names stream 0; the device keeps
/// nothing of the other streams but their blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LogId {
    pub kind: Log,
    pub stream: u8,
}

impl LogId {
    /// The log's slot among all logs, below [`LOG_SLOTS`].
    pub(crate) fn slot(self) -> usize {
        match self.stream {
            0 => self.kind as usize,
            n => NR_CURSEG_TYPE + (usize::from(n) - 1) * NR_CURSEG_DATA_TYPE + self.kind as usize,
        }
    }

    /// The log's bit in a set of logs.
    pub(crate) fn bit(self) -> u64 {
        1 << self.slot()
    }

    /// Whether no checkpoint names the log.
    pub(crate) fn is_extra(self) -> bool {
        self.stream > 0
    }

    /// The logs of a set, in the order of their slots.
    pub(crate) fn of_bits(bits: u64) -> impl Iterator<Item = LogId> {
        (0..LOG_SLOTS).filter(move |slot| bits >> slot & 1 == 1).map(LogId::at)
    }

    /// The log at a slot.
    fn at(slot: usize) -> LogId {
        match slot.checked_sub(NR_CURSEG_TYPE) {
            None => Log::ALL[slot].into(),
            Some(extra) => LogId {
                kind: Log::DATA[extra % NR_CURSEG_DATA_TYPE],
                stream: (extra / NR_CURSEG_DATA_TYPE + 1) as u8,
            },
        }
    }
}

impl From<Log> for LogId {
    fn from(kind: Log) -> Self {
        LogId { kind, stream: 0 }
    }
}

impl Log {
    pub(crate) const ALL: [Log; NR_CURSEG_TYPE] =
        [Log::HotData, Log::WarmData, Log::ColdData, Log::HotNode, Log::WarmNode, Log::ColdNode];

    /// The logs of data.
    pub(crate) const DATA: [Log; NR_CURSEG_DATA_TYPE] = [Log::HotData, Log::WarmData, Log::ColdData];

    /// The logs of nodes.
    pub(crate) const NODES: [Log; 3] = [Log::HotNode, Log::WarmNode, Log::ColdNode];

    /// The log with this number.
    pub(crate) fn from_number(n: u16) -> Option<Log> {
        Self::ALL.get(usize::from(n)).copied()
    }

    pub(crate) fn is_node(self) -> bool {
        matches!(self, Log::HotNode | Log::WarmNode | Log::ColdNode)
    }

    pub(crate) fn kind(self) -> BlockKind {
        if self.is_node() { BlockKind::Node } else { BlockKind::Data }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_log_has_a_slot_of_its_own() {
        let all: Vec<LogId> = LogId::of_bits(u64::MAX).collect();
        assert_eq!(all.len(), LOG_SLOTS);
        assert_eq!(all.iter().map(|l| l.slot()).collect::<Vec<_>>(), (0..LOG_SLOTS).collect::<Vec<_>>());
        assert!(all.iter().all(|l| !l.is_extra() || !l.kind.is_node()));
    }
}
