//! What is counted is what happened: at the devices, and to each request.

use crate::bench::{Bench, block, byte_at, nop, simulate};
use crate::machine::{EXPECTED, Machine, small_cleaning};
use crate::serving::LONG;
use headpond_block::decorators::{
    Fault, FaultControl, FaultDevice, FaultRule, ProbeDevice, ProbeSnapshot,
};
use headpond_block::{
    BlockDevice, Buffer, Buffers, ByteRange, Request, RequestFlags, RequestKind, Runtime,
};
use headpond_cache::classes::ClassId;
use headpond_cache::{
    AdmissionConfig, ClassUsage, CleaningConfig, CleaningPolicy, CoreBlock, CorePlace,
    CutoffPolicy, Foundation, Mode, PartTraffic, Slice, SliceConfig, SliceStats, Traffic, Way,
    load,
};
use headpond_sim::Sim;
use headpond_witness::{Client, Workload};
use std::rc::Rc;

const WORK: Workload = Workload { requests: 3000, ..LONG };
/// Beyond what the workload touches.
const AHEAD: ByteRange = ByteRange::at(48 << 20, 512 << 10);
/// Between both.
const SECOND_CORE: u64 = 47 << 20;

/// A slice between two devices that are watched.
struct Watched {
    slice: Slice,
    runtime: Runtime,
    cache: Rc<ProbeDevice>,
    core: Rc<ProbeDevice>,
    cache_faults: FaultControl,
}

impl Watched {
    async fn open(machine: &Machine, runtime: &Runtime, sim: &Sim) -> Self {
        let cache_faults = FaultControl::default();
        let disk = machine.disk(&machine.cache, runtime, sim);
        let faulty = Rc::new(FaultDevice::new(disk, cache_faults.clone(), runtime.clone()));
        let cache = Rc::new(ProbeDevice::new(faulty, runtime.clone()));
        let disk = machine.disk(&machine.core, runtime, sim);
        let core = Rc::new(ProbeDevice::new(disk, runtime.clone()));
        let superblock = load(&*cache).await.expect("a cache");
        let (runtime, label) = (runtime.clone(), None);
        let foundation =
            Foundation { label, ..Foundation::new(runtime.clone(), cache.clone(), core.clone()) };
        let opened = Slice::open(foundation, &superblock, EXPECTED, 0, machine.config.clone());
        let (slice, _) = opened.await.expect("opens");
        let place = |core, first| CorePlace { core, first: CoreBlock(first / 4096) };
        slice.tell_cores(&[place(1, 0), place(2, SECOND_CORE), place(3, AHEAD.end())]);
        // Recovery counts for nothing.
        cache.reset();
        core.reset();
        Self { slice, runtime, cache, core, cache_faults }
    }

    /// Everything that a slice does, and its end.
    async fn live(&self, machine: &Machine) {
        let device = Rc::new(self.slice.clone());
        let client = Client::new(device, Rc::clone(&machine.witness), &self.runtime);
        self.slice.read_ahead(AHEAD, ClassId::UNCLASSIFIED, false);
        client.run(&WORK, 5).await.unwrap();
        client.check_all().await.unwrap();
        self.slice.scrub().await.unwrap();
        client.run(&Workload { requests: 300, ..WORK }, 6).await.unwrap();
        self.slice.flush_dirty().await.unwrap();
        self.submit(self.streaming_read()).await;
        for (kind, len) in [(RequestKind::WriteZeroes, 10_240), (RequestKind::WriteZeroes, 4 << 20)]
        {
            let range = ByteRange::at((40 << 20) + 512, len);
            let (flags, hints) = (RequestFlags::empty(), Default::default());
            let buffers = Buffers::new();
            self.submit(Request { kind, range, flags, hints, buffers }).await;
        }
        self.slice.self_check();
        assert_eq!(self.slice.stats().requests_in_flight, 0);
        self.slice.stop().await.unwrap();
    }

    fn streaming_read(&self) -> Request {
        let read = Request::read(60 << 20, Buffer::zeroed(8192));
        read.with_flags(RequestFlags::STREAMING)
    }

    async fn submit(&self, request: Request) {
        (&self.slice as &dyn BlockDevice).submit(request).await.unwrap();
    }

    /// The sums are what the devices saw, byte by byte.
    fn compare(&self) -> Traffic {
        let (cache, core) = (self.cache.snapshot(), self.core.snapshot());
        let counters = self.slice.stats().counters;
        let Traffic { cache: at_cache, core: at_core } = counters.traffic;
        let bytes = |seen: &ProbeSnapshot| (seen.reads.bytes, seen.writes.bytes);
        assert_eq!((at_cache.read(), at_cache.written()), bytes(&cache), "{at_cache:?}");
        assert_eq!(at_cache.discarded, cache.discards.bytes);
        assert_eq!((at_core.read(), at_core.written()), bytes(&core), "{at_core:?}");
        assert_eq!(at_core.discarded, core.discards.bytes);
        assert_eq!(at_core.zeroed, core.write_zeroes.bytes);
        assert_eq!(counters.cleaning_flushes, core.flushes.requests);
        counters.traffic
    }

    /// What classes and cores have together is what the slice has, but for what is nobody's.
    fn compare_parts(&self) {
        let stats = self.slice.stats();
        let Traffic { cache, core } = stats.counters.traffic;
        let wanted = PartTraffic {
            core_read: core.read(),
            core_written: core.written(),
            cache_read: cache.read_for_requests + cache.read_for_cleaning + cache.lent,
            cache_written: cache.written_data + cache.written_completions + cache.written_copies,
        };
        let sum = |parts: &mut dyn Iterator<Item = PartTraffic>| {
            parts.fold(PartTraffic::default(), |mut sum, part| {
                sum += part;
                sum
            })
        };
        assert_eq!(sum(&mut stats.classes.iter().map(|class| class.traffic)), wanted);
        assert_eq!(sum(&mut stats.cores.iter().map(|core| core.traffic)), wanted);
        let held = |pick: fn(&ClassUsage) -> u64| {
            stats.cores.iter().map(|core| pick(&core.usage) * 4096).sum::<u64>()
        };
        assert_eq!(held(|usage| usage.clean_blocks), stats.clean_bytes);
        assert_eq!(held(|usage| usage.dirty_blocks), stats.dirty_bytes + stats.written_bytes);
        let requests = stats.cores.iter().map(|core| core.read.requests + core.write.requests);
        let counters = &stats.counters;
        assert_eq!(requests.sum::<u64>(), counters.read.requests + counters.write.requests);
        // Nobody asks for what is read ahead there, and nothing enters beyond it.
        let [_, ahead, past] = &stats.cores[..] else { panic!("three cores") };
        assert_eq!((ahead.core, ahead.read.requests), (2, 0));
        assert_eq!(ahead.traffic.core_read, core.read_ahead);
        assert_eq!((past.usage.occupied_blocks(), past.read.requests), (0, 1));
    }
}

fn live(config: SliceConfig, seed: u64) -> (Traffic, SliceStats) {
    let machine = Machine::new(config, 4096, seed);
    machine.create(seed);
    let lived = headpond_sim::run(seed, async |runtime, sim| {
        let watched = Watched::open(&machine, &runtime, &sim).await;
        watched.live(&machine).await;
        watched.compare_parts();
        (watched.compare(), watched.slice.stats())
    });
    lived.expect("no deadlock")
}

#[test]
fn bytes_to_and_from_each_device_are_what_the_devices_saw_in_every_mode() {
    for mode in Mode::ALL {
        for (seed, policy) in [(1, CleaningPolicy::Stripe), (2, CleaningPolicy::Nop)] {
            let cleaning = CleaningConfig { policy, ..small_cleaning() };
            let admission =
                AdmissionConfig { cutoff: CutoffPolicy::Always, ..AdmissionConfig::default() };
            let discard = policy == CleaningPolicy::Stripe;
            let config =
                SliceConfig { mode, cleaning, admission, discard, ..SliceConfig::default() };
            let (traffic, stats) = live(config, seed);
            let cache = traffic.cache;
            assert!(cache.written_checkpoints > 0 && traffic.core.read_for_requests > 0);
            assert!(stats.counters.bypass.total() > 0, "{mode:?}");
            if mode.is_write_back() {
                assert!(traffic.core.written_by_cleaning > 0 && cache.read_for_cleaning > 0);
                assert!(cache.written_data > cache.written_descriptors);
                assert_eq!(cache.discarded > 0, discard, "{mode:?}");
                assert!(cache.read_for_scrub > 0 && cache.read_for_reclaim > 0, "{mode:?}");
            }
            assert_eq!(traffic.core.read_ahead > 0, mode.inserts_reads(), "{mode:?}");
        }
    }
}

#[test]
fn failed_operations_count_as_what_the_devices_saw_too() {
    let machine = Machine::new(nop(), 4096, 9);
    machine.create(9);
    let lived = headpond_sim::run(9, async |runtime, sim| {
        let watched = Watched::open(&machine, &runtime, &sim).await;
        let device: &dyn BlockDevice = &watched.slice;
        let once = |kind| FaultRule { times: Some(1), ..FaultRule::on(kind, Fault::Media) };
        device.write(0, block(1)).await.unwrap();
        watched.cache_faults.add(once(RequestKind::Write));
        device.write(4096, block(2)).await.unwrap();
        watched.cache_faults.add(once(RequestKind::Read));
        assert_eq!(byte_at(device, 0).await, Ok(1), "the second try brings it");
        watched.cache_faults.add(FaultRule::on(RequestKind::Read, Fault::Media));
        assert!(byte_at(device, 0).await.is_err());
        watched.cache_faults.clear();
        watched.slice.flush_dirty().await.unwrap();
        watched.slice.self_check();
        let counters = watched.slice.stats().counters;
        let [first, ..] = watched.slice.stats().cores[..] else { panic!("cores") };
        assert_eq!(first.errors, counters.errors, "all of them lie on it");
        let [class] = watched.slice.stats().classes[..] else { panic!("one class") };
        assert_eq!(class.errors, counters.errors, "and are of the one class");
        assert_eq!(first.bypass, counters.bypass);
        let (read, write) = (counters.read, counters.write);
        assert_eq!((read.requests, read.hits, read.failed), (2, 2, 1));
        assert_eq!((write.requests, write.misses, write.pass_through), (2, 1, 1));
        assert_eq!(counters.bypass.cache_error, 1, "the write that the log did not take");
        watched.slice.stop().await.unwrap();
        watched.compare();
    });
    lived.expect("no deadlock");
}

#[test]
fn zeros_count_as_one_write_whatever_they_are_cut_into() {
    for (mode, past) in [(Mode::WriteBack, 0), (Mode::WriteThrough, 2)] {
        simulate(async |runtime| {
            let bench = Bench::new(&runtime).await;
            let slice = bench.open(SliceConfig { mode, ..nop() }).await;
            for len in [10_240, 64 << 10] {
                let range = ByteRange::at(512, len);
                let (flags, hints) = (RequestFlags::empty(), Default::default());
                let (kind, buffers) = (RequestKind::WriteZeroes, Buffers::new());
                let zeros = Request { kind, range, flags, hints, buffers };
                (&slice as &dyn BlockDevice).submit(zeros).await.unwrap();
            }
            let write = slice.stats().counters.write;
            assert_eq!((write.requests, write.pass_through), (2, past), "{mode:?}");
            slice.self_check();
            slice.stop().await.unwrap();
        });
    }
}

#[test]
fn requests_are_timed_by_the_way_they_went() {
    let config = SliceConfig { mode: Mode::WriteThrough, ..nop() };
    let machine = Machine::new(config, 4096, 3);
    machine.create(3);
    let lived = headpond_sim::run(3, async |runtime, sim| {
        let Watched { slice, .. } = Watched::open(&machine, &runtime, &sim).await;
        let device: &dyn BlockDevice = &slice;
        for index in 0..64 {
            device.write(index * 4096, block(1)).await.unwrap();
            byte_at(device, index * 4096).await.unwrap();
            byte_at(device, (1000 + index) * 4096).await.unwrap();
        }
        device.flush().await.unwrap();
        let ways = slice.latencies().ways();
        let timed = |way| ways.iter().find(|it| it.way == way).map(|it| (it.timed, it.one_of));
        assert_eq!(timed(Way::WriteThrough), Some((64, 1)), "all that wait for the core");
        assert_eq!(timed(Way::ReadMiss), Some((64, 1)));
        assert_eq!(timed(Way::Flush), Some((1, 1)));
        assert_eq!(timed(Way::WriteToCache), None);
        let Some((hits, 32)) = timed(Way::ReadHit) else { panic!("hits are sampled") };
        assert!((2..=4).contains(&hits), "{hits} of 64");
        for way in &ways {
            assert!(way.mean_us > 0.0 && way.p50_us <= way.p99_us && way.p99_us <= way.max_us);
            assert_eq!(way.buckets.iter().map(|bucket| bucket.1).sum::<u64>(), way.timed);
        }
    });
    lived.expect("no deadlock");
}

#[test]
fn reset_sets_what_is_counted_to_zero_and_leaves_what_is_held() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(nop()).await;
        let device: &dyn BlockDevice = &slice;
        device.write(0, block(1)).await.unwrap();
        byte_at(device, 0).await.unwrap();
        runtime.sleep(std::time::Duration::from_secs(5)).await;
        // One that is under way counts when it is answered.
        let waiting = device.flush();
        slice.reset_stats();
        let stats = slice.stats();
        assert_eq!((stats.counters, stats.counted_ms), (Default::default(), 0));
        assert_eq!((stats.dirty_bytes, stats.requests_in_flight), (4096, 1));
        assert!(slice.latencies().ways().is_empty());
        waiting.await.unwrap();
        byte_at(device, 0).await.unwrap();
        let stats = slice.stats();
        assert_eq!((stats.counters.read.hits, stats.counters.flushes), (1, 1));
        assert_eq!(stats.requests_in_flight, 0);
        slice.self_check();
        slice.stop().await.unwrap();
    });
}

#[test]
fn who_is_answered_at_once_is_timed_for_those_whose_turn_it_is_not() {
    simulate(async |runtime| {
        let bench = Bench::new(&runtime).await;
        let slice = bench.open(SliceConfig { mode: Mode::WriteThrough, ..nop() }).await;
        let device: &dyn BlockDevice = &slice;
        for index in 0..64 {
            let write = device.write(index * 4096, block(1)).now_or();
            write.unwrap_or_else(|_| panic!("RAM answers at once")).unwrap();
        }
        let ways = slice.latencies().ways();
        let [through] = &ways[..] else { panic!("one way") };
        assert_eq!((through.way, through.timed, through.one_of), (Way::WriteThrough, 64, 1));
        let counters = slice.stats().counters;
        assert_eq!((counters.write.requests, counters.write.misses), (64, 64));
        assert_eq!(byte_at(device, 9 * 4096).await.unwrap(), 1);
        slice.self_check();
        slice.stop().await.unwrap();
    });
}
