//! The logs, and the segments that they leave behind.
//!
//! Lock owned: `curseg->curseg_mutex` 500, one for each log. Zones are reset and finished under the volume's
//! `zone_mgmt` 480, segments discarded under cleaning's `cmd_lock` 525. Callers: all code that places a
//! block, with `cp_rwsem` held shared, or exclusive by the checkpoint.
//!
//! | module | holds |
//! |---|---|
//! | `log`, `curseg` | the logs: their names, and the runs of blocks allocated in them; extra streams of data, opened and closed |
//! | `streams` | the number of streams, as options give it |
//! | `policy` | free segments that are kept, and their purpose |
//! | `zones`, `reset` | sections that are zones: what the device says; resets and finishes |
//! | `discard` | telling the device which blocks hold nothing |

pub(crate) mod curseg;
pub(crate) mod discard;
pub(crate) mod log;
pub(crate) mod policy;
pub(crate) mod reset;
pub(crate) mod streams;
pub(crate) mod zones;
