//! All facts about a drive, and where kernel and drive disagree.

use crate::drive::Drive;
use crate::kernel::KernelFacts;
use crate::own::OwnFacts;
use crate::protection::Protection;
use crate::write_cache::CacheState;
use serde::Serialize;
use std::path::PathBuf;

/// The facts of the kernel, those of the drive, and what follows from both.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    pub path: PathBuf,
    pub kernel: KernelFacts,
    pub own: OwnFacts,
    pub protection: Protection,
    pub disagreements: Vec<String>,
}

impl Facts {
    /// Reads `/sys` and queries the drive.
    pub fn of(drive: &Drive) -> Self {
        let (kernel, own) = (drive.kernel(), drive.own());
        Self {
            path: drive.path.clone(),
            protection: Protection::of(&kernel, &own),
            disagreements: disagreement(&kernel, &own).map(str::to_owned).into_iter().collect(),
            kernel,
            own,
        }
    }
}

fn disagreement(kernel: &KernelFacts, own: &OwnFacts) -> Option<&'static str> {
    match (kernel.write_cache.value()?, own.write_cache.value()?) {
        (false, CacheState::On) => Some(
            "the drive's write cache is on, but the kernel assumes that there is none: it sends no \
            flushes, and a power cut can lose flushed data",
        ),
        (true, CacheState::Off) => Some(
            "the drive's write cache is off, but the kernel assumes that it is on: it sends \
            unnecessary flushes, which costs time but no data",
        ),
        (true, CacheState::Absent) => Some(
            "the drive has no volatile write cache, but the kernel assumes that it has one: it \
            sends unnecessary flushes, which costs time but no data",
        ),
        (true, CacheState::On) | (false, CacheState::Off | CacheState::Absent) => None,
    }
}

/// Facts of a drive of which nothing is known.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use crate::fact::Fact;

    fn none<T>() -> Fact<T> {
        Fact::unknown("nobody said")
    }

    pub fn kernel() -> KernelFacts {
        KernelFacts {
            protocol: none(),
            driver: none(),
            vendor: none(),
            model: none(),
            firmware: none(),
            serial: none(),
            size_bytes: none(),
            rotational: none(),
            rotations_per_minute: none(),
            scheduler: none(),
            logical_block_bytes: none(),
            physical_block_bytes: none(),
            request_bytes_max: none(),
            queue_depth: none(),
            requests_max: none(),
            numa_node: none(),
            write_cache: none(),
            fua: none(),
        }
    }

    pub fn own() -> OwnFacts {
        OwnFacts {
            write_cache: none(),
            read_cache: none(),
            can_save: none(),
            volatile_cache: none(),
            non_volatile_cache: none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fact::Fact;

    fn told(kernel_believes: bool, drive_says: CacheState) -> Option<&'static str> {
        let kernel =
            KernelFacts { write_cache: Fact::known(kernel_believes, "queue"), ..testing::kernel() };
        let own = OwnFacts { write_cache: Fact::known(drive_says, "drive"), ..testing::own() };
        disagreement(&kernel, &own)
    }

    #[test]
    fn a_cache_that_the_kernel_does_not_know_of_is_the_dangerous_disagreement() {
        assert!(told(false, CacheState::On).unwrap().contains("can lose"));
        assert!(told(true, CacheState::Off).unwrap().contains("no data"));
        assert!(told(true, CacheState::Absent).unwrap().contains("no data"));
    }

    #[test]
    fn who_agrees_or_is_not_known_disagrees_with_nobody() {
        assert_eq!(told(true, CacheState::On), None);
        assert_eq!(told(false, CacheState::Off), None);
        assert_eq!(told(false, CacheState::Absent), None);
        assert_eq!(disagreement(&testing::kernel(), &testing::own()), None);
    }
}
