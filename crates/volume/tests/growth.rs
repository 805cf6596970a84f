//! Arrays of a served volume that are given more members.

mod support;

use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, BufferPool, PoolConfig, Runtime};
use headpond_cache::Mode;
use headpond_raid::{GrowError, Occupied};
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run};
use headpond_volume::{
    ActKind, AttachError, ChangeMembersError, Description, Devices, GrowBy, NewMember, Pace, Size,
    Volume,
};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use support::{CREATE, careful, description};
use uuid::Uuid;

const MEMBER_BYTES: u64 = 6 << 20;
const WORKLOAD: Workload = Workload { requests: 60, blocks: 400, ..Workload::BUSY };

/// Four disks, of which three are a volume without a cache.
struct Bench {
    runtime: Runtime,
    disks: Vec<Rc<dyn BlockDevice>>,
    description: Description,
}

impl Bench {
    async fn new(runtime: &Runtime, sim: &Sim, description: Description) -> Self {
        let attach = |index: usize| -> Rc<dyn BlockDevice> {
            let medium = Medium::flushable(&*format!("m{index}"), MEMBER_BYTES);
            let (power, time) = (Power::on(), OperationTime::SOME);
            Rc::new(SimDisk::attach(Rc::new(medium), &power, runtime, sim, time))
        };
        let disks: Vec<_> = (0..5).map(attach).collect();
        let bench = Self { runtime: runtime.clone(), disks, description };
        let devices = bench.devices(3);
        Volume::create(&bench.description, &devices, &CREATE).await.expect("created");
        bench
    }

    fn devices(&self, members: usize) -> Devices {
        let cache = self.description.cache.as_ref().map(|_| Rc::clone(&self.disks[4]));
        let members = self.disks[..members].to_vec();
        Devices { tier: None, cache, members, journals: Vec::new(), absent: Vec::new() }
    }

    async fn open(&self, description: &Description, members: usize) -> Rc<Volume> {
        let devices = self.devices(members);
        let volume = Volume::open(&self.runtime, description, devices, careful()).await;
        Rc::new(volume.expect("opens"))
    }

    async fn grow(&self, volume: &Volume) -> Result<(), ChangeMembersError> {
        self.grow_by(volume, 3).await
    }

    async fn grow_by(&self, volume: &Volume, index: usize) -> Result<(), ChangeMembersError> {
        let new = GrowBy::New(NewMember {
            word: format!("m{index}"),
            device: Rc::clone(&self.disks[index]),
            uuid: Uuid::from_u128(0x333),
            occupied: Occupied::Refuse,
        });
        volume.grow_array(None, vec![new], BufferPool::new(&PoolConfig::small())).await
    }

    /// A cache would be made for the size before, and the volume has that as long as it serves.
    async fn check_that_a_start_comes_first(&self, volume: &Volume) {
        let described = description(Mode::WriteBack, 1).cache.expect("it has one");
        let (device, uuid) = (Rc::clone(&self.disks[4]), Uuid::from_u128(0xca));
        let made = volume.make_cache(device, described, uuid, Occupied::Refuse).await;
        assert!(matches!(made, Err(AttachError::Growing { .. })));
        let again = self.grow_by(volume, 4).await.unwrap_err();
        let ChangeMembersError::Grow(GrowError::Grown { .. }) = again else { panic!("{again}") };
    }

    async fn until_grown(&self, volume: &Volume) {
        for _ in 0..10_000 {
            if volume.status().array.growth.is_none() {
                return;
            }
            self.runtime.sleep(Duration::from_millis(10)).await;
        }
        panic!("still at it: {:?}", volume.status());
    }
}

fn without_cache() -> Description {
    Description { cache: None, ..description(Mode::PassThrough, 1) }
}

#[test]
fn a_volume_grows_under_load_across_a_stop_and_has_more_room_after_the_next() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, without_cache()).await;
        let volume = bench.open(&bench.description, 3).await;
        let size_bytes = volume.geometry().size_bytes;
        let witness = Rc::new(RefCell::new(Witness::new(size_bytes, 7)));
        let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
        client.run(&WORKLOAD, 7).await.unwrap();
        volume.set_pace(None, |_| Pace { floor: Size(1 << 20), ceiling: None }).unwrap();
        let load = async { client.run(&WORKLOAD, 8).await.unwrap() };
        let growth = async { bench.grow(&volume).await.expect("possible") };
        let both: [Pin<Box<dyn Future<Output = ()> + '_>>; 2] = [Box::pin(load), Box::pin(growth)];
        join_all(both.into()).await;
        runtime.sleep(Duration::from_millis(1)).await;
        let status = volume.status();
        assert!(status.array.growth.is_some_and(|it| it.rows_done < it.rows), "{status:?}");
        assert_eq!(status.acts[0].act, ActKind::Growth);
        assert_eq!(volume.description().core.members, ["m0", "m1", "m2", "m3"]);
        assert!(volume.description().core.spares.is_empty());
        client.check_all().await.unwrap();
        volume.stop().await.expect("stops");
        let described = volume.description();
        let volume = bench.open(&described, 4).await;
        assert_eq!(volume.geometry().size_bytes, size_bytes);
        let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
        client.check_all().await.unwrap();
        client.run(&WORKLOAD, 9).await.unwrap();
        volume.set_pace(None, |_| Pace { floor: Size(1 << 30), ceiling: None }).unwrap();
        bench.until_grown(&volume).await;
        client.check_all().await.unwrap();
        bench.check_that_a_start_comes_first(&volume).await;
        volume.stop().await.expect("stops");
        let volume = bench.open(&volume.description(), 4).await;
        assert!(volume.geometry().size_bytes > size_bytes + size_bytes / 3);
        Client::new(volume.clone(), witness, &runtime).check_all().await.unwrap();
        volume.stop().await.expect("stops");
    };
    run(3, main).expect("no deadlock");
}

#[test]
fn a_volume_with_a_cache_or_with_a_growing_array_refuses_to_grow() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, description(Mode::WriteBack, 1)).await;
        let volume = bench.open(&bench.description, 3).await;
        let refused = bench.grow(&volume).await;
        assert!(matches!(refused, Err(ChangeMembersError::HasCache { .. })), "{refused:?}");
        volume.stop().await.expect("stops");
    };
    run(4, main).expect("no deadlock");
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, without_cache()).await;
        let volume = bench.open(&bench.description, 3).await;
        bench.grow(&volume).await.expect("possible");
        let by = vec![GrowBy::Spare("m0".into())];
        let pool = BufferPool::new(&PoolConfig::small());
        let again = volume.grow_array(None, by, pool).await;
        let Err(ChangeMembersError::Grow(GrowError::Growing { .. })) = again else {
            panic!("{again:?}")
        };
        bench.until_grown(&volume).await;
        volume.stop().await.expect("stops");
    };
    run(5, main).expect("no deadlock");
}
