//! Arrays with a stripe journal, and what their sectors may hold.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Buffer, BufferPool, ByteRange, PoolConfig, Request, RequestFlags, Runtime,
};
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_raid::{
    AfterUncleanStop, Array, AssembleError, AssembleOptions, Assembled, CreateOptions, Force,
    Intent, JournalOptions, JournalWhen, Level, Occupied, Tuning, assemble, create, create_journal,
    journal,
};
use headpond_sim::{Medium, Power, Random};
use uuid::Uuid;

use super::machine::{Devices, Machine};
use super::{STRIP, options, read};

pub const ROWS: u64 = 12;
pub const SECTOR: u64 = 512;

/// Disks of an array, and behind them the one of its journal.
pub struct Story {
    pub machine: Machine,
    /// With the spare, where there is one.
    pub members: usize,
    pub level: Level,
    pub when: JournalWhen,
}

pub fn create_options(level: Level, when: JournalWhen) -> CreateOptions {
    let journal = Some(JournalOptions { uuid: Uuid::from_u128(0x10), when });
    CreateOptions { intent: Intent::Bitmap, journal, ..options(level, groups(level)) }
}

fn groups(level: Level) -> usize {
    if matches!(level, Level::Raid50 | Level::Raid60) { 2 } else { 1 }
}

pub async fn make(mut devices: Devices, options: &CreateOptions) {
    let journal = devices.pop().expect("the journal's");
    let record = headpond_raid::create::consider(&devices, options).await.expect("possible");
    create_journal(&*journal, &record, Occupied::Refuse).await.expect("the journal is made");
    create(&devices, options).await.expect("created");
}

/// With the journal, where it is among the devices.
pub async fn open(
    runtime: &Runtime,
    devices: Vec<Rc<dyn BlockDevice>>,
    force: Force,
) -> Result<Assembled, AssembleError> {
    let (journals, members): (Vec<_>, Vec<_>) =
        devices.into_iter().partition(|device| device.name().as_str() == "journal");
    let pool = BufferPool::new(&PoolConfig::none());
    let options = AssembleOptions {
        uuid: None,
        after_unclean_stop: AfterUncleanStop::DistrustParity,
        force,
        tuning: Tuning { scratch_bytes_max: 1 << 20, ..Tuning::with_pool(pool) },
        journals,
    };
    assemble(runtime, members, options).await
}

impl Story {
    pub fn new(level: Level, members: usize, when: JournalWhen) -> Story {
        Story::of(level, (members, members), when)
    }

    /// The same, with an empty disk between the members and the journal.
    pub fn with_spare(level: Level, members: usize, when: JournalWhen) -> Story {
        Story::of(level, (members, members + 1), when)
    }

    pub fn of(level: Level, (members, disks): (usize, usize), when: JournalWhen) -> Story {
        let data_bytes = ROWS * u64::from(STRIP);
        let layout = headpond_raid::Layout::new(level, members, groups(level), STRIP, data_bytes);
        let ring = journal::bytes_min(&layout.expect("a shape"));
        let bytes = DATA_OFFSET_MIN + data_bytes;
        let member = |index| Medium::flushable(format!("m{index}").as_str(), bytes);
        let journal = Medium::flushable("journal", ring);
        let media = (0..disks).map(member).chain([journal]).map(Rc::new).collect();
        let machine = Machine { members: media, power: Power::on() };
        let story = Story { machine, members: disks, level, when };
        let all: Vec<usize> = (0..members).chain([disks]).collect();
        let options = create_options(level, when);
        story.machine.live_to_the_end(&all, async |devices| make(devices, &options).await);
        story
    }

    /// Every disk, the journal's last.
    pub fn all(&self) -> Vec<usize> {
        (0..=self.members).collect()
    }

    pub fn without(&self, lost: &BTreeSet<usize>) -> Vec<usize> {
        self.all().into_iter().filter(|index| !lost.contains(index)).collect()
    }

    pub fn redundancy(&self) -> usize {
        self.level.parity().into()
    }
}

/// What each sector may hold: what was stable, and what was written since.
pub struct Judge {
    pub allowed: RefCell<Vec<Vec<u64>>>,
    pub next: Cell<u64>,
}

impl Judge {
    pub fn new(bytes: u64) -> Judge {
        let allowed = RefCell::new(vec![vec![0]; (bytes / SECTOR) as usize]);
        Judge { allowed, next: Cell::new(1) }
    }

    pub fn sectors(range: ByteRange) -> std::ops::Range<usize> {
        (range.start() / SECTOR) as usize..(range.end() / SECTOR) as usize
    }

    pub fn writing(&self, range: ByteRange, value: u64) {
        self.allowed.borrow_mut()[Self::sectors(range)].iter_mut().for_each(|it| it.push(value));
    }

    pub fn stable(&self, range: ByteRange, value: u64) {
        self.allowed.borrow_mut()[Self::sectors(range)].iter_mut().for_each(|it| *it = vec![value]);
    }

    pub fn flushed(&self) {
        for sector in self.allowed.borrow_mut().iter_mut() {
            let last = *sector.last().expect("something");
            *sector = vec![last];
        }
    }

    /// Reads everything; what is there counts from now on.
    pub async fn check(&self, array: &Array, context: &str) {
        array.self_check();
        let len = self.allowed.borrow().len();
        let bytes = read(array, 0, len * SECTOR as usize).await;
        let bytes = bytes.unwrap_or_else(|error| panic!("{context}: {error}"));
        for (at, sector) in bytes.chunks(SECTOR as usize).enumerate() {
            self.found(at, sector).unwrap_or_else(|told| panic!("{context}: {told}"));
        }
    }

    /// The same, sector by sector; how many are errors, or the first that holds something else.
    pub async fn check_but_errors(&self, array: &Array) -> Result<usize, String> {
        let (len, mut errors) = (self.allowed.borrow().len(), 0);
        for at in 0..len {
            match read(array, at as u64 * SECTOR, SECTOR as usize).await {
                Ok(sector) => self.found(at, &sector)?,
                Err(_) => errors += 1,
            }
        }
        Ok(errors)
    }

    fn found(&self, at: usize, sector: &[u8]) -> Result<(), String> {
        let allowed = &mut self.allowed.borrow_mut()[at];
        let words: BTreeSet<&[u8]> = sector.chunks(8).collect();
        let found = u64::from_le_bytes(sector[..8].try_into().unwrap());
        if words.len() > 1 || !allowed.contains(&found) {
            return Err(format!("sector {at} holds {found} of {allowed:?}"));
        }
        *allowed = vec![found];
        Ok(())
    }
}

/// One step: some writes side by side that do not overlap, or a flush.
pub async fn step(array: &Array, judge: &Judge, random: &mut Random) {
    if random.one_in(6) {
        if array.submit(Request::flush()).await.is_ok() {
            judge.flushed();
        }
        return;
    }
    let sectors = judge.allowed.borrow().len() as u64;
    let count = 1 + random.below(4);
    let part = sectors / count;
    let flags = if random.one_in(3) { RequestFlags::FUA } else { RequestFlags::empty() };
    let mut writes = Vec::new();
    for number in 0..count {
        let most = *random.pick(&[1, 8, 8, 30]);
        let len = (1 + random.below(most)).min(part);
        let start = number * part + random.below(part - len + 1);
        let range = ByteRange::at(start * SECTOR, len * SECTOR);
        let (value, request) = match random.one_in(8) {
            true => (0, Request::write_zeroes(range)),
            false => {
                let value = judge.next.get();
                judge.next.set(value + 1);
                let bytes = value.to_le_bytes().repeat(range.len() as usize / 8);
                (value, Request::write(range.start(), Buffer::from_slice(&bytes)))
            }
        };
        judge.writing(range, value);
        writes.push((range, value, array.submit(request.with_flags(flags))));
    }
    let (ranges, submissions): (Vec<_>, Vec<_>) =
        writes.into_iter().map(|(range, value, it)| ((range, value), it)).unzip();
    for ((range, value), outcome) in ranges.into_iter().zip(join_all(submissions).await) {
        if outcome.is_ok() && flags.contains(RequestFlags::FUA) {
            judge.stable(range, value);
        }
    }
}
