//! What the arrays record of their cache, and what a cut between two of them leaves.

use crate::cores::machine::{
    MEMBERS, MIB, Machine, check_dirty_data, devices_of, dirty, read, write,
};
use crate::support::careful;
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, RequestKind, Runtime};
use headpond_raid::Occupied;
use headpond_sim::Sim;
use headpond_volume::{
    Alert, AlertKind, Description, Devices, Dirty, OpenError, OpenOptions, Tolerance, Volume,
};
use std::future::ready;
use std::rc::Rc;
use uuid::Uuid;

/// Detach, attach and detach again, cut at every operation: between the labels of two arrays too.
/// Afterwards the volume opens as it is described and has all that was flushed; and where the cache
/// is not there, or not named, it has that as well, or refuses.
#[test]
fn a_cut_between_two_labels_neither_ignores_dirty_data_nor_trusts_a_stale_cache() {
    let (mut refused, mut without) = (0, 0);
    for at in 0.. {
        let context = format!("cut {at}");
        let machine = Machine::new(3, 1);
        assert!(machine.live(async |runtime, sim| {
            let volume = machine.open(&runtime, &sim, 1).await;
            dirty(&volume).await;
            volume.stop().await.unwrap();
        }));
        machine.power.cut_after(at);
        let was_done = machine.live(async |runtime, sim| {
            let volume = machine.open(&runtime, &sim, 2).await;
            volume.detach(Dirty::Clean).await.unwrap();
            machine.names_cache.set(false);
            let (device, described) =
                (machine.disk(&machine.cache, &runtime, &sim), machine.described());
            let identity = Uuid::from_u128(9);
            let cache = described.cache.unwrap();
            let new =
                volume.make_cache(device, cache, identity, Occupied::Overwrite).await.unwrap();
            machine.names_cache.set(true);
            volume.attach(new, &|_| Box::pin(ready(Ok(())))).await.unwrap();
            dirty(&volume).await;
            volume.stop().await.unwrap();
        });
        machine.lose_power(at + 1);
        machine.check_labels(&context);
        let copies = [machine.duplicate(), machine.duplicate()];
        assert!(machine.live(async |runtime, sim| {
            let volume = machine.open(&runtime, &sim, at + 1).await;
            check_dirty_data(&volume, &context).await;
            volume.stop().await.unwrap();
        }));
        for (is_named, copy) in [true, false].into_iter().zip(copies) {
            copy.live(async |runtime, sim| {
                let devices = Devices { cache: None, ..copy.devices(&runtime, &sim, at + 1) };
                let kept = copy.kept();
                let cache = kept.cache.clone().filter(|_| is_named);
                let bare = Description { cache, ..kept };
                match Volume::open(&runtime, &bare, devices, careful()).await {
                    Ok(volume) => {
                        without += 1;
                        check_dirty_data(&Rc::new(volume), &format!("{context}, without")).await;
                    }
                    Err(error) => {
                        assert!(error.is_refusal(), "{context}: {error}");
                        refused += 1;
                    }
                }
            });
        }
        if was_done {
            break;
        }
    }
    assert!(refused > 20 && without > 20, "{refused} refused, {without} without");
}

/// A start by force gives the cache up on every core, cut wherever it is: nothing of that cache is
/// used again without a word once the first core has let it go, and until then it is there.
#[test]
fn a_cache_given_up_by_force_is_whole_or_gone_on_every_core() {
    let (mut kept, mut gone) = (0, 0);
    for at in 0.. {
        let machine = Machine::new(2, 1);
        assert!(machine.live(async |runtime, sim| {
            let volume = machine.open(&runtime, &sim, 1).await;
            dirty(&volume).await;
            volume.stop().await.unwrap();
        }));
        machine.power.cut_after(at);
        let forced = || OpenOptions { tolerance: Tolerance::Forced, ..careful() };
        let was_done = machine.live(async |runtime, sim| {
            let devices = Devices { cache: None, ..machine.devices(&runtime, &sim, 1) };
            let volume = Volume::open(&runtime, &machine.kept(), devices, forced()).await.unwrap();
            let volume = Rc::new(volume);
            for core in devices_of(&volume) {
                write(&core, 8192, 77).await;
            }
            volume.stop().await.unwrap();
        });
        machine.lose_power(at + 1);
        machine.check_labels(&format!("cut {at}"));
        machine.live(async |runtime, sim| {
            let devices = machine.devices(&runtime, &sim, at);
            let opened = Volume::open(&runtime, &machine.kept(), devices, careful()).await;
            match opened {
                Ok(volume) => {
                    let volume = Rc::new(volume);
                    let is_cached = volume.status().cache.is_some();
                    for (byte, core) in (1..).zip(&devices_of(&volume)) {
                        let found = read(core, 0).await;
                        assert_eq!(found, if is_cached { byte } else { 0 }, "cut {at}");
                        if is_cached {
                            assert_eq!(read(core, 8192).await, byte, "cut {at}");
                        }
                    }
                    *if is_cached { &mut kept } else { &mut gone } += 1;
                }
                Err(error) => assert!(error.is_refusal(), "cut {at}: {error}"),
            }
        });
        if was_done {
            break;
        }
    }
    assert!(kept > 2 && gone > 2, "{kept} kept, {gone} gone");
}

/// One label is enough: the cache fits the sum of them.
#[test]
fn a_failed_cache_is_refused_though_one_array_could_not_record_it() {
    let machine = Machine::new(2, 1);
    let faults = FaultControl::default();
    machine.live(async |runtime, sim| {
        let mut devices = machine.devices(&runtime, &sim, 0);
        let put = |device: Rc<dyn BlockDevice>, control: &FaultControl| -> Rc<dyn BlockDevice> {
            Rc::new(FaultDevice::new(device, control.clone(), runtime.clone()))
        };
        devices.cache = devices.cache.map(|cache| put(cache, &faults));
        let mirror = FaultControl::default();
        for member in &mut devices.members[MEMBERS[0]..] {
            *member = put(Rc::clone(member), &mirror);
        }
        let volume = Volume::open(&runtime, &machine.kept(), devices, careful()).await.unwrap();
        let volume = Rc::new(volume);
        dirty(&volume).await;
        let cores = devices_of(&volume);
        for control in [&faults, &mirror] {
            control.add(FaultRule { kind: None, ..FaultRule::on(RequestKind::Write, Fault::Gone) });
        }
        write(&cores[0], MIB, 9).await;
        let status = volume.status();
        assert!(status.cache.unwrap().failed);
        assert_eq!(read(&cores[0], MIB).await, 9);
    });
    machine.lose_power(1);
    machine.live(async |runtime, sim| {
        let devices = machine.devices(&runtime, &sim, 3);
        let opened = Volume::open(&runtime, &machine.kept(), devices, careful()).await;
        let error = opened.err().expect("the cache lacks what went past it");
        assert!(error.is_refusal() && error.to_string().contains("generation"), "{error}");
    });
}

/// What one core's array does not take is told of that one, and so is what to do.
#[test]
fn an_alert_names_the_core_whose_array_takes_no_writes() {
    let machine = Machine::new(3, 1);
    machine.live(async |runtime, sim| {
        let mut devices = machine.devices(&runtime, &sim, 0);
        let faults = FaultControl::default();
        for member in &mut devices.members[MEMBERS[0]..][..MEMBERS[1]] {
            let inner = Rc::clone(member);
            *member = Rc::new(FaultDevice::new(inner, faults.clone(), runtime.clone()));
        }
        let volume = Volume::open(&runtime, &machine.kept(), devices, careful()).await.unwrap();
        let volume = Rc::new(volume);
        dirty(&volume).await;
        let told = || {
            let alerts = volume.status().alerts;
            let of_writes = |alert: &&Alert| alert.kind == AlertKind::ArrayWriteErrors;
            alerts.iter().filter(of_writes).map(ToString::to_string).collect::<Vec<_>>()
        };
        assert!(told().is_empty());
        faults.add(FaultRule::on(RequestKind::Write, Fault::Media));
        faults.add(FaultRule::on(RequestKind::Flush, Fault::Media));
        assert!(volume.clean_all().await.is_err());
        let [alert] = &told()[..] else { panic!("of one core: {:?}", told()) };
        assert!(alert.contains("the array of core c1"), "{alert}");
        volume.reset_stats();
        let before = told();
        assert_eq!(before.len(), 1, "they are no statistics");
        volume.clear_errors(None).await.unwrap();
        // The array has failed: what the cleaner tries since is counted anew.
        assert_ne!(told(), before);
    });
}

#[test]
fn a_cache_is_refused_where_cores_are_missing_exchanged_or_went_on_alone() {
    let machine = Machine::new(3, 1);
    machine.live(async |runtime, sim| {
        let volume = machine.open(&runtime, &sim, 1).await;
        dirty(&volume).await;
        volume.stop().await.unwrap();
    });
    let refused = async |runtime: &Runtime, sim: &Sim, described: &Description| {
        let opened = Volume::open(runtime, described, machine.devices(runtime, sim, 5), careful());
        opened.await.err().expect("refused")
    };
    machine.live(async |runtime, sim| {
        let mut swapped = machine.kept();
        swapped.further_cores.swap(0, 1);
        let error = refused(&runtime, &sim, &swapped).await;
        assert!(matches!(error, OpenError::OtherCores { .. }), "{error}");
        let mut fewer = machine.kept();
        let last = fewer.further_cores.pop().unwrap();
        let mut devices = machine.devices(&runtime, &sim, 0);
        devices.members.truncate(5);
        let opened = Volume::open(&runtime, &fewer, devices, careful()).await;
        assert!(opened.err().expect("refused").is_refusal());
        // The core as a volume of its own still names the cache.
        let alone = machine.kept().of_core_alone(&last, "alone".into());
        let members = || machine.devices(&runtime, &sim, 0).members.split_off(5);
        let devices = || Devices { members: members(), ..Devices::default() };
        let opened = Volume::open(&runtime, &alone, devices(), careful()).await;
        assert!(matches!(opened.err(), Some(OpenError::UnnamedCache { .. })));
        let forced = OpenOptions { tolerance: Tolerance::Forced, ..careful() };
        let volume = Volume::open(&runtime, &alone, devices(), forced).await.unwrap();
        volume.stop().await.unwrap();
        let error = refused(&runtime, &sim, &machine.kept()).await;
        assert!(error.to_string().contains("generation"), "{error}");
        // A core that is lost for good can be left out by force.
        let mut devices = machine.devices(&runtime, &sim, 0);
        devices.members.truncate(5);
        let forced = OpenOptions { tolerance: Tolerance::Forced, ..careful() };
        let volume = Volume::open(&runtime, &fewer, devices, forced).await.unwrap();
        assert!(volume.status().cache.is_none());
        assert!(volume.warnings().iter().any(|told| told.contains("its dirty data is lost")));
    });
}
