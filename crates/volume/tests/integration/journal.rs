//! A volume with a stripe journal: what `status` says of the write hole, and what is alarmed.

use crate::support::{CREATE, careful, description};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Geometry};
use headpond_cache::Mode;
use headpond_raid::JournalWhen;
use headpond_sim::run;
use headpond_volume::{AlertKind, Description, Devices, JournalDescription, Volume};
use std::rc::Rc;

fn device(name: &str) -> Rc<dyn BlockDevice> {
    Rc::new(RamDevice::with_geometry(name, Geometry::of_size(32 << 20)))
}

fn described(when: JournalWhen) -> Description {
    let mut description = Description { cache: None, ..description(Mode::WriteBack, 1) };
    description.core.journal = Some(JournalDescription::of("journal".into(), when));
    Description::parse(&description.to_toml()).expect("it is read as it was written")
}

fn write_hole(volume: &Volume) -> String {
    volume.status().cores[0].write_hole.clone().expect("there is parity")
}

#[test]
fn status_says_how_the_write_hole_is_closed_and_alarms_where_the_journal_is_lost() {
    run(1, |runtime, _| async move {
        let members: Vec<_> = ["m0", "m1", "m2"].map(device).into();
        let journal = device("journal");
        let with = |members: &[Rc<dyn BlockDevice>], journals: Vec<Rc<dyn BlockDevice>>| Devices {
            members: members.to_vec(),
            journals,
            ..Devices::default()
        };
        let description = described(JournalWhen::Degraded);
        let devices = with(&members, vec![journal.clone()]);
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
        assert!(write_hole(&volume).ends_with("degraded: closed by the stripe journal on journal"));
        assert_eq!(volume.status().alerts, []);
        volume.stop().await.unwrap();

        let devices = with(&members[1..], vec![]);
        let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
        assert!(write_hole(&volume).contains("writes are refused"));
        let alert = volume.status().alerts.remove(0);
        assert_eq!(alert.kind, AlertKind::JournalLost);
        assert!(alert.action.contains("add-spare"), "{alert}");
        let write = (&volume as &dyn BlockDevice).write(0, Buffer::zeroed(4096)).await;
        assert!(write.is_err(), "it is not to be torn");
        volume.stop().await.unwrap();

        let devices = with(&members[1..], vec![journal]);
        let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
        (&volume as &dyn BlockDevice).write(0, Buffer::zeroed(4096)).await.unwrap();
        assert_eq!(volume.status().alerts, []);
        drop(volume);
        let devices = with(&members, vec![device("empty")]);
        let destroyed = Volume::destroy(&description, &devices).await;
        assert_eq!(destroyed.erased, 3, "what belongs to nobody is left alone");
    })
    .expect("no deadlock");
}

#[test]
fn without_a_journal_a_degraded_array_is_said_to_refuse() {
    run(1, |runtime, _| async move {
        let description = Description { cache: None, ..description(Mode::WriteBack, 1) };
        let members = ["m0", "m1", "m2"].map(device).into();
        let devices = Devices { members, ..Devices::default() };
        Volume::create(&description, &devices, &CREATE).await.unwrap();
        let volume = Volume::open(&runtime, &description, devices, careful()).await.unwrap();
        assert!(
            write_hole(&volume).ends_with("degraded: refuses to start after an unclean shutdown")
        );
    })
    .expect("no deadlock");
}
