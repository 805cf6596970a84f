//! Machines of more than disks.

use headpond_whatif::{Experiment, Load, Outcome, Stack, job, simulate};

fn outcome(core: &str, cache: &str, jobs: &str) -> Outcome {
    let text = format!("name = \"m\"\n[core]\nraid = 5\ndrives = 4\n{core}\n{cache}");
    let stack = Stack::parse(&text).unwrap();
    let load = Load::Jobs(job::parse(jobs).unwrap());
    simulate(&Experiment { stack, load, seed: 1 }).unwrap()
}

fn write_iops(core: &str, cache: &str, jobs: &str) -> f64 {
    outcome(core, cache, jobs).jobs[0].measured.write.iops
}

const WRITES: &str = "[a]\nrw=randwrite\niodepth=16\nramp_time=1\nruntime=2\ntime_based\n";
const DISKS: &str = "drive = \"hdd-7k2-4t\"";

#[test]
fn the_state_of_solid_state_drives_shows() {
    let at = |state: &str| {
        write_iops(&format!("drive = \"ssd-dc-960g\"\ndrive_state = \"{state}\""), "", WRITES)
    };
    let (fresh, steady) = (at("fresh"), at("steady"));
    assert!(steady < 0.6 * fresh && steady > 1000.0, "{steady} of {fresh}");
}

#[test]
fn a_controller_hides_the_disks_and_a_network_does_not() {
    let jobs = "[a]\nrw=randwrite\niodepth=1\nramp_time=1\nruntime=4\ntime_based\n";
    let bare = write_iops(&format!("{DISKS}\ndrive_write_cache = false"), "", jobs);
    let behind = write_iops(&format!("{DISKS}\ncontroller = \"raid-cache-1g\""), "", jobs);
    assert!(behind > 1.15 * bare, "{behind} {bare}");
    let drive = "drive = \"nvme-dc-2t\"";
    let near = write_iops(drive, "", jobs);
    let far = write_iops(&format!("{drive}\nnetwork = \"net-10g\""), "", jobs);
    // Two reads side by side, then two writes: two round trips of 80 us.
    let more_us = 1e6 / far - 1e6 / near;
    assert!((120.0..240.0).contains(&more_us), "{more_us}");
}

#[test]
fn a_cache_is_as_fast_as_the_model_of_its_device() {
    let jobs =
        "[a]\nrw=randwrite\niodepth=1\nfsync=1\nsize=64m\nramp_time=1\nruntime=3\ntime_based\n";
    let at = |model: &str| {
        let cache = format!("[cache]\nsize = \"4G\"\nmodel = \"{model}\"\n");
        write_iops(DISKS, &cache, jobs)
    };
    let (protected, consumer) = (at("nvme-dc-2t"), at("nvme-consumer-1t"));
    assert!(protected > 5.0 * consumer, "{protected} against {consumer}");
    assert!(protected > 20_000.0 && consumer < 5000.0, "{protected} {consumer}");
}

#[test]
fn an_array_without_a_drive_makes_what_it_held_of_the_others_and_a_rebuild_keeps_its_pace() {
    let jobs = "[a]\nrw=randread\niodepth=2\nramp_time=2\nruntime=20\ntime_based\n";
    let of = |condition: &str| {
        let core = format!("{DISKS}\ncondition = \"{condition}\"");
        outcome(&core, "", jobs)
    };
    let reads = |outcome: &Outcome| outcome.drives.reads_per_s / outcome.jobs[0].measured.read.iops;
    let [healthy, degraded, rebuilding] = ["healthy", "degraded", "rebuilding"].map(of);
    assert!((reads(&healthy) - 1.0).abs() < 0.01 && healthy.rebuilt.is_none());
    // A quarter of what is read was on the lost drive, and takes the three others.
    assert!((reads(&degraded) - 1.5).abs() < 0.1, "{}", reads(&degraded));
    assert!(degraded.rebuilt.is_none() && degraded.drives.writes_per_s < 1.0);
    let rebuilt = rebuilding.rebuilt.expect("it is rebuilt");
    let pace = 10.0 * 1.048576;
    assert!((0.9 * pace..1.1 * pace).contains(&rebuilt.mb_per_s), "{rebuilt:?}");
    let hours = 4e12 / rebuilt.mb_per_s / 1e6 / 3600.0;
    assert!((rebuilt.hours / hours - 1.0).abs() < 0.01, "{rebuilt:?}");
    assert_eq!(rebuilding.each_drive.len(), 5, "the new one is the last");
    assert!(rebuilding.each_drive[4].writes_per_s > 1.0);
    assert!(rebuilding.why.iter().any(|line| line.contains("rebuilt beside it")));
}
