//! A RAID 5 that lacks a member and whose journal is lost is given another one beside requests:
//! wherever the power goes it starts again, and has what was promised.
//!
//! 1. A volume with a journal lacks a member, works on through the journal, and is stopped; 2. it
//!    is opened without the journal, so that it takes no writes, and given another one, until the
//!    power goes; 3. it is opened as its description was kept, finds the journal that its
//!    superblocks name, or is given it once more; 4. it takes writes, is cut once more, and has
//!    everything.

use crate::support::lives;
use crate::support::{CREATE, careful, description};
use headpond_block::{BlockDevice, Runtime};
use headpond_cache::Mode;
use headpond_raid::{Inspection, JournalWhen, Occupied, inspect};
use headpond_sim::{Ended, Medium, Power, Sim};
use headpond_volume::{Description, Devices, JournalDescription, NewJournal, Volume};
use headpond_witness::{Client, Witness, Workload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use uuid::Uuid;

const MEMBER_BYTES: u64 = (1 << 20) + (1 << 20);
const JOURNAL_BYTES: u64 = 6 << 20;
const WINDOW_BYTES: u64 = 256 << 10;
const NEW: Uuid = Uuid::from_u128(0x10a1);
const BUSY: Workload = Workload {
    requests: 40,
    depth: 4,
    blocks: WINDOW_BYTES / 4096,
    blocks_max: 6,
    read_percent: 20,
    flush_percent: 15,
    ..Workload::BUSY
};

struct Machine {
    members: Vec<Rc<Medium>>,
    journals: [Rc<Medium>; 2],
    power: Power,
    witness: Rc<RefCell<Witness>>,
    kept: Rc<RefCell<Description>>,
    /// The program ends instead of keeping that the new journal is the only one.
    ends_unkept: Cell<bool>,
}

impl Machine {
    /// Without a member, and not without its journal.
    fn new(seed: u64) -> Self {
        let disk = |name: &str, bytes| Rc::new(Medium::flushable(name, bytes).with_atoms(4096));
        let journal = JournalDescription::of("j0".into(), JournalWhen::Degraded);
        let mut described = Description { cache: None, ..description(Mode::PassThrough, 1) };
        described.core.journal = Some(journal);
        let machine = Self {
            members: ["m0", "m1", "m2"].map(|name| disk(name, MEMBER_BYTES)).into(),
            journals: ["j0", "j1"].map(|name| disk(name, JOURNAL_BYTES)),
            power: Power::on(),
            witness: Rc::new(RefCell::new(Witness::new(WINDOW_BYTES, seed))),
            kept: Rc::new(RefCell::new(described)),
            ends_unkept: Cell::new(false),
        };
        machine.live_to_the_end(seed, async |runtime, sim| {
            let mut devices = machine.devices(&machine.members, &runtime, &sim);
            devices.journals = vec![machine.disk(&machine.journals[0], &runtime, &sim)];
            let described = machine.kept.borrow().clone();
            Volume::create(&described, &devices, &CREATE).await.expect("created");
        });
        machine.live_to_the_end(seed, async |runtime, sim| {
            let mut devices = machine.devices(&machine.members[1..], &runtime, &sim);
            devices.journals = vec![machine.disk(&machine.journals[0], &runtime, &sim)];
            let volume = machine.open(&runtime, devices).await;
            machine.work(&volume, &runtime, seed).await;
            volume.stop().await.expect("stops");
        });
        machine
    }

    fn live(&self, seed: u64, main: impl AsyncFnOnce(Runtime, Sim)) -> Ended<()> {
        lives::live(seed, &self.power, main)
    }

    fn live_to_the_end(&self, seed: u64, main: impl AsyncFnOnce(Runtime, Sim)) {
        lives::live_to_the_end(seed, &self.power, main);
    }

    fn disk(&self, medium: &Rc<Medium>, runtime: &Runtime, sim: &Sim) -> Rc<dyn BlockDevice> {
        lives::disk(medium, &self.power, runtime, sim)
    }

    fn devices(&self, members: &[Rc<Medium>], runtime: &Runtime, sim: &Sim) -> Devices {
        let members = members.iter().map(|medium| self.disk(medium, runtime, sim)).collect();
        Devices { members, ..Devices::default() }
    }

    /// What is left: two members, and the new journal where it is described, if only as well.
    fn left(&self, runtime: &Runtime, sim: &Sim) -> Devices {
        let mut devices = self.devices(&self.members[1..], runtime, sim);
        if self.kept.borrow().journals().any(|word| word == "j1") {
            devices.journals = vec![self.disk(&self.journals[1], runtime, sim)];
        }
        devices
    }

    fn journal_word(&self) -> String {
        self.kept.borrow().core.journal.as_ref().expect("it has one").device.clone()
    }

    async fn open(&self, runtime: &Runtime, devices: Devices) -> Rc<Volume> {
        let described = self.kept.borrow().clone();
        let volume = Volume::open(runtime, &described, devices, careful()).await;
        let volume = volume.expect("opens after any cut");
        let ends_unkept = self.ends_unkept.take();
        lives::keep(&volume, &self.kept, &self.power, move |description| {
            ends_unkept && description.journals().eq(["j1"])
        });
        Rc::new(volume)
    }

    /// The journal that the superblocks name.
    async fn named(&self, runtime: &Runtime, sim: &Sim) -> Option<Uuid> {
        match inspect(&*self.disk(&self.members[1], runtime, sim)).await {
            Ok(Inspection::Member(found)) => Some(found.array.journal?.uuid),
            other => panic!("{other:?}"),
        }
    }

    async fn work(&self, volume: &Rc<Volume>, runtime: &Runtime, seed: u64) {
        let client = Client::new(volume.clone(), Rc::clone(&self.witness), runtime);
        client.check_all().await.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
        client.run(&BUSY, seed).await.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
        assert_eq!(client.tally().failed_reads + client.tally().failed_others, 0, "seed {seed}");
    }

    /// Gives it the other journal, beside requests that are refused until then.
    fn exchange(&self, seed: u64) -> Ended<()> {
        self.live(seed, async |runtime, sim| {
            let volume = self.open(&runtime, self.left(&runtime, &sim)).await;
            let worker = {
                let (witness, volume, clock) =
                    (Rc::clone(&self.witness), volume.clone(), runtime.clone());
                runtime.spawn(
                    async move { Client::new(volume, witness, &clock).run(&BUSY, seed).await },
                )
            };
            match volume.status().array.journal.expect("it has one").device {
                Some(device) => assert_eq!(device, "j1", "seed {seed}"),
                None => assert_ne!(self.named(&runtime, &sim).await, Some(NEW), "seed {seed}"),
            }
            if volume.status().array.journal.is_some_and(|journal| journal.device.is_none()) {
                let new = NewJournal {
                    word: "j1".into(),
                    device: self.disk(&self.journals[1], &runtime, &sim),
                    uuid: NEW,
                    when: None,
                    occupied: Occupied::Refuse,
                };
                let set = volume.set_journal(None, new, lives::pool()).await;
                set.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
            }
            worker.await.unwrap_or_else(|verdict| panic!("seed {seed}: {verdict}"));
            self.work(&volume, &runtime, seed + 1).await;
            assert_eq!(volume.status().alerts, []);
            volume.self_check();
        })
    }

    fn crash(&self, seed: u64) {
        self.power.come_back(self.members.iter().chain(&self.journals), seed);
        self.witness.borrow_mut().crash();
    }
}

#[test]
fn a_degraded_array_gets_another_journal_and_keeps_its_promises_wherever_the_power_is_cut() {
    let (mut cuts, mut at) = (0, 1);
    loop {
        let machine = Machine::new(5);
        machine.power.cut_after(at);
        let was_cut = machine.exchange(at).was_cut();
        machine.crash(at);
        // It was not stopped, so that what the journal has is needed.
        assert!(!machine.exchange(at + 1).was_cut(), "cut {at}");
        machine.crash(at + 1);
        machine.live_to_the_end(at + 2, async |runtime, sim| {
            assert_eq!(machine.journal_word(), "j1");
            let volume = machine.open(&runtime, machine.left(&runtime, &sim)).await;
            machine.work(&volume, &runtime, at + 2).await;
            volume.stop().await.expect("stops");
        });
        if !was_cut {
            break;
        }
        cuts += 1;
        at += 2;
    }
    assert!(cuts > 60, "only {cuts} cuts");
}

#[test]
fn the_new_journal_is_found_though_the_program_ended_before_it_was_kept_that_it_is_the_only_one() {
    for seed in 0..20 {
        let machine = Machine::new(5);
        machine.ends_unkept.set(true);
        assert!(machine.exchange(seed).was_cut());
        machine.crash(seed);
        machine.live_to_the_end(seed, async |runtime, sim| {
            let volume = machine.open(&runtime, machine.left(&runtime, &sim)).await;
            assert_eq!(machine.named(&runtime, &sim).await, Some(NEW));
            let found = volume.status().array.journal.and_then(|journal| journal.device);
            assert_eq!(found.as_deref(), Some("j1"));
            assert!(machine.kept.borrow().journals().eq(["j1"]), "and it is kept now");
            machine.work(&volume, &runtime, seed).await;
        });
    }
}
