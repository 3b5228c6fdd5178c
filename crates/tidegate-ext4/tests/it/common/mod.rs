//! The rig that applies random operations to a volume and to a model, as in F2FS's tests, on ext4 volumes.

#[path = "../../../../tidegate-f2fs/tests/it/common/image.rs"]
pub mod image;
#[path = "../../../../tidegate-f2fs/tests/it/common/posix/mod.rs"]
pub mod posix;
#[path = "../../../../tidegate-f2fs/tests/it/common/rig/mod.rs"]
pub mod rig;
pub mod volume;
