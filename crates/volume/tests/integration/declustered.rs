//! A declustered array that heals by itself while it is served.

use crate::support::{CREATE, careful, description};
use headpond_block::{BlockDevice, Runtime};
use headpond_cache::Mode;
use headpond_raid::superblock::RoleState;
use headpond_raid::{ArrayState, Occupied, Spread};
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run};
use headpond_volume::{Description, Devices, JobKind, NewMember, Volume};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const MEMBERS: usize = 7;
const MEMBER_BYTES: u64 = 5 << 20;
const WORKLOAD: Workload = Workload { requests: 200, blocks: 400, ..Workload::BUSY };

fn declustered() -> Description {
    let mut description = description(Mode::PassThrough, 1);
    description.core.members = (0..MEMBERS).map(|member| format!("m{member}")).collect();
    description.core.declustered = Some(Spread { width: 3, spares: 1 });
    description
}

fn disk(name: &str, bytes: u64, runtime: &Runtime, sim: &Sim) -> Rc<dyn BlockDevice> {
    let medium = Rc::new(Medium::flushable(name, bytes));
    Rc::new(SimDisk::attach(medium, &Power::on(), runtime, sim, OperationTime::SOME))
}

async fn until(volume: &Volume, runtime: &Runtime, is_so: impl Fn(&Volume) -> bool) {
    for _ in 0..20_000 {
        if is_so(volume) {
            return;
        }
        runtime.sleep(Duration::from_millis(1)).await;
    }
    panic!("it does not come: {:?}", volume.status().array);
}

#[test]
fn spare_space_stands_in_unasked_and_a_new_device_gives_it_back() {
    let main = async |runtime: Runtime, sim: Sim| {
        let disk = |name: &str, bytes| disk(name, bytes, &runtime, &sim);
        let described = declustered();
        let members: Vec<_> =
            (0..MEMBERS).map(|index| disk(&format!("m{index}"), MEMBER_BYTES)).collect();
        let cache = Some(disk("cache", 16 << 20));
        let devices = || Devices {
            tier: None,
            cache: cache.clone(),
            members: members.clone(),
            journals: Vec::new(),
            ..Devices::default()
        };
        Volume::create(&described, &devices(), &CREATE).await.expect("created");
        let volume = Volume::open(&runtime, &described, devices(), careful()).await;
        let volume = Rc::new(volume.expect("opens"));
        let witness = Rc::new(RefCell::new(Witness::new(volume.geometry().size_bytes, 7)));
        let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
        client.run(&WORKLOAD, 7).await.unwrap();
        let shown = volume.status().array.declustered.unwrap();
        assert_eq!((shown.width, shown.spares, shown.spares_free), (3, 1, 1));

        volume.fail_member(None, "m2").await.unwrap();
        until(&volume, &runtime, |it| !it.status().jobs.is_empty()).await;
        assert_eq!(volume.status().jobs[0].job, JobKind::StandIn, "unasked");
        client.run(&WORKLOAD, 8).await.unwrap();
        until(&volume, &runtime, |it| it.status().array.state == ArrayState::Optimal).await;
        let status = volume.status().array;
        let stand_in = status.members[2].stand_in.clone().unwrap();
        assert_eq!((stand_in.slot, stand_in.rows_done), (0, stand_in.rows));
        assert_eq!(status.declustered.unwrap().spares_free, 0);

        volume.fail_member(None, "m5").await.unwrap();
        assert_eq!(volume.status().array.state, ArrayState::Degraded, "no slot is left");
        client.check_all().await.unwrap();
        for (name, uuid) in [("n0", 1), ("n1", 2)] {
            let (device, uuid) = (disk(name, MEMBER_BYTES), Uuid::from_u128(uuid));
            let (word, occupied) = (name.to_owned(), Occupied::Refuse);
            let new = NewMember { word, device, uuid, occupied };
            volume.add_spare(None, new).await.unwrap();
        }
        let is_whole = |it: &Volume| {
            it.status().array.members.iter().all(|member| member.state == RoleState::Active)
        };
        until(&volume, &runtime, is_whole).await;
        let status = volume.status().array;
        assert_eq!(
            (status.state, status.declustered.unwrap().spares_free),
            (ArrayState::Optimal, 1)
        );
        volume.fail_member(None, "m0").await.unwrap();
        client.check_all().await.unwrap();
        assert_eq!(client.tally().failed_reads, 0);
        volume.stop().await.expect("stops");
    };
    run(3, main).expect("no deadlock");
}
