//! A what-if run: the same requests without payload take the same steps as with it, from the write
//! through the log and its reclaim and the cleaning onto the members to the read.

use crate::support::{CREATE, careful, description};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Instant, Request, RequestFlags, Runtime,
    Stability,
};
use headpond_cache::Mode;
use headpond_raid::Level;
use headpond_sim::hdd::HddModel;
use headpond_sim::{
    Medium, ModelDevice, OperationTime, Power, Random, Sim, SimDisk, SparseDevice, run,
};
use headpond_volume::{Description, Devices, Volume, VolumeStats};
use std::rc::Rc;

const MEMBERS: usize = 6;
const CACHE_BYTES: u64 = 24 << 20;
/// So that the log goes round more than once.
const WRITTEN_BYTES: u64 = 2 * CACHE_BYTES;

/// What the requests bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    Bytes,
    Free,
}

/// What the members are.
#[derive(Clone, Copy, Debug)]
enum Drives {
    Modelled,
    SimDisks,
}

/// What a run came to: its figures after each of its parts, and the time then.
#[derive(Debug)]
struct Course {
    figures: Vec<(VolumeStats, Instant)>,
    /// Of modelled members: what the requests left in their memory.
    grown_bytes: u64,
}

fn raid6() -> Description {
    let mut description = description(Mode::WriteBack, 1);
    description.core.raid = Level::Raid6;
    description.core.members = (0..MEMBERS).map(|index| format!("m{index}")).collect();
    description
}

/// The devices of a machine.
struct Machine {
    disks: Vec<Rc<dyn BlockDevice>>,
    stores: Vec<Rc<SparseDevice>>,
}

impl Machine {
    fn new(drives: Drives, runtime: &Runtime, sim: &Sim) -> Self {
        let sim_disk = |name: &str, size_bytes| -> Rc<dyn BlockDevice> {
            let medium = Rc::new(Medium::flushable(name, size_bytes));
            Rc::new(SimDisk::attach(medium, &Power::on(), runtime, sim, OperationTime::SOME))
        };
        let mut machine = Self { disks: vec![sim_disk("cache", CACHE_BYTES)], stores: Vec::new() };
        let model = Rc::new(HddModel::builtin("hdd-7k2-4t").expect("a model of that name"));
        for index in 0..MEMBERS {
            let name = DeviceName::new(format!("m{index}"));
            match drives {
                Drives::SimDisks => machine.disks.push(sim_disk(name.as_str(), 32 << 20)),
                Drives::Modelled => {
                    let stability = Stability::Flushable;
                    let size = Geometry::of_size(model.size_bytes());
                    let store = Rc::new(SparseDevice::new(name, Geometry { stability, ..size }));
                    machine.stores.push(Rc::clone(&store));
                    let drive = ModelDevice::new(store, Rc::clone(&model), 0, runtime);
                    machine.disks.push(Rc::new(drive));
                }
            }
        }
        machine
    }

    fn devices(&self) -> Devices {
        let (cache, members) = (Some(Rc::clone(&self.disks[0])), self.disks[1..].to_vec());
        Devices { tier: None, cache, members, journals: Vec::new(), ..Devices::default() }
    }

    fn resident_bytes(&self) -> u64 {
        self.stores.iter().map(|store| store.resident_bytes()).sum()
    }
}

fn memory(payload: Payload, len: u64, byte: u8) -> Buffer {
    match payload {
        Payload::Free => Buffer::payload_free(len as usize),
        Payload::Bytes => {
            let buffer = Buffer::zeroed(len as usize);
            buffer.fill(byte);
            buffer
        }
    }
}

/// Requests of whole blocks, and of sectors, over an area that is larger than the cache.
async fn write_much(device: &dyn BlockDevice, payload: Payload, random: &mut Random) {
    let area_blocks = (64 << 20) / 4096;
    let mut written = 0;
    for index in 0.. {
        let len = if index % 9 == 0 { 1536 } else { 4096 * (1 + random.below(24)) };
        let offset = random.below(area_blocks) * 4096 + if index % 9 == 0 { 512 } else { 0 };
        let fua = if index % 7 == 0 { RequestFlags::FUA } else { RequestFlags::empty() };
        let write = Request::write(offset, memory(payload, len, index as u8)).with_flags(fua);
        device.submit(write).await.expect("written");
        written += len;
        if written > WRITTEN_BYTES {
            break;
        }
    }
    device.flush().await.expect("flushed");
    device.submit(Request::discard(ByteRange::at(1 << 20, 1 << 20))).await.expect("discarded");
}

async fn read_much(device: &dyn BlockDevice, payload: Payload, random: &mut Random) {
    for index in 0..2000u64 {
        let (len, within) = if index % 9 == 0 { (1024, 512) } else { (8192, 0) };
        let offset = random.below((64 << 20) / 4096) * 4096 + within;
        device.read(offset, memory(payload, len, 0)).await.expect("read");
    }
}

fn course(drives: Drives, payload: Payload) -> Course {
    let main = async |runtime: Runtime, sim: Sim| {
        let machine = Machine::new(drives, &runtime, &sim);
        let description = raid6();
        Volume::create(&description, &machine.devices(), &CREATE).await.expect("created");
        let opening = Volume::open(&runtime, &description, machine.devices(), careful());
        let volume = opening.await.expect("opens");
        let mut figures = Vec::new();
        let mut note = || figures.push((volume.stats(), runtime.now()));
        let (mut random, before) = (Random::new(11), machine.resident_bytes());
        write_much(&volume, payload, &mut random).await;
        note();
        read_much(&volume, payload, &mut random).await;
        note();
        volume.clean_all().await.expect("cleaned");
        note();
        read_much(&volume, payload, &mut random).await;
        note();
        let grown_bytes = machine.resident_bytes() - before;
        volume.stop().await.expect("stops");
        Course { figures, grown_bytes }
    };
    run(5, main).expect("no deadlock")
}

fn without_payload_is_as_with_it(drives: Drives) {
    let (with, without) = (course(drives, Payload::Bytes), course(drives, Payload::Free));
    for (part, (one, other)) in with.figures.iter().zip(&without.figures).enumerate() {
        assert_eq!(one.0.slices, other.0.slices, "{drives:?}, part {part}");
        assert_eq!((one.0.array, one.1), (other.0.array, other.1), "{drives:?}, part {part}");
    }
    let stats = &without.figures[3].0;
    let (slice, counters) = (&stats.slices[0], &stats.slices[0].counters);
    assert_eq!((slice.dirty_bytes, slice.lost_blocks), (0, 0));
    assert_eq!(counters.errors, Default::default());
    assert!(counters.cleaned_blocks > 2000 && counters.segments_reclaimed > 10, "{counters:?}");
    assert!(counters.reinserted_blocks > 0 && counters.inserted_blocks > 0, "{counters:?}");
    assert!(counters.read.hits > 200 && counters.read.misses > 200, "{counters:?}");
    assert!(stats.array.reconstruct_writes + stats.array.read_modify_writes > 100);
    assert_eq!(without.grown_bytes, 0, "no payload reaches the members");
    assert!(with.grown_bytes > 0 || matches!(drives, Drives::SimDisks));
}

#[test]
fn without_payload_a_run_on_modelled_drives_has_the_same_figures() {
    without_payload_is_as_with_it(Drives::Modelled);
}

#[test]
fn without_payload_a_run_on_simulated_disks_has_the_same_figures() {
    without_payload_is_as_with_it(Drives::SimDisks);
}
