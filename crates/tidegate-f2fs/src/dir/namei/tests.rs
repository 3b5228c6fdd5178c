use super::*;
use crate::testing::new_volume;
use tidegate_block::{Errno, Fault, Op, Rule};

/// Its NAT block cannot be read, or it cannot be written.
#[test]
fn a_first_block_that_fails_is_not_counted() {
    let open = new_volume();
    let nid = Nid(open.fs.sb.max_nid - 1);
    let blocks = || open.fs.counts.lock().valid_blocks;
    let before = blocks();
    for op in [Op::Read, Op::Write] {
        open.device.set([Rule::new(Fault::Fail(Errno::IO)).op(op)]);
        assert!(open.fs.place_first_block(nid, b"x").is_err(), "{op:?}");
        assert_eq!(blocks(), before, "{op:?}");
    }
    open.device.set([]);
    open.fs.place_first_block(nid, b"x").unwrap();
    assert_eq!(blocks(), before + 1);
}
