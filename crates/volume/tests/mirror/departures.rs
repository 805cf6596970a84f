//! A copy leaves while the volume is served: who counts afterwards.

use crate::rig::{Rig, byte_at, cache, simulate, write};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffer, RequestKind};
use headpond_volume::CACHE_COPIES;

/// Neither copy has room left for a while, so the cache fails, and writes go past it. Then one of
/// the copies leaves.
#[test]
fn a_cache_that_was_disowned_stays_so_when_a_copy_leaves_later() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        for (_, control) in &rig.copies {
            control.add(FaultRule::on(RequestKind::Write, Fault::NoSpace));
        }
        let device: &dyn BlockDevice = &volume;
        device.write(0, Buffer::from_slice(&[8; 4096])).await.unwrap();
        device.flush().await.unwrap();
        assert!(cache(&volume).failed);
        rig.copies.iter().for_each(|(_, control)| control.clear());
        volume.fail_member(Some(CACHE_COPIES), "a").await.unwrap();
        device.flush().await.unwrap();
        assert_eq!(byte_at(&volume, 0).await.ok(), Some(8));
        drop(volume);
        for copies in [vec![1], vec![0, 1]] {
            let error = rig.try_open(&copies).await.err().expect("its blocks are older");
            assert!(error.is_refusal() && error.to_string().contains("generation"), "{error}");
        }
    });
}
