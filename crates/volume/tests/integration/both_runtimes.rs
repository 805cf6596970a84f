//! One life of a volume, the same code in virtual time and on the real ring; and the memory that
//! passes through it: without payload, someone else's, and late.

use crate::support::{CREATE, careful, description};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Instant, Outcome, Request, RequestFlags,
    RequestKind, Runtime, Stability, Submission,
};
use headpond_cache::Mode;
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, SparseDevice, run};
use headpond_uring::{Allocation, FileDevice, FileOptions, RunConfig, RunError};
use headpond_volume::{Description, Devices, SettingChange, Volume};
use headpond_witness::{Client, Tally, Witness, Workload};
use std::cell::RefCell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const CACHE_BYTES: u64 = 26 << 20;
const MEMBER_BYTES: u64 = 9 << 20;

/// Reaches both slices: extents of 4 MiB take turns.
const MIXED: Workload = Workload {
    requests: 400,
    depth: 8,
    blocks: 1200,
    blocks_max: 8,
    read_percent: 25,
    flush_percent: 5,
    discard_percent: 4,
    fua_percent: 15,
    sector_percent: 30,
    ..Workload::BUSY
};

/// The cache first, then the members.
type Disks = Vec<Rc<dyn BlockDevice>>;

fn devices(disks: &Disks) -> Devices {
    let (cache, members) = (Some(Rc::clone(&disks[0])), disks[1..].to_vec());
    Devices { tier: None, cache, members, journals: Vec::new(), ..Devices::default() }
}

async fn opened(runtime: &Runtime, description: &Description, disks: &Disks) -> Rc<Volume> {
    let volume = Volume::open(runtime, description, devices(disks), careful()).await;
    Rc::new(volume.expect("opens"))
}

async fn new_volume(runtime: &Runtime, mode: Mode, slices: u16, disks: &Disks) -> Rc<Volume> {
    let description = description(mode, slices);
    Volume::create(&description, &devices(disks), &CREATE).await.expect("created");
    opened(runtime, &description, disks).await
}

/// Makes a volume, works with it as it is set, stops it, and finds everything again with the
/// members in another order. Everything succeeds.
async fn whole_life(
    runtime: Runtime,
    slices: u16,
    settings: &str,
    mut disks: Disks,
    seed: u64,
) -> Tally {
    let settings = settings.split_whitespace().map(|it| it.parse().expect("key=value"));
    let settings: Vec<SettingChange> = settings.collect();
    let volume = new_volume(&runtime, Mode::WriteBack, slices, &disks).await;
    volume.set(&settings).await.expect("settings that are allowed");
    let witness = Rc::new(RefCell::new(Witness::new(volume.geometry().size_bytes, seed)));
    let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
    client.run(&MIXED, seed).await.unwrap();
    client.check_all().await.unwrap();
    volume.self_check();
    volume.stop().await.expect("stops");
    let first = client.tally();
    disks[1..].rotate_left(1);
    let volume = opened(&runtime, &description(Mode::WriteBack, slices), &disks).await;
    assert!(volume.warnings().is_empty(), "{:?}", volume.warnings());
    volume.set(&settings).await.expect("settings that are allowed");
    let client = Client::new(volume.clone(), witness, &runtime);
    client.check_all().await.unwrap();
    volume.clean_all().await.expect("cleaned");
    client.check_all().await.unwrap();
    volume.self_check();
    volume.stop().await.expect("stops");
    for tally in [first, client.tally()] {
        assert_eq!((tally.failed_reads, tally.failed_others), (0, 0));
    }
    first
}

/// What happened at a device, and when.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Event {
    Begun { at: Instant, disk: DeviceName, kind: RequestKind, range: ByteRange, data: u64 },
    Ended { at: Instant, disk: DeviceName, range: ByteRange, flags: RequestFlags },
}

/// Writes down every operation of a disk, and what is written.
struct Recorder {
    inner: SimDisk,
    runtime: Runtime,
    events: Rc<RefCell<Vec<Event>>>,
}

impl BlockDevice for Recorder {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        let (disk, range, flags) = (self.name().clone(), request.range, request.flags);
        let mut data = DefaultHasher::new();
        if request.kind == RequestKind::Write {
            request.buffers.to_vec().hash(&mut data);
        }
        let (at, kind, data) = (self.runtime.now(), request.kind, data.finish());
        let begun = Event::Begun { at, disk: disk.clone(), kind, range, data };
        self.events.borrow_mut().push(begun);
        let submission = self.inner.submit(request);
        Submission::pending(async move {
            let outcome = submission.await;
            let at = self.runtime.now();
            self.events.borrow_mut().push(Event::Ended { at, disk, range, flags });
            outcome
        })
    }
}

fn simulated_life(seed: u64) -> (Vec<Event>, Tally) {
    let events = Rc::new(RefCell::new(Vec::new()));
    let main = async |runtime: Runtime, sim: Sim| {
        let disk = |(name, size_bytes)| -> Rc<dyn BlockDevice> {
            let medium = Rc::new(Medium::flushable(name, size_bytes));
            let (power, time) = (Power::on(), OperationTime::SOME);
            let inner = SimDisk::attach(medium, &power, &runtime, &sim, time);
            Rc::new(Recorder { inner, runtime: runtime.clone(), events: Rc::clone(&events) })
        };
        let disks = sizes().into_iter().map(disk).collect();
        whole_life(runtime.clone(), 2, "", disks, seed).await
    };
    let tally = run(seed, main).expect("no deadlock");
    (events.take(), tally)
}

fn sizes() -> [(&'static str, u64); 4] {
    [("cache", CACHE_BYTES), ("m0", MEMBER_BYTES), ("m1", MEMBER_BYTES), ("m2", MEMBER_BYTES)]
}

#[test]
fn a_simulated_life_repeats_operation_by_operation() {
    let (events, tally) = simulated_life(1);
    assert!(events.len() > 1000 && tally.succeeded >= u64::from(MIXED.requests));
    let (again, tally_again) = simulated_life(1);
    let differs = events.iter().zip(&again).position(|(one, other)| one != other);
    assert_eq!(differs.map(|at| (&events[at], &again[at])), None);
    assert_eq!((events.len(), tally), (again.len(), tally_again));
    assert!(events != simulated_life(2).0, "another seed is another run");
}

/// `None` where this machine has no ring.
fn life_on_the_ring(slices: u16, settings: &str, seed: u64) -> Option<Tally> {
    let dir = headpond_testkit::tempdir();
    let file = |ring: &_, name: &str, size_bytes| -> Rc<dyn BlockDevice> {
        let path: &Path = &dir.path().join(name);
        let options = FileOptions::new(path).create(size_bytes, Allocation::Sparse);
        Rc::new(FileDevice::open(ring, &options).expect("a file"))
    };
    let lived = headpond_uring::run(&RunConfig::default(), |ring, runtime| {
        let disks = sizes().map(|(name, size_bytes)| file(&ring, name, size_bytes)).into();
        whole_life(runtime, slices, settings, disks, seed)
    });
    match lived {
        Ok(tally) => Some(tally),
        Err(RunError::Ring(why)) => {
            headpond_testkit::skip("lives on the real ring", &why.to_string());
            None
        }
        Err(stalled) => panic!("{stalled}"),
    }
}

#[test]
fn the_same_life_passes_on_the_real_ring() {
    let Some(tally) = life_on_the_ring(2, "", 7) else { return };
    assert!(tally.succeeded >= u64::from(MIXED.requests));
}

/// Every mode, policy of each kind, and preset, on real files and in virtual time.
#[test]
fn lives_with_every_kind_of_setting_pass_on_both() {
    for (index, (slices, settings)) in [
        (2, "mode=write-through eviction=lru seq-cutoff=always"),
        (2, "mode=write-around eviction=arc"),
        (2, "mode=write-invalidate eviction=fifo"),
        (2, "mode=write-only"),
        (2, "mode=pass-through"),
        (2, "cleaning=alru promotion=nhit"),
        (2, "cleaning=acp readahead=off"),
        (1, "cleaning=ordered"),
        (2, "cleaning=nop checksums=always"),
        (2, "bypass=adaptive"),
        (2, "preset=lustre"),
        (2, "preset=acp-very-aggressive classes=past:request_size:ge:16K"),
    ]
    .into_iter()
    .enumerate()
    {
        let (seed, main) = (index as u64, async |runtime: Runtime, _| {
            whole_life(runtime, slices, settings, ram_disks(), index as u64).await
        });
        let simulated = run(seed, main).expect("no deadlock");
        let Some(lived) = life_on_the_ring(slices, settings, seed) else { return };
        assert_eq!(lived.sent, simulated.sent, "{settings}");
    }
}

/// A study of a large volume, in which what clients write takes up no memory: how many bytes the
/// members hold more after many writes.
fn payload_free_growth(mode: Mode) -> u64 {
    let tebibytes = |count: u64| count << 40;
    let main = async |runtime: Runtime, _| {
        let sparse = |name, size| Rc::new(SparseDevice::new(name, flushable(size)));
        let members = ["m0", "m1", "m2"].map(|name| sparse(name, tebibytes(8)));
        let mut disks: Disks = vec![sparse("cache", CACHE_BYTES)];
        disks.extend(members.iter().map(|member| Rc::clone(member) as Rc<dyn BlockDevice>));
        let volume = new_volume(&runtime, mode, 2, &disks).await;
        let device: &dyn BlockDevice = &*volume;
        assert!(device.size_bytes() > tebibytes(15));
        let resident = || members.iter().map(|member| member.resident_bytes()).sum::<u64>();
        let before = resident();
        for index in 0..100 {
            let offset = index * (tebibytes(15) / 100) / 4096 * 4096;
            let write = Request::write(offset, Buffer::payload_free(4096));
            let fua = if index % 3 == 0 { RequestFlags::FUA } else { RequestFlags::empty() };
            device.submit(write.with_flags(fua)).await.unwrap();
            device.read(offset, Buffer::payload_free(4096)).await.unwrap();
        }
        device.flush().await.unwrap();
        let grown = resident() - before;
        volume.self_check();
        volume.stop().await.expect("stops");
        grown
    };
    run(3, main).expect("no deadlock")
}

#[test]
fn buffers_without_payload_pass_through_terabytes() {
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::PassThrough] {
        let grown = payload_free_growth(mode);
        assert_eq!(grown, 0, "{mode:?}");
    }
}

fn ram_disks() -> Disks {
    let disk = |(name, size): (&str, u64)| Rc::new(RamDevice::with_geometry(name, flushable(size)));
    sizes().map(disk).map(|disk| disk as Rc<dyn BlockDevice>).into()
}

fn flushable(size_bytes: u64) -> Geometry {
    Geometry { stability: Stability::Flushable, ..Geometry::of_size(size_bytes) }
}

#[test]
fn odd_sectors_across_the_border_of_two_slices_are_written_and_read() {
    let bytes: Vec<u8> = (0..20 << 10).map(|at| (at % 249) as u8).collect();
    for mode in [Mode::WriteBack, Mode::WriteThrough, Mode::PassThrough] {
        let back = run(4, async |runtime: Runtime, _| {
            let volume = new_volume(&runtime, mode, 2, &ram_disks()).await;
            let device: &dyn BlockDevice = &*volume;
            let (source, target) = (Buffer::from_slice(&bytes), Buffer::zeroed(bytes.len()));
            let offset = (4 << 20) - 512 * 9;
            device.write(offset, &source).await.unwrap();
            device.read(offset, &target).await.unwrap();
            volume.self_check();
            volume.stop().await.expect("stops");
            target.to_vec()
        });
        assert!(back.expect("no deadlock") == bytes, "{mode:?}");
    }
}

/// Reads 4 KiB from slow members with a deadline of 10 ms; the buffer then and a minute later.
fn late_read(fault: Fault) -> (Vec<u8>, Vec<u8>) {
    let main = async |runtime: Runtime, _| {
        let mut disks = ram_disks();
        let control = FaultControl::default();
        for disk in &mut disks[1..] {
            *disk = Rc::new(FaultDevice::new(disk.clone(), control.clone(), runtime.clone()));
        }
        let volume = new_volume(&runtime, Mode::PassThrough, 1, &disks).await;
        let data = Buffer::from_slice(&[7; 4096]);
        (&*volume as &dyn BlockDevice).write(8192, &data).await.unwrap();
        control.add(FaultRule::on(RequestKind::Read, fault));
        let buffer = Buffer::from_slice(&[0xa5; 4096]);
        let request = Request::read(8192, &buffer);
        let reading = async move { volume.submit(request).await };
        let at = runtime.now() + Duration::from_millis(10);
        let outcome: Result<Outcome, _> = runtime.deadline(at, reading).await;
        assert!(outcome.is_err() && control.struck() > 0, "{outcome:?}");
        let at_deadline = buffer.to_vec();
        runtime.sleep(Duration::from_secs(60)).await;
        (at_deadline, buffer.to_vec())
    };
    run(5, main).expect("no deadlock")
}

#[test]
fn a_read_past_its_deadline_leaves_its_buffer_alone_until_the_device_answers() {
    let delayed = late_read(Fault::Delay(Duration::from_secs(1)));
    assert!(
        delayed == (vec![0xa5; 4096], vec![7; 4096]),
        "the answer comes late, into live memory"
    );
    let hung = late_read(Fault::Hang);
    assert!(hung == (vec![0xa5; 4096], vec![0xa5; 4096]), "no answer, no change");
}

/// Where nothing is written, no request waits for the member: its peers answer.
#[test]
fn a_member_that_hangs_is_evicted_by_its_deadline_though_all_requests_are_reads() {
    let main = async |runtime: Runtime, _| {
        let mut disks = ram_disks();
        let control = FaultControl::default();
        disks[2] = Rc::new(FaultDevice::new(disks[2].clone(), control.clone(), runtime.clone()));
        let volume = new_volume(&runtime, Mode::PassThrough, 1, &disks).await;
        volume.set(&["member-timeout-ms=5000".parse().unwrap()]).await.unwrap();
        control.add(FaultRule::on(RequestKind::Read, Fault::Hang));
        let whole = Buffer::zeroed(4 << 20);
        (&*volume as &dyn BlockDevice).read(0, &whole).await.expect("by the peers");
        assert!(control.struck() > 0);
        let state = || volume.status().array.state;
        assert_eq!(state(), headpond_raid::ArrayState::Optimal, "it may only be busy");
        runtime.sleep(Duration::from_secs(10)).await;
        assert_eq!(state(), headpond_raid::ArrayState::Degraded);
        volume.self_check();
        volume.stop().await.expect("stops");
    };
    run(7, main).expect("no deadlock");
}
