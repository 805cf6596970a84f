//! Parity that was never computed: computed while the volume is served, and worth its name then.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::{BlockDevice, Buffer, RequestKind, Runtime};
use headpond_cache::Mode;
use headpond_raid::{ArrayState, Contents};
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run};
use headpond_volume::{CreateOptions, Devices, JobKind, Volume};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

const MEMBER_BYTES: u64 = 6 << 20;
const CACHE_BYTES: u64 = 16 << 20;
const WORKLOAD: Workload = Workload { requests: 60, blocks: 400, ..Workload::BUSY };

/// A cache and three members that held something else before.
struct Bench {
    runtime: Runtime,
    cache: Rc<dyn BlockDevice>,
    members: Vec<Rc<dyn BlockDevice>>,
    first_member: FaultControl,
}

impl Bench {
    fn new(runtime: Runtime, sim: &Sim) -> Self {
        let attach = |medium: Medium| -> Rc<dyn BlockDevice> {
            let (power, time) = (Power::on(), OperationTime::SOME);
            Rc::new(SimDisk::attach(Rc::new(medium), &power, &runtime, sim, time))
        };
        let member = |index: u8| {
            let medium = Medium::flushable(&*format!("m{index}"), MEMBER_BYTES);
            medium.poke(2 << 20, &vec![index + 1; 4 << 20]);
            attach(medium)
        };
        let mut members: Vec<_> = (0..3).map(member).collect();
        let first_member = FaultControl::default();
        let faulty = FaultDevice::new(members[0].clone(), first_member.clone(), runtime.clone());
        members[0] = Rc::new(faulty);
        let cache = attach(Medium::flushable("cache", CACHE_BYTES));
        Self { runtime, cache, members, first_member }
    }

    fn devices(&self) -> Devices {
        let (cache, members) = (Some(Rc::clone(&self.cache)), self.members.clone());
        Devices { tier: None, cache, members, journals: Vec::new(), ..Devices::default() }
    }

    async fn create(&self) {
        let options = CreateOptions { contents: Contents::Unknown, ..CREATE };
        let description = description(Mode::PassThrough, 1);
        Volume::create(&description, &self.devices(), &options).await.expect("created");
    }

    async fn open(&self) -> Rc<Volume> {
        let description = description(Mode::PassThrough, 1);
        let volume = Volume::open(&self.runtime, &description, self.devices(), careful()).await;
        Rc::new(volume.expect("opens"))
    }

    async fn until_initialised(&self, volume: &Volume) {
        for _ in 0..10_000 {
            if volume.status().array.parity_initialised {
                return;
            }
            self.runtime.sleep(Duration::from_millis(10)).await;
        }
        panic!("still at it: {:?}", volume.status());
    }
}

#[test]
fn parity_is_computed_while_requests_are_served_and_then_replaces_a_member() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(runtime.clone(), &sim);
        bench.create().await;
        let volume = bench.open().await;
        runtime.sleep(Duration::from_millis(1)).await;
        let told = volume.status().warnings.join("; ");
        assert!(told.contains("initial sync of the parity"), "{told}");
        let witness = Rc::new(RefCell::new(Witness::new(volume.geometry().size_bytes, 7)));
        let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
        client.run(&WORKLOAD, 7).await.unwrap();
        assert!(volume.status().array.progress.initialising.is_some(), "the load outlasts nothing");
        let jobs = volume.status().jobs;
        let total_bytes = volume.geometry().size_bytes;
        assert_eq!((jobs[0].job, jobs[0].total_bytes), (JobKind::Parity, total_bytes), "{jobs:?}");
        assert!(jobs[0].left_s.is_some_and(|left_s| left_s > 0.0), "{jobs:?}");
        bench.until_initialised(&volume).await;
        assert!(volume.status().warnings.is_empty(), "{:?}", volume.status().warnings);
        assert_eq!(volume.status().jobs, []);
        // Where nobody has written, the members still hold what they held before.
        let far = volume.geometry().size_bytes - (1 << 20);
        let before = read(&volume, far).await;
        for kind in [RequestKind::Read, RequestKind::Write] {
            bench.first_member.add(FaultRule::on(kind, Fault::Gone));
        }
        client.check_all().await.unwrap();
        assert_eq!(read(&volume, far).await, before);
        assert_eq!(volume.status().array.state, ArrayState::Degraded);
        assert_eq!(client.tally().failed_reads, 0);
        volume.self_check();
        volume.stop().await.expect("stops");
    };
    run(3, main).expect("no deadlock");
}

#[test]
fn a_stop_interrupts_it_and_the_next_open_has_it_go_on() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(runtime.clone(), &sim);
        bench.create().await;
        let volume = bench.open().await;
        runtime.sleep(Duration::from_millis(2)).await;
        assert!(volume.status().array.progress.initialising.is_some_and(|at| at.stripes > 0));
        volume.self_check();
        volume.stop().await.expect("stops");
        let volume = bench.open().await;
        assert!(!volume.status().array.parity_initialised);
        bench.until_initialised(&volume).await;
        volume.self_check();
        volume.stop().await.expect("stops");
        assert!(bench.open().await.status().array.parity_initialised, "it is recorded");
    };
    run(4, main).expect("no deadlock");
}

async fn read(volume: &Rc<Volume>, offset: u64) -> Vec<u8> {
    let buffer = Buffer::zeroed(1 << 18);
    (&**volume as &dyn BlockDevice).read(offset, &buffer).await.expect("read");
    buffer.to_vec()
}
