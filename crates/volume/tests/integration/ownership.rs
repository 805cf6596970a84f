//! Two hosts that reach the same disks: one of them has the volume, and the other one nothing.

use crate::support;
use crate::support::{CREATE, careful};
use headpond_block::devices::RamDevice;
use headpond_block::sync::{Notify, join_all};
use headpond_block::{
    BlockDevice, Buffer, DeviceError, DeviceName, Geometry, OnLoss, RemoteStatus, RemoteStorage,
    Request, Runtime, Submission,
};
use headpond_cache::Mode;
use headpond_raid::{ArrayState, Occupied};
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run};
use headpond_volume::existing::{ExistingDevice, HEAD_BYTES};
use headpond_volume::{
    AlertKind, Claimant, CreateOptions, Description, Devices, Host, NewMember, OpenError,
    OpenOptions, OwnerState, Process, Volume, Watching,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const OWNER_AT: u64 = 32 << 10;
const OWNER_BYTES: usize = 8 << 10;
/// Longer than whoever takes over watches and settles.
const LONG: Duration = Duration::from_secs(20);

/// The way from a host to a disk.
struct Link {
    inner: SimDisk,
    state: LinkState,
}

/// Of one or more links of a host; what is on its way while it is down arrives when it is up.
#[derive(Clone, Default)]
struct LinkState(Rc<(Cell<bool>, Notify)>);

impl LinkState {
    fn set_down(&self, is_down: bool) {
        self.0.0.set(is_down);
        self.0.1.notify_all();
    }

    async fn until_up(&self) {
        while self.0.0.get() {
            self.0.1.wait().await;
        }
    }
}

impl BlockDevice for Link {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        Submission::pending(async move {
            self.state.until_up().await;
            self.inner.submit(request).await
        })
    }
}

/// The disks, and a spare one behind them.
struct Disks {
    media: Vec<Rc<Medium>>,
    power: Power,
    runtime: Runtime,
    sim: Sim,
}

/// A host that opens volumes.
struct User {
    claimant: Claimant,
    link: LinkState,
    watched: Rc<RefCell<Vec<Watching>>>,
}

fn description() -> Description {
    support::description(Mode::WriteBack, 1)
}

fn user(name: &str, machine: u128, boot: u128) -> User {
    let process = Process { number: 1, started: boot as u64 };
    let (machine, boot) = (Uuid::from_u128(machine), Uuid::from_u128(boot));
    let watched = Rc::<RefCell<Vec<Watching>>>::default();
    let watch = Rc::clone(&watched);
    let claimant = Claimant {
        host: Host { name: name.into(), machine, boot, process },
        token: Uuid::from_u128(machine.as_u128() << 64 | boot.as_u128()),
        is_running: Rc::new(|_| true),
        watch: Some(Rc::new(move |watching| watch.borrow_mut().push(watching.clone()))),
    };
    User { claimant, link: LinkState::default(), watched }
}

impl User {
    async fn open(&self, disks: &Disks) -> Result<Volume, OpenError> {
        self.open_by(disks, &description(), disks.devices(&[&self.link; 4])).await
    }

    async fn open_by(
        &self,
        disks: &Disks,
        description: &Description,
        devices: Devices,
    ) -> Result<Volume, OpenError> {
        let options = OpenOptions { claimant: Some(self.claimant.clone()), ..careful() };
        Volume::open(&disks.runtime, description, devices, options).await
    }

    fn has_watched(&self) -> bool {
        !self.watched.borrow().is_empty()
    }
}

impl Disks {
    async fn new(runtime: &Runtime, sim: &Sim) -> Self {
        let member = |name: &str| Rc::new(Medium::flushable(name, 9 * MIB));
        let mut media = vec![Rc::new(Medium::flushable("cache", 26 * MIB))];
        media.extend(["m0", "m1", "m2", "m3"].map(member));
        let (power, runtime, sim) = (Power::on(), runtime.clone(), sim.clone());
        let disks = Self { media, power, runtime, sim };
        let devices = disks.devices(&[&LinkState::default(); 4]);
        Volume::create(&description(), &devices, &CREATE).await.expect("created");
        disks
    }

    fn device(&self, index: usize, link: &LinkState) -> Rc<dyn BlockDevice> {
        let (medium, time) = (Rc::clone(&self.media[index]), OperationTime::SOME);
        let inner = SimDisk::attach(medium, &self.power, &self.runtime, &self.sim, time);
        Rc::new(Link { inner, state: link.clone() })
    }

    /// The cache first, then the members, each by way of its link.
    fn devices(&self, links: &[&LinkState; 4]) -> Devices {
        let device = |index: usize| self.device(index, links[index]);
        let (cache, members) = (Some(device(0)), (1..4).map(device).collect());
        Devices { cache, members, ..Devices::default() }
    }

    fn records(&self) -> Vec<Vec<u8>> {
        self.media.iter().map(|medium| medium.peek(OWNER_AT, OWNER_BYTES)).collect()
    }

    /// What is on all disks.
    fn contents(&self) -> Vec<Vec<u8>> {
        let whole = |medium: &Rc<Medium>| medium.peek(0, medium.geometry().size_bytes as usize);
        self.media.iter().map(whole).collect()
    }
}

fn state(volume: &Volume) -> OwnerState {
    volume.status().owner.expect("it has one").state
}

async fn write(volume: &Volume, byte: u8) -> Result<(), DeviceError> {
    let data = Buffer::from_slice(&[byte; 4096]);
    (volume as &dyn BlockDevice).write(0, data).await?;
    (volume as &dyn BlockDevice).flush().await
}

async fn read(volume: &Volume) -> u8 {
    let data = Buffer::zeroed(4096);
    (volume as &dyn BlockDevice).read(0, &data).await.expect("is read");
    data.to_vec()[77]
}

#[test]
fn a_second_host_is_refused_while_the_first_is_there_and_served_once_it_has_stopped() {
    run(1, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let [left, right] = [user("left", 1, 1), user("right", 2, 2)];
        let volume = left.open(&disks).await.expect("nobody has it");
        assert!(!left.has_watched());
        write(&volume, 7).await.unwrap();
        let error = right.open(&disks).await.map(drop).expect_err("left has it");
        let text = error.to_string();
        assert!(error.is_refusal() && text.contains("stack is in use on left"), "{text}");
        assert!(text.contains("`headpond stop stack`"), "{text}");
        assert_eq!(error.alert("stack").kind, AlertKind::StartRefused);
        assert_eq!(right.watched.borrow()[0].host, "left");
        write(&volume, 8).await.unwrap();
        assert_eq!(state(&volume), OwnerState::Held);
        volume.self_check();
        volume.stop().await.unwrap();
        right.watched.borrow_mut().clear();
        let volume = right.open(&disks).await.expect("left has stopped");
        assert_eq!((read(&volume).await, right.has_watched()), (8, false));
    })
    .unwrap();
}

#[test]
fn an_owner_that_wakes_after_it_was_taken_over_writes_nothing() {
    for seed in 0..20 {
        run(seed, |runtime, sim| async move {
            let disks = Disks::new(&runtime, &sim).await;
            let [left, right] = [user("left", 1, 1), user("right", 2, 2)];
            let stalled = Rc::new(left.open(&disks).await.expect("nobody has it"));
            write(&stalled, 7).await.unwrap();
            // What was sent before it stalled arrives whenever it does.
            runtime.sleep(LONG).await;
            left.link.set_down(true);
            let begun = runtime.now();
            let volume = right.open(&disks).await.expect("left is silent");
            assert!(runtime.now().since(begun) >= Duration::from_secs(4), "it waited");
            assert_eq!(state(&stalled), OwnerState::Late);
            let waiting = Rc::clone(&stalled);
            let write_late = runtime.spawn(async move { write(&waiting, 66).await });
            assert_eq!(read(&volume).await, 7);
            write(&volume, 8).await.unwrap();
            volume.self_check();
            volume.stop().await.unwrap();
            let before = disks.contents();
            left.link.set_down(false);
            let outcome = write_late.await;
            assert!(outcome.is_err(), "{outcome:?}");
            runtime.sleep(LONG).await;
            assert!(write(&stalled, 67).await.is_err());
            assert!(stalled.clean_all().await.is_ok() || !stalled.status().alerts.is_empty());
            stalled.stop().await.expect("there is nothing to save");
            assert!(disks.contents() == before, "seed {seed}: something was written");
            let status = stalled.status();
            assert_eq!(status.alerts[0].kind, AlertKind::OwnershipLost, "{:?}", status.alerts);
            assert_eq!(state(&stalled), OwnerState::Lost { to: "right".into() });
        })
        .unwrap();
    }
}

#[test]
fn an_owner_that_was_late_goes_on_where_nobody_has_taken_over() {
    run(3, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let left = user("left", 1, 1);
        let volume = Rc::new(left.open(&disks).await.expect("nobody has it"));
        left.link.set_down(true);
        runtime.sleep(LONG).await;
        assert_eq!(state(&volume), OwnerState::Late);
        let waiting = Rc::clone(&volume);
        let late = runtime.spawn(async move { write(&waiting, 9).await });
        runtime.sleep(LONG).await;
        left.link.set_down(false);
        late.await.expect("it is written in the end");
        assert_eq!((state(&volume), read(&volume).await), (OwnerState::Held, 9));
        volume.self_check();
        volume.stop().await.unwrap();
    })
    .unwrap();
}

#[test]
fn what_an_earlier_boot_or_a_process_that_is_no_more_left_is_taken_over_at_once() {
    run(4, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let first = user("left", 1, 1);
        drop(first.open(&disks).await.expect("nobody has it"));
        first.link.set_down(true);
        let rebooted = user("left", 1, 2);
        drop(rebooted.open(&disks).await.expect("the machine has been started again"));
        rebooted.link.set_down(true);
        assert!(!rebooted.has_watched());
        let mut restarted = user("left", 1, 2);
        restarted.claimant.token = Uuid::from_u128(99);
        restarted.claimant.is_running = Rc::new(|process| process.started != 2);
        drop(restarted.open(&disks).await.expect("the process is no more"));
        restarted.link.set_down(true);
        assert!(!restarted.has_watched());
        let other = user("right", 2, 7);
        drop(other.open(&disks).await.expect("left is silent"));
        assert!(other.has_watched(), "who knows what another host does");
    })
    .unwrap();
}

#[test]
fn of_two_that_open_at_the_same_moment_one_at_most_goes_on() {
    let mut served = 0;
    for seed in 0..60 {
        served += run(seed, |runtime, sim| async move {
            let disks = Disks::new(&runtime, &sim).await;
            let [left, right] = [user("left", 1, 1), user("right", 2, 2)];
            let late = async {
                runtime.sleep(Duration::from_micros(200 * seed)).await;
                right.open(&disks).await
            };
            let opens: Vec<std::pin::Pin<Box<dyn Future<Output = _>>>> =
                vec![Box::pin(left.open(&disks)), Box::pin(late)];
            let opened: Vec<_> = join_all(opens).await.into_iter().flatten().collect();
            runtime.sleep(LONG).await;
            let held = opened.iter().filter(|it| state(it) == OwnerState::Held).count();
            assert!(opened.len() <= 1 && held == opened.len(), "seed {seed}: {}", opened.len());
            held
        })
        .unwrap();
    }
    assert!(served > 0, "somebody is served now and then");
}

#[test]
fn a_disk_that_hangs_makes_nobody_late() {
    run(5, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let (left, hung) = (user("left", 1, 1), LinkState::default());
        let devices = disks.devices(&[&left.link, &hung, &left.link, &left.link]);
        let opened = left.open_by(&disks, &description(), devices).await;
        let volume = opened.expect("nobody has it");
        hung.set_down(true);
        runtime.sleep(LONG).await;
        assert_eq!(state(&volume), OwnerState::Held);
        hung.set_down(false);
        volume.self_check();
        volume.stop().await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_disk_that_hangs_before_it_is_opened_is_done_without() {
    run(7, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let (left, hung) = (user("left", 1, 1), LinkState::default());
        hung.set_down(true);
        let devices = disks.devices(&[&left.link, &hung, &left.link, &left.link]);
        let opened = left.open_by(&disks, &description(), devices).await;
        let volume = opened.expect("one may be missing");
        assert_eq!(volume.status().array.state, ArrayState::Degraded);
        hung.set_down(false);
        volume.self_check();
        volume.stop().await.unwrap();
    })
    .unwrap();
}

/// Who has it may be named on the disks alone that were given up, and those answer later.
#[test]
fn disks_that_answer_only_after_they_were_given_up_are_not_opened_beside_their_owner() {
    run(8, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let plain = Description { cache: None, ..description() };
        let anew = CreateOptions { occupied: Occupied::Overwrite, ..CREATE };
        let [left, right] = [("left", 1), ("right", 2)].map(|(name, id)| user(name, id, id));
        let devices = |user: &User| Devices { cache: None, ..disks.devices(&[&user.link; 4]) };
        Volume::create(&plain, &devices(&left), &anew).await.unwrap();
        let opened = left.open_by(&disks, &plain, devices(&left)).await;
        let volume = opened.expect("nobody has it");
        right.link.set_down(true);
        let (link, clock) = (right.link.clone(), runtime.clone());
        let back = runtime.spawn(async move {
            clock.sleep(Duration::from_millis(30_050)).await;
            link.set_down(false);
        });
        let opened = right.open_by(&disks, &plain, devices(&right)).await;
        let Err(refused) = opened else { panic!("it has an owner") };
        assert!(refused.to_string().contains("timed out after 30s"), "{refused}");
        back.await;
        runtime.sleep(LONG).await;
        assert_eq!(state(&volume), OwnerState::Held);
        volume.self_check();
        volume.stop().await.unwrap();
    })
    .unwrap();
}

#[test]
fn a_device_that_joins_carries_the_record_too_and_one_that_is_refused_does_not() {
    run(6, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let left = user("left", 1, 1);
        let volume = left.open(&disks).await.expect("nobody has it");
        let spare = |occupied| NewMember {
            word: "m3".into(),
            device: disks.device(4, &left.link),
            uuid: Uuid::from_u128(0x5a4e),
            occupied,
        };
        disks.media[4].poke(510, &[0x55, 0xaa]);
        volume.add_spare(None, spare(Occupied::Refuse)).await.expect_err("there is something");
        runtime.sleep(LONG).await;
        assert_eq!(disks.records()[4], vec![0; OWNER_BYTES]);
        volume.add_spare(None, spare(Occupied::Overwrite)).await.unwrap();
        runtime.sleep(LONG).await;
        assert!(disks.records().iter().all(|record| record.starts_with(b"HPOWNER")));
        volume.self_check();
        volume.stop().await.unwrap();
    })
    .unwrap();
}

#[test]
fn volume_in_memory_has_no_owner_and_takes_a_disk_long_after_its_start() {
    run(6, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let left = user("left", 1, 1);
        let memory = |name| Rc::new(RamDevice::new(name, 9 * MIB)) as Rc<dyn BlockDevice>;
        let members = ["m0", "m1", "m2"].map(memory);
        let devices = || Devices { members: members.to_vec(), ..Devices::default() };
        let description = Description { cache: None, ..description() };
        Volume::create(&description, &devices(), &CREATE).await.expect("created");
        let volume = left.open_by(&disks, &description, devices()).await.expect("nobody has it");
        runtime.sleep(LONG).await;
        assert!(volume.status().owner.is_none(), "nothing is late, where nothing is renewed");
        let (word, uuid) = ("m3".into(), Uuid::from_u128(0x5a4e));
        let device = disks.device(4, &left.link);
        let spare = NewMember { word, device, uuid, occupied: Occupied::Refuse };
        volume.add_spare(None, spare).await.expect("a disk joins");
        assert_eq!(state(&volume), OwnerState::Held);
        runtime.sleep(LONG).await;
        assert_eq!(state(&volume), OwnerState::Held);
        assert!(disks.records()[4].starts_with(b"HPOWNER"));
        volume.self_check();
        volume.stop().await.unwrap();
    })
    .unwrap();
}

#[test]
fn without_a_claimant_or_with_no_heartbeat_no_disk_says_whose_it_is() {
    run(7, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let blank = disks.records();
        let up = LinkState::default();
        let links = [&up; 4];
        let silent = Description { heartbeat_ms: 0, ..description() };
        let claimant = Some(user("left", 1, 1).claimant);
        for (description, claimant) in [(description(), None), (silent, claimant)] {
            let options = OpenOptions { claimant, ..careful() };
            let opened = Volume::open(&runtime, &description, disks.devices(&links), options);
            let volume = opened.await.unwrap();
            write(&volume, 1).await.unwrap();
            runtime.sleep(LONG).await;
            assert_eq!((disks.records(), volume.status().owner), (blank.clone(), None));
            volume.self_check();
            volume.stop().await.unwrap();
        }
    })
    .unwrap();
}

/// A disk whose storage keeps the lock of one client, and can give it to another one.
struct LockedDisk {
    inner: Rc<dyn BlockDevice>,
    lock: Rc<StorageLock>,
}

#[derive(Default)]
struct StorageLock {
    lost: RefCell<Option<String>>,
    tell: RefCell<Vec<OnLoss>>,
}

impl StorageLock {
    fn lose(&self) {
        self.lost.replace(Some("another client has it".into()));
        self.tell.borrow().iter().for_each(|tell| tell("another client has it"));
    }
}

impl BlockDevice for LockedDisk {
    fn name(&self) -> &DeviceName {
        self.inner.name()
    }

    fn geometry(&self) -> &Geometry {
        self.inner.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.inner.submit(request)
    }

    fn remote(&self) -> Option<&dyn RemoteStorage> {
        Some(self)
    }
}

impl RemoteStorage for LockedDisk {
    fn status(&self) -> RemoteStatus {
        let size_bytes = self.geometry().size_bytes;
        RemoteStatus { waiting_s: None, size_bytes, lost: self.lock.lost.borrow().clone() }
    }

    fn when_lost(&self, tell: OnLoss) {
        self.lock.tell.borrow_mut().push(tell);
    }
}

/// The members behind a lock, and the cache as well where that is asked for.
fn locked(mut devices: Devices, lock: &Rc<StorageLock>, has_cache: bool) -> Devices {
    let wrap = |inner: Rc<dyn BlockDevice>| -> Rc<dyn BlockDevice> {
        Rc::new(LockedDisk { inner, lock: Rc::clone(lock) })
    };
    if has_cache {
        devices.cache = devices.cache.map(wrap);
    }
    devices.members = devices.members.into_iter().map(wrap).collect();
    devices
}

/// Found by reading: an image that was taken with its contents was failed for being slow, and went
/// on without its lock.
#[test]
fn a_lock_is_heeded_below_the_head_of_an_existing_device() {
    run(9, |_, _| async move {
        let ram = |name: &'static str, bytes| Rc::new(RamDevice::new(name, bytes));
        let lock = Rc::<StorageLock>::default();
        let body = Rc::new(LockedDisk { inner: ram("image", 8 * MIB), lock: Rc::clone(&lock) });
        let taken = ExistingDevice::take(ram("head", HEAD_BYTES), body, "").await.expect("taken");
        let lost = || taken.remote().expect("its storage is known").status().lost;
        assert_eq!(lost(), None);
        lock.lose();
        assert!(lost().is_some());
    })
    .expect("no deadlock");
}

#[test]
fn a_lock_that_storage_has_given_away_stops_all_io_with_and_without_a_heartbeat() {
    for heartbeat_ms in [0, 1000] {
        run(9, |runtime, sim| async move {
            let disks = Disks::new(&runtime, &sim).await;
            let left = user("left", 1, 1);
            let description = Description { heartbeat_ms, ..description() };
            let lock = Rc::<StorageLock>::default();
            let devices = locked(disks.devices(&[&left.link; 4]), &lock, false);
            let volume = left.open_by(&disks, &description, devices).await.expect("is opened");
            write(&volume, 7).await.unwrap();
            assert_eq!(volume.status().owner.is_some(), heartbeat_ms > 0);
            volume.self_check();
            let before = disks.contents();
            lock.lose();
            assert!(write(&volume, 8).await.is_err());
            runtime.sleep(LONG).await;
            volume.self_check();
            volume.stop().await.expect("there is nothing to save");
            assert!(disks.contents() == before, "something was written");
            let alert = &volume.status().alerts[0];
            assert_eq!(alert.kind, AlertKind::OwnershipLost);
            assert!(alert.cause.contains("another client has it"), "{alert}");
            assert!(matches!(state(&volume), OwnerState::LockLost { .. }));
            drop(volume);
            let volume = left.open(&disks).await.expect("it is locked again");
            assert_eq!(read(&volume).await, 7, "what was acknowledged is there");
        })
        .unwrap();
    }
}

#[test]
fn what_an_owner_has_left_behind_a_lock_that_is_ours_is_not_watched() {
    run(5, |runtime, sim| async move {
        let disks = Disks::new(&runtime, &sim).await;
        let [left, right] = [user("left", 1, 1), user("right", 2, 2)];
        let volume = left.open(&disks).await.expect("nobody has it");
        write(&volume, 7).await.unwrap();
        left.link.set_down(true);
        let devices = locked(disks.devices(&[&right.link; 4]), &Rc::default(), true);
        let taken = right.open_by(&disks, &description(), devices).await.expect("it has the lock");
        assert!(!right.has_watched(), "its heartbeat was waited for");
        assert_eq!(read(&taken).await, 7);
        drop(volume);
    })
    .unwrap();
}
