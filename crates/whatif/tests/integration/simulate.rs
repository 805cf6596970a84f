//! Small machines, whole simulations.

use headpond_whatif::{Experiment, Gauge, Load, Outcome, Stack, job, simulate, simulate_all};

const STACK: &str = "name = \"small\"\n[core]\nraid = 6\ndrive = \"hdd-7k2-4t\"\ndrives = 10\n";

fn experiment(stack: &str, jobs: &str, seed: u64) -> Experiment {
    let load = Load::Jobs(job::parse(jobs).unwrap());
    Experiment { stack: Stack::parse(stack).unwrap(), load, seed }
}

fn outcome(jobs: &str) -> Outcome {
    simulate(&experiment(STACK, jobs, 1)).unwrap()
}

#[test]
fn a_random_write_of_a_raid_6_costs_three_reads_and_three_writes() {
    let outcome = outcome("[a]\nrw=randwrite\nruntime=20\nramp_time=5\ntime_based\n");
    let write = outcome.jobs[0].measured.write;
    assert!((30.0..90.0).contains(&write.iops), "{write:?}");
    // One at a time: the rate is the inverse of the latency.
    assert!((write.iops * write.latency.mean_us / 1e6 - 1.0).abs() < 0.02, "{write:?}");
    assert!(write.latency.p50_us <= write.latency.p99_us && write.latency.p99_us > 1000.0);
    let (reads, writes) = (outcome.drives.reads_per_s, outcome.drives.writes_per_s);
    assert!((reads / write.iops - 3.0).abs() < 0.1, "{reads} {}", write.iops);
    assert!((writes / write.iops - 3.0).abs() < 0.1, "{writes} {}", write.iops);
    assert!(outcome.plans.read_modify > 0 && outcome.plans.full_stripe == 0);
    assert!((0.1..1.0).contains(&outcome.drives.busy_mean));
    let busy = outcome.each_drive.iter().map(|drive| drive.busy_mean);
    assert_eq!((outcome.each_drive.len(), outcome.drives.devices), (10, 10));
    assert!((busy.sum::<f64>() / 10.0 - outcome.drives.busy_mean).abs() < 1e-9);
    assert!(outcome.windows.len() >= 59 && outcome.windows[30].write_iops > 0.0);
    assert!(outcome.why.iter().any(|line| line.contains("read-modify-write")));
}

#[test]
fn a_seed_gives_the_same_figures_again_whatever_runs_beside() {
    let jobs = "[a]\nrw=randrw\niodepth=8\nruntime=5\ntime_based\n";
    let experiments = [1, 2, 1, 1].map(|seed| experiment(STACK, jobs, seed));
    let gauges = Gauge::for_each(experiments.len());
    let figures: Vec<_> = simulate_all(&experiments, &gauges)
        .into_iter()
        .map(|outcome| {
            let measured = outcome.unwrap().jobs[0].measured.clone();
            (measured.read.requests, measured.write.requests, measured.write.latency.mean_us)
        })
        .collect();
    assert!(figures[0] == figures[2] && figures[0] == figures[3]);
    assert!(gauges.iter().all(|gauge| gauge.is_over() && gauge.virtual_time().as_secs() >= 4));
    assert_ne!(figures[0], figures[1]);
}

#[test]
fn jobs_keep_to_their_rate_region_and_flushes() {
    let outcome = outcome(
        "[slow]\nrw=read\nrate_iops=10\nruntime=10\ntime_based\n\
         [once]\nrw=write\nbs=64k\nsize=1m\nfsync=1\n",
    );
    let slow = &outcome.jobs[0].measured.read;
    assert!((slow.iops - 10.0).abs() < 0.2, "{slow:?}");
    let once = &outcome.jobs[1].measured;
    assert_eq!((once.write.requests, once.flush.requests), (16, 16));
    assert!(once.flush.latency.mean_us > 1000.0, "{once:?}");
}

#[test]
fn an_image_of_ceph_is_a_core_with_its_rates_and_a_cache_before_it_is_faster() {
    let far = "name = \"far\"\ncore = \"rbd\"\n";
    let near = format!("{far}[cache]\nsize = \"4G\"\nmodel = \"nvme-dc-2t\"\n");
    let of = |stack: &str, depth: u32| {
        let jobs = format!(
            "[a]\nrw=randwrite\nsize=1g\niodepth={depth}\nramp_time=1\nruntime=2\ntime_based\n"
        );
        simulate(&experiment(stack, &jobs, 1)).unwrap().jobs[0].measured.write.iops
    };
    let (alone, deep) = (of(far, 1), of(far, 32));
    assert!((alone / 1000.0 - 1.0).abs() < 0.1 && (deep / 10_570.0 - 1.0).abs() < 0.1, "{deep}");
    assert!(of(&near, 1) > 10.0 * alone && of(&near, 32) > 5.0 * deep);
}

#[test]
fn a_region_outside_the_volume_is_an_error() {
    let jobs = "[far]\nrw=read\noffset=1p\nruntime=1\ntime_based\n";
    let error = simulate(&experiment(STACK, jobs, 1)).unwrap_err().to_string();
    assert!(error.contains("nothing was measured"), "{error}");
}

#[test]
fn a_stack_that_makes_no_array_says_why() {
    let stack = STACK.replace("drives = 10", "drives = 2");
    let error = simulate(&experiment(&stack, "[a]\nrw=read\n", 1)).unwrap_err().to_string();
    assert!(error.contains("cannot be put together") && error.contains('4'), "{error}");
}

/// Minutes of simulation, for `make conclusions`.
mod conclusions {
    use super::*;

    /// Issue: no stall and no saw-tooth, also where the map runs out of extents for lines in
    /// pieces. For seconds together nothing was written, and then all at once.
    #[test]
    fn scattered_writes_into_long_lines_flow_evenly_once_the_pool_is_used_up() {
        for line in ["32K", "64K", "1M"] {
            let cache = format!("[cache]\nsize = \"512M\"\nline = \"{line}\"\nwrite_us = 20\n");
            let jobs = "[a]\nrw=randwrite\niodepth=16\nramp_time=20\nruntime=40\ntime_based\n";
            let outcome = simulate(&experiment(&format!("{STACK}{cache}"), jobs, 1)).unwrap();
            let late = outcome.windows.iter().filter(|window| window.at_s > 20.0);
            let rates: Vec<f64> = late.map(|window| window.write_iops).collect();
            let mean = rates.iter().sum::<f64>() / rates.len() as f64;
            assert!(rates.len() > 30 && mean > 300.0, "{rates:?}");
            assert!(
                rates.iter().all(|rate| (0.5..1.5).contains(&(rate / mean))),
                "{line}: {rates:?}"
            );
        }
    }
}
