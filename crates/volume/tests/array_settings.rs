//! What of the arrays is set while a volume is served, with a cache or without.

mod support;

use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, RequestKind, Runtime};
use headpond_cache::Mode;
use headpond_sim::run;
use headpond_volume::{Description, Devices, SetError, Volume};
use std::rc::Rc;
use std::time::Duration;
use support::{CREATE, careful, description};

/// Members of which writes take a millisecond.
fn members(runtime: &Runtime) -> Devices {
    let member = |index| -> Rc<dyn BlockDevice> {
        let memory = Rc::new(RamDevice::new(format!("m{index}").as_str(), 32 << 20));
        let faults = FaultControl::default();
        faults.add(FaultRule::on(RequestKind::Write, Fault::Delay(Duration::from_millis(1))));
        Rc::new(FaultDevice::new(memory, faults, runtime.clone()))
    };
    Devices { members: (0..3).map(member).collect(), ..Devices::default() }
}

fn set(volume: &Volume, text: &str) -> Result<(), SetError> {
    volume.set(&[text.parse().expect("a change")])
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
        set(&volume, "merge-wait-us=off").unwrap();
        assert_eq!(merged(&volume).await, 0);
        assert!(matches!(set(&volume, "merge-wait-us=soon"), Err(SetError::Setting(_))));
        assert!(matches!(set(&volume, "mode=write-through"), Err(SetError::NoCache { .. })));
        let kept = volume.description();
        assert!(kept.to_toml().contains("[array]\nmerge_wait_us = \"off\""), "{}", kept.to_toml());
        volume.stop().await.unwrap();
        let volume = open(&Description::parse(&kept.to_toml()).unwrap()).await;
        assert_eq!(merged(&volume).await, 0, "as the description says");
        set(&volume, "merge-wait-us=0").unwrap();
        assert_eq!(merged(&volume).await, 1);
    })
    .expect("no deadlock");
}
