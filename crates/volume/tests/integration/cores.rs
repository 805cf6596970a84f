//! Several cores behind one cache: what each holds, and what holds after a cut anywhere.

mod changes;
mod exchange;
mod labels;
mod machine;

use self::machine::{Clients, MIB, Machine, devices_of, read, write};
use headpond_block::{Buffer, Cause, DeviceError};
use headpond_cache::Way;
use headpond_testkit::skip;
use headpond_volume::{Dirty, Volume};
use std::rc::Rc;
use std::time::Duration;

#[test]
fn each_core_is_a_device_of_its_own_behind_one_cache() {
    let machine = Machine::new(3, 2);
    machine.live(async |runtime, sim| {
        let volume = machine.open(&runtime, &sim, 1).await;
        let cores = devices_of(&volume);
        let sizes: Vec<u64> = cores.iter().map(|core| core.size_bytes() / MIB).collect();
        assert_eq!(sizes, [6, 3, 3]);
        assert_eq!(cores[1].name().to_string(), "stack/c1");
        for (byte, core) in (1..).zip(&cores) {
            write(core, 8192, byte).await;
            core.write(core.size_bytes() - 4096, Buffer::from_slice(&[byte + 10; 4096]))
                .await
                .unwrap();
            let beyond = core.write(core.size_bytes(), Buffer::zeroed(4096)).await;
            assert!(matches!(
                beyond.as_ref().map_err(DeviceError::cause),
                Err(Cause::OutOfRange { .. })
            ));
        }
        let status = volume.status();
        assert_eq!(status.cache.unwrap().dirty_bytes, 6 * 4096, "all of it is in the one cache");
        let report = volume.report();
        let asked: Vec<_> = report
            .cores
            .iter()
            .map(|core| (core.id, core.name.as_str(), core.counts.writes))
            .collect();
        assert_eq!(asked, [(1, "stack", 2), (2, "c1", 2), (3, "c2", 2)]);
        assert_eq!(read(&cores[1], 8192).await, 2);
        read(&cores[2], 65_536).await;
        runtime.sleep(Duration::from_secs(1)).await;
        let report = volume.report();
        let row = |core: usize, name| {
            report.cores[core].requests.iter().find(|row| row.name == name).unwrap().count
        };
        let rows = ["Read hits", "Read full misses", "Write total"];
        let counted = [0, 1, 2].map(|core| rows.map(|name| row(core, name)));
        assert_eq!(counted, [[0, 0, 2], [1, 0, 2], [0, 1, 2]]);
        let part = |core: usize, names: [&str; 4]| {
            let core = &report.cores[core];
            let rows = || core.usage.iter().chain(&core.blocks).chain(&core.errors);
            names.map(|name| rows().find(|row| row.name == name).unwrap().count)
        };
        let names = ["Occupancy", "Dirty", "Reads from core(s)", "Writes to cache"];
        let held = [0, 1, 2].map(|core| part(core, names));
        assert_eq!(held, [[2, 2, 0, 2], [2, 2, 0, 2], [3, 2, 1, 3]], "what was read has entered");
        check_bypasses_and_times(&volume).await;
        volume.stop().await.unwrap();
    });
    machine.live(async |runtime, sim| {
        let volume = machine.open(&runtime, &sim, 2).await;
        volume.clean_all().await.unwrap();
        for (byte, core) in (1..).zip(&devices_of(&volume)) {
            assert_eq!(read(core, 8192).await, byte);
            assert_eq!(read(core, core.size_bytes() - 4096).await, byte + 10);
            assert_eq!(read(core, 4096).await, 0);
        }
        volume.detach(Dirty::Refuse).await.unwrap();
        for (byte, core) in (1..).zip(&devices_of(&volume)) {
            assert_eq!(read(core, 8192).await, byte, "each array has its own");
        }
        volume.self_check();
    });
}

/// Of three cores the third has been read from, and the second is written to past the cache.
async fn check_bypasses_and_times(volume: &Rc<Volume>) {
    volume.set(&["mode=write-around".parse().unwrap()]).await.unwrap();
    write(&devices_of(volume)[1], 1 << 20, 7).await;
    let report = volume.report();
    let past = |core: usize| {
        let rows = &report.cores[core].bypasses;
        rows.iter().find(|row| row.name == "mode").unwrap().count
    };
    assert_eq!([0, 1, 2].map(past), [0, 1, 0]);
    let timed = |core: usize, way| {
        let ways = &report.cores[core].latency;
        ways.iter().find(|it| it.way == way).map(|it| it.timed)
    };
    assert_eq!([0, 1, 2].map(|it| timed(it, Way::ReadMiss)), [None, None, Some(1)]);
    assert_eq!([0, 1, 2].map(|it| timed(it, Way::WritePastCache)), [None, Some(1), None]);
    volume.set(&["mode=write-back".parse().unwrap()]).await.unwrap();
}

#[test]
fn rules_tell_cores_apart_and_count_addresses_from_the_start_of_each() {
    let machine = Machine::new(2, 1);
    machine.live(async |runtime, sim| {
        let volume = machine.open(&runtime, &sim, 1).await;
        let rules = "classes=[[class]]\nid = 3\nwhen = \"core_id:eq:2&lba:lt:16&done\"\n\
                     [[class]]\nid = 4\nwhen = \"core_id:eq:1\"\n";
        volume.set(&[rules.parse().unwrap()]).await.unwrap();
        let cores = devices_of(&volume);
        write(&cores[0], 0, 1).await;
        write(&cores[1], 4096, 2).await;
        write(&cores[1], 8192, 3).await;
        let classes = volume.report().cache.unwrap().classes;
        let written = |id: u8| {
            let class = classes.iter().find(|class| class.id == id).expect("counted");
            class.requests.iter().find(|row| row.name == "Write total").unwrap().count
        };
        assert_eq!([written(4), written(3), written(0)], [1, 1, 1]);
    });
}

#[test]
fn metadata_of_file_systems_is_recognised_on_every_core() {
    let Some(mkfs) = headpond_testkit::tool("mkfs.ext4") else {
        skip!("metadata_of_file_systems_is_recognised_on_every_core", "no mkfs.ext4");
    };
    let folder = headpond_testkit::tempdir();
    let path = folder.path().join("image");
    std::fs::File::create(&path).unwrap().set_len(2 * MIB).unwrap();
    let made =
        std::process::Command::new(mkfs).args(["-q", "-F", "-b", "4096"]).arg(&path).status();
    assert!(made.unwrap().success());
    let image = std::fs::read(&path).unwrap();
    let machine = Machine::new(3, 2);
    machine.live(async |runtime, sim| {
        let volume = machine.open(&runtime, &sim, 1).await;
        let rules = "classes=[[class]]\nid = 1\nwhen = \"metadata&core_id:eq:3\"\n\
                     [[class]]\nid = 2\nwhen = \"metadata&core_id:eq:1\"\n";
        volume.set(&[rules.parse().unwrap()]).await.unwrap();
        runtime.sleep(Duration::from_secs(1)).await;
        assert!(volume.status().file_systems.is_empty());
        let cores = devices_of(&volume);
        for (piece, offset) in image.chunks(65_536).zip((0..).step_by(65_536)) {
            cores[2].write(offset, Buffer::from_slice(piece)).await.unwrap();
        }
        runtime.sleep(Duration::from_secs(3)).await;
        let [found] = &volume.status().file_systems[..] else { panic!("one core was formatted") };
        assert_eq!((found.core, &*found.found.kind), (3, "ext4"));
        assert_eq!((found.found.offset_bytes, found.found.size_bytes), (0, 2 * MIB));
        let asked = |id: u8| {
            let classes = volume.report().cache.unwrap().classes;
            let class = classes.iter().find(|class| class.id == id).expect("counted");
            class.requests.iter().find(|row| row.name == "Total requests").unwrap().count
        };
        let before = [asked(1), asked(2)];
        // The superblock, and what lies in its place on a core that has none.
        for core in &cores {
            core.read(1024, Buffer::zeroed(1024)).await.unwrap();
        }
        assert_eq!([asked(1) - before[0], asked(2) - before[1]], [1, 0]);
        volume.stop().await.unwrap();
    });
}

/// Cut at every so many operations; every second recovery as well.
fn sweep(cores: usize, slices: u16, seed: u64, step: usize) {
    let mut cuts = 0;
    for at in (0..).step_by(step) {
        let context = format!("{cores} cores, {slices} slices, seed {seed}, cut {at}");
        let (machine, clients) = (Machine::new(cores, slices), Clients::new(cores, seed));
        machine.power.cut_after(at);
        let was_done = machine.live(async |runtime, sim| {
            let volume = machine.open(&runtime, &sim, seed).await;
            clients.work(&volume, &runtime, seed, &context).await;
            volume.stop().await.unwrap();
        });
        machine.lose_power(seed + at);
        clients.crash();
        let recover = || {
            machine.live(async |runtime, sim| {
                let volume = machine.open(&runtime, &sim, seed + at + 1).await;
                clients.check(&volume, &runtime, &format!("{context}, recovered")).await;
                volume.self_check();
                volume.stop().await.unwrap();
            })
        };
        if at % 2 == 1 {
            machine.power.cut_after(at * 7 % 130);
            recover();
            machine.lose_power(seed + at + 2);
            clients.crash();
        }
        assert!(recover());
        if was_done {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 10, "the sweep cut only {cuts} times");
}

#[test]
fn every_core_keeps_its_promises_at_every_cut() {
    sweep(2, 1, 1, 7);
    sweep(3, 2, 2, 17);
}
