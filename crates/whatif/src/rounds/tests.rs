use super::*;
use crate::job::{self, ArrivalProcess, Arrivals};
use crate::stack::Stack;
use headpond_block::decorators::ProbeDevice;
use headpond_block::devices::NullDevice;
use headpond_block::{RequestKind, Stability};
use headpond_sim::{FixedLatency, FixedLatencyDevice};

const DISK: &str = "name = \"disk\"\n[core]\nraid = 0\ndrive = \"hdd-7k2-4t\"\ndrives = 1\n";
const FLASH: &str = "name = \"ssd\"\n[core]\nraid = 0\ndrive = \"ssd-dc-960g\"\ndrives = 1\n";

fn random_read(depth: u32) -> Job {
    let rw = job::rw("randread").unwrap();
    Job { rw, depth, ..Job::default() }
}

fn rounds(stack: &str, phases: Vec<Vec<Job>>, length: Length, count: usize) -> Vec<Round> {
    let stack = Stack::parse(stack).unwrap();
    let mut seen = Vec::new();
    let rounds = Rounds { phases, length, windows: 4 };
    simulate_rounds(&stack, &[rounds], 1, &mut |load, round| {
        assert_eq!(load, 0);
        seen.push(round);
        seen.len() < count
    })
    .unwrap();
    seen
}

#[test]
fn several_loads_have_a_round_each_in_turn_on_the_same_machine() {
    let stack = format!("{DISK}controller = \"raid-cache-1g\"\n");
    let stack = Stack::parse(&stack).unwrap();
    let write = Job { rw: job::rw("randwrite").unwrap(), depth: 8, ..Job::default() };
    let load = |job: Job, millis| Rounds {
        phases: vec![vec![job]],
        length: Length::Time(Duration::from_millis(millis)),
        windows: 2,
    };
    let (mut order, mut seen) = (Vec::new(), Vec::new());
    let loads = [load(write, 2000), load(random_read(8), 2000)];
    simulate_rounds(&stack, &loads, 1, &mut |load, round| {
        order.push(load);
        seen.push(round);
        seen.len() < 5
    })
    .unwrap();
    assert_eq!(order, [0, 1, 0, 1, 0]);
    for (load, round) in order.iter().zip(&seen) {
        let measured = &round.jobs[0].measured;
        let (reads, writes) = (measured.read.requests, measured.write.requests);
        assert!(if *load == 0 { writes > 0 && reads == 0 } else { reads > 0 && writes == 0 });
    }
    // The controller's cache is full of what the first round wrote: the machine is no new one.
    let writes = |index: usize| seen[index].jobs[0].measured.write.requests;
    assert!(writes(2) * 2 < writes(0), "{} {}", writes(0), writes(2));
}

#[test]
fn rounds_follow_each_other_without_a_pause_and_count_every_request_once() {
    let length = Length::Time(Duration::from_millis(500));
    let seen = rounds(FLASH, vec![vec![random_read(8)]], length, 3);
    assert_eq!(seen.len(), 3);
    for round in &seen {
        let read = &round.jobs[0].measured.read;
        assert_eq!(round.jobs[0].bins[0].count(), read.requests);
        let windows: f64 = round.windows.iter().map(|window| window.read_iops * 0.125).sum();
        assert!((windows - read.requests as f64).abs() < 1.0, "{windows} {read:?}");
        let bins = round.latencies.iter().flat_map(|window| &window.bins);
        assert_eq!(bins.map(|(_, count)| count).sum::<u64>(), read.requests);
        assert_eq!(round.latencies.len(), round.windows.len());
        // The device is never idle between rounds.
        let busy = round.machine.as_ref().unwrap().drives.busy_mean;
        assert!(busy > 0.999, "{busy}");
    }
}

#[test]
fn a_pass_moves_the_region_of_each_phase_once() {
    let of = |word| Job { size: Some(8 << 20), block_bytes: 1 << 20, ..sequential(word) };
    fn sequential(word: &str) -> Job {
        Job { name: word.into(), rw: job::rw(word).unwrap(), ..Job::default() }
    }
    let phases = vec![vec![of("write")], vec![of("read")]];
    let seen = rounds(FLASH, phases, Length::Pass, 2);
    for round in &seen {
        assert_eq!(round.jobs[0].measured.write.requests, 8);
        assert_eq!(round.jobs[1].measured.read.requests, 8);
    }
}

#[test]
fn in_an_open_loop_the_wait_for_a_device_that_does_not_keep_up_is_part_of_the_latency() {
    let open = |per_s| Job {
        arrivals: Some(Arrivals { per_s, process: ArrivalProcess::Poisson }),
        ..random_read(1)
    };
    let length = Length::Time(Duration::from_secs(4));
    // A disk answers some 200 requests a second with a full queue, and 75 one at a time.
    let of = |per_s| {
        let seen = rounds(DISK, vec![vec![open(per_s)]], length, 2);
        seen.into_iter().map(|round| round.jobs[0].measured.read).collect::<Vec<_>>()
    };
    let (calm, flooded) = (of(20.0), of(1000.0));
    assert!((calm[1].iops - 20.0).abs() < 8.0, "{}", calm[1].iops);
    assert!(calm[1].latency.mean_us < 30_000.0, "{}", calm[1].latency.mean_us);
    assert!(flooded[1].latency.mean_us > 3e6, "{}", flooded[1].latency.mean_us);
    assert!(flooded[1].latency.mean_us > 2.0 * flooded[0].latency.mean_us);
}

#[test]
fn bins_of_two_digits_keep_quantiles_within_a_tenth() {
    let bins = Bins::of((1..=100_000).map(|nanos| (nanos, 1)));
    assert_eq!(
        (bins.count(), bins.quantile(0.5), bins.quantile(0.999)),
        (100_000, 50_000, 100_000)
    );
    assert!((bins.mean() / 50_000.0 - 1.0).abs() < 0.05, "{}", bins.mean());
    assert_eq!(Bins::default().quantile(0.5), 0);
}

#[test]
fn what_is_sequential_goes_on_in_the_next_round_where_it_was_also_after_another_phase() {
    let named = |word: &str| Job {
        name: word.into(),
        rw: job::rw(word).unwrap(),
        block_bytes: 64 << 10,
        size: Some(1 << 20),
        ..Job::default()
    };
    let rounds = Rounds {
        phases: vec![vec![named("write")], vec![named("read")]],
        length: Length::Time(Duration::from_millis(7)),
        windows: 1,
    };
    let asked = headpond_sim::run(1, |runtime, sim| async move {
        let probe = Rc::new(ProbeDevice::new(of_a_millisecond(&runtime), runtime.clone()));
        let devices: Vec<Rc<dyn BlockDevice>> = vec![Rc::clone(&probe) as _];
        let watch = &Opaque { is_over: &|| false };
        let place = RoundTarget {
            devices,
            takes_flushes: true,
            runtime: &runtime,
            memory: generator::no_memory(),
            watch,
        };
        let mut seen = 0;
        let mut next = |_, _| {
            seen += 1;
            seen < 3
        };
        run(&[rounds], place, &mut sim.random(), &mut next).await;
        probe.recent()
    });
    for kind in [RequestKind::Read, RequestKind::Write] {
        let asked = asked.as_ref().unwrap().iter().filter(|(of, _)| *of == kind);
        let blocks: Vec<_> = asked.map(|(_, range)| range.start() >> 16).collect();
        assert!(blocks.len() > 18, "three rounds go round the region: {blocks:?}");
        let follows = |pair: &[u64]| pair[1] == (pair[0] + 1) % 16;
        assert!(blocks.windows(2).all(follows), "{blocks:?}");
    }
}

#[test]
fn a_write_and_its_flush_are_one_latency_and_what_windows_show() {
    let job = Job { flush_every: 1, depth: 4, rw: job::rw("randwrite").unwrap(), ..random_read(1) };
    let round = half_a_second(job, true);
    let job = &round.jobs[0];
    let (write, flush) = (job.measured.write.latency.mean_us, job.measured.flush.latency.mean_us);
    assert!(job.stable.count() > 900 && job.stable.count() <= job.measured.write.requests);
    assert!((job.stable.mean() / 1e3 / (write + flush) - 1.0).abs() < 0.06, "{write} {flush}");
    assert!(job.stable.quantile(0.01) as f64 >= 1.9e6, "no pair takes less than both");
    let shown = round.latencies.iter().flat_map(|window| &window.bins).map(|(nanos, _)| *nanos);
    assert!(shown.min().unwrap() > 1_000_000, "a window shows pairs and no write alone");
}

#[test]
fn flushes_in_turn_leave_one_write_of_a_job_under_way_where_the_device_takes_them() {
    let made = |flushes_in_turn, takes_flushes| {
        let rw = job::rw("randwrite").unwrap();
        let job = Job { flush_every: 1, depth: 4, rw, flushes_in_turn, ..random_read(1) };
        half_a_second(job, takes_flushes).jobs.remove(0)
    };
    let writes = |in_turn, takes| made(in_turn, takes).measured.write.requests;
    assert!((996..=1000).contains(&writes(false, true)), "{}", writes(false, true));
    assert!((248..=250).contains(&writes(true, true)), "{}", writes(true, true));
    assert_eq!(writes(true, false), writes(false, false), "nobody sends it a flush");
    // Whoever waits for its turn has not been sent yet.
    let latency = made(true, true).stable.mean();
    assert!((1.9e6..2.3e6).contains(&latency), "{latency}");
}

/// A round of a job on a device of a millisecond, in two windows.
fn half_a_second(job: Job, takes_flushes: bool) -> Round {
    let length = Length::Time(Duration::from_millis(500));
    let rounds = Rounds { phases: vec![vec![job]], length, windows: 2 };
    let round = headpond_sim::run(1, |runtime, sim| async move {
        let devices: Vec<Rc<dyn BlockDevice>> = vec![of_a_millisecond(&runtime)];
        let (memory, watch) = (generator::no_memory(), &Opaque { is_over: &|| false });
        let place = RoundTarget { devices, takes_flushes, runtime: &runtime, memory, watch };
        let mut seen = None;
        let mut next = |_, round: Round| {
            seen = Some(round);
            false
        };
        run(&[rounds], place, &mut sim.random(), &mut next).await;
        seen.unwrap()
    });
    round.unwrap()
}

/// A device that takes a millisecond for everything.
fn of_a_millisecond(runtime: &Runtime) -> Rc<FixedLatencyDevice> {
    let millisecond = Duration::from_millis(1);
    let figures = FixedLatency {
        read: millisecond,
        write: millisecond,
        flush: millisecond,
        bytes_per_s: 1 << 40,
        stability: Stability::StableOnCompletion,
    };
    let store = Rc::new(NullDevice::new("null", 4 << 20));
    Rc::new(FixedLatencyDevice::new(store, figures, runtime.clone()))
}

#[test]
fn a_round_whose_end_is_wanted_ends_within_its_window_and_says_how_long_it_was() {
    for phases in [vec![vec![random_read(1)]], vec![vec![random_read(1)], vec![random_read(1)]]] {
        let count = phases.len();
        let length = Length::Time(Duration::from_secs(600));
        let rounds = Rounds { phases, length, windows: 1 };
        let (ended, window) = headpond_sim::run(1, |runtime, sim| async move {
            let begun = runtime.now();
            let seconds = || runtime.now().since(begun).as_secs_f64();
            let watch = &Opaque { is_over: &|| seconds() >= 5.0 };
            let devices: Vec<Rc<dyn BlockDevice>> = vec![of_a_millisecond(&runtime)];
            let memory = generator::no_memory();
            let place =
                RoundTarget { devices, takes_flushes: true, runtime: &runtime, memory, watch };
            let mut window = None;
            let mut next = |_, round: Round| {
                window = round.windows.first().copied();
                false
            };
            run(&[rounds], place, &mut sim.random(), &mut next).await;
            (seconds(), window.unwrap())
        })
        .unwrap();
        assert!((5.0..5.2).contains(&ended), "{count} phases: {ended}");
        assert!((5.0..5.2).contains(&window.at_s), "{count} phases: {window:?}");
        assert!((window.read_iops - 1000.0).abs() < 10.0, "{count} phases: {window:?}");
    }
}

/// The first looks, so many milliseconds apart, at a machine that began with a full cache.
fn full(rw: &str, cache: &str, millis: u64) -> Vec<Round> {
    let core = "raid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 12\n";
    let text = format!("name = \"full\"\n[core]\n{core}[cache]\nsize = \"128M\"\n{cache}");
    let (stack, rw) = (Stack::parse(&text).unwrap(), job::rw(rw).unwrap());
    let job = Job { rw, depth: 4, offset: 1 << 30, is_time_based: true, ..Job::default() };
    let length = Length::Time(Duration::from_millis(millis));
    let rounds = Rounds { phases: vec![vec![job]], length, windows: 1 };
    let mut seen = Vec::new();
    simulate_rounds_when_full(&stack, &[rounds], 1, &mut |_, round| {
        seen.push(round);
        seen.len() < 3
    })
    .unwrap();
    seen
}

/// To fill it takes a burst at the speed of memory; what comes then is as slow as the drives.
#[test]
fn a_machine_can_begin_with_a_full_cache() {
    for cache in ["", "cleaning = \"acp\"\nbypass = \"adaptive\"\n"] {
        for (number, round) in full("randwrite", cache, 100).iter().enumerate() {
            let (dirty, writes) = (round.windows[0].dirty_ratio, round.jobs[0].measured.write);
            assert!(dirty > 0.95, "{cache}, round {number}: {dirty}");
            assert!(writes.iops < 20_000.0, "{cache}, round {number}: {writes:?}");
        }
    }
}

/// What a stream leaves there is cleaned in no time, where the settings say that it is.
#[test]
fn what_a_machine_begins_with_is_cleaned_as_its_settings_say() {
    let end = |cache: &str| full("read", cache, 50).last().unwrap().windows[0].dirty_ratio;
    let (nop, stripe) = (end("cleaning = \"nop\"\n"), end("seq_cutoff = \"4M\"\n"));
    assert!(nop > 0.95 && stripe < 0.9, "{nop} {stripe}");
}
