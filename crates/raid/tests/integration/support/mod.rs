//! Members that complete late, in any order, and fail on command; and a naive view of their bytes.

pub mod integrity;
pub mod journal;
pub mod lost;
pub mod machine;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, DeviceError, DeviceName, Executor, Geometry, Order,
    Outcome, Request, RequestKind, Runtime, Submission, VirtualClock,
};
use headpond_raid::layout::{Layout, Role, Strip, StripCell, Stripe};
use headpond_raid::superblock::{COPY_OFFSETS, DATA_OFFSET_MIN, SUPERBLOCK_BYTES, decode, encode};
use headpond_raid::{
    Array, AssembleOptions, Assembled, Contents, CreateOptions, Integrity, Intent, Level, Occupied,
    Striping, assemble, create,
};
use uuid::Uuid;

/// An executor whose order and times follow from a seed.
pub fn executor(seed: u64) -> Executor {
    Executor::new(Box::<VirtualClock>::default(), Order::Seeded(seed))
}

/// Runs a test that is one future.
pub fn run<T, F: Future<Output = T>>(seed: u64, test: impl FnOnce(Runtime) -> F) -> T {
    let executor = executor(seed);
    executor.block_on(test(executor.runtime())).expect("the test goes on")
}

/// A small repeatable generator.
pub struct Random(Cell<u64>);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(Cell::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1))
    }

    pub fn below(&self, limit: u64) -> u64 {
        let mut state = self.0.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.0.set(state);
        (state >> 11) % limit
    }

    pub fn bytes(&self, len: usize) -> Vec<u8> {
        let words = (0..len.div_ceil(8)).flat_map(|_| self.below(u64::MAX).to_le_bytes());
        words.take(len).collect()
    }
}

fn refined(superblock: &[u8], stripes: u64) -> Option<Vec<u8>> {
    let mut superblock = decode(superblock).ok()?;
    let array = &mut superblock.array;
    match &mut array.integrity_region_stripes {
        Some(region) => {
            *region = stripes;
            array.intent_region_stripes.iter_mut().for_each(|region| *region = stripes);
        }
        None => array.intent_region_stripes = Some(stripes),
    }
    Some(encode(&superblock))
}

/// A member: RAM that answers after a random time.
pub struct TestDevice {
    ram: RamDevice,
    pub runtime: Runtime,
    random: Random,
    /// Writes and flushes that still succeed.
    pub writes_left: Cell<u64>,
    pub gone: Cell<bool>,
    /// What the next writes answer with, instead of being done.
    pub full: Cell<bool>,
    /// Sectors that cannot be read until they are written.
    pub bad: RefCell<BTreeSet<u64>>,
    pub reads: Cell<u64>,
    /// Where the parts of the newest read are put.
    pub targets: RefCell<Vec<*mut u8>>,
    pub writes: Cell<u64>,
}

impl TestDevice {
    pub fn new(index: usize, size_bytes: u64, runtime: &Runtime) -> Rc<TestDevice> {
        let name = format!("m{index}");
        let ram = RamDevice::with_geometry(name.as_str(), Geometry::of_size(size_bytes));
        Rc::new(TestDevice {
            ram,
            runtime: runtime.clone(),
            random: Random::new(index as u64 + 99),
            writes_left: Cell::new(u64::MAX),
            gone: Cell::new(false),
            full: Cell::new(false),
            bad: RefCell::default(),
            reads: Cell::new(0),
            targets: RefCell::default(),
            writes: Cell::new(0),
        })
    }

    /// The same bytes, in a device without faults.
    pub fn copy(&self, index: usize, runtime: &Runtime) -> Rc<TestDevice> {
        let copy = TestDevice::new(index, self.ram.geometry().size_bytes, runtime);
        copy.ram.memory().copy_from_buffer(self.ram.memory());
        copy
    }

    /// Gives an array that was not started yet bitmaps with regions of so many stripes: finer ones
    /// than an array so small would have.
    pub fn refine(&self, stripes: u64) {
        for offset in COPY_OFFSETS {
            let start = offset as usize;
            let place = self.ram.memory().slice(start..start + SUPERBLOCK_BYTES);
            if let Some(bytes) = refined(&place.to_vec(), stripes) {
                place.copy_from(&bytes);
            }
        }
    }

    pub fn memory(&self) -> &Buffer {
        self.ram.memory()
    }

    pub fn data(&self, offset: u64, len: usize) -> Vec<u8> {
        let start = (DATA_OFFSET_MIN + offset) as usize;
        self.ram.memory().slice(start..start + len).to_vec()
    }

    pub fn make_bad(&self, offset: u64, len: u64) {
        self.bad.borrow_mut().extend(sectors(ByteRange::at(DATA_OFFSET_MIN + offset, len)));
    }

    async fn carry_out(&self, request: Request) -> Outcome {
        self.runtime.sleep(Duration::from_nanos(self.random.below(2000))).await;
        let device = self.ram.name().clone();
        if self.gone.get() {
            return Err(DeviceError::new(&device, Cause::Gone));
        }
        match request.kind {
            RequestKind::Read => {
                self.reads.set(self.reads.get() + 1);
                self.targets.replace(request.buffers.iter().map(Buffer::as_ptr).collect());
                if sectors(request.range).any(|sector| self.bad.borrow().contains(&sector)) {
                    return Err(DeviceError::new(&device, Cause::Media { range: request.range }));
                }
            }
            _ => {
                if self.full.get() {
                    return Err(DeviceError::new(&device, Cause::NoSpace));
                }
                self.writes.set(self.writes.get() + 1);
                let left = self.writes_left.get();
                if left == 0 {
                    return Err(DeviceError::new(&device, Cause::Media { range: request.range }));
                }
                self.writes_left.set(left - 1);
                let written = sectors(request.range);
                self.bad.borrow_mut().retain(|sector| !written.contains(sector));
            }
        }
        self.ram.submit(request).await
    }
}

impl BlockDevice for TestDevice {
    fn name(&self) -> &DeviceName {
        self.ram.name()
    }

    fn geometry(&self) -> &Geometry {
        self.ram.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        Submission::pending(self.carry_out(request))
    }
}

fn sectors(range: ByteRange) -> std::ops::Range<u64> {
    range.start() / 512..range.end() / 512
}

pub const STRIP: u32 = 4096;

/// New members with room for `rows` strips each.
pub fn devices(count: usize, rows: u64, runtime: &Runtime) -> Vec<Rc<TestDevice>> {
    let size = DATA_OFFSET_MIN + rows * u64::from(STRIP);
    (0..count).map(|index| TestDevice::new(index, size, runtime)).collect()
}

pub fn as_devices(members: &[Rc<TestDevice>]) -> Vec<Rc<dyn BlockDevice>> {
    members.iter().map(|member| Rc::clone(member) as Rc<dyn BlockDevice>).collect()
}

pub fn options(level: Level, groups: usize) -> CreateOptions {
    CreateOptions {
        name: "test".into(),
        uuid: Uuid::from_u128(0x1234),
        level,
        groups,
        declustered: None,
        striping: Striping::Plain,
        strip_bytes: STRIP,
        contents: Contents::Zeros,
        intent: Intent::None,
        integrity: Integrity::None,
        occupied: Occupied::Refuse,
        owner: None,
        journal: None,
    }
}

/// Makes and assembles an array.
pub async fn new_array(members: &[Rc<TestDevice>], options: &CreateOptions) -> Array {
    create(&as_devices(members), options).await.expect("created");
    start(members).await.array
}

pub async fn start(members: &[Rc<TestDevice>]) -> Assembled {
    let runtime = &members[0].runtime;
    assemble(runtime, as_devices(members), AssembleOptions::default()).await.expect("assembled")
}

pub async fn read(array: &Array, offset: u64, len: usize) -> Result<Vec<u8>, DeviceError> {
    let buffer = Buffer::from_slice(&vec![0xa5; len]);
    array.submit(Request::read(offset, &buffer)).await?;
    Ok(buffer.to_vec())
}

pub async fn write(array: &Array, offset: u64, bytes: &[u8]) -> Outcome {
    array.submit(Request::write(offset, Buffer::from_slice(bytes))).await
}

/// The product in GF(2^8) with 0x11d, bit by bit: not the code under test.
fn times(a: u8, b: u8) -> u8 {
    let product =
        (0..8).filter(|bit| b >> bit & 1 == 1).fold(0_u16, |sum, bit| sum ^ u16::from(a) << bit);
    let reduced = (8..15).rev().fold(product, |value, bit| {
        if value >> bit & 1 == 1 { value ^ 0x11d << (bit - 8) } else { value }
    });
    reduced as u8
}

/// Checks on the raw bytes that parity and copies of every stripe fit its data, and what the array
/// knows by itself.
pub fn check_redundancy(array: &Array, members: &[Rc<TestDevice>]) {
    array.self_check();
    let layout = array.layout();
    for stripe in (0..layout.stripes()).map(Stripe) {
        check_stripe(layout, members, stripe);
    }
}

pub fn check_stripe(layout: &Layout, members: &[Rc<TestDevice>], stripe: Stripe) {
    let len = layout.strip_bytes() as usize;
    let content =
        |cell: StripCell| members[cell.role.index()].data(layout.row_start(cell.row), len);
    let strip = |strip| content(layout.cell(stripe, strip));
    if layout.level().is_mirrored() {
        let first = content(layout.cell_of_copy(stripe, 0));
        for copy in 1..layout.copies() {
            let other = content(layout.cell_of_copy(stripe, copy));
            assert!(first == other, "copy {copy} of {stripe:?} differs");
        }
        return;
    }
    let (mut p, mut q) = (vec![0; len], vec![0; len]);
    let mut weight = 1;
    for k in 0..layout.data_strips() {
        for (i, byte) in strip(Strip::Data(k as u16)).into_iter().enumerate() {
            p[i] ^= byte;
            q[i] ^= times(weight, byte);
        }
        weight = times(weight, 2);
    }
    if layout.parity_strips() > 0 {
        assert!(strip(Strip::P) == p, "P of {stripe:?} is wrong");
    }
    if layout.parity_strips() > 1 {
        assert!(strip(Strip::Q) == q, "Q of {stripe:?} is wrong");
    }
}

/// Every set of members that the array can lose.
pub fn failure_sets(layout: &Layout) -> Vec<Vec<usize>> {
    let members = layout.members();
    let fits = |set: &Vec<usize>| {
        (0..layout.groups()).all(|group| {
            let group_of = |member: usize| layout.group_of_role(Role(member as u16));
            let lost = set.iter().filter(|member| group_of(**member) == group);
            lost.count() <= layout.redundancy()
        })
    };
    let sets = (0..1_u32 << members)
        .map(|bits| (0..members).filter(|member| bits >> member & 1 == 1).collect::<Vec<usize>>());
    sets.filter(fits).collect()
}
