//! A cache that is taken away while the volume is served.

mod support;

use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Geometry, RequestKind, Runtime, Stability};
use headpond_cache::Mode;
use headpond_raid::Occupied;
use headpond_sim::{Medium, OperationTime, Power, SimDisk, run};
use headpond_volume::{Devices, Dirty, Volume};
use std::rc::Rc;
use std::time::Duration;
use support::{CREATE, careful, description};
use uuid::Uuid;

fn flushable(name: &str, size_bytes: u64) -> Rc<dyn BlockDevice> {
    let geometry = Geometry { stability: Stability::Flushable, ..Geometry::of_size(size_bytes) };
    Rc::new(RamDevice::with_geometry(name, geometry))
}

/// A cache, and members whose faults are on command.
fn devices(runtime: &Runtime, faults: &FaultControl) -> Devices {
    let member = |index: usize| -> Rc<dyn BlockDevice> {
        let inner = flushable(&format!("m{index}"), 16 << 20);
        Rc::new(FaultDevice::new(inner, faults.clone(), runtime.clone()))
    };
    Devices {
        tier: None,
        cache: Some(flushable("cache", 16 << 20)),
        members: (0..3).map(member).collect(),
        absent: Vec::new(),
    }
}

/// Found by a client that verified beside attach and detach: the detach span beside the flush that
/// it waited for, and nothing else got its turn.
#[test]
fn a_detach_waits_for_a_flush_of_the_array_that_is_under_way() {
    run(1, |runtime, _| async move {
        let faults = FaultControl::default();
        let (devices, description) = (devices(&runtime, &faults), description(Mode::WriteBack, 1));
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let cache = devices.cache.clone().unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await;
        let volume = Rc::new(volume.unwrap());
        let device: &dyn BlockDevice = &*volume;
        device.write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
        // The flush that follows what is cleaned takes its time, and those after it do not.
        let slow = FaultRule::on(RequestKind::Flush, Fault::Delay(Duration::from_secs(2)));
        faults.add(FaultRule { times: Some(3), ..slow });
        let other = Rc::clone(&volume);
        let cleaning = runtime.spawn(async move { other.clean_all().await });
        runtime.sleep(Duration::from_secs(1)).await;
        volume.detach(Dirty::Clean).await.unwrap();
        cleaning.await.unwrap();
        assert!(volume.status().cache.is_none());
        assert_eq!(Rc::strong_count(&cache), 1, "it may be opened again");
        let back = Buffer::zeroed(4096);
        device.read(0, &back).await.unwrap();
        assert_eq!(back.to_vec(), [7; 4096]);
    })
    .expect("no deadlock");
}

/// Found by the swarm (seed 157): the cache did not flush the array for writes from before it.
#[test]
fn a_flush_after_an_attach_covers_what_was_written_before_it() {
    run(1, |runtime, sim| async move {
        let media: Vec<_> = (0..3)
            .map(|index| Rc::new(Medium::flushable(&*format!("m{index}"), 16 << 20)))
            .collect();
        let attach = |medium: &Rc<Medium>| -> Rc<dyn BlockDevice> {
            let (power, time) = (Power::on(), OperationTime::SOME);
            Rc::new(SimDisk::attach(Rc::clone(medium), &power, &runtime, &sim, time))
        };
        let members = media.iter().map(attach).collect();
        let devices = Devices { tier: None, cache: None, members, absent: Vec::new() };
        let mut plain = description(Mode::WriteBack, 1);
        let described = plain.cache.take().unwrap();
        Volume::create(&plain, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &plain, devices, careful()).await.unwrap();
        let device: &dyn BlockDevice = &volume;
        device.write(0, Buffer::from_slice(&[7; 4096])).await.unwrap();
        let cache = attach(&Rc::new(Medium::flushable("cache", 16 << 20)));
        let identity = Uuid::from_u128(5);
        let new = volume.make_cache(cache, described, identity, Occupied::Refuse).await.unwrap();
        volume.attach(new).await.unwrap();
        device.flush().await.unwrap();
        assert!(media.iter().all(|member| member.undurable_writes() == 0));
    })
    .expect("no deadlock");
}
