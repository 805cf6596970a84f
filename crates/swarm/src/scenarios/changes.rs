//! A volume that is changed while it has data: tiers, cores, the cache made anew.

use super::rig::{Rig, cached_raid5};
use crate::topology::{FURTHER, IdleCore, TierShape, Topology};
use headpond_block::Request;
use headpond_cache::{CleaningConfig, CleaningPolicy, EvictionPolicy, Mode};
use headpond_sim::Ended;
use headpond_volume::{Description, Dirty, Keeping};
use std::cell::RefCell;
use std::future::ready;
use uuid::Uuid;

/// Memory is gone with the power; what a flush has promised is below it.
pub(super) fn tier_that_is_lost_with_the_power_takes_nothing_that_was_flushed_with_it() {
    for seed in 0..8 {
        let tier = TierShape {
            bytes: (2 << 20) + (8 << 20),
            line_bytes: 4096,
            mode: Mode::WriteBack,
            cleaning: CleaningConfig { policy: CleaningPolicy::Nop, ..Default::default() },
            eviction: EvictionPolicy::default(),
        };
        let rig = Rig::new(Topology { tier: Some(tier), ..cached_raid5() });
        rig.live(async |scene| {
            scene.promise(3, 1).await;
            scene.write(5, 7).await.expect("takes the write");
            let dirty = scene.volume.status().tier.expect("a tier").dirty_bytes;
            assert_eq!(dirty, 4096, "what was not flushed is in memory alone");
        });
        rig.cut(seed);
        rig.live(async |scene| {
            scene.expect(3, 1).await;
            scene.expect(5, 0).await;
        });
    }
}

/// A core leaves with what it has; the other one keeps its own, and a cut finds no trace of it.
pub(super) fn core_that_is_removed_leaves_the_others_what_they_had() {
    for seed in 0..8 {
        let idle_core = Some(IdleCore::Behind);
        let mut rig = Rig::new(Topology { idle_core, ..cached_raid5() });
        let kept = rig.live(async |scene| {
            scene.promise(3, 1).await;
            let further = scene.volume.core_device(FURTHER).expect("a further core");
            let (identity, keep) =
                (Uuid::from_u128(1), |_: &Description| -> Keeping<'_> { Box::pin(ready(Ok(()))) });
            scene.volume.remove_core(FURTHER, identity, &keep).await.expect("removes it");
            assert_eq!(scene.cache().dirty_bytes, 0, "it was written back, and begins empty");
            let device: &dyn headpond_block::BlockDevice = &*further;
            assert!(device.submit(Request::flush()).await.is_err(), "nobody answers there");
            scene.promise(4, 2).await;
            scene.volume.description()
        });
        rig.cut(seed);
        rig.description = kept;
        rig.machine.idle_members.clear();
        rig.live(async |scene| {
            scene.expect(3, 1).await;
            scene.expect(4, 2).await;
        });
    }
}

/// Cut at every operation of the command: what was dirty is in the cache or on the array.
pub(super) fn cache_that_is_emptied_loses_nothing_wherever_the_power_is_cut() {
    for at in 0.. {
        let mut rig = Rig::new(cached_raid5());
        let kept = RefCell::new(rig.description.clone());
        let keep = |description: &Description| -> Keeping<'_> {
            kept.replace(description.clone());
            Box::pin(ready(Ok(())))
        };
        let ended = rig.try_live(async |scene| {
            scene.promise(3, 1).await;
            rig.machine.power.cut_after(at);
            let identities = [1, 2].map(Uuid::from_u128);
            scene.volume.purge_cache(Dirty::Clean, identities, &keep).await.expect("empties it");
            assert_eq!(scene.cache().dirty_bytes, 0);
        });
        rig.cut(at);
        rig.description = kept.into_inner();
        rig.live(async |scene| scene.expect(3, 1).await);
        if matches!(ended, Ended::Finished(_)) {
            assert!(at > 20, "it was cut only {at} times");
            break;
        }
    }
}
