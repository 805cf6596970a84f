//! What the members say of the cache's promises, under power cuts of devices that keep theirs.

use crate::support;
use crate::support::{CREATE, careful};
use headpond_block::{BlockDevice, Runtime};
use headpond_cache::Mode;
use headpond_sim::{Medium, OperationTime, Power, Sim, SimDisk, run_until_cut};
use headpond_volume::{Claimant, Description, Devices, Host, OpenOptions, Process, Volume};
use headpond_witness::{Client, Witness, Workload};
use std::cell::RefCell;
use std::rc::Rc;
use uuid::Uuid;

const MIB: u64 = 1 << 20;
const LIVES: u64 = 6;

const BUSY: Workload = Workload {
    requests: 3000,
    depth: 8,
    blocks: 1200,
    read_percent: 10,
    flush_percent: 8,
    fua_percent: 15,
    discard_percent: 4,
    ..Workload::BUSY
};

fn description() -> Description {
    Description { heartbeat_ms: 100, ..support::description(Mode::WriteBack, 2) }
}

fn options(life: u64) -> OpenOptions {
    let process = Process { number: 1, started: life };
    let (machine, boot) = (Uuid::from_u128(1), Uuid::from_u128(life.into()));
    let claimant = Claimant {
        host: Host { name: "left".into(), machine, boot, process },
        token: Uuid::from_u128(1000 + u128::from(life)),
        is_running: Rc::new(|_| true),
        watch: None,
    };
    OpenOptions { claimant: Some(claimant), ..careful() }
}

#[test]
fn a_device_that_keeps_its_promises_is_never_taken_for_a_liar() {
    let mut told = 0;
    for seed in 0..6 {
        let member = |name: &str| Rc::new(Medium::flushable(name, 9 * MIB).with_atoms(4096));
        let mut media = vec![Rc::new(Medium::flushable("cache", 26 * MIB))];
        media.extend(["m0", "m1", "m2"].map(member));
        let power = Power::on();
        let devices = |runtime: &Runtime, sim: &Sim| {
            let attach = |medium: &Rc<Medium>| {
                let (medium, time) = (Rc::clone(medium), OperationTime::SOME);
                Rc::new(SimDisk::attach(medium, &power, runtime, sim, time)) as Rc<dyn BlockDevice>
            };
            let members = media[1..].iter().map(attach).collect();
            Devices { cache: Some(attach(&media[0])), members, ..Devices::default() }
        };
        let create = async |runtime: Runtime, sim: Sim| {
            let devices = devices(&runtime, &sim);
            Volume::create(&description(), &devices, &CREATE).await.expect("created");
        };
        assert!(!run_until_cut(seed, &power, create).unwrap().was_cut());
        let size_bytes = 18 * MIB;
        let witness = Rc::new(RefCell::new(Witness::new(size_bytes / 2, seed)));
        for life in 1..=LIVES {
            power.cut_after(900 + (seed * 7919 + life * 1543) % 6000);
            let job = async |runtime: Runtime, sim: Sim| {
                let devices = devices(&runtime, &sim);
                let opened = Volume::open(&runtime, &description(), devices, options(life)).await;
                let volume = Rc::new(opened.expect("opens"));
                let alerts = volume.status().alerts;
                assert!(alerts.is_empty(), "seed {seed}, life {life}: {alerts:?}");
                let client = Client::new(volume.clone(), Rc::clone(&witness), &runtime);
                client.run(&BUSY, seed + life).await.unwrap();
            };
            let ended = run_until_cut(seed * 100 + life, &power, job).unwrap();
            power.come_back(&media, seed + life);
            witness.borrow_mut().crash();
            let says = media[1].peek(32 << 10, 4096);
            told += u64::from(ended.was_cut() && says[256 + 8] > 0);
        }
    }
    assert!(told > 8, "members said something of promises after {told} cuts alone");
}
