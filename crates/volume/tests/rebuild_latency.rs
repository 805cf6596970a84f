//! What clients feel of a rebuild on modelled drives, in virtual time.

mod support;

use headpond_block::{BlockDevice, Buffer, Geometry, Request, Runtime};
use headpond_raid::{Level, Occupied};
use headpond_sim::hdd::HddModel;
use headpond_sim::{ModelDevice, Random, SparseDevice, run};
use headpond_volume::{CoreDescription, Description, Devices, NewMember, Size, Volume};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use support::{CREATE, careful, description};
use uuid::Uuid;

const DRIVES: u64 = 8;
const MEMBER_BYTES: u64 = 1 << 40;
const DEPTH: u64 = 16;
const MEASURED: Duration = Duration::from_secs(60);
/// Small enough for every region to be marked in the intent bitmap before anything is measured.
const WORKED_ON_BYTES: u64 = 64 << 30;

fn drive(index: u64, runtime: &Runtime) -> Rc<dyn BlockDevice> {
    let model = Rc::new(HddModel::builtin("hdd-7k2-4t").expect("built in"));
    let store = SparseDevice::new(format!("m{index}").as_str(), Geometry::of_size(MEMBER_BYTES));
    Rc::new(ModelDevice::new(Rc::new(store), model, index * 1_700_000, runtime))
}

/// A RAID 6 without a cache.
async fn raid6(runtime: &Runtime) -> Rc<Volume> {
    let usual = description(headpond_cache::Mode::PassThrough, 1);
    let members = (0..DRIVES).map(|index| format!("m{index}")).collect();
    let core = CoreDescription { raid: Level::Raid6, strip: Size(64 << 10), members, ..usual.core };
    let description = Description { cache: None, core, ..usual };
    let members: Vec<_> = (0..DRIVES).map(|index| drive(index, runtime)).collect();
    let devices = || Devices {
        tier: None,
        cache: None,
        members: members.clone(),
        absent: Vec::new(),
        copies: Vec::new(),
        journals: Vec::new(),
    };
    Volume::create(&description, &devices(), &CREATE).await.expect("created");
    Rc::new(Volume::open(runtime, &description, devices(), careful()).await.expect("opens"))
}

/// The latency that one request of a hundred exceeds: random requests of 4 KiB, as many in flight
/// as `DEPTH`, three of ten of them writes.
async fn slowest_of_a_hundred(volume: &Rc<Volume>, runtime: &Runtime) -> Duration {
    let end = runtime.now() + MEASURED;
    let latencies = Rc::new(RefCell::new(Vec::new()));
    let clients = (0..DEPTH).map(|client| {
        let (volume, latencies) = (Rc::clone(volume), Rc::clone(&latencies));
        let clock = runtime.clone();
        runtime.spawn(async move {
            let mut random = Random::new(client + 1);
            let blocks = WORKED_ON_BYTES / 4096;
            // Far from the rows that are rebuilt first.
            let start = volume.geometry().size_bytes - WORKED_ON_BYTES;
            while clock.now() < end {
                let at = start + random.below(blocks) * 4096;
                let memory = Buffer::payload_free(4096);
                let request = match random.below(10) {
                    0..3 => Request::write(at, memory),
                    _ => Request::read(at, memory),
                };
                let begun = clock.now();
                volume.submit(request).await.expect("served");
                latencies.borrow_mut().push(clock.now().since(begun));
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await;
    }
    let mut latencies = latencies.take();
    latencies.sort_unstable();
    latencies[latencies.len() * 99 / 100]
}

#[test]
fn a_rebuild_at_its_usual_pace_no_more_than_doubles_the_slowest_of_a_hundred_requests() {
    run(3, |runtime, _| async move {
        let volume = raid6(&runtime).await;
        slowest_of_a_hundred(&volume, &runtime).await;
        let quiet = slowest_of_a_hundred(&volume, &runtime).await;
        volume.fail_member(None, "m3").await.expect("it can do without");
        let degraded = slowest_of_a_hundred(&volume, &runtime).await;
        let new = NewMember {
            word: "m9".into(),
            device: drive(9, &runtime),
            uuid: Uuid::from_u128(9),
            occupied: Occupied::Refuse,
        };
        volume.add_spare(None, new).await.expect("it joins");
        let rebuilding = slowest_of_a_hundred(&volume, &runtime).await;
        let filling = volume.status().array.members[3].filling.clone().expect("it goes on");
        println!("quiet {quiet:?}, degraded {degraded:?}, rebuilding {rebuilding:?}, {filling:?}");
        let rate = filling.rows_done * (64 << 10) / MEASURED.as_secs();
        let floor = volume.description().core.upkeep.floor.0;
        assert!(rate >= floor * 4 / 5, "{rate} of {floor} bytes a second: {filling:?}");
        assert!(rebuilding <= 2 * quiet, "{rebuilding:?} where it takes {quiet:?}");
    })
    .expect("goes on");
}
