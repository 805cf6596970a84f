//! The volume that the tests put together: a RAID 5 of three members with a cache in front.

pub mod lives;

use headpond_block::{BufferPool, PoolConfig};
use headpond_cache::Mode;
use headpond_raid::{Contents, Intent, Level, Occupied, Striping};
use headpond_volume::{
    ArraySettings, BackgroundRate, CacheDescription, CacheSettings, CoreDescription, CreateOptions,
    Description, OpenOptions, Size, Tolerance,
};
use uuid::Uuid;

const CACHE: Uuid = Uuid::from_u128(0xcac4e);

pub const CREATE: CreateOptions = CreateOptions {
    contents: Contents::Zeros,
    intent: Intent::Bitmap,
    occupied: Occupied::Refuse,
    cache: CACHE,
    journal: CACHE,
};

/// A core of one group, with an intent bitmap.
pub fn core(raid: Level, strip: Size, members: Vec<String>) -> CoreDescription {
    CoreDescription {
        raid,
        groups: 1,
        strip,
        intent: true,
        integrity: false,
        members,
        spares: Vec::new(),
        declustered: None,
        striping: Striping::Plain,
        background: BackgroundRate::default(),
        journal: None,
    }
}

pub fn description(mode: Mode, slices: u16) -> Description {
    let cache = CacheDescription {
        device: "cache".into(),
        line: Size(4096),
        size: None,
        settings: CacheSettings { mode, ..CacheSettings::default() },
        volatile_allowed: false,
        mirror: None,
    };
    let members = ["m0", "m1", "m2"].map(String::from).into();
    let core = core(Level::Raid5, Size(16 << 10), members);
    let (name, uuid) = ("stack".into(), Uuid::from_u128(0x5eed));
    Description {
        name,
        uuid,
        slices,
        tier: None,
        cache: Some(cache),
        core,
        array: ArraySettings::default(),
        heartbeat_ms: 1000,
        further_cores: Vec::new(),
        exports: Vec::new(),
    }
}

/// Nothing is forced.
pub fn careful() -> OpenOptions {
    let pool = BufferPool::new(&PoolConfig::small());
    OpenOptions {
        tolerance: Tolerance::Careful,
        pool,
        new_cache: CACHE,
        around_core: None,
        watch_load: None,
        claimant: None,
    }
}
