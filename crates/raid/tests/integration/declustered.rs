//! Stripes spread over more members than they have strips, and spare space among them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::support::machine::*;
use crate::support::*;
use headpond_block::sync::join_all;
use headpond_block::{BlockDevice, ByteRange, DeviceError, Request, Runtime, Submission};
use headpond_raid::layout::{Role, Spread};
use headpond_raid::superblock::RoleState;
use headpond_raid::{Array, ArrayState, CreateOptions, Filled, Level};
use headpond_sim::Ended;
use uuid::Uuid;

const SHAPES: [(Level, usize, Spread); 5] = [
    (Level::Raid5, 5, Spread { width: 3, spares: 1 }),
    (Level::Raid5, 7, Spread { width: 3, spares: 2 }),
    (Level::Raid6, 7, Spread { width: 4, spares: 1 }),
    (Level::Raid6, 9, Spread { width: 4, spares: 3 }),
    (Level::Raid6, 10, Spread { width: 8, spares: 2 }),
];
/// So many that piles have several strips.
const ROWS: u64 = 180;

fn spread_options(level: Level, spread: Spread) -> CreateOptions {
    CreateOptions { declustered: Some(spread), ..options(level, 1) }
}

async fn whole(array: &Array) -> Vec<u8> {
    read(array, 0, array.layout().array_bytes() as usize).await.unwrap()
}

/// An array, the devices that belong to it, and what it should hold.
struct Story {
    array: Array,
    devices: Vec<Rc<TestDevice>>,
    bytes: RefCell<Vec<u8>>,
    random: Random,
    runtime: Runtime,
    /// Devices that there have been.
    made: usize,
}

impl Story {
    async fn begin(shape: (Level, usize, Spread), seed: u64, runtime: &Runtime) -> Story {
        let (level, count, spread) = shape;
        let devices = devices(count, ROWS, runtime);
        let array = new_array(&devices, &spread_options(level, spread)).await;
        let random = Random::new(seed);
        let bytes = random.bytes(array.layout().array_bytes() as usize);
        write(&array, 0, &bytes).await.unwrap();
        let (bytes, runtime) = (RefCell::new(bytes), runtime.clone());
        Story { array, devices, bytes, random, runtime, made: count }
    }

    fn range(&self, blocks_max: u64) -> ByteRange {
        let blocks = self.bytes.borrow().len() as u64 / 512;
        let start = self.random.below(blocks);
        let len = 1 + self.random.below(blocks_max.min(blocks - start));
        ByteRange::at(start * 512, len * 512)
    }

    async fn load(&self, writes: u64) {
        for _ in 0..writes {
            let range = self.range(60);
            let (start, end) = (range.start() as usize, range.end() as usize);
            if self.random.below(8) == 0 {
                let range = self.range(1000);
                let (start, end) = (range.start() as usize, range.end() as usize);
                self.bytes.borrow_mut()[start..end].fill(0);
                self.array.submit(Request::write_zeroes(range)).await.unwrap();
            } else {
                let new = self.random.bytes(end - start);
                self.bytes.borrow_mut()[start..end].copy_from_slice(&new);
                write(&self.array, start as u64, &new).await.unwrap();
            }
            let pause = self.random.below(3000);
            self.runtime.sleep(std::time::Duration::from_nanos(pause)).await;
        }
    }

    /// Roles that neither a member nor spare space holds completely.
    fn lost(&self) -> usize {
        let status = self.array.status();
        let is_lost = |it: &&headpond_raid::MemberStatus| {
            let stood_in = it.stand_in.as_ref().is_some_and(|it| it.rows_done == it.rows);
            it.state != RoleState::Active && !stood_in
        };
        status.members.iter().filter(is_lost).count()
    }

    /// Loses a member where that may be; half of the time, in the midst of requests.
    async fn lose_one(&self) {
        let active = self.array.status().members.into_iter();
        let active: Vec<_> = active.filter(|it| it.state == RoleState::Active).collect();
        let one = &active[self.random.below(active.len() as u64) as usize];
        let is_bearable = self.lost() < self.array.layout().redundancy();
        if is_bearable && self.array.lent_roles().is_empty() && self.random.below(2) == 0 {
            let name = one.device.as_deref().unwrap();
            self.devices.iter().find(|it| it.name().as_str() == name).unwrap().gone.set(true);
        } else {
            drop(self.array.fail(Role(one.role)).await);
        }
    }

    async fn step(&mut self) {
        match self.random.below(7) {
            0 => self.lose_one().await,
            1 => drop(self.array.lend_slot().await.unwrap()),
            2 | 3 => self.fill_slots(4).await,
            4 => self.exchange_one().await,
            5 => self.fill_devices(4).await,
            _ => self.restart().await,
        }
        self.load(10).await;
        let expected = self.bytes.borrow().clone();
        assert!(whole(&self.array).await == expected, "the whole array");
    }

    async fn fill_slots(&self, deadlines: u64) {
        for role in self.array.lent_roles() {
            let go_on = async || self.random.below(deadlines) > 0;
            let fill = async {
                self.array.fill_slot(role, go_on).await.unwrap();
                Ok(())
            };
            self.beside(fill).await;
        }
    }

    async fn fill_devices(&mut self, deadlines: u64) {
        for role in self.array.filling_roles() {
            let before = RefCell::new(None);
            let go_on = async || self.random.below(deadlines) > 0;
            let fill = async {
                if let Filled::Whole { before: old } = self.array.fill(role, go_on).await.unwrap() {
                    before.replace(old);
                }
                Ok(())
            };
            self.beside(fill).await;
            if let Some(old) = before.into_inner() {
                self.devices.retain(|it| it.name() != old.name());
            }
        }
    }

    async fn beside(&self, work: impl Future<Output = Result<(), DeviceError>>) {
        let load = async {
            self.load(20).await;
            Ok(())
        };
        join_all(vec![Submission::pending(work), Submission::pending(load)]).await;
    }

    /// A new device for a role that lacks one, or for any.
    async fn exchange_one(&mut self) {
        let members = self.array.layout().members() as u64;
        let any = Role(self.random.below(members) as u16);
        let role = self.array.vacant_role().unwrap_or(any);
        let spare =
            TestDevice::new(self.made, self.devices[0].geometry().size_bytes, &self.runtime);
        let uuid = Uuid::from_u128(1000 + self.made as u128);
        if self.array.assign_spare(role, Some(uuid)).await.is_ok() || self.made > 40 {
            return;
        }
        self.made += 1;
        self.array.add_spare(spare.clone(), uuid).await.unwrap();
        self.devices.push(spare);
        drop(self.array.assign_spare(role, Some(uuid)).await);
    }

    async fn restart(&mut self) {
        if self.array.stop().await.is_ok() {
            let present: Vec<_> =
                self.devices.iter().filter(|it| !it.gone.get()).cloned().collect();
            self.array = start(&present).await.array;
        }
    }

    /// Gives every role a device again, and looks at the bytes on the devices.
    async fn end(mut self) {
        while self.array.status().members.iter().any(|it| it.state != RoleState::Active) {
            self.array.lend_slot().await.unwrap();
            self.fill_slots(u64::MAX).await;
            self.exchange_one().await;
            self.fill_devices(u64::MAX).await;
        }
        self.fill_devices(u64::MAX).await;
        let status = self.array.status();
        assert_eq!(self.array.state(), ArrayState::Optimal);
        let (all, free) = status.declustered.map(|it| (it.spares, it.spares_free)).unwrap();
        assert_eq!(all, free, "nothing is lent any more");
        self.array.stop().await.unwrap();
        let on = |name: &str| self.devices.iter().find(|it| it.name().as_str() == name).unwrap();
        let members = status.members.iter().map(|it| on(it.device.as_deref().unwrap()).clone());
        let members: Vec<_> = members.collect();
        check_redundancy(&self.array, &members);
        assert!(whole(&start(&members).await.array).await == *self.bytes.borrow());
    }
}

#[test]
fn an_array_is_its_bytes_whoever_is_lost_stood_in_for_replaced_and_stopped() {
    for seed in 0..15 {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        run(seed, |runtime| async move {
            let mut story = Story::begin(shape, seed, &runtime).await;
            for _ in 0..24 {
                story.step().await;
            }
            story.end().await;
        });
    }
}

#[test]
fn as_many_members_as_there_are_slots_can_go_one_after_the_other() {
    for (level, count, spread) in SHAPES {
        run(1, |runtime| async move {
            let story = Story::begin((level, count, spread), 1, &runtime).await;
            for index in 0..spread.spares {
                story.array.fail(Role(index * 2)).await.unwrap();
                assert_eq!(story.array.state(), ArrayState::Degraded);
                assert_eq!(story.array.lend_slot().await.unwrap(), Some(Role(index * 2)));
                story.fill_slots(u64::MAX).await;
                assert_eq!(story.array.state(), ArrayState::Optimal, "redundancy is whole again");
            }
            assert_eq!(story.array.lend_slot().await.unwrap(), None);
            for index in 0..story.array.layout().redundancy() {
                let role = Role(index as u16 * 2 + 1);
                story.array.fail(role).await.unwrap();
                assert!(whole(&story.array).await == *story.bytes.borrow(), "without {role:?}");
            }
        });
    }
}

#[test]
fn a_rebuild_onto_spare_space_reads_from_and_writes_to_every_member() {
    run(2, |runtime| async move {
        let shape = (Level::Raid6, 12, Spread { width: 5, spares: 1 });
        let story = Story::begin(shape, 2, &runtime).await;
        story.array.fail(Role(4)).await.unwrap();
        story.array.lend_slot().await.unwrap();
        let count = |of: fn(&TestDevice) -> u64| -> Vec<u64> {
            story.devices.iter().map(|device| of(device)).collect()
        };
        let (reads, writes) = (count(|it| it.reads.get()), count(|it| it.writes.get()));
        assert!(matches!(
            story.array.fill_slot(Role(4), async || true).await,
            Ok(Filled::Whole { .. })
        ));
        for (member, (before, after)) in reads.iter().zip(count(|it| it.reads.get())).enumerate() {
            assert!(member == 4 || after - before >= 10, "{member} read {}", after - before);
        }
        for (member, (before, after)) in writes.iter().zip(count(|it| it.writes.get())).enumerate()
        {
            // Beside its superblocks, some rows.
            assert!(member == 4 || after - before >= 5, "{member} wrote {}", after - before);
        }
    });
}

/// One life: spare space stands in for two members, one after the other, then a device is given the
/// role of the first; beside it values rise in two places, which `newest` has as they are
/// acknowledged.
async fn stand_in(devices: Devices, newest: &RefCell<[u8; 2]>) {
    let spare = devices[devices.len() - 1].clone();
    let runtime = devices.runtime.clone();
    let array = attempt(belonging(devices).await).await.unwrap().array;
    let places = [0, array.layout().array_bytes() - 512];
    let value = Cell::new(0);
    let rising = async || {
        value.set(value.get() + 1);
        for (place, at) in places.into_iter().enumerate() {
            write_stable(&array, at, value.get()).await.unwrap();
            newest.borrow_mut()[place] = value.get();
        }
        // So that nothing is marked, and a cut leaves no stripe that may be torn.
        for _ in 0..2 {
            array.submit(Request::flush()).await.unwrap();
        }
        runtime.sleep(std::time::Duration::from_secs(20)).await;
        true
    };
    rising().await;
    for role in [Role(1), Role(3)] {
        array.fail(role).await.unwrap();
        if array.lend_slot().await.unwrap().is_some() {
            let filled = array.fill_slot(role, rising).await;
            assert!(matches!(filled, Ok(Filled::Whole { .. })));
        }
    }
    array.add_spare(spare, Uuid::from_u128(77)).await.unwrap();
    array.assign_spare(Role(1), None).await.unwrap();
    assert!(matches!(array.fill(Role(1), rising).await, Ok(Filled::Whole { .. })));
    rising().await;
}

#[test]
fn however_a_rebuild_onto_spare_space_is_cut_what_was_acknowledged_is_there() {
    for (level, count, spread) in [
        (Level::Raid5, 5, Spread { width: 3, spares: 1 }),
        (Level::Raid5, 6, Spread { width: 3, spares: 2 }),
        (Level::Raid6, 6, Spread { width: 4, spares: 1 }),
    ] {
        let (mut cut_at, mut started) = (0, 0);
        loop {
            let machine = Machine::with_spread_and_spare(count, level, spread);
            let newest = RefCell::new([0; 2]);
            machine.power.cut_after(cut_at);
            let life = async |devices, _| stand_in(devices, &newest).await;
            let ended = machine.live(cut_at + 1, &machine.all(), life);
            let context = format!("{level} of {count}, {spread:?}, cut at {cut_at}");
            let newest = newest.into_inner();
            machine.live_to_the_end(&machine.all(), async |devices| {
                started += u64::from(end_fills(devices, newest, &context).await);
            });
            if matches!(ended, Ended::Finished(())) {
                break;
            }
            // The sweep takes every point of the beginning, and later some.
            cut_at += 1 + cut_at / 150;
        }
        assert!(cut_at > 300 && started > 60, "{cut_at} operations, {started} starts");
    }
}
