//! An existing device as core: what its user is told, how it is hidden from others, and how its
//! volume comes back when its head is lost.

mod import;
mod rule;

pub use import::import;
pub use rule::{hide, unhide};

use crate::device::{DeviceSpec, Opener};
use headpond_api::place::Places;
use headpond_block::{BLOCK_BYTES, BufferPool, PoolConfig};
use headpond_raid::{Level, Striping};
use headpond_uring::{RingConfig, run_with_pool};
use headpond_volume::{BackgroundRate, CoreDescription, Description, Size};

/// Longer strips gain nothing where there is one member.
const STRIP_MAX: u64 = 1 << 20;

/// The core that is an existing device: an array of one member, whose strips follow each other and
/// leave nothing of the device over.
pub fn core_on(member: &DeviceSpec, bytes: u64) -> CoreDescription {
    let strip = 1 << bytes.trailing_zeros().min(STRIP_MAX.trailing_zeros());
    CoreDescription {
        raid: Level::Raid0,
        groups: 1,
        strip: Size(BLOCK_BYTES.max(strip)),
        intent: true,
        integrity: false,
        members: vec![member.to_string()],
        spares: Vec::new(),
        declustered: None,
        striping: Striping::Plain,
        background: BackgroundRate::default(),
        journal: None,
    }
}

/// The existing device of a volume, if its core is one, by its name of now: another device may have
/// the one that it was taken with. Where its head does not tell, by that one.
pub fn device_of(description: &Description) -> Option<DeviceSpec> {
    let member = description.core.members.first().filter(|_| description.core.is_existing())?;
    let Ok(DeviceSpec::Existing { body, head }) = member.parse() else { return None };
    let pool = BufferPool::new(&PoolConfig::default());
    let located = run_with_pool(&RingConfig::default(), &pool, |ring, runtime| {
        let opener = Opener::new(ring, runtime);
        let (body, head) = (&body, &head);
        async move { opener.locate(body, head).await.map(|(_, body)| body).ok() }
    });
    Some(located.ok().flatten().unwrap_or(*body))
}

/// What holds for the device from now on.
pub fn tell(places: &Places, description: &Description, device: &DeviceSpec) {
    let name = &description.name;
    println!(
        "{device} keeps its contents, and is to be used through {name} alone: what is written past it \
         makes the cache wrong. `headpond detach {name}` gives it back"
    );
    let mode = description.cache.as_ref().map(|cache| cache.settings.mode);
    if mode.is_some_and(|mode| mode.is_write_back()) {
        eprintln!(
            "headpond: note: with write-back, {device} alone is out of date: a file system on it that is \
             mounted past {name} is damaged, and lost with the cache device; {} describes it",
            places.description(name).display()
        );
    }
}
