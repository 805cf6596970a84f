//! Arrays of a served volume that are given more members.

use crate::support::{CREATE, careful, description};
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, Buffer, BufferPool, ByteRange, PoolConfig, Request, Runtime};
use headpond_cache::{CleaningPolicy, Mode};
use headpond_raid::{GrowError, Level, Occupied};
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run};
use headpond_volume::{
    BackgroundRate, ChangeMembersError, CoreDescription, Description, Devices, Dirty,
    FurtherCoreDescription, GrowBy, JobKind, NewMember, Size, Volume,
};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::future::ready;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const MEMBER_BYTES: u64 = 6 * MIB;
/// Of the last disk.
const CACHE_BYTES: u64 = 24 * MIB;
const WORKLOAD: Workload = Workload { requests: 60, blocks: 400, ..Workload::BUSY };

/// Disks, of which three are a volume, and one may be its cache.
struct Bench {
    runtime: Runtime,
    disks: Vec<Rc<dyn BlockDevice>>,
    description: Description,
}

impl Bench {
    async fn new(runtime: &Runtime, sim: &Sim, description: Description) -> Self {
        let attach = |index: usize| -> Rc<dyn BlockDevice> {
            let size_bytes = if index == 4 { CACHE_BYTES } else { MEMBER_BYTES };
            let medium = Medium::flushable(&*format!("m{index}"), size_bytes);
            let (power, time) = (Power::on(), OperationTime::SOME);
            Rc::new(SimDisk::attach(Rc::new(medium), &power, runtime, sim, time))
        };
        let disks: Vec<_> = (0..7).map(attach).collect();
        let bench = Self { runtime: runtime.clone(), disks, description };
        let devices = bench.devices(&bench.description, 3);
        Volume::create(&bench.description, &devices, &CREATE).await.expect("created");
        bench
    }

    fn devices(&self, description: &Description, members: usize) -> Devices {
        let cache = description.cache.as_ref().map(|_| Rc::clone(&self.disks[4]));
        let is_member = |index: &usize| cache.is_none() || *index != 4;
        let indexes = (0..self.disks.len()).filter(is_member).take(members);
        let members = indexes.map(|index| Rc::clone(&self.disks[index])).collect();
        Devices { tier: None, cache, members, journals: Vec::new(), ..Devices::default() }
    }

    async fn open(&self, description: &Description, members: usize) -> Rc<Volume> {
        let devices = self.devices(description, members);
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
            uuid: Uuid::from_u128(0x330 + index as u128),
            occupied: Occupied::Refuse,
        });
        volume.grow_array(None, vec![new], BufferPool::new(&PoolConfig::small())).await
    }

    /// Puts a cache in front of it, on the disk that is left over.
    async fn attach(&self, volume: &Volume) {
        let described = description(Mode::WriteBack, 1).cache.expect("it has one");
        let (device, uuid) = (Rc::clone(&self.disks[4]), Uuid::from_u128(0xca));
        let made = volume.make_cache(device, described, uuid, Occupied::Refuse).await;
        volume
            .attach(made.expect("a cache"), &|_| Box::pin(ready(Ok(()))))
            .await
            .expect("attached");
    }

    async fn until_grown(&self, volume: &Volume) {
        for _ in 0..10_000 {
            if volume.status().array.reshape.is_none() {
                return;
            }
            self.runtime.sleep(Duration::from_millis(10)).await;
        }
        panic!("still at it: {:?}", volume.status());
    }
}

/// Dirty data stays in the cache until it is asked for.
fn never_cleaned() -> Description {
    let mut description = description(Mode::WriteBack, 1);
    let cache = description.cache.as_mut().expect("it has one");
    cache.settings.cleaning.policy = CleaningPolicy::Nop;
    description
}

/// Writes across the end that there was, up to the one there is, and finds it there.
async fn check_new_room(volume: &Rc<Volume>, size_bytes: u64, byte: u8) {
    let device = Rc::clone(volume) as Rc<dyn BlockDevice>;
    let start = size_bytes - MIB;
    let bytes = vec![byte; (volume.geometry().size_bytes - start) as usize];
    let written = Buffer::from_slice(&bytes);
    for range in ByteRange::at(start, bytes.len() as u64).split_at_multiples(MIB) {
        let at = (range.start() - start) as usize;
        let part = written.slice(at..at + range.len() as usize);
        device.write(range.start(), part).await.expect("there is room");
    }
    device.flush().await.expect("flushed");
    check_room(volume, size_bytes, byte).await;
}

async fn check_room(volume: &Rc<Volume>, size_bytes: u64, byte: u8) {
    let device = Rc::clone(volume) as Rc<dyn BlockDevice>;
    let start = size_bytes - MIB;
    for range in ByteRange::at(start, volume.geometry().size_bytes - start).split_at_multiples(MIB)
    {
        let found = Buffer::zeroed(range.len() as usize);
        device.read(range.start(), &found).await.expect("readable");
        assert!(found.to_vec().iter().all(|it| *it == byte), "{range:?}");
    }
    let behind = Request::read(volume.geometry().size_bytes, Buffer::zeroed(4096));
    assert!(device.submit(behind).await.is_err(), "no more than there is");
}

fn without_cache() -> Description {
    Description { cache: None, ..description(Mode::PassThrough, 1) }
}

#[test]
fn a_volume_grows_under_load_across_a_stop_and_has_more_room_as_soon_as_it_has_grown() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, without_cache()).await;
        let volume = bench.open(&bench.description, 3).await;
        let size_bytes = volume.geometry().size_bytes;
        let witness = Rc::new(RefCell::new(Witness::new(size_bytes, 7)));
        let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
        client.run(&WORKLOAD, 7).await.unwrap();
        volume
            .set_background_rate(None, |_| BackgroundRate { min: Size(1 << 20), max: None })
            .unwrap();
        let load = async { client.run(&WORKLOAD, 8).await.unwrap() };
        let reshape = async { bench.grow(&volume).await.expect("possible") };
        let both: [Pin<Box<dyn Future<Output = ()> + '_>>; 2] = [Box::pin(load), Box::pin(reshape)];
        join_all(both.into()).await;
        runtime.sleep(Duration::from_millis(1)).await;
        let status = volume.status();
        assert!(status.array.reshape.is_some_and(|it| it.rows_done < it.rows), "{status:?}");
        assert_eq!(status.jobs[0].job, JobKind::Reshape);
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
        volume
            .set_background_rate(None, |_| BackgroundRate { min: Size(1 << 30), max: None })
            .unwrap();
        let told = volume.geometry();
        bench.until_grown(&volume).await;
        client.check_all().await.unwrap();
        let grown_bytes = volume.geometry().size_bytes;
        assert!(grown_bytes > size_bytes + size_bytes / 3, "at once");
        assert_eq!((told.size_bytes, volume.status().size_bytes), (size_bytes, grown_bytes));
        check_new_room(&volume, size_bytes, 1).await;
        volume.stop().await.expect("stops");
        let volume = bench.open(&volume.description(), 4).await;
        assert_eq!(volume.geometry().size_bytes, grown_bytes);
        check_room(&volume, size_bytes, 1).await;
        Client::new(volume.clone(), witness, &runtime).check_all().await.unwrap();
        volume.stop().await.expect("stops");
    };
    run(3, main).expect("no deadlock");
}

#[test]
fn an_array_grows_behind_a_cache_that_keeps_what_is_dirty_and_has_the_new_room_as_well() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, never_cleaned()).await;
        let volume = bench.open(&bench.description, 3).await;
        let size_bytes = volume.geometry().size_bytes;
        let witness = Rc::new(RefCell::new(Witness::new(size_bytes, 7)));
        let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
        client.run(&WORKLOAD, 7).await.unwrap();
        let dirty_bytes =
            |volume: &Volume| -> u64 { volume.status().cache.expect("it has one").dirty_bytes };
        let before = dirty_bytes(&volume);
        assert!(before > 0);
        volume
            .set_background_rate(None, |_| BackgroundRate { min: Size(1 << 20), max: None })
            .unwrap();
        bench.grow(&volume).await.expect("possible");
        assert_eq!(dirty_bytes(&volume), before, "nothing is cleaned for it");
        assert!(volume.status().array.reshape.is_some());
        client.run(&WORKLOAD, 8).await.unwrap();
        client.check_all().await.unwrap();
        // Before it has grown.
        let flush_at_full_rate = volume.flush_at_full_rate();
        volume.clean_all().await.expect("cleaned");
        drop(flush_at_full_rate);
        client.run(&WORKLOAD, 9).await.unwrap();
        volume.stop().await.expect("stops");
        let volume = bench.open(&volume.description(), 4).await;
        let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
        assert!(volume.status().array.reshape.is_some() && volume.status().cache.is_some());
        client.run(&WORKLOAD, 10).await.unwrap();
        bench.until_grown(&volume).await;
        assert!(dirty_bytes(&volume) > 0);
        assert!(volume.geometry().size_bytes > size_bytes + size_bytes / 3);
        client.check_all().await.unwrap();
        check_new_room(&volume, size_bytes, 3).await;
        volume.self_check();
        volume.stop().await.expect("stops");
        let volume = bench.open(&volume.description(), 4).await;
        check_room(&volume, size_bytes, 3).await;
        volume.detach(Dirty::Clean).await.expect("detached");
        check_room(&volume, size_bytes, 3).await;
        volume.stop().await.expect("stops");
    };
    run(6, main).expect("no deadlock");
}

#[test]
fn a_cache_is_attached_while_an_array_grows_and_after_and_grows_with_it() {
    for comes_while_it_grows in [true, false] {
        let main = async |runtime: Runtime, sim: Sim| {
            let bench = Bench::new(&runtime, &sim, without_cache()).await;
            let volume = bench.open(&bench.description, 3).await;
            let size_bytes = volume.geometry().size_bytes;
            volume
                .set_background_rate(None, |_| BackgroundRate { min: Size(1 << 20), max: None })
                .unwrap();
            bench.grow(&volume).await.expect("possible");
            if comes_while_it_grows {
                bench.attach(&volume).await;
                assert!(volume.status().array.reshape.is_some());
            }
            bench.until_grown(&volume).await;
            if !comes_while_it_grows {
                bench.attach(&volume).await;
            }
            check_new_room(&volume, size_bytes, 5).await;
            let grown_bytes = volume.geometry().size_bytes;
            bench.grow_by(&volume, 5).await.expect("possible");
            bench.until_grown(&volume).await;
            // The numbers of its last blocks have a bit more.
            let bits = |bytes: u64| (bytes / 4096).ilog2();
            assert!(bits(volume.geometry().size_bytes) > bits(size_bytes));
            check_new_room(&volume, grown_bytes, 5).await;
            volume.self_check();
            volume.stop().await.expect("stops");
            let volume = bench.open(&volume.description(), 5).await;
            assert!(volume.status().cache.is_some());
            check_room(&volume, size_bytes, 5).await;
            volume.stop().await.expect("stops");
        };
        run(8, main).expect("no deadlock");
    }
}

#[test]
fn an_array_that_has_grown_grows_again_without_a_start_between() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, without_cache()).await;
        let volume = bench.open(&bench.description, 3).await;
        let size_bytes = volume.geometry().size_bytes;
        bench.grow(&volume).await.expect("possible");
        bench.until_grown(&volume).await;
        check_new_room(&volume, size_bytes, 1).await;
        let grown_bytes = volume.geometry().size_bytes;
        bench.grow_by(&volume, 4).await.expect("possible");
        bench.until_grown(&volume).await;
        check_new_room(&volume, grown_bytes, 1).await;
        check_room(&volume, size_bytes, 1).await;
        volume.stop().await.expect("stops");
        let volume = bench.open(&volume.description(), 5).await;
        assert_eq!(volume.geometry().size_bytes, 2 * size_bytes);
        check_room(&volume, size_bytes, 1).await;
        volume.stop().await.expect("stops");
    };
    run(9, main).expect("no deadlock");
}

#[test]
fn one_of_several_cores_grows_and_the_others_have_what_they_had() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, without_cache()).await;
        let volume = bench.open(&bench.description, 3).await;
        let size_bytes = volume.geometry().size_bytes;
        let (name, uuid) = ("more".to_owned(), Uuid::from_u128(0x30));
        let members = ["m5", "m6"].map(String::from).into();
        let core = CoreDescription { raid: Level::Raid1, members, ..without_cache().core };
        let described = FurtherCoreDescription { id: 2, name, uuid, core };
        let pool = BufferPool::new(&PoolConfig::small());
        let disks = bench.disks[5..].to_vec();
        let new = volume.make_core(described, disks, &CREATE, pool).await.expect("made");
        volume.add_core(new, Uuid::nil(), &|_| Box::pin(ready(Ok(())))).await.expect("added");
        let further = volume.core_device("more").expect("it is there") as Rc<dyn BlockDevice>;
        let further_bytes = further.size_bytes();
        let last = further_bytes - 4096;
        further.write(last, Buffer::from_slice(&[9; 4096])).await.expect("written");
        bench.grow(&volume).await.expect("possible");
        bench.until_grown(&volume).await;
        assert!(volume.geometry().size_bytes > size_bytes + size_bytes / 3);
        check_new_room(&volume, size_bytes, 2).await;
        let found = Buffer::zeroed(4096);
        further.read(last, &found).await.expect("readable");
        assert_eq!((found.to_vec(), further.size_bytes()), (vec![9; 4096], further_bytes));
        volume.stop().await.expect("stops");
    };
    run(10, main).expect("no deadlock");
}

#[test]
fn a_cache_of_several_slices_and_an_array_that_grows_already_refuse_to_grow() {
    let main = async |runtime: Runtime, sim: Sim| {
        let bench = Bench::new(&runtime, &sim, description(Mode::WriteBack, 3)).await;
        let volume = bench.open(&bench.description, 3).await;
        let refused = bench.grow(&volume).await;
        assert!(matches!(refused, Err(ChangeMembersError::CachedSlices { .. })), "{refused:?}");
        assert!(volume.status().array.reshape.is_none());
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
