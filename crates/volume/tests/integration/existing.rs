//! An existing device as core: its bytes stay its own, writes of others are found, and a power cut
//! is never taken for them.

use crate::support::{CREATE, careful, core, description};
use headpond_block::{BlockDevice, Buffer, Geometry, Runtime, Stability};
use headpond_cache::Mode;
use headpond_raid::Level;
use headpond_sim::{Ended, Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};
use headpond_volume::existing::{ExistingDevice, ExistingError, HEAD_BYTES};
use headpond_volume::{
    ChangeMembersError, ChangedDevice, Description, Devices, NewMember, OpenError, OpenOptions,
    Size, Tolerance, Volume,
};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;
use uuid::Uuid;

/// No power of two, as disks are.
const BODY_BYTES: u64 = (6 << 20) + (12 << 10);
const WINDOW_BYTES: u64 = 128 << 10;

const FEW: Workload = Workload {
    requests: 30,
    depth: 3,
    blocks: WINDOW_BYTES / 4096,
    blocks_max: 4,
    read_percent: 20,
    flush_percent: 20,
    fua_percent: 20,
    discard_percent: 0,
    ..Workload::BUSY
};

fn described(mode: Mode) -> Description {
    let member = "existing:body?head=head".to_owned();
    Description { core: core(Level::Raid0, Size(4 << 10), vec![member]), ..description(mode, 1) }
}

/// A disk, its head, a cache, and what clients know of the volume.
struct Machine {
    body: Rc<Medium>,
    head: Rc<Medium>,
    cache: Rc<Medium>,
    power: Power,
    witness: Rc<RefCell<Witness>>,
}

impl Machine {
    fn new(mode: Mode) -> Self {
        Self::with(mode, |_| {})
    }

    /// With what the body has before it is taken.
    fn with(mode: Mode, fill: impl Fn(&Medium)) -> Self {
        let medium = |name, bytes| Rc::new(Medium::flushable(name, bytes).with_atoms(4096));
        let machine = Self {
            body: medium("body", BODY_BYTES),
            head: medium("head", HEAD_BYTES),
            cache: medium("cache", 16 << 20),
            power: Power::on(),
            witness: Rc::new(RefCell::new(Witness::new(WINDOW_BYTES, 5))),
        };
        fill(&machine.body);
        let made = async |runtime: Runtime, sim: Sim| {
            let [body, head, cache] = machine.disks(&runtime, &sim);
            let member = ExistingDevice::take(head, body, "disk one").await.expect("taken");
            let devices =
                Devices { cache: Some(cache), members: vec![member], ..Devices::default() };
            Volume::create(&described(mode), &devices, &CREATE).await.expect("created")
        };
        let Ended::Finished(bytes) = run_until_cut(1, &machine.power, made).expect("no deadlock")
        else {
            panic!("nobody cut the power");
        };
        assert_eq!(bytes, BODY_BYTES, "all of the device");
        machine
    }

    fn duplicate(&self) -> Self {
        let copy = |medium: &Rc<Medium>| Rc::new(medium.duplicate());
        Self {
            body: copy(&self.body),
            head: copy(&self.head),
            cache: copy(&self.cache),
            power: Power::on(),
            witness: Rc::new(RefCell::new(self.witness.borrow().clone())),
        }
    }

    fn disks(&self, runtime: &Runtime, sim: &Sim) -> [Rc<dyn BlockDevice>; 3] {
        [&self.body, &self.head, &self.cache].map(|medium| {
            let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
            Rc::new(SimDisk::attach(medium, &self.power, runtime, sim, time)) as Rc<_>
        })
    }

    async fn open(
        &self,
        runtime: &Runtime,
        sim: &Sim,
        (mode, tolerance): (Mode, Tolerance),
    ) -> Result<Rc<Volume>, OpenError> {
        let [body, head, cache] = self.disks(runtime, sim);
        let (member, change) = ExistingDevice::open(head, body).await.expect("its head is there");
        let change = change.map(|change| ChangedDevice { device: Rc::clone(&member), change });
        drop(runtime.spawn(check_often(Rc::downgrade(&member), runtime.clone())));
        let devices = Devices {
            cache: Some(cache),
            members: vec![member],
            changed: change.into_iter().collect(),
            ..Devices::default()
        };
        let options = OpenOptions { tolerance, ..careful() };
        Volume::open(runtime, &described(mode), devices, options).await.map(Rc::new)
    }

    /// A start, some work, and a stop: what is read is what was promised.
    fn live(&self, mode: Mode, seed: u64) -> Ended<()> {
        let life = async |runtime: Runtime, sim: Sim| {
            let volume = self.open(&runtime, &sim, (mode, Tolerance::Careful)).await;
            let volume = volume.expect("nobody else has written to it");
            let device = Rc::clone(&volume) as Rc<dyn BlockDevice>;
            let client = Client::new(device, Rc::clone(&self.witness), &runtime);
            client.run(&FEW, seed).await.expect("what was promised is there");
            volume.stop().await.expect("a stop");
        };
        run_until_cut(seed, &self.power, life).expect("no deadlock")
    }

    /// What a start says, with what force, and whether it has its cache; nothing else is done.
    fn start(&self, how: (Mode, Tolerance)) -> Result<bool, OpenError> {
        let start = async |runtime: Runtime, sim: Sim| {
            let volume = self.open(&runtime, &sim, how).await?;
            let has_cache = volume.status().cache.is_some();
            volume.stop().await.expect("a stop");
            Ok(has_cache)
        };
        match run_until_cut(1, &self.power, start).expect("no deadlock") {
            Ended::Finished(started) => started,
            Ended::Cut => panic!("nobody cut the power"),
        }
    }
}

/// As long as the device is in use, between the operations of the disks.
async fn check_often(member: Weak<ExistingDevice>, runtime: Runtime) {
    while let Some(member) = member.upgrade() {
        member.self_check();
        drop(member);
        runtime.sleep(Duration::from_micros(30)).await;
    }
}

/// Bytes of a file system, at both ends and in the middle.
fn fill(medium: &Medium) {
    for offset in [0, 1024, 1 << 20, 3 << 20, BODY_BYTES - 4096] {
        medium.poke(offset, &[0xe7; 512]);
    }
}

#[test]
fn taking_starting_and_stopping_leave_every_byte_as_it_was() {
    let machine = Machine::with(Mode::WriteBack, fill);
    let other = Medium::flushable("other", BODY_BYTES);
    fill(&other);
    machine.start((Mode::WriteBack, Tolerance::Careful)).expect("a start");
    let whole = |medium: &Medium| medium.peek(0, BODY_BYTES as usize);
    assert!(whole(&machine.body) == whole(&other), "not a byte of it changed");
}

#[test]
fn what_is_written_is_where_it_would_be_without_us() {
    let machine = Machine::new(Mode::WriteThrough);
    let life = async |runtime: Runtime, sim: Sim| {
        let how = (Mode::WriteThrough, Tolerance::Careful);
        let volume = machine.open(&runtime, &sim, how).await.expect("a start");
        let device: &dyn BlockDevice = &*volume;
        assert_eq!(device.size_bytes(), BODY_BYTES);
        // Over several strips, and to the last byte.
        for (offset, byte) in [(0, 1), (5 << 20, 2), (BODY_BYTES - (64 << 10), 3)] {
            let data = Buffer::from_slice(&[byte; 64 << 10]);
            device.write(offset, &data).await.expect("a write");
        }
        volume.stop().await.expect("a stop");
    };
    assert!(!run_until_cut(1, &machine.power, life).expect("no deadlock").was_cut());
    for (offset, byte) in [(0, 1), (5 << 20, 2), (BODY_BYTES - (64 << 10), 3)] {
        assert_eq!(machine.body.peek(offset, 64 << 10), [byte; 64 << 10], "at {offset}");
    }
    let started = machine.start((Mode::WriteThrough, Tolerance::Careful));
    started.expect("it is nobody else's");
}

#[test]
fn a_device_that_somebody_else_wrote_to_is_refused_until_the_cache_is_given_up() {
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        let machine = Machine::new(mode);
        assert!(!machine.live(mode, 3).was_cut());
        for offset in [1024, 1 << 20, BODY_BYTES - 4096] {
            let machine = machine.duplicate();
            machine.body.poke(offset, &[0x11; 512]);
            let refused = machine.start((mode, Tolerance::Careful)).expect_err("it was changed");
            let text = refused.to_string();
            assert!(matches!(refused, OpenError::CoreWritten(_)) && refused.is_refusal(), "{text}");
            assert!(
                text.contains(&format!("the first at byte {}", offset / 4096 * 4096)),
                "{text}"
            );
            assert!(text.contains("--force"), "{text}");
            let again = machine.start((mode, Tolerance::Careful));
            assert!(matches!(again, Err(OpenError::CoreWritten(_))), "a refusal accepts nothing");
            for tolerance in [Tolerance::Forced, Tolerance::Careful] {
                let has_cache = machine.start((mode, tolerance)).expect("a start");
                assert!(!has_cache, "what it holds is out of date");
            }
        }
    }
}

/// Whatever a cut leaves of our own writes, the next start takes none of them for somebody else's;
/// and what was promised is there.
#[test]
fn a_power_cut_at_any_operation_is_no_change_by_others() {
    for mode in [Mode::WriteThrough, Mode::WriteBack] {
        let before = Machine::new(mode);
        assert!(!before.live(mode, 2).was_cut());
        let whole = before.duplicate();
        assert!(!whole.live(mode, 4).was_cut());
        let operations = whole.power.operations();
        assert!(operations > 60, "{operations}");
        for cut_after in 1..operations {
            let machine = before.duplicate();
            machine.power.cut_after(cut_after);
            assert!(machine.live(mode, 4).was_cut(), "{mode:?} cut after {cut_after}");
            let media = [&machine.body, &machine.head, &machine.cache];
            machine.power.come_back(media, cut_after);
            machine.witness.borrow_mut().crash();
            assert!(!machine.live(mode, 5).was_cut(), "{mode:?} cut after {cut_after}");
        }
    }
}

/// What is found after a cut is what no write of ours had touched since the last record.
#[test]
fn a_change_by_others_after_a_cut_is_found_too() {
    let machine = Machine::new(Mode::WriteThrough);
    assert!(!machine.live(Mode::WriteThrough, 2).was_cut());
    machine.power.cut_after(100);
    assert!(machine.live(Mode::WriteThrough, 4).was_cut());
    machine.power.come_back([&machine.body, &machine.head, &machine.cache], 9);
    // Behind the window of the load.
    machine.body.poke(1 << 20, &[0x11; 512]);
    let refused = machine.start((Mode::WriteThrough, Tolerance::Careful));
    assert!(matches!(refused, Err(OpenError::CoreWritten(_))), "{refused:?}");
}

#[test]
fn a_device_that_is_part_of_a_volume_or_of_an_odd_size_is_not_taken() {
    let machine = Machine::new(Mode::WriteThrough);
    let life = async |runtime: Runtime, sim: Sim| {
        let [_, head, cache] = machine.disks(&runtime, &sim);
        let taken = ExistingDevice::take(Rc::clone(&head), cache, "").await;
        let error = taken.err().expect("it is a cache").to_string();
        assert!(error.contains("the cache of a volume"), "{error}");
        let odd = Rc::new(Medium::new("odd", geometry((4 << 20) + 512)));
        let odd = SimDisk::attach(odd, &machine.power, &runtime, &sim, OperationTime::SOME);
        let taken = ExistingDevice::take(head, Rc::new(odd), "").await;
        assert!(matches!(taken, Err(ExistingError::Size { .. })));
    };
    assert!(!run_until_cut(1, &machine.power, life).expect("no deadlock").was_cut());
}

#[test]
fn a_device_that_shrank_or_a_head_that_is_damaged_is_refused() {
    let machine = Machine::new(Mode::WriteThrough);
    let life = async |runtime: Runtime, sim: Sim| {
        let [body, head, _] = machine.disks(&runtime, &sim);
        let small = Rc::new(Medium::new("small", geometry(BODY_BYTES - 4096)));
        let small = SimDisk::attach(small, &machine.power, &runtime, &sim, OperationTime::SOME);
        let opened = ExistingDevice::open(Rc::clone(&head), Rc::new(small)).await;
        assert!(matches!(opened, Err(ExistingError::Shrank { .. })));
        let records = Buffer::zeroed(8 << 10);
        head.write(1 << 20, &records).await.expect("a write");
        let error = ExistingDevice::open(head, body).await.err().expect("no record").to_string();
        assert!(error.contains("headpond import"), "{error}");
    };
    assert!(!run_until_cut(1, &machine.power, life).expect("no deadlock").was_cut());
}

#[test]
fn an_existing_device_gets_no_other_members() {
    let machine = Machine::new(Mode::WriteThrough);
    let life = async |runtime: Runtime, sim: Sim| {
        let how = (Mode::WriteThrough, Tolerance::Careful);
        let volume = machine.open(&runtime, &sim, how).await.expect("a start");
        let spare = Rc::new(Medium::new("spare", geometry(16 << 20)));
        let device = SimDisk::attach(spare, &machine.power, &runtime, &sim, OperationTime::SOME);
        let new = NewMember {
            word: "spare".into(),
            device: Rc::new(device),
            uuid: Uuid::from_u128(9),
            occupied: headpond_raid::Occupied::Refuse,
        };
        let refused = volume.add_spare(None, new).await;
        assert!(matches!(refused, Err(ChangeMembersError::Existing { .. })));
        volume.stop().await.expect("a stop");
    };
    assert!(!run_until_cut(1, &machine.power, life).expect("no deadlock").was_cut());
}

fn geometry(size_bytes: u64) -> Geometry {
    Geometry { stability: Stability::Flushable, ..Geometry::of_size(size_bytes) }
}
