//! Arrays with an integrity region, on disks that can be changed underneath.

use std::rc::Rc;

use headpond_raid::layout::{Layout, StripCell, Stripe};
use headpond_raid::{
    Array, CreateOptions, Integrity, Intent, Level, ScrubReport, Scrubbed, Spread, create,
};
use headpond_sim::{Medium, Power};

use super::machine::{Devices, Machine, attempt};
use super::{Random, options, read, write};

pub const ROWS: u64 = 24;
/// Stripes to a region.
pub const REGION: u64 = 8;
/// Where the data of so small members begins.
pub const DATA: u64 = 2 << 20;
pub const BLOCK: usize = 4096;

#[derive(Clone, Copy)]
pub struct Shape {
    pub level: Level,
    pub members: usize,
    pub groups: usize,
    pub spread: Option<Spread>,
    pub intent: Intent,
}

pub const fn plain(level: Level, members: usize, groups: usize) -> Shape {
    Shape { level, members, groups, spread: None, intent: Intent::Bitmap }
}

pub const RAID5: Shape = plain(Level::Raid5, 4, 1);
pub const RAID6: Shape = plain(Level::Raid6, 6, 1);
pub const RAID10: Shape = plain(Level::Raid10, 4, 2);
pub const SPREAD: Shape = Shape {
    level: Level::Raid6,
    members: 8,
    groups: 1,
    spread: Some(Spread { width: 5, spares: 1 }),
    intent: Intent::Bitmap,
};
pub const SHAPES: [Shape; 6] =
    [RAID5, RAID6, RAID10, plain(Level::Raid1, 2, 1), plain(Level::Raid50, 6, 2), SPREAD];

/// An array on disks whose power can be cut, and what was written to it.
pub struct Signed {
    pub machine: Machine,
    pub layout: Layout,
    pub bytes: Vec<u8>,
}

impl Shape {
    pub fn options(self) -> CreateOptions {
        CreateOptions {
            declustered: self.spread,
            intent: self.intent,
            integrity: Integrity::Region,
            ..options(self.level, self.groups)
        }
    }

    /// Full of data that was not scrubbed yet, and a spare disk.
    pub fn written(self, random: &Random) -> Signed {
        self.written_in(random, REGION)
    }

    pub fn written_in(self, random: &Random, region: u64) -> Signed {
        let disk = |index| Medium::flushable(format!("m{index}").as_str(), DATA + ROWS * 4096);
        let members = (0..=self.members).map(disk).map(Rc::new).collect();
        let machine = Machine { members, power: Power::on() };
        let all: Vec<usize> = (0..self.members).collect();
        machine.live_to_the_end(&all, async |devices| {
            let record = create(&devices, &self.options()).await.expect("created");
            assert_eq!(record.data_offset, DATA);
        });
        machine.refine(region);
        let (layout, bytes) = machine.live_to_the_end(&all, async |devices| {
            let array = attempt(devices).await.expect("assembled").array;
            let bytes = random.bytes(array.layout().array_bytes() as usize);
            write(&array, 0, &bytes).await.expect("written");
            array.stop().await.expect("stopped");
            (array.layout().clone(), bytes)
        });
        Signed { machine, layout, bytes }
    }

    pub fn signed(self, random: &Random) -> Signed {
        let signed = self.written(random);
        let report = signed.scrub();
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 0));
        signed
    }
}

impl Signed {
    pub fn all(&self) -> Vec<usize> {
        (0..self.layout.members()).collect()
    }

    pub fn live<T>(&self, life: impl AsyncFnOnce(&Array, Devices) -> T) -> T {
        self.machine.live_to_the_end(&self.all(), async |devices| {
            let others = Devices::new(devices.to_vec(), &devices.runtime);
            let array = attempt(devices).await.expect("assembled").array;
            let outcome = life(&array, others).await;
            array.self_check();
            array.stop().await.expect("stopped");
            outcome
        })
    }

    pub fn scrub(&self) -> ScrubReport {
        self.live(async |array, _| scrub(array).await)
    }

    pub fn check_contents(&self) {
        let bytes = self.live(async |array, _| whole(array).await);
        assert!(bytes == self.bytes, "all is as it was written");
    }

    /// Changes bytes silently.
    pub fn corrupt(&self, cell: StripCell, at: u64, error: &[u8]) {
        let start = DATA + self.layout.row_start(cell.row) + at;
        let medium = &self.machine.members[cell.role.index()];
        let old = medium.peek(start, error.len());
        let new: Vec<u8> = old.iter().zip(error).map(|(old, error)| old ^ error).collect();
        medium.poke(start, &new);
    }

    /// Where the strips of a stripe lie, or its copies.
    pub fn cells(&self, stripe: u64) -> Vec<StripCell> {
        let stripe = Stripe(stripe);
        match self.layout.level().is_mirrored() {
            true => (0..self.layout.copies())
                .map(|copy| self.layout.cell_of_copy(stripe, copy))
                .collect(),
            false => self.layout.strips().map(|it| self.layout.cell(stripe, it)).collect(),
        }
    }

    /// Corrupts so many strips of a stripe in the same sector, chosen at random.
    pub fn corrupt_some(&self, stripe: u64, count: usize, random: &Random) {
        let cells = self.cells(stripe);
        let first = random.below(cells.len() as u64) as usize;
        for turn in 0..count {
            let mut error = random.bytes(100);
            error[0] |= 1;
            self.corrupt(cells[(first + turn) % cells.len()], 700, &error);
        }
    }

    pub fn images(&self) -> Vec<Vec<u8>> {
        let image = |member: &Rc<Medium>| member.peek(DATA, (ROWS * 4096) as usize);
        self.machine.members.iter().map(image).collect()
    }
}

pub async fn scrub(array: &Array) -> ScrubReport {
    assert_eq!(array.scrub(async || true).await, Ok(Scrubbed::Whole));
    array.status().scrub_report()
}

pub async fn whole(array: &Array) -> Vec<u8> {
    read(array, 0, array.layout().array_bytes() as usize).await.expect("read")
}

pub fn regions(array: &Array) -> (u64, u64) {
    let integrity = array.status().integrity.expect("there is an integrity region");
    (integrity.regions_signed, integrity.regions)
}
