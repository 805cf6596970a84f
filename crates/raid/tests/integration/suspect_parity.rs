//! A member that is lost while parity is suspect after an unclean shutdown: what only that parity
//! could tell is an error, and everything else is there.

use std::collections::BTreeSet;
use std::rc::Rc;

use crate::support::*;
use headpond_block::{BlockDevice, Buffer, ByteRange, Cause, Request, RequestFlags, Runtime};
use headpond_raid::layout::{Role, Strip, Stripe};
use headpond_raid::{
    AfterUncleanStop, Array, AssembleOptions, CreateOptions, Filled, Intent, Level, assemble,
};
use uuid::Uuid;

/// Blocks of a strip.
const BLOCKS: u64 = 4;
const BLOCK: u64 = 4096;
/// The block that was being written: its stripe, and which of the first strip.
const STRIPE: Stripe = Stripe(3);
const WITHIN: u64 = 2;

/// An array that was cut while it wrote a block, after which its parity does not fit.
struct Torn {
    array: Array,
    members: Vec<Rc<TestDevice>>,
    bytes: Vec<u8>,
    runtime: Runtime,
}

impl Torn {
    async fn begin(level: Level, count: usize, runtime: &Runtime) -> Torn {
        let members = devices(count, 10 * BLOCKS, runtime);
        let strip_bytes = (BLOCKS * BLOCK) as u32;
        let options = CreateOptions { intent: Intent::Bitmap, strip_bytes, ..options(level, 1) };
        let array = new_array(&members, &options).await;
        let mut bytes = Random::new(count as u64).bytes(array.layout().array_bytes() as usize);
        write(&array, 0, &bytes).await.unwrap();
        array.submit(Request::flush()).await.unwrap();
        let torn = torn(&array);
        let new = Random::new(77).bytes(BLOCK as usize);
        let request = Request::write(torn.start(), Buffer::from_slice(&new));
        array.submit(request.with_flags(RequestFlags::LOGGED)).await.unwrap();
        bytes[torn.start() as usize..torn.end() as usize].copy_from_slice(&new);
        for strip in array.layout().strips().filter(|it| matches!(it, Strip::P | Strip::Q)) {
            let cell = array.layout().cell(STRIPE, strip);
            let start = array.layout().row_start(cell.row) + WITHIN * BLOCK;
            let place = headpond_raid::superblock::DATA_OFFSET_MIN + start;
            let place = place as usize..(place + BLOCK) as usize;
            members[cell.role.index()].memory().slice(place).fill(0x5a);
        }
        drop(array);
        let after_unclean_stop = AfterUncleanStop::LogRecomputes;
        let options = AssembleOptions { after_unclean_stop, ..AssembleOptions::default() };
        let array = assemble(runtime, as_devices(&members), options).await.unwrap().array;
        Torn { array, members, bytes, runtime: runtime.clone() }
    }

    /// The role of another data strip of the stripe.
    fn neighbour(&self) -> Role {
        self.array.layout().cell(STRIPE, Strip::Data(1)).role
    }

    async fn lose(&self, role: Role) {
        self.members[role.index()].gone.set(true);
        self.array.fail(role).await.unwrap();
    }

    /// What lies beside the block on the neighbour.
    fn beside(&self) -> BTreeSet<u64> {
        BTreeSet::from([torn(&self.array).start() / BLOCK + BLOCKS])
    }

    async fn check(&self, lost: &BTreeSet<u64>, when: &str) {
        for block in 0..self.bytes.len() as u64 / BLOCK {
            let expected = &self.bytes[(block * BLOCK) as usize..][..BLOCK as usize];
            match read(&self.array, block * BLOCK, BLOCK as usize).await {
                Ok(found) => {
                    assert!(!lost.contains(&block), "{when}: block {block} was made up");
                    assert!(found == expected, "{when}: block {block} is wrong");
                }
                Err(error) => {
                    assert!(lost.contains(&block), "{when}: block {block}: {error}");
                    assert!(matches!(error.cause(), Cause::Media { .. }), "{when}: {error}");
                }
            }
        }
    }

    /// The log writes the block again.
    async fn recompute(&self) {
        let torn = torn(&self.array);
        let data = &self.bytes[torn.start() as usize..torn.end() as usize];
        let request = Request::write(torn.start(), Buffer::from_slice(data));
        let flags = RequestFlags::RECOMPUTE_PARITY | RequestFlags::LOGGED;
        self.array.submit(request.with_flags(flags)).await.unwrap();
    }
}

fn torn(array: &Array) -> ByteRange {
    ByteRange::at(array.layout().stripe_start(STRIPE) + WITHIN * BLOCK, BLOCK)
}

const SHAPES: [(Level, usize); 3] = [(Level::Raid5, 4), (Level::Raid5, 3), (Level::Raid6, 5)];

#[test]
fn a_member_lost_beside_doubted_parity_costs_the_one_block_and_tells_nothing_wrong() {
    for (level, count) in SHAPES {
        run(1, |runtime| async move {
            let story = Torn::begin(level, count, &runtime).await;
            story.array.mark_suspect(torn(&story.array));
            assert_eq!(story.array.status().suspect_parity_blocks, 1);
            story.check(&BTreeSet::new(), "while all members are there").await;
            story.lose(story.neighbour()).await;
            story.check(&story.beside(), "without one").await;
            let whole = Request::read(0, Buffer::zeroed(story.bytes.len()));
            assert!(story.array.submit(whole).await.is_err(), "nor as a part of more");
        });
    }
}

#[test]
fn parity_is_not_suspect_after_the_log_has_written_again() {
    for (level, count) in SHAPES {
        run(2, |runtime| async move {
            let story = Torn::begin(level, count, &runtime).await;
            story.array.mark_suspect(torn(&story.array));
            story.recompute().await;
            assert_eq!(story.array.suspect_parity_blocks(), 0);
            story.lose(story.neighbour()).await;
            story.check(&BTreeSet::new(), "without one").await;
        });
    }
}

#[test]
fn a_write_beside_doubted_parity_does_not_patch_it() {
    run(3, |runtime| async move {
        // So wide that it would be patched.
        let mut story = Torn::begin(Level::Raid5, 6, &runtime).await;
        story.array.mark_suspect(torn(&story.array));
        let at = torn(&story.array).start() + 3 * BLOCKS * BLOCK;
        let new = Random::new(78).bytes(BLOCK as usize);
        write(&story.array, at, &new).await.unwrap();
        story.bytes[at as usize..(at + BLOCK) as usize].copy_from_slice(&new);
        assert_eq!(story.array.suspect_parity_blocks(), 0);
        story.lose(story.neighbour()).await;
        story.check(&BTreeSet::new(), "without one").await;
    });
}

#[test]
fn a_rebuild_puts_what_only_doubted_parity_could_tell_on_the_list_of_lost_blocks() {
    for (level, count) in SHAPES {
        run(4, |runtime| async move {
            let mut story = Torn::begin(level, count, &runtime).await;
            story.array.mark_suspect(torn(&story.array));
            let role = story.neighbour();
            story.lose(role).await;
            let size_bytes = story.members[0].geometry().size_bytes;
            let device = TestDevice::new(50, size_bytes, &story.runtime);
            let spare = Uuid::from_u128(77);
            story.array.add_spare(device.clone(), spare).await.unwrap();
            story.array.assign_spare(role, Some(spare)).await.unwrap();
            let filled = story.array.fill(role, async || true).await.unwrap();
            assert!(matches!(filled, Filled::Whole { .. }));
            story.members[role.index()] = device;
            let lost = story.beside();
            story.check(&lost, "after the rebuild").await;
            assert_eq!(story.array.status().lost.bytes, BLOCK);
            assert_eq!(story.array.suspect_parity_blocks(), 0);
            check_redundancy(&story.array, &story.members);
            let parity = story.array.layout().cell(STRIPE, Strip::P).role;
            story.lose(parity).await;
            story.check(&lost, "and without another member").await;
        });
    }
}

#[test]
fn without_an_unclean_stop_nothing_is_doubted() {
    run(5, |runtime| async move {
        let members = devices(4, 8, &runtime);
        let array = new_array(&members, &options(Level::Raid5, 1)).await;
        array.mark_suspect(ByteRange::at(0, BLOCK));
        assert_eq!(array.suspect_parity_blocks(), 0);
    });
}
