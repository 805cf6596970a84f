//! That a volume is put together as it is described, and that all of it checks itself.

use super::Volume;
use crate::assembly::cached::Cached;
use headpond_cache::Slice;
use uuid::Uuid;

impl Volume {
    /// Checks the invariants of everything below, and that it fits together; for tests and
    /// simulation.
    ///
    /// # Panics
    /// Where one does not hold.
    pub fn self_check(&self) {
        self.dispatcher.self_check();
        self.cores().self_check();
        self.ownership.self_check();
        for cached in self.caches() {
            cached.slices.iter().for_each(Slice::self_check);
            cached.mirror.iter().for_each(|mirror| mirror.self_check());
        }
        // Else some of it is what it was, and some what it will be.
        if self.changing.is_idle() {
            self.check_described();
        }
    }

    fn check_described(&self) {
        let (described, cores) = (self.description.borrow(), self.cores());
        let uuids: Vec<Uuid> = described.cores().map(|(uuid, _)| uuid).collect();
        let found: Vec<Uuid> = cores.iter().map(|(core, _)| core.array.uuid()).collect();
        assert_eq!(found, uuids, "the cores are those that are described");
        let further = described.further_cores.iter().map(|core| (core.id, &core.name));
        let found = cores.iter().skip(1).map(|(core, _)| (core.id, &core.name));
        assert!(found.eq(further), "the cores are called as they are described");
        let places: Vec<_> = cores.iter().map(|(_, place)| place).collect();
        assert_eq!(self.dispatcher.places(), places, "a door leads to its core");
        let (cached, tier) = (self.cached(), self.tier());
        assert!(cached.is_none() || described.cache.is_some(), "a cache is described");
        assert!(tier.is_none() || described.tier.is_some(), "a tier is described");
        let mirror = described.cache.as_ref().and_then(|cache| cache.mirror.as_ref());
        let has_mirror = |cached: &Cached| {
            let found = cached.mirror.as_ref().map(|mirror| mirror.core.array.uuid());
            found == mirror.map(|mirror| mirror.uuid)
        };
        let fits = cached.as_deref().is_none_or(has_mirror);
        assert!(fits, "the copies of the cache are those that are described");
        let is_sliced = |cached: &Cached| cached.slices.len() == usize::from(described.slices);
        assert!(cached.iter().chain(&tier).all(|it| is_sliced(it)), "a cache has all slices");
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{CreateOptions, Description, Devices, OpenOptions, Tolerance};
    use headpond_block::devices::RamDevice;
    use headpond_block::{BlockDevice, Buffer, BufferPool, ByteRange, Geometry, PoolConfig};
    use headpond_raid::{Contents, Intent, Occupied};
    use headpond_testkit::{Break, assert_trips};
    use std::rc::Rc;

    const CACHE: Uuid = Uuid::from_u128(0xcac4e);

    const TEXT: &str = r#"
        name = "v"
        uuid = "6b7c8f0e-9a31-4d7e-8f7b-0d2c1f4a5e66"
        slices = 2
        [cache]
        device = "c0"
        mode = "write-back"
        [cache.mirror]
        uuid = "3a6f6a52-2d0f-4f8c-9d7a-000000000001"
        copies = ["c1"]
        [core]
        raid = 5
        strip = "16K"
        members = ["m0", "m1", "m2"]
        [[further_core]]
        name = "c1"
        id = 2
        uuid = "6b7c8f0e-9a31-4d7e-8f7b-0d2c1f4a5e67"
        raid = 1
        strip = "64K"
        members = ["m3", "m4"]
    "#;

    /// And how large they are, in MiB: copies of the cache, and members.
    const DISKS: [(&str, u64); 7] =
        [("c0", 32), ("c1", 32), ("m0", 8), ("m1", 8), ("m2", 8), ("m3", 8), ("m4", 8)];

    fn disk(name: &str, mib: u64) -> Rc<dyn BlockDevice> {
        Rc::new(RamDevice::with_geometry(name, Geometry::of_size(mib << 20)))
    }

    /// Of two cores behind a cache of two copies, in two slices. Its executor has ended.
    pub fn lived() -> Volume {
        let made = headpond_sim::run(1, async |runtime, _| {
            let description = Description::parse(TEXT).expect("a description");
            let disks: Vec<_> = DISKS.iter().map(|(name, mib)| disk(name, *mib)).collect();
            let devices = || {
                let is_copy = |disk: &&Rc<dyn BlockDevice>| disk.name().as_str().starts_with('c');
                let (copies, members) = disks.iter().cloned().partition(|disk| is_copy(&disk));
                Devices { copies, members, ..Devices::default() }
            };
            let create = CreateOptions {
                contents: Contents::Zeros,
                intent: Intent::Bitmap,
                occupied: Occupied::Refuse,
                cache: CACHE,
                journal: CACHE,
            };
            Volume::create(&description, &devices(), &create).await.expect("created");
            let options = OpenOptions {
                tolerance: Tolerance::Careful,
                pool: BufferPool::new(&PoolConfig::small()),
                new_cache: CACHE,
                around_core: None,
                watch_load: None,
                claimant: None,
            };
            let opened = Volume::open(&runtime, &description, devices(), options).await;
            let volume = opened.expect("opens");
            let device: &dyn BlockDevice = &volume;
            device.write(0, Buffer::zeroed(64 << 10)).await.expect("a write");
            volume
        });
        made.expect("no deadlock")
    }

    #[test]
    fn check_notices_a_volume_that_is_not_as_it_is_described() {
        let breaks: [Break<Volume>; 5] = [
            ("the cores are those that are described", |it| {
                it.description.borrow_mut().further_cores.clear();
            }),
            ("are called as they are described", |it| {
                it.description.borrow_mut().further_cores[0].id = 7;
            }),
            ("a cache is described", |it| it.description.borrow_mut().cache = None),
            ("a cache has all slices", |it| it.description.borrow_mut().slices = 4),
            ("a door leads to its core", |it| {
                let endpoint = it.dispatcher.endpoint(2).expect("a door for each core");
                endpoint.move_to(ByteRange::at(1 << 40, endpoint.place().len()), None);
            }),
        ];
        assert_trips(lived, Volume::self_check, &breaks);
    }
}
