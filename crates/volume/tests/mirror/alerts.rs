//! What the operator is told of copies.

use crate::rig::{Rig, cache, expect, simulate, write};
use headpond_block::decorators::{Fault, FaultRule};
use headpond_block::{BlockDevice, Buffer, RequestKind};
use headpond_volume::{Alert, AlertKind, Volume};

fn alert(volume: &Volume, kind: AlertKind) -> Alert {
    let alerts = volume.status().alerts;
    let alert = alerts.iter().find(|alert| alert.kind == kind);
    alert.unwrap_or_else(|| panic!("no {kind:?} in {alerts:?}")).clone()
}

#[test]
fn a_copy_that_rots_is_to_be_replaced_and_not_the_cache() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        rig.rot(1, 7);
        expect(&volume, 7).await;
        let told = alert(&volume, AlertKind::CacheCorruption);
        let replace = "headpond array replace stack COPY --with DEVICE --cache";
        assert!(told.to_do.contains(replace), "{told}");
        assert!(told.at_risk.what.contains("another copy"), "{told}");
        assert!(!told.to_do.contains("cache replace"), "{told}");
    });
}

#[test]
fn what_is_dirty_in_a_cache_that_failed_is_at_risk_whatever_copies_there_are() {
    simulate(async |runtime| {
        let rig = Rig::new(&runtime).await;
        let volume = rig.open(&[0, 1]).await;
        write(&volume, 7).await;
        for (_, control) in &rig.copies {
            control.add(FaultRule::on(RequestKind::Write, Fault::NoSpace));
        }
        let device: &dyn BlockDevice = &volume;
        device.write(0, Buffer::from_slice(&[8; 4096])).await.unwrap();
        assert!(cache(&volume).failed);
        let dirty_bytes = cache(&volume).dirty_bytes;
        assert_ne!(dirty_bytes, 0);
        for kind in [AlertKind::CacheFailed, AlertKind::CacheWriteErrors] {
            assert_eq!(alert(&volume, kind).at_risk.bytes, dirty_bytes);
        }
    });
}
