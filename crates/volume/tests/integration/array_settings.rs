//! What of the arrays is set while a volume is served, with a cache or without.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, RequestKind, Runtime};
use headpond_cache::Mode;
use headpond_raid::{ArrayState, Level};
use headpond_sim::run;
use headpond_volume::{
    AlertKind, ChangeMembersError, CoreDescription, Description, Devices, SetError, SettingsError,
    Volume,
};
use std::rc::Rc;
use std::time::Duration;

/// Members of which writes take a millisecond.
fn members(runtime: &Runtime) -> Devices {
    let slow_writes = |_| {
        let faults = FaultControl::default();
        faults.add(FaultRule::on(RequestKind::Write, Fault::Delay(Duration::from_millis(1))));
        faults
    };
    members_with(runtime, &[0; 3].map(slow_writes))
}

/// Members with these faults.
fn members_with(runtime: &Runtime, faults: &[FaultControl]) -> Devices {
    let member = |(index, faults): (usize, &FaultControl)| -> Rc<dyn BlockDevice> {
        let memory = Rc::new(RamDevice::new(format!("m{index}").as_str(), 32 << 20));
        Rc::new(FaultDevice::new(memory, faults.clone(), runtime.clone()))
    };
    Devices { members: faults.iter().enumerate().map(member).collect(), ..Devices::default() }
}

async fn set(volume: &Volume, text: &str) -> Result<(), SetError> {
    volume.set(&[text.parse().expect("a change")]).await
}

/// Writes three blocks of one stripe at once; says how many shared the write of another.
async fn merged(volume: &Volume) -> u64 {
    let before = volume.stats().array.merged_writes;
    let data = Buffer::from_slice(&[7; 4096]);
    let write = |at: u64| (volume as &dyn BlockDevice).write(at * 8192, &data);
    join_all((0..3).map(write).collect()).await.into_iter().for_each(Result::unwrap);
    volume.stats().array.merged_writes - before
}

#[test]
fn merging_is_set_on_a_live_volume_and_kept_in_its_description() {
    run(1, |runtime, _| async move {
        let description = Description { cache: None, ..description(Mode::WriteBack, 1) };
        let devices = members(&runtime);
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let Devices { members, .. } = devices;
        let open = async |description: &Description| {
            let devices = Devices { members: members.clone(), ..Devices::default() };
            Volume::open(&runtime, description, devices, careful()).await.unwrap()
        };
        let volume = open(&description).await;
        assert_eq!(merged(&volume).await, 1, "the third joins the second");
        set(&volume, "merge-wait-us=off").await.unwrap();
        assert_eq!(merged(&volume).await, 0);
        assert!(matches!(
            set(&volume, "merge-wait-us=soon").await,
            Err(SetError::Settings(SettingsError::Setting(_)))
        ));
        assert!(matches!(
            set(&volume, "mode=write-through").await,
            Err(SetError::Settings(SettingsError::NoCache { .. }))
        ));
        let kept = volume.description();
        assert!(kept.to_toml().contains("[array]\nmerge_wait_us = \"off\""), "{}", kept.to_toml());
        volume.stop().await.unwrap();
        let volume = open(&Description::parse(&kept.to_toml()).unwrap()).await;
        assert_eq!(merged(&volume).await, 0, "as the description says");
        set(&volume, "merge-wait-us=0").await.unwrap();
        assert_eq!(merged(&volume).await, 1);
    })
    .expect("no deadlock");
}

/// Reads every stripe for a while, which finds the slow member often.
async fn read_for(runtime: &Runtime, volume: &Volume, seconds: u64) {
    let end = runtime.now() + Duration::from_secs(seconds);
    while runtime.now() < end {
        for stripe in 0..6 {
            let memory = Buffer::zeroed(4096);
            (volume as &dyn BlockDevice).read(stripe * 65536, &memory).await.unwrap();
        }
        runtime.sleep(Duration::from_secs(5)).await;
    }
}

#[test]
fn a_slow_member_has_an_alert_until_it_has_answered_in_time_for_ten_minutes() {
    run(2, |runtime, _| async move {
        let description = Description { cache: None, ..description(Mode::WriteBack, 1) };
        let faults = [0; 3].map(|_| FaultControl::default());
        let devices = members_with(&runtime, &faults);
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
        for faults in &faults {
            faults.add(FaultRule::on(RequestKind::Read, Fault::Delay(Duration::from_millis(1))));
        }
        read_for(&runtime, &volume, 600).await;
        assert_eq!(volume.status().alerts, []);
        set(&volume, "member-read-timeout-ms=500").await.unwrap();
        set(&volume, "member-timeouts-max=off").await.unwrap();
        let told = volume.status().array.deadlines.expect("there is redundancy");
        assert_eq!(
            (told.read_timeout_ms, told.timeout_ms, told.timeouts_max),
            (Some(500), Some(30_000), None)
        );
        faults[1].clear();
        faults[1].add(FaultRule::on(RequestKind::Read, Fault::Delay(Duration::from_secs(3))));
        read_for(&runtime, &volume, 60).await;
        let alerts = volume.status().alerts;
        let alert = &alerts[0];
        assert_eq!((alerts.len(), alert.kind), (1, AlertKind::SlowMember), "{alerts:?}");
        for part in
            ["(m1) of array stack: slow ", " timeouts ", "typical read 30", " us, of its peers 10"]
        {
            assert!(alert.cause.contains(part), "{part}: {alert}");
        }
        assert!(
            alert.action.contains("`headpond array replace stack m1 --with DEVICE`"),
            "{alert}"
        );
        assert_eq!(volume.status().array.state, ArrayState::Optimal, "late as often as it likes");
        faults[1].clear();
        faults[1].add(FaultRule::on(RequestKind::Read, Fault::Delay(Duration::from_millis(1))));
        read_for(&runtime, &volume, 500).await;
        assert_eq!(volume.status().alerts.len(), 1, "not yet");
        read_for(&runtime, &volume, 200).await;
        assert_eq!(volume.status().alerts, []);
    })
    .expect("no deadlock");
}

#[test]
fn an_array_that_has_nothing_to_compare_is_not_scrubbed() {
    run(3, |runtime, _| async move {
        let description = description(Mode::WriteBack, 1);
        let core = CoreDescription { raid: Level::Raid0, ..description.core.clone() };
        let description = Description { cache: None, core, ..description };
        let devices = members(&runtime);
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
        let refused = volume.scrub_array(None).expect_err("there are no copies, and no parity");
        assert!(matches!(refused, ChangeMembersError::NoRedundancy { .. }), "{refused}");
        assert!(!volume.status().cores[0].background.scrub_wanted);
    })
    .expect("no deadlock");
}
