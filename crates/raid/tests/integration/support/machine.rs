//! A machine whose disks outlive the lives of their array, and whose power can be cut.

use std::ops::{Deref, DerefMut};
use std::rc::Rc;

use headpond_block::{
    BlockDevice, Buffer, BufferPool, DeviceError, PoolConfig, Request, RequestFlags, Runtime,
};
use headpond_raid::layout::Role;
use headpond_raid::superblock::{COPY_OFFSETS, DATA_OFFSET_MIN, SUPERBLOCK_BYTES, decode};
use headpond_raid::{
    AfterUncleanStop, Array, ArrayState, AssembleError, AssembleOptions, Assembled, CreateOptions,
    Filled, Force, Inspection, Intent, Level, Spread, Tuning, assemble, create, inspect,
};
use headpond_sim::{Ended, Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};

use super::{STRIP, options, read, refined};

/// The members as one life sees them.
pub struct Devices {
    list: Vec<Rc<dyn BlockDevice>>,
    pub runtime: Runtime,
}

impl Devices {
    pub fn new(list: Vec<Rc<dyn BlockDevice>>, runtime: &Runtime) -> Devices {
        Devices { list, runtime: runtime.clone() }
    }
}

impl Deref for Devices {
    type Target = Vec<Rc<dyn BlockDevice>>;

    fn deref(&self) -> &Self::Target {
        &self.list
    }
}

impl DerefMut for Devices {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.list
    }
}

/// Rows of a machine that nothing is filled on.
const FEW_ROWS: u64 = 4;
/// Several times what is filled at a time.
const MANY_ROWS: u64 = 40;

pub struct Machine {
    pub members: Vec<Rc<Medium>>,
    pub power: Power,
}

impl Machine {
    pub fn new(count: usize) -> Machine {
        Machine::of_rows(count, FEW_ROWS)
    }

    fn of_rows(count: usize, rows: u64) -> Machine {
        let bytes = DATA_OFFSET_MIN + rows * u64::from(STRIP);
        let member = |index| Medium::flushable(format!("m{index}").as_str(), bytes);
        Machine { members: (0..count).map(member).map(Rc::new).collect(), power: Power::on() }
    }

    /// With an array on it that was never used.
    pub fn with_array(count: usize, level: Level) -> Machine {
        let machine = Machine::new(count);
        machine.live_to_the_end(&machine.all(), async |devices| make_array(devices, level).await);
        machine
    }

    /// The same on larger disks, and one more disk, which is empty.
    pub fn with_array_and_spare(count: usize, level: Level) -> Machine {
        let machine = Machine::of_rows(count + 1, MANY_ROWS);
        let members: Vec<usize> = (0..count).collect();
        machine.live_to_the_end(&members, async |devices| make_array(devices, level).await);
        machine
    }

    /// The same without that disk.
    pub fn with_array_of_many_rows(count: usize, level: Level) -> Machine {
        let machine = Machine::of_rows(count, MANY_ROWS);
        machine.live_to_the_end(&machine.all(), async |devices| make_array(devices, level).await);
        machine
    }

    /// The same, and stripes narrower than the array.
    pub fn with_spread_and_spare(count: usize, level: Level, spread: Spread) -> Machine {
        let machine = Machine::of_rows(count + 1, MANY_ROWS);
        let members: Vec<usize> = (0..count).collect();
        machine.live_to_the_end(&members, async |devices| {
            let options = CreateOptions {
                intent: Intent::Bitmap,
                declustered: Some(spread),
                ..options(level, 1)
            };
            create(&devices, &options).await.expect("created");
        });
        machine
    }

    /// Bitmaps with regions of so many stripes, for an array that was not started yet.
    pub fn refine(&self, stripes: u64) {
        for medium in &self.members {
            for offset in COPY_OFFSETS {
                let superblock = medium.peek(offset, SUPERBLOCK_BYTES);
                if let Some(bytes) = refined(&superblock, stripes) {
                    medium.poke(offset, &bytes);
                }
            }
        }
    }

    pub fn all(&self) -> Vec<usize> {
        (0..self.members.len()).collect()
    }

    /// One life, with these members in this order.
    pub fn live<T>(
        &self,
        seed: u64,
        present: &[usize],
        life: impl AsyncFnOnce(Devices, Runtime) -> T,
    ) -> Ended<T> {
        let main = async |runtime: Runtime, sim: Sim| {
            let attach = |index: &usize| {
                let (medium, time) = (Rc::clone(&self.members[*index]), OperationTime::SOME);
                let disk = SimDisk::attach(medium, &self.power, &runtime, &sim, time);
                Rc::new(disk) as Rc<dyn BlockDevice>
            };
            let list = present.iter().map(attach).collect();
            life(Devices { list, runtime: runtime.clone() }, runtime.clone()).await
        };
        let ended = run_until_cut(seed, &self.power, main).expect("no deadlock");
        self.power.come_back(&self.members, seed);
        ended
    }

    /// A life that nothing befalls, with these members in this order.
    pub fn live_to_the_end<T>(&self, present: &[usize], life: impl AsyncFnOnce(Devices) -> T) -> T {
        match self.live(7, present, async |devices, _| life(devices).await) {
            Ended::Finished(end) => end,
            Ended::Cut => panic!("nobody cut the power"),
        }
    }

    pub fn image(&self, member: usize) -> Vec<u8> {
        let bytes = DATA_OFFSET_MIN + FEW_ROWS * u64::from(STRIP);
        self.members[member].peek(0, bytes as usize)
    }

    pub fn images(&self) -> Vec<Vec<u8>> {
        (0..self.members.len()).map(|member| self.image(member)).collect()
    }

    pub fn put_back(&self, member: usize, image: &[u8]) {
        self.members[member].poke(0, image);
    }

    /// The event count that each member has to show.
    pub fn event_counts(&self) -> Vec<u64> {
        let newest = |member: &Rc<Medium>| {
            let copy = |offset| decode(&member.peek(offset, SUPERBLOCK_BYTES)).ok();
            let copies = COPY_OFFSETS.into_iter().filter_map(copy);
            copies.max_by_key(|copy| copy.sequence).map_or(0, |copy| copy.array.event_count)
        };
        self.members.iter().map(newest).collect()
    }
}

/// The devices that belong to an array.
pub async fn belonging(mut devices: Devices) -> Devices {
    let mut kept = Vec::new();
    for device in devices.drain(..) {
        if matches!(inspect(&*device).await, Ok(Inspection::Member(_))) {
            kept.push(device);
        }
    }
    devices.extend(kept);
    devices
}

pub async fn write_stable(array: &Array, at: u64, value: u8) -> Result<(), DeviceError> {
    let data = Buffer::from_slice(&[value; 512]);
    array.submit(Request::write(at, data).with_flags(RequestFlags::FUA)).await
}

pub async fn make_array(devices: Devices, level: Level) {
    let options = CreateOptions { intent: Intent::Bitmap, ..options(level, 1) };
    create(&devices, &options).await.expect("created");
}

/// With a pool that costs nothing: arrays are put together thousands of times.
pub async fn attempt(devices: Devices) -> Result<Assembled, AssembleError> {
    let pool = BufferPool::new(&PoolConfig::none());
    let options = AssembleOptions {
        uuid: None,
        after_unclean_stop: AfterUncleanStop::DistrustParity,
        force: Force::No,
        tuning: Tuning { scratch_bytes_max: 1 << 20, ..Tuning::with_pool(pool) },
        journals: Vec::new(),
    };
    assemble(&devices.runtime, devices.list, options).await
}

/// The life after: what was acknowledged is there; what was begun is ended; then another member
/// goes, and everything is still there. Says whether the array started.
pub async fn end_fills(devices: Devices, newest: [u8; 2], context: &str) -> bool {
    let array = match attempt(belonging(devices).await).await {
        Ok(assembled) => assembled.array,
        Err(AssembleError::DegradedAndUnclean { .. }) => return false,
        Err(error) => panic!("{context}: {error}"),
    };
    let places = [0, array.layout().array_bytes() - 512];
    let check = async |when: &str| {
        for (newest, at) in newest.into_iter().zip(places) {
            let found = read(&array, at, 512).await.unwrap();
            assert!(found[0] >= newest, "{context}, {when}: {} of {newest}", found[0]);
        }
    };
    check("after the start").await;
    for role in array.lent_roles() {
        let filled = array.fill_slot(role, async || true).await;
        assert!(matches!(filled, Ok(Filled::Whole { .. })), "{context}");
    }
    check("when stood in for").await;
    for role in array.filling_roles() {
        let filled = array.fill(role, async || true).await;
        assert!(matches!(filled, Ok(Filled::Whole { .. })), "{context}");
    }
    check("when filled").await;
    if array.state() == ArrayState::Optimal {
        array.fail(Role(0)).await.unwrap();
        check("without another member").await;
    }
    true
}
