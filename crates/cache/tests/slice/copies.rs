//! A cache device that keeps copies: whichever of them is wrong, the right one answers.

use crate::bench::{block, byte_at, flushable, nop, simulate};
use crate::machine::{CACHE_BYTES, CORE_BYTES, EXPECTED, options};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Cause, Copies, DeviceError, DeviceName, Geometry, Request, RequestKind, Runtime,
    Submission,
};
use headpond_cache::format::superblock;
use headpond_cache::{Foundation, OpenError, Recovery, ScrubReport, Slice, create, load};
use std::cell::Cell;
use std::rc::Rc;

/// Two devices that are written alike and read in turn; nobody compares them.
struct Twins {
    copies: [Rc<RamDevice>; 2],
    /// One that is out of use.
    out: Cell<Option<usize>>,
    turn: Cell<usize>,
}

impl Twins {
    async fn new() -> Rc<Self> {
        let copies = ["one", "two"].map(|name| flushable(name, CACHE_BYTES));
        let twins = Rc::new(Self { copies, out: Cell::default(), turn: Cell::default() });
        create(&*twins, &options(4096)).await.unwrap();
        twins
    }

    fn gone(&self) -> DeviceError {
        DeviceError::new(self.name(), Cause::Gone)
    }

    fn bytes(&self, copy: usize) -> Vec<u8> {
        self.copies[copy].memory().to_vec()
    }

    /// Flips a bit in every block of a copy that is full of `byte`; answers how many there are.
    fn rot(&self, copy: usize, byte: u8) -> usize {
        let mut bytes = self.bytes(copy);
        let pages = bytes.chunks_exact_mut(4096).filter(|page| page.iter().all(|it| *it == byte));
        let rotten = pages.map(|page| page[77] ^= 1).count();
        self.copies[copy].memory().copy_from(&bytes);
        rotten
    }

    /// Flips a bit in each of some blocks of a copy.
    fn rot_at(&self, copy: usize, offsets: impl IntoIterator<Item = u64>) {
        let mut bytes = self.bytes(copy);
        offsets.into_iter().for_each(|offset| bytes[offset as usize + 77] ^= 1);
        self.copies[copy].memory().copy_from(&bytes);
    }
}

impl BlockDevice for Twins {
    fn name(&self) -> &DeviceName {
        self.copies[0].name()
    }

    fn geometry(&self) -> &Geometry {
        self.copies[0].geometry()
    }

    fn copies(&self) -> Option<&dyn Copies> {
        Some(self)
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Read {
            self.turn.set(1 - self.turn.get());
            let turn = self.out.get().map_or(self.turn.get(), |out| 1 - out);
            return self.copies[turn].submit(request);
        }
        Submission::pending(async move {
            for copy in (0..2).filter(|copy| self.out.get() != Some(*copy)) {
                self.copies[copy].submit(request.clone()).await?;
            }
            Ok(())
        })
    }
}

impl Copies for Twins {
    fn count(&self) -> usize {
        2
    }

    fn read_copy(&self, copy: usize, request: Request) -> Submission<'_> {
        match self.out.get() == Some(copy) {
            true => Submission::ready(Err(self.gone())),
            false => self.copies[copy].submit(request),
        }
    }

    fn mend_copy(&self, copy: usize, request: Request) -> Submission<'_> {
        assert_ne!(self.out.get(), Some(copy), "what is out of use is not written");
        self.copies[copy].submit(request)
    }
}

struct Scene {
    runtime: Runtime,
    twins: Rc<Twins>,
    core: Rc<RamDevice>,
}

impl Scene {
    async fn new(runtime: &Runtime) -> Self {
        let core = flushable("core", CORE_BYTES);
        Self { runtime: runtime.clone(), twins: Twins::new().await, core }
    }

    async fn open(&self) -> Result<(Slice, Recovery), OpenError> {
        let foundation = Foundation::new(
            self.runtime.clone(),
            Rc::clone(&self.twins) as Rc<dyn BlockDevice>,
            Rc::clone(&self.core) as Rc<dyn BlockDevice>,
        );
        let superblock = load(&*self.twins).await?;
        Slice::open(foundation, &superblock, EXPECTED, 0, nop()).await
    }
}

/// Writes blocks of `byte`, each a record of its own, and promises them.
async fn write(slice: &Slice, byte: u8, blocks: std::ops::Range<u64>) {
    let device: &dyn BlockDevice = slice;
    for index in blocks {
        device.write(index * 4096, block(byte)).await.unwrap();
    }
    device.flush().await.unwrap();
}

async fn assert_all(slice: &Slice, byte: u8, blocks: std::ops::Range<u64>) {
    for index in blocks {
        assert_eq!(byte_at(slice, index * 4096).await.ok(), Some(byte), "block {index}");
    }
}

fn repaired(slice: &Slice) -> u64 {
    slice.stats().counters.errors.cache_repaired
}

#[test]
fn what_rotted_on_one_copy_is_read_from_the_other_and_written_anew() {
    simulate(async |runtime| {
        for copy in [0, 1] {
            let scene = Scene::new(&runtime).await;
            let (slice, _) = scene.open().await.unwrap();
            write(&slice, 7, 0..9).await;
            assert_eq!(scene.twins.rot(copy, 7), 9);
            // An odd number, so that twice meets each on both copies.
            assert_all(&slice, 7, 0..9).await;
            assert_all(&slice, 7, 0..9).await;
            assert_eq!(repaired(&slice), 9);
            assert!(scene.twins.bytes(0) == scene.twins.bytes(1), "written anew");
        }
    });
}

#[test]
fn what_rotted_on_all_copies_is_an_error_and_copies_out_of_use_stay_untouched() {
    simulate(async |runtime| {
        let scene = Scene::new(&runtime).await;
        let (slice, _) = scene.open().await.unwrap();
        write(&slice, 7, 0..2).await;
        scene.twins.rot(0, 7);
        scene.twins.out.set(Some(1));
        let before = scene.twins.bytes(0);
        assert!(byte_at(&slice, 0).await.is_err());
        assert!(scene.twins.bytes(0) == before, "nobody knows what belongs there");
        scene.twins.out.set(None);
        scene.twins.rot(1, 7);
        let error = byte_at(&slice, 4096).await.unwrap_err();
        assert!(matches!(error.cause(), Cause::Corrupt { .. }), "{error}");
        assert_eq!(slice.stats().unreadable_blocks, 2);
        write(&slice, 8, 0..2).await;
        assert_all(&slice, 8, 0..2).await;
    });
}

/// More blocks than errors that make a device one that is about to die.
#[test]
fn only_what_no_copy_has_right_counts_towards_the_fallback() {
    simulate(async |runtime| {
        let scene = Scene::new(&runtime).await;
        let (slice, _) = scene.open().await.unwrap();
        write(&slice, 7, 0..301).await;
        assert_eq!(scene.twins.rot(0, 7), 301);
        assert_all(&slice, 7, 0..301).await;
        assert_all(&slice, 7, 0..301).await;
        assert_eq!(repaired(&slice), 301);
        scene.twins.rot(0, 7);
        slice.scrub().await.unwrap();
        scene.twins.rot(1, 7);
        slice.flush_dirty().await.unwrap();
        assert!(repaired(&slice) > 602, "the cleaner has met some too");
        assert!(!slice.stats().is_in_fallback);
        write(&slice, 8, 0..120).await;
        assert_eq!((scene.twins.rot(0, 8), scene.twins.rot(1, 8)), (120, 120));
        for index in 0..120 {
            assert!(byte_at(&slice, index * 4096).await.is_err(), "block {index}");
        }
        assert!(slice.stats().is_in_fallback);
    });
}

#[test]
fn a_scrub_reads_every_copy_and_mends_what_rotted() {
    simulate(async |runtime| {
        let scene = Scene::new(&runtime).await;
        let (slice, _) = scene.open().await.unwrap();
        write(&slice, 7, 0..20).await;
        write(&slice, 8, 20..40).await;
        assert_eq!((scene.twins.rot(0, 7), scene.twins.rot(1, 8)), (20, 20));
        let whole = ScrubReport { blocks: 40, ..Default::default() };
        assert_eq!(slice.scrub().await.unwrap(), whole);
        assert_eq!(repaired(&slice), 40);
        assert!(scene.twins.bytes(0) == scene.twins.bytes(1));
        assert_eq!(slice.scrub().await.unwrap(), whole);
        assert_eq!(repaired(&slice), 40, "nothing is left to mend");
    });
}

#[test]
fn what_is_cleaned_comes_from_the_copy_that_is_right() {
    simulate(async |runtime| {
        for copy in [0, 1] {
            let scene = Scene::new(&runtime).await;
            let (slice, _) = scene.open().await.unwrap();
            write(&slice, 7, 0..64).await;
            scene.twins.rot(copy, 7);
            slice.flush_dirty().await.unwrap();
            assert!(repaired(&slice) > 0, "some were read from this copy");
            assert!(scene.core.memory().to_vec()[..64 * 4096].iter().all(|byte| *byte == 7));
        }
    });
}

/// The log goes round several times, so dirty blocks of the first lap are copied on.
#[test]
fn what_reclaim_copies_on_comes_from_the_copy_that_is_right() {
    simulate(async |runtime| {
        let scene = Scene::new(&runtime).await;
        let (slice, _) = scene.open().await.unwrap();
        write(&slice, 7, 0..100).await;
        assert_eq!(scene.twins.rot(0, 7), 100);
        for round in 0..10 {
            write(&slice, 100 + round, 200..500).await;
        }
        assert!(slice.stats().counters.reinserted_blocks >= 100, "they have moved");
        scene.twins.out.set(Some(1));
        assert_all(&slice, 7, 0..100).await;
    });
}

#[test]
fn an_unclean_open_takes_each_record_from_the_copy_that_has_it() {
    simulate(async |runtime| {
        let scene = Scene::new(&runtime).await;
        let (slice, _) = scene.open().await.unwrap();
        write(&slice, 7, 0..30).await;
        drop(slice);
        // The descriptor of every third record on one copy, the data of every third on the other.
        let pages = scene.twins.bytes(0);
        let pages = pages.chunks_exact(4096).enumerate();
        let data = pages.filter(|(_, page)| page.iter().all(|it| *it == 7));
        let data: Vec<u64> = data.map(|(index, _)| index as u64 * 4096).collect();
        assert_eq!(data.len(), 30);
        scene.twins.rot_at(0, data.iter().step_by(3).map(|offset| offset - 4096));
        scene.twins.rot_at(1, data.iter().skip(1).step_by(3).copied());
        let (slice, recovery) = scene.open().await.unwrap();
        assert_eq!((recovery.dirty_blocks, recovery.lost_blocks), (30, 0));
        assert_eq!(recovery.never_happened, 0);
        assert_all(&slice, 7, 0..30).await;
        assert_eq!(repaired(&slice), 0, "the open has mended everything");
        assert!(scene.twins.bytes(0) == scene.twins.bytes(1));
    });
}

/// A copy that missed the newest writes: a record that only the other has counts, and both have it
/// afterwards.
#[test]
fn a_cut_that_left_one_copy_behind_leaves_both_alike_after_the_next_open() {
    simulate(async |runtime| {
        for behind in [0, 1] {
            let scene = Scene::new(&runtime).await;
            let (slice, _) = scene.open().await.unwrap();
            write(&slice, 7, 0..5).await;
            let old = scene.twins.bytes(behind);
            write(&slice, 8, 3..9).await;
            drop(slice);
            scene.twins.copies[behind].memory().copy_from(&old);
            let (slice, _) = scene.open().await.unwrap();
            for only in [0, 1] {
                scene.twins.out.set(Some(1 - only));
                assert_all(&slice, 7, 0..3).await;
                assert_all(&slice, 8, 3..9).await;
            }
        }
    });
}

/// The log has gone round since its header was written, and one copy has lost the newest of it
/// although it was flushed.
#[test]
fn a_copy_that_a_lap_of_the_log_has_passed_by_is_given_the_newer_records() {
    simulate(async |runtime| {
        for behind in [0, 1] {
            let scene = Scene::new(&runtime).await;
            let (slice, _) = scene.open().await.unwrap();
            write(&slice, 7, 0..100).await;
            for round in 0..3 {
                write(&slice, 100 + round, 200..500).await;
            }
            let old = scene.twins.bytes(behind);
            for round in 3..10 {
                write(&slice, 100 + round, 200..500).await;
            }
            assert!(slice.stats().counters.reinserted_blocks >= 100, "they have moved");
            drop(slice);
            scene.twins.copies[behind].memory().copy_from(&old);
            let (slice, recovery) = scene.open().await.unwrap();
            assert_eq!((recovery.lost_blocks, recovery.never_happened), (0, 0));
            for only in [0, 1] {
                scene.twins.out.set(Some(1 - only));
                assert_all(&slice, 7, 0..100).await;
                assert_all(&slice, 109, 200..500).await;
            }
        }
    });
}

/// Neither copy has some records that a later one promises; one copy lacks another one.
#[test]
fn an_unclean_open_that_is_refused_changes_no_copy() {
    simulate(async |runtime| {
        let scene = Scene::new(&runtime).await;
        let (slice, _) = scene.open().await.unwrap();
        write(&slice, 7, 0..30).await;
        write(&slice, 8, 40..42).await;
        drop(slice);
        let pages = scene.twins.bytes(0);
        let pages = pages.chunks_exact(4096).enumerate();
        let data = pages.filter(|(_, page)| page.iter().all(|it| *it == 7));
        let descriptors: Vec<u64> = data.map(|(index, _)| index as u64 * 4096 - 4096).collect();
        scene.twins.rot_at(0, [descriptors[3]]);
        for copy in [0, 1] {
            scene.twins.rot_at(copy, descriptors[10..20].iter().copied());
        }
        let before = [0, 1].map(|copy| scene.twins.bytes(copy));
        let error = scene.open().await.err().expect("records are lost");
        assert!(matches!(error, OpenError::LostRecords { .. }), "{error}");
        assert!([0, 1].map(|copy| scene.twins.bytes(copy)) == before);
    });
}

/// Nothing is known of what is on it: it will be given everything, if it comes back.
#[test]
fn an_unclean_open_writes_no_copy_that_is_out_of_use() {
    simulate(async |runtime| {
        for out in [0, 1] {
            let scene = Scene::new(&runtime).await;
            let (slice, _) = scene.open().await.unwrap();
            write(&slice, 7, 0..30).await;
            drop(slice);
            scene.twins.out.set(Some(out));
            let before = scene.twins.bytes(out);
            let (slice, _) = scene.open().await.unwrap();
            assert_all(&slice, 7, 0..30).await;
            assert!(scene.twins.bytes(out) == before);
        }
    });
}

#[test]
fn superblock_header_and_checkpoint_are_taken_from_the_copy_that_is_right() {
    simulate(async |runtime| {
        for copy in [0, 1] {
            let scene = Scene::new(&runtime).await;
            let (slice, _) = scene.open().await.unwrap();
            write(&slice, 7, 0..30).await;
            slice.stop().await.unwrap();
            let log = load(&*scene.twins).await.unwrap().slices[0];
            // All that is not data: both superblocks, both headers, both checkpoint areas.
            let bytes = scene.twins.bytes(copy);
            let used = bytes.chunks_exact(4096).enumerate().filter(|(_, page)| {
                page.iter().any(|it| *it != 0) && !page.iter().all(|it| *it == 7)
            });
            let used: Vec<u64> = used.map(|(index, _)| index as u64 * 4096).collect();
            let meta = used.iter().filter(|offset| **offset < log.start() + (1 << 20));
            scene.twins.rot_at(copy, meta.copied());
            for offset in superblock::COPY_OFFSETS {
                assert_ne!(scene.twins.bytes(copy)[offset as usize + 77], 0, "rotten");
            }
            let (slice, recovery) = scene.open().await.unwrap();
            assert!(recovery.was_clean);
            assert_eq!((recovery.dirty_blocks, recovery.lost_blocks), (30, 0));
            scene.twins.out.set(Some(1 - copy));
            assert_all(&slice, 7, 0..30).await;
            slice.stop().await.unwrap();
            scene.open().await.unwrap();
        }
    });
}
