//! The six logs by name.

use crate::format::raw::NR_CURSEG_TYPE;
use crate::volume::stats::BlockKind;

/// A log; the numbers are those of `CURSEG_*`.
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

impl Log {
    pub(crate) const ALL: [Log; NR_CURSEG_TYPE] =
        [Log::HotData, Log::WarmData, Log::ColdData, Log::HotNode, Log::WarmNode, Log::ColdNode];

    /// The logs of nodes.
    pub(crate) const NODES: [Log; 3] = [Log::HotNode, Log::WarmNode, Log::ColdNode];

    /// The log with this number.
    pub(crate) fn from_number(n: u16) -> Option<Log> {
        Self::ALL.get(usize::from(n)).copied()
    }

    pub(crate) fn is_node(self) -> bool {
        matches!(self, Log::HotNode | Log::WarmNode | Log::ColdNode)
    }

    /// Its bit in a set of logs.
    pub(crate) fn bit(self) -> u8 {
        1 << self as u8
    }

    pub(crate) fn kind(self) -> BlockKind {
        if self.is_node() { BlockKind::Node } else { BlockKind::Data }
    }
}
