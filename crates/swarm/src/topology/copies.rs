//! What the copies of a cache are called.

use headpond_volume::{CacheDescription, MirrorDescription};
use uuid::Uuid;

/// What the description and the volume call a disk.
pub(crate) fn copy_name(index: usize) -> String {
    format!("k{index}")
}

/// The cache on these disks.
pub(crate) fn on_disks(cache: CacheDescription, disks: &[usize], uuid: Uuid) -> CacheDescription {
    let mut names = disks.iter().map(|index| copy_name(*index));
    let device = names.next().expect("a copy");
    let mirror = MirrorDescription { uuid, copies: names.collect(), spares: Vec::new() };
    CacheDescription { device, mirror: Some(mirror), ..cache }
}
