//! Check and repair of a volume of any format that is not in use.

use crate::detect::{Format, detect, is_unmarked};
use crate::error::Subject;
use crate::error::{Error, Result};
use std::sync::Arc;
use tidegate_block::RequestQueue;

pub use tidegate_vfs::offline::{
    Change, CheckOptions, CheckReport, OnChange, Outcome, Problem, RepairOptions, RepairReport,
};

/// Checks the volume behind `queue`. Nothing is written. Errors call the volume `image`.
///
/// # Errors
/// The device holds no volume, or one so damaged that the check cannot begin; those of the device. All other
/// damage is in the report.
pub fn check(
    image: impl Into<Subject>,
    queue: &Arc<RequestQueue>,
    options: CheckOptions,
) -> Result<CheckReport> {
    let image = image.into();
    let format = detect(&image, queue)?;
    let report = match format {
        Format::F2fs => tidegate_f2fs::check::check(queue, options),
        Format::Ext4 => tidegate_ext4::check::check(queue, options),
    };
    report.map_err(|source| Error::Volume { about: image, format, source })
}

/// Repairs the faults that a check of the volume behind `queue` finds. Each change is reported before it is
/// made. Errors call the volume `image`.
///
/// # Errors
/// As [`check`]; the volume must be left as it is.
pub fn repair(
    image: impl Into<Subject>,
    queue: &Arc<RequestQueue>,
    options: RepairOptions,
    on_change: OnChange<'_>,
) -> Result<RepairReport> {
    // When the superblock is gone, a copy may tell the format, unless something else was made there later and left that
    // copy.
    let image = image.into();
    let format = match detect(&image, queue) {
        Err(_) if is_unmarked(queue) && tidegate_ext4::repair::has_copy(queue) => Format::Ext4,
        found => found?,
    };
    let report = match format {
        Format::F2fs => tidegate_f2fs::repair::repair(queue, options, on_change),
        Format::Ext4 => tidegate_ext4::repair::repair(queue, options, on_change),
    };
    report.map_err(|source| Error::Volume { about: image, format, source })
}
