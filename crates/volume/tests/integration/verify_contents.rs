//! Where a scrub of the array finds what does not fit, the cache says what it has written there.

use crate::support::{CREATE, careful, description};
use headpond_block::devices::RamDevice;
use headpond_block::{BlockDevice, Buffer, Geometry, Runtime};
use headpond_cache::Mode;
use headpond_raid::ScrubReport;
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run};
use headpond_volume::{Description, Devices, Size, TierDescription, TierSettings, Volume};
use std::rc::Rc;
use std::time::Duration;

const MEMBER_BYTES: u64 = 6 << 20;
const CACHE_BYTES: u64 = 24 << 20;
/// Where the data of a member begins.
const DATA: u64 = 1 << 20;
const BLOCKS: u8 = 64;

/// What the cache is made of. That in memory computes no checksums.
#[derive(Clone, Copy)]
enum Kind {
    Flash,
    Memory,
}

struct Bench {
    runtime: Runtime,
    media: Vec<Rc<Medium>>,
    volume: Rc<Volume>,
}

impl Bench {
    async fn new(runtime: Runtime, sim: &Sim, description: &Description, kind: Kind) -> Self {
        let medium = |index: u8| Rc::new(Medium::flushable(&*format!("m{index}"), MEMBER_BYTES));
        let media: Vec<_> = (0..3).map(medium).collect();
        let attach = |medium: Rc<Medium>| -> Rc<dyn BlockDevice> {
            Rc::new(SimDisk::attach(medium, &Power::on(), &runtime, sim, OperationTime::SOME))
        };
        let members = media.iter().cloned().map(attach).collect();
        let cache = match kind {
            Kind::Flash => attach(Rc::new(Medium::flushable("cache", CACHE_BYTES))),
            Kind::Memory => {
                let geometry = Geometry::of_size(CACHE_BYTES);
                Rc::new(RamDevice::with_geometry("cache", geometry))
            }
        };
        let cache = Some(cache);
        let devices =
            Devices { tier: None, cache, members, journals: Vec::new(), ..Devices::default() };
        Volume::create(description, &devices, &CREATE).await.expect("created");
        let volume = Volume::open(&runtime, description, devices, careful()).await;
        Self { media, volume: Rc::new(volume.expect("opens")), runtime }
    }

    fn device(&self) -> &dyn BlockDevice {
        &*self.volume
    }

    /// Blocks that differ from each other, from this place on.
    async fn write(&self, start: u64) {
        for block in 0..BLOCKS {
            let bytes = Buffer::from_slice(&content(block));
            self.device().write(start + u64::from(block) * 4096, &bytes).await.expect("written");
        }
    }

    async fn read(&self, start: u64) -> Vec<Vec<u8>> {
        let data = Buffer::zeroed(usize::from(BLOCKS) * 4096);
        self.device().read(start, &data).await.expect("read");
        data.to_vec().chunks_exact(4096).map(<[u8]>::to_vec).collect()
    }

    /// Where on which disk a block lies as it was written.
    fn places_of(&self, block: u8) -> Vec<(&Rc<Medium>, u64)> {
        let wanted = content(block);
        let mut places = Vec::new();
        for (medium, image) in self.media.iter().zip(self.images()) {
            let blocks = (0..).step_by(4096).zip(image.chunks_exact(4096));
            let found = blocks.filter(|(_, found)| *found == wanted);
            places.extend(found.map(|(place, _)| (medium, place)));
        }
        places
    }

    /// What lies on the disks behind their superblocks.
    fn images(&self) -> Vec<Vec<u8>> {
        let image = |medium: &Rc<Medium>| medium.peek(DATA, (MEMBER_BYTES - DATA) as usize);
        self.media.iter().map(image).collect()
    }

    /// Changes, on the disk that has it, what nobody is told of.
    fn corrupt(&self, block: u8) {
        let places = self.places_of(block);
        let [(medium, place)] = places[..] else { panic!("the array has the block once") };
        medium.poke(DATA + place + 1000, &[0xee; 20]);
    }

    async fn scrub(&self) -> ScrubReport {
        self.volume.scrub_array(None).expect("there is an array");
        for _ in 0..10_000 {
            self.runtime.sleep(Duration::from_millis(10)).await;
            let status = self.volume.status();
            if !status.cores[0].background.scrub_wanted && status.array.progress.scrubbing.is_none()
            {
                return status.array.scrub_report();
            }
        }
        panic!("still at it");
    }
}

fn content(block: u8) -> Vec<u8> {
    (0..4096u32).map(|at| (at % 251) as u8 ^ block).collect()
}

/// The addresses of two slices, where there are two.
fn with_volume(mode: Mode, slices: u16, kind: Kind, test: impl AsyncFnOnce(Bench, u64) + 'static) {
    let main = async move |runtime: Runtime, sim: Sim| {
        let mut description = description(mode, slices);
        description.cache.iter_mut().for_each(|cache| cache.volatile_allowed = true);
        let bench = Bench::new(runtime, &sim, &description, kind).await;
        // Extents of slices are of 4 MiB.
        test(bench, (4 << 20) - 8 * 4096).await;
    };
    run(9, main).expect("the simulation ends");
}

#[test]
fn what_the_cache_has_written_is_told_from_what_the_array_made_of_it() {
    for (mode, slices, kind) in [
        (Mode::WriteBack, 1, Kind::Flash),
        (Mode::WriteThrough, 2, Kind::Flash),
        (Mode::WriteBack, 2, Kind::Memory),
    ] {
        with_volume(mode, slices, kind, async |bench, start| {
            bench.write(start).await;
            bench.volume.clean_all().await.expect("cleaned");
            for block in [0, 9, 40] {
                bench.corrupt(block);
            }
            let report = bench.scrub().await;
            assert_eq!((report.located_by_checksum, report.unexplained_sectors), (3, 0));
            assert_eq!(bench.scrub().await.corrected_sectors, 0);
            for block in [0, 9, 40] {
                assert_eq!(bench.places_of(block).len(), 1, "block {block} is on its disk again");
            }
        });
    }
}

#[test]
fn what_the_cache_has_only_read_proves_nothing() {
    with_volume(Mode::WriteAround, 1, Kind::Flash, async |bench, start| {
        bench.write(start).await;
        bench.corrupt(5);
        let read = bench.read(start).await;
        assert!(read[5] != content(5) && read[6] == content(6));
        let read = bench.read(start).await;
        assert!(read[5] != content(5), "it is in the cache as it was read");
        let before = bench.images();
        let report = bench.scrub().await;
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1));
        assert!(bench.images() == before, "nothing was changed");
    });
}

/// It may have completed blocks with what it had only read.
#[test]
fn what_a_tier_has_written_to_the_cache_proves_nothing() {
    with_volume(Mode::WriteThrough, 1, Kind::Flash, async |bench, start| {
        let described = TierDescription {
            device: "ram:8M".into(),
            line: Size(4096),
            settings: TierSettings { mode: Mode::WriteThrough, ..TierSettings::default() },
            volatile_allowed: false,
        };
        let memory = Rc::new(RamDevice::new("ram", 16 << 20));
        bench.volume.attach_tier(described, memory).await.expect("attached");
        bench.write(start).await;
        bench.corrupt(5);
        let report = bench.scrub().await;
        assert_eq!((report.corrected_sectors, report.unexplained_sectors), (0, 1));
    });
}

#[test]
fn what_is_newer_in_the_cache_says_nothing_of_the_array() {
    with_volume(Mode::WriteBack, 1, Kind::Flash, async |bench, start| {
        bench.write(start).await;
        bench.volume.clean_all().await.expect("cleaned");
        // Strips are of four blocks: 3 and 7 lie in one place of their stripe.
        for (corrupt, newer) in [(11, 11), (7, 3)] {
            bench.corrupt(corrupt);
            let newer = start + newer * 4096;
            bench.device().write(newer, Buffer::from_slice(&[7; 4096])).await.expect("written");
        }
        let report = bench.scrub().await;
        assert_eq!((report.located_by_checksum, report.unexplained_sectors), (1, 1), "{report:?}");
        assert_eq!(bench.places_of(7).len(), 1, "from its neighbour as the array has it");
    });
}
