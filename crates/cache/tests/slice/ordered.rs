//! The core as it is when the cache is lost: always a consistent past, where that is asked for.
//!
//! The judge here knows nothing of epochs. It knows when each write and each flush was sent and
//! answered, and from a block at the core which write it is from. If one write is there, all have
//! to be that were promised before it was sent.

use crate::bench::{Bench, block, byte_at, flushable, simulate};
use crate::hunted::{QUIET, late, open_in_memory};
use crate::machine::{CACHE_BYTES, CORE_BYTES, EXPECTED, Machine, options, small_cleaning};
use headpond_block::decorators::{Fault, FaultControl, FaultDevice, FaultRule};
use headpond_block::devices::RamDevice;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Request, RequestFlags, RequestKind,
    Runtime, Submission,
};
use headpond_cache::{
    CleaningConfig, CleaningPolicy, Foundation, Mode, OrderStats, Slice, SliceConfig, StripeConfig,
    create,
};
use headpond_sim::{Medium, Random, Sim, run_until_cut};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

const BLOCKS: u64 = 96;
const BLOCK_BYTES: u64 = 4096;

#[derive(Default)]
pub struct History {
    pub writes: Vec<Write>,
    flushes: Vec<Span>,
    /// One more with each thing that is sent or answered.
    pub clock: u64,
    busy: BTreeSet<u64>,
    pub checkpoints: u64,
    pub is_over: bool,
}

#[derive(Clone, Copy)]
struct Span {
    sent: u64,
    answered: Option<u64>,
}

pub struct Write {
    blocks: std::ops::Range<u64>,
    span: Span,
    is_fua: bool,
}

impl History {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn span(&mut self) -> Span {
        Span { sent: self.tick(), answered: None }
    }

    /// The power went: nobody waits for an answer any more, and what had not been promised may be
    /// gone, whatever is promised later.
    pub fn lose_power(&mut self) {
        self.busy.clear();
        let flushed = self.flushes.iter().filter(|flush| flush.answered.is_some());
        let flushed = flushed.map(|flush| flush.sent).max().unwrap_or(0);
        for write in self.writes.iter_mut().filter(|write| !write.is_fua) {
            write.span.answered = write.span.answered.filter(|answered| *answered < flushed);
        }
    }

    /// What is wrong with the core holding these writes, one for each block; 0: none.
    pub fn judge(&self, image: &[u64]) -> Result<(), String> {
        let write = |id: u64| &self.writes[id as usize - 1];
        let newest = image.iter().filter(|id| **id > 0).map(|id| write(*id).span.sent).max();
        let Some(newest) = newest else { return Ok(()) };
        let is_past = |span: &Span| span.answered.is_some_and(|answered| answered < newest);
        let flushed = self.flushes.iter().filter(|flush| is_past(flush)).map(|flush| flush.sent);
        let flushed = flushed.max().unwrap_or(0);
        for (id, write) in (1..).zip(&self.writes) {
            let is_promised = write.span.answered.is_some_and(|answered| answered < flushed)
                || write.is_fua && is_past(&write.span);
            let lost = write.blocks.clone().find(|block| image[*block as usize] < id);
            if let (true, Some(block)) = (is_promised, lost) {
                let found = image[block as usize];
                return Err(format!(
                    "block {block} holds write {found}, and write {id} was promised before another \
                     write was sent that is there"
                ));
            }
        }
        Ok(())
    }
}

/// Of each block the write that it is from: the later of two on one block has the higher number.
pub fn image(core: &Medium) -> Vec<u64> {
    let block = |index: u64| {
        let bytes = core.peek(index * BLOCK_BYTES, BLOCK_BYTES as usize);
        let words: Vec<u64> =
            bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
        assert!(words.iter().all(|word| *word == words[0]), "block {index} is torn");
        words[0]
    };
    (0..BLOCKS).map(block).collect()
}

/// Works until it is told to end.
pub async fn work(slice: Slice, history: Rc<RefCell<History>>, runtime: Runtime, seed: u64) {
    let mut random = Random::new(seed);
    while !history.borrow().is_over {
        let device: &dyn BlockDevice = &slice;
        runtime.sleep(Duration::from_micros(random.below(400))).await;
        if random.one_in(12) {
            let at = {
                let mut history = history.borrow_mut();
                let span = history.span();
                history.flushes.push(span);
                history.flushes.len() - 1
            };
            device.flush().await.expect("healthy devices");
            let mut history = history.borrow_mut();
            history.flushes[at].answered = Some(history.tick());
            history.checkpoints = slice.stats().counters.checkpoints;
            continue;
        }
        let len = *random.pick(&[1, 1, 1, 2, 5]);
        let first = match random.one_in(3) {
            true => random.below(8),
            false => random.below(BLOCKS - len + 1),
        };
        let (blocks, is_fua) = (first..first + len, random.one_in(10));
        let id = {
            let mut history = history.borrow_mut();
            if blocks.clone().any(|block| history.busy.contains(&block)) {
                continue;
            }
            history.busy.extend(blocks.clone());
            let span = history.span();
            history.writes.push(Write { blocks: blocks.clone(), span, is_fua });
            history.writes.len() as u64
        };
        let bytes: Vec<u8> = (0..len * BLOCK_BYTES / 8).flat_map(|_| id.to_le_bytes()).collect();
        let flags = if is_fua { RequestFlags::FUA } else { RequestFlags::empty() };
        let write = Request::write(first * BLOCK_BYTES, Buffer::from_slice(&bytes));
        device.submit(write.with_flags(flags)).await.expect("healthy devices");
        let mut history = history.borrow_mut();
        let now = history.tick();
        history.writes[id as usize - 1].span.answered = Some(now);
        history.busy.retain(|block| !blocks.contains(block));
    }
}

pub fn config(policy: CleaningPolicy) -> SliceConfig {
    let stripe = StripeConfig { low_percent: 0, target_percent: 0, ..StripeConfig::default() };
    let cleaning = CleaningConfig { policy, stripe, ..small_cleaning() };
    SliceConfig { mode: Mode::WriteBack, cleaning, ..SliceConfig::default() }
}

/// Works until the power goes after so many operations of the devices, and the cache with it.
/// Answers how many checkpoints were taken.
fn lose_the_cache(config: SliceConfig, seed: u64, cut: u64) -> Result<u64, String> {
    let machine = Machine::new(config, 4096, seed);
    machine.create(seed);
    machine.power.cut_after(cut);
    let history = Rc::new(RefCell::new(History::default()));
    let main = async |runtime: Runtime, sim: Sim| {
        let (slice, _) = machine.open(&runtime, &sim).await;
        let workers: Vec<_> = (0..6)
            .map(|worker| {
                let (slice, history) = (slice.clone(), Rc::clone(&history));
                runtime.spawn(work(slice, history, runtime.clone(), seed * 100 + worker))
            })
            .collect();
        for worker in workers {
            worker.await;
        }
    };
    assert!(run_until_cut(seed, &machine.power, main).expect("no deadlock").was_cut());
    let history = history.borrow();
    history.judge(&image(&machine.core)).map_err(|told| format!("as it is: {told}"))?;
    machine.core.lose_power(&mut Random::new(seed));
    let judged = history.judge(&image(&machine.core));
    judged.map_err(|told| format!("without power: {told}")).map(|()| history.checkpoints)
}

fn core_is_a_consistent_past(seeds: Range<u64>) {
    for seed in seeds {
        let cut = 200 + seed * 240;
        let judged = lose_the_cache(config(CleaningPolicy::Ordered), seed, cut);
        judged.unwrap_or_else(|told| panic!("seed {seed}, cut {cut}: {told}"));
    }
}

fn checkpoints_leave_a_consistent_past(seeds: Range<u64>, checkpoints_min: u64) {
    let mut checkpoints = 0;
    for seed in seeds {
        let cut = 2000 + seed * 240;
        let config = SliceConfig { checkpoint_every_bytes: 1, ..config(CleaningPolicy::Ordered) };
        let judged = lose_the_cache(config, seed, cut);
        checkpoints += judged.unwrap_or_else(|told| panic!("seed {seed}, cut {cut}: {told}"));
    }
    assert!(checkpoints > checkpoints_min, "only {checkpoints}");
}

#[test]
fn core_is_a_consistent_past_when_the_cache_is_lost() {
    core_is_a_consistent_past(0..20);
}

#[test]
fn checkpoints_leave_the_core_a_consistent_past() {
    checkpoints_leave_a_consistent_past(60..68, 25);
}

/// Otherwise the tests above would prove nothing.
#[test]
fn address_order_leaves_a_mixture() {
    let is_mixture =
        |seed: &u64| lose_the_cache(config(CleaningPolicy::Stripe), *seed, 2000 + *seed).is_err();
    assert!((0..20).filter(is_mixture).count() > 5);
}

#[test]
fn mixture_is_told_until_the_core_has_what_was_dirty_before() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let quiet = |policy| {
            let mut config = config(policy);
            config.cleaning.stripe = StripeConfig::default();
            config
        };
        let slice = bench.open(quiet(CleaningPolicy::Stripe)).await;
        let device: &dyn BlockDevice = &slice;
        device.write(0, block(1)).await.unwrap();
        assert_eq!(slice.stats().order, None);
        slice.set_config(quiet(CleaningPolicy::Ordered)).unwrap();
        let order = || slice.stats().order.unwrap();
        assert!(!order().is_consistent, "what was dirty before is one lump");
        device.flush().await.unwrap();
        device.write(0, block(2)).await.unwrap();
        device.write(4096, block(2)).await.unwrap();
        device.flush().await.unwrap();
        device.write(4096, block(3)).await.unwrap();
        let expected = OrderStats { is_consistent: false, epochs_waiting: 2, kept_blocks: 2 };
        assert_eq!(order(), expected);
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*bench.core, 4096).await.unwrap(), 3);
        let expected = OrderStats { is_consistent: true, epochs_waiting: 0, kept_blocks: 0 };
        assert_eq!(order(), expected);
        assert_eq!(slice.stats().counters.cleaned_blocks, 4, "two of them were superseded");
    });
}

/// Nothing goes past the log: neither streams, nor large requests, nor discards.
#[test]
fn in_order_nothing_goes_past_the_log() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let mut config = config(CleaningPolicy::Ordered);
        config.cleaning.stripe = StripeConfig::default();
        config.admission.cutoff = headpond_cache::CutoffPolicy::Always;
        let slice = bench.open(config).await;
        let device: &dyn BlockDevice = &slice;
        let stream = Request::write(0, block(5)).with_flags(RequestFlags::STREAMING);
        device.submit(stream).await.unwrap();
        device.submit(Request::discard(ByteRange::at(0, 4096))).await.unwrap();
        assert_eq!(byte_at(&*bench.core, 0).await.unwrap(), 0);
        assert_eq!(byte_at(device, 0).await.unwrap(), 0, "zeros take their place in the order");
        // More than may be dirty at once: the cleaner makes room for it.
        let large = Buffer::from_slice(&vec![7; 16 << 20]);
        device.write(1 << 20, large).await.unwrap();
        assert_eq!(slice.stats().counters.bypass.total(), 0);
        assert_eq!(byte_at(device, 10 << 20).await.unwrap(), 7);
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*bench.core, 17 << 20).await.unwrap(), 0);
        assert_eq!(byte_at(&*bench.core, (17 << 20) - 4096).await.unwrap(), 7);
        slice.self_check();
    });
}

/// Found by the swarm (seed 921173): what was kept for its turn was written over what had been
/// written through since.
#[test]
fn what_is_kept_for_its_turn_never_comes_after_what_was_written_through() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let mut config = config(CleaningPolicy::Ordered);
        config.cleaning.stripe = StripeConfig::default();
        let slice = bench.open(config).await;
        let device: &dyn BlockDevice = &slice;
        device.write(0, block(1)).await.unwrap();
        device.flush().await.unwrap();
        device.write(0, block(2)).await.unwrap();
        assert_eq!(slice.stats().order.unwrap().kept_blocks, 1);
        let through = SliceConfig { mode: Mode::WriteThrough, ..slice.config() };
        slice.set_config(through).unwrap();
        device.write(0, block(3)).await.unwrap();
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*bench.core, 0).await.unwrap(), 3);
    });
}

/// Found by the swarm (seed 930289): the same, of a write that had begun before anything was kept.
#[test]
fn what_is_kept_meanwhile_never_comes_after_a_write_past_the_log() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let mut config = config(CleaningPolicy::Ordered);
        config.cleaning.stripe = StripeConfig::default();
        config.mode = Mode::WriteInvalidate;
        let slice = bench.open(config).await;
        let device: &dyn BlockDevice = &slice;
        let slow = FaultRule::on(RequestKind::Write, Fault::Delay(Duration::from_millis(50)));
        bench.core_faults.add(FaultRule { times: Some(1), ..slow });
        let other = slice.clone();
        let past =
            runtime.spawn(async move { (&other as &dyn BlockDevice).write(0, block(9)).await });
        runtime.sleep(Duration::from_millis(1)).await;
        slice.set_config(SliceConfig { mode: Mode::WriteBack, ..slice.config() }).unwrap();
        device.write(0, block(1)).await.unwrap();
        device.flush().await.unwrap();
        device.write(0, block(2)).await.unwrap();
        assert_eq!(slice.stats().order.unwrap().kept_blocks, 1);
        past.await.unwrap();
        let now = byte_at(device, 0).await.unwrap();
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*bench.core, 0).await.unwrap(), now, "9 or 2, and never 1");
        assert_eq!(byte_at(device, 0).await.unwrap(), now);
    });
}

/// Found by the swarm (seed 930074): a flush waited for a place in the log that nothing reaches.
#[test]
fn a_flush_of_a_cache_in_memory_ends_where_its_head_lies_between_two_blocks() {
    simulate(async |runtime| {
        let ram: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("ram", CACHE_BYTES));
        let core: Rc<dyn BlockDevice> = flushable("core", CORE_BYTES);
        let superblock = create(&*ram, &options(512)).await.unwrap();
        let foundation = Foundation::new(runtime.clone(), ram, core);
        let config = SliceConfig { allow_volatile: true, ..config(CleaningPolicy::Ordered) };
        let opened = Slice::open(foundation, &superblock, EXPECTED, 0, config).await;
        let (slice, _) = opened.unwrap();
        let device: &dyn BlockDevice = &slice;
        for round in 1..20 {
            device.write(u64::from(round) * BLOCK_BYTES, block(round)).await.unwrap();
            device.flush().await.unwrap();
            assert_eq!(slice.stats().dirty_bytes, 0);
        }
    });
}

/// Found by the swarm (seed 940165): who writes part of a block held the lock that the cleaner
/// wanted, while it waited for the room that only the cleaner makes.
#[test]
fn parts_of_blocks_find_room_in_a_log_that_is_full() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let mut config = config(CleaningPolicy::Ordered);
        config.cleaning.stripe = StripeConfig::default();
        let slice = bench.open(config).await;
        let writers: Vec<_> = (0..16u64)
            .map(|writer| {
                let slice = slice.clone();
                runtime.spawn(async move {
                    let device: &dyn BlockDevice = &slice;
                    for round in 0..400u64 {
                        let part = Buffer::from_slice(&[round as u8; 512]);
                        device.write(writer * BLOCK_BYTES + round % 8 * 512, part).await.unwrap();
                        device.flush().await.unwrap();
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await;
        }
        assert!(slice.stats().order.unwrap().is_consistent, "nobody gave up");
        assert_eq!(slice.stats().counters.bypass.total(), 0);
    });
}

/// Flips a bit of what the cache has of a block that was written with this byte.
fn damage(bench: &Bench, byte: u8) {
    let bytes = bench.cache.memory().to_vec();
    let mut blocks = bytes.chunks(BLOCK_BYTES as usize);
    let found = blocks.position(|block| block.iter().all(|it| *it == byte)).expect("it is there");
    let start = found * BLOCK_BYTES as usize;
    bench.cache.memory().slice(start..start + 1).fill(!byte);
}

/// Found by the swarm (seed 1795326656001117): the whole epoch was written again and again for the
/// sake of a block that cannot be read, which looked like progress to those who waited for it.
#[test]
fn a_block_that_cannot_be_read_holds_up_nobody_for_long() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let mut config = config(CleaningPolicy::Ordered);
        config.cleaning.stripe = StripeConfig::default();
        let slice = bench.open(config).await;
        let device: &dyn BlockDevice = &slice;
        for byte in [1, 2] {
            device.write(0, block(byte)).await.unwrap();
            device.write(BLOCK_BYTES, block(byte + 100)).await.unwrap();
            device.flush().await.unwrap();
        }
        device.write(2 * BLOCK_BYTES, block(55)).await.unwrap();
        device.flush().await.unwrap();
        let written = || slice.stats().counters.cleaned_blocks;
        let order = || slice.stats().order.unwrap();
        assert_eq!(order().kept_blocks, 2);
        damage(&bench, 1);
        damage(&bench, 55);
        slice.flush_dirty().await.expect_err("what is dirty cannot be read");
        slice.flush_dirty().await.expect_err("it is still there");
        assert_eq!((written(), order().kept_blocks), (3, 0), "each of the others once");
        assert_eq!(byte_at(&*bench.core, 0).await.unwrap(), 2);
        assert_eq!(byte_at(&*bench.core, BLOCK_BYTES).await.unwrap(), 102);
        assert!(!order().is_consistent, "the core lacks what cannot be read");
        // Room is found for much more than the log holds.
        for round in 0..4 * CACHE_BYTES / BLOCK_BYTES {
            let at = (3 + round % 64) * BLOCK_BYTES;
            let begun = runtime.now();
            device.write(at, block(7)).await.unwrap();
            assert!(runtime.now().since(begun) < Duration::from_secs(2), "write {round}");
            if round % 50 == 0 {
                device.flush().await.unwrap();
            }
        }
        byte_at(device, 2 * BLOCK_BYTES).await.expect_err("it is damaged");
        device.write(2 * BLOCK_BYTES, block(56)).await.unwrap();
        slice.flush_dirty().await.unwrap();
        assert!(order().is_consistent);
        assert_eq!(byte_at(&*bench.core, 2 * BLOCK_BYTES).await.unwrap(), 56);
        slice.self_check();
    });
}

/// Found by the swarm (seed 83001385): everything was written and flushed again without a pause,
/// and who waited for it never heard of the failure.
#[test]
fn a_core_that_cannot_be_flushed_is_left_alone_between_two_tries() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(config(CleaningPolicy::Ordered)).await;
        let device: &dyn BlockDevice = &slice;
        bench.core_faults.add(FaultRule::on(RequestKind::Flush, Fault::Media));
        device.write(0, block(1)).await.unwrap();
        device.flush().await.unwrap();
        slice.flush_dirty().await.expect_err("the core cannot be flushed");
        runtime.sleep(Duration::from_secs(10)).await;
        let counters = slice.stats().counters;
        assert!((2..40).contains(&counters.errors.core_flush), "{}", counters.errors.core_flush);
        assert!(counters.cleaning_writes < 40, "{}", counters.cleaning_writes);
        bench.core_faults.clear();
        slice.flush_dirty().await.unwrap();
        assert_eq!(byte_at(&*bench.core, 0).await.unwrap(), 1);
    });
}

/// The same at more cuts, for `make conclusions`.
mod conclusions {
    use super::*;

    #[test]
    fn core_is_a_consistent_past_whenever_the_cache_is_lost() {
        core_is_a_consistent_past(0..60);
    }

    #[test]
    fn checkpoints_leave_the_core_a_consistent_past() {
        checkpoints_leave_a_consistent_past(60..90, 100);
    }
}

/// A core that takes discards, and does nothing.
struct KeepsDiscarded(Rc<RamDevice>);

impl BlockDevice for KeepsDiscarded {
    fn name(&self) -> &DeviceName {
        self.0.name()
    }

    fn geometry(&self) -> &Geometry {
        self.0.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        match request.kind {
            RequestKind::Discard => Submission::ready(Ok(())),
            _ => self.0.submit(request),
        }
    }
}

/// What was kept for the core, for a flush that was under way, ended with a discard of its block:
/// the flush was acknowledged, and the core had what was older.
#[test]
fn a_discard_in_a_cache_that_keeps_order_does_not_end_what_a_flush_waits_for() {
    simulate(async |runtime| {
        let core = flushable("core", CORE_BYTES);
        (&*core as &dyn BlockDevice).write(0, block(7)).await.unwrap();
        let below = Rc::new(KeepsDiscarded(Rc::clone(&core)));
        let core_faults = FaultControl::default();
        let below = Rc::new(FaultDevice::new(below, core_faults.clone(), runtime.clone()));
        let (slice, _) = open_in_memory(&runtime, below).await;
        let cleaning = crate::checkpoints::ordered().cleaning;
        slice.set_config(SliceConfig { cleaning, ..slice.config() }).unwrap();
        let device: &dyn BlockDevice = &slice;
        core_faults.add(late(RequestKind::Write, QUIET));
        let flush = || {
            let slice = slice.clone();
            runtime.spawn(async move { (&slice as &dyn BlockDevice).flush().await })
        };
        // What is written after the first flush goes to the core when that has all of the first.
        device.write(4096, block(2)).await.unwrap();
        let first = flush();
        runtime.sleep(Duration::from_millis(1)).await;
        device.write(0, block(1)).await.unwrap();
        device.write(8192, block(3)).await.unwrap();
        let second = flush();
        runtime.sleep(Duration::from_millis(1)).await;
        device.submit(Request::discard(ByteRange::at(0, 4096))).await.unwrap();
        first.await.unwrap();
        second.await.unwrap();
        let found = byte_at(&*core, 0).await.unwrap();
        assert!(found <= 1, "{found}");
    });
}
