//! A cache that is replaced, resized, purged or scrubbed, cut at every operation of the command.

use crate::cores::machine::{BLOCKS, Machine, check_dirty_data, devices_of, dirty, read, write};
use crate::support::careful;
use headpond_block::{BlockDevice, Runtime};
use headpond_raid::Occupied;
use headpond_sim::{Medium, Random, Sim};
use headpond_volume::{Description, Devices, Dirty, Keeping, NewDevice, Replacement, Size, Volume};
use std::cell::Cell;
use std::future::ready;
use std::rc::Rc;
use uuid::Uuid;

const CORES: usize = 2;

#[derive(Clone, Copy, Debug)]
enum Command {
    Replace,
    Resize,
    Purge,
    Scrub,
}

/// The disks of a volume, and another one for its cache.
struct Disks {
    machine: Machine,
    spare: Rc<Medium>,
    is_on_spare: Cell<bool>,
}

impl Disks {
    fn new() -> Self {
        let machine = Machine::new(CORES, 1);
        let size_bytes = machine.cache.geometry().size_bytes;
        let spare = Rc::new(Medium::flushable("spare", size_bytes));
        Self { machine, spare, is_on_spare: Cell::new(false) }
    }

    fn duplicate(&self) -> Self {
        Self {
            machine: self.machine.duplicate(),
            spare: Rc::new(self.spare.duplicate()),
            is_on_spare: self.is_on_spare.clone(),
        }
    }

    fn keep(&self, description: &Description) -> Keeping<'_> {
        self.machine.names_cache.set(description.cache.is_some());
        let device = description.cache.as_ref().map(|cache| cache.device.as_str());
        self.is_on_spare.set(device == Some("spare"));
        Box::pin(ready(Ok(())))
    }

    fn kept(&self) -> Description {
        let mut kept = self.machine.kept();
        if let Some(cache) = kept.cache.as_mut().filter(|_| self.is_on_spare.get()) {
            cache.device = "spare".into();
        }
        kept
    }

    fn devices(&self, runtime: &Runtime, sim: &Sim, seed: u64) -> Devices {
        let devices = self.machine.devices(runtime, sim, seed);
        let medium = if self.is_on_spare.get() { &self.spare } else { &self.machine.cache };
        let cache = devices.cache.map(|_| self.machine.disk(medium, runtime, sim));
        Devices { cache, ..devices }
    }

    async fn open(&self, runtime: &Runtime, sim: &Sim, seed: u64) -> Rc<Volume> {
        let devices = self.devices(runtime, sim, seed);
        let opened = Volume::open(runtime, &self.kept(), devices, careful()).await;
        Rc::new(opened.expect("opens after any cut"))
    }

    fn lose_power(&self, seed: u64) {
        self.machine.lose_power(seed);
        self.spare.lose_power(&mut Random::new(seed + 1));
    }

    async fn job(&self, command: Command, volume: &Volume, spare: Rc<dyn BlockDevice>, at: u64) {
        let identities = [1, 2].map(|which| Uuid::from_u128(u128::from(at) * 4 + which + 100));
        let keep = |description: &Description| self.keep(description);
        match command {
            Command::Replace => {
                let mut described = self.machine.described().cache.unwrap();
                described.device = "spare".into();
                let (device, occupied) = (NewDevice::Other(spare.into()), Occupied::Overwrite);
                let new = Replacement { device, described, identities, occupied };
                volume.replace_cache(new, Dirty::Clean, &keep).await.unwrap();
            }
            Command::Resize => {
                let size = Some(Size(10 << 20));
                let resized = volume.resize_cache(size, NewDevice::Same, identities, &keep).await;
                assert!(resized.unwrap(), "it had another size");
            }
            Command::Purge => volume.purge_cache(Dirty::Clean, identities, &keep).await.unwrap(),
            Command::Scrub => {
                let report = volume.scrub_cache().await.unwrap();
                assert!(report.blocks > 0 && report.dropped_blocks == 0 && report.lost.is_empty());
            }
        }
    }

    /// Cuts the command after so many operations; false where it was done before.
    fn cut(&self, command: Command, at: u64) -> bool {
        assert!(self.machine.live(async |runtime, sim| {
            let volume = self.open(&runtime, &sim, 1).await;
            dirty(&volume).await;
            volume.stop().await.unwrap();
        }));
        let was_done = self.machine.live(async |runtime, sim| {
            let volume = self.open(&runtime, &sim, 2).await;
            let spare = self.machine.disk(&self.spare, &runtime, &sim);
            self.machine.power.cut_after(at);
            self.job(command, &volume, spare, at).await;
            check_dirty_data(&volume, "before the cut").await;
            volume.stop().await.unwrap();
        });
        self.lose_power(at + 1);
        !was_done
    }

    /// What was flushed is there, with the cache that is kept; a volume without any has it as well,
    /// or refuses.
    fn judge(&self, at: u64, context: &str) -> bool {
        self.machine.check_labels(context);
        let copy = self.duplicate();
        assert!(self.machine.live(async |runtime, sim| {
            let volume = self.open(&runtime, &sim, at + 1).await;
            check_dirty_data(&volume, context).await;
            volume.stop().await.unwrap();
        }));
        let opens = Cell::new(false);
        copy.machine.live(async |runtime, sim| {
            let devices = Devices { cache: None, ..copy.devices(&runtime, &sim, at + 1) };
            match Volume::open(&runtime, &copy.kept(), devices, careful()).await {
                Ok(volume) => {
                    check_dirty_data(&Rc::new(volume), &format!("{context}, without")).await;
                    opens.set(true);
                }
                Err(error) => assert!(error.is_refusal(), "{context}: {error}"),
            }
        });
        opens.get()
    }
}

fn sweep(command: Command) -> (u64, u64) {
    let (mut cuts, mut without) = (0, 0);
    loop {
        let disks = Disks::new();
        let was_cut = disks.cut(command, cuts);
        let context = format!("{command:?}, cut {cuts}");
        without += u64::from(disks.judge(cuts, &context));
        if !was_cut {
            return (cuts, without);
        }
        cuts += 1;
    }
}

#[test]
fn cache_that_is_replaced_loses_nothing_wherever_the_power_is_cut() {
    let (cuts, without) = sweep(Command::Replace);
    assert!(cuts > 40 && (5..cuts).contains(&without), "{cuts} cuts, {without} without a cache");
}

#[test]
fn cache_that_is_resized_loses_nothing_wherever_the_power_is_cut() {
    let (cuts, without) = sweep(Command::Resize);
    assert!(cuts > 40 && (5..cuts).contains(&without), "{cuts} cuts, {without} without a cache");
}

#[test]
fn cache_that_is_purged_loses_nothing_wherever_the_power_is_cut() {
    let (cuts, without) = sweep(Command::Purge);
    assert!(cuts > 40 && (5..cuts).contains(&without), "{cuts} cuts, {without} without a cache");
}

#[test]
fn cache_that_is_scrubbed_loses_nothing_wherever_the_power_is_cut() {
    let (cuts, without) = sweep(Command::Scrub);
    assert!(cuts > 5 && without == 0, "{cuts} cuts, {without} without a cache");
}

/// What is written after a purge.
const AFTERWARDS: u8 = 9;

/// How far a purge that gives up what is dirty had come.
#[derive(Default)]
struct Purged {
    is_done: Cell<bool>,
    /// Afterwards, and flushed.
    is_written: Cell<bool>,
}

impl Purged {
    /// All of what was dirty is there, or none of it and what the arrays had; once the purge was
    /// answered, none, and what was promised since.
    async fn check(&self, volume: &Rc<Volume>, context: &str) {
        let mut is_there = Vec::new();
        for (byte, core) in (1..).zip(&devices_of(volume)) {
            for block in 0..BLOCKS {
                let found = read(core, block * 8192).await;
                let is_new = block == 0 && self.is_done.get() && found == AFTERWARDS;
                assert!([0, byte].contains(&found) || is_new, "{context}: {found} in {block}");
                let is_promised = block == 0 && self.is_written.get();
                assert!(is_new || !is_promised, "{context}: {found} in {block}");
                is_there.push(found == byte);
            }
        }
        let expected = !self.is_done.get() && is_there[0];
        assert!(is_there.iter().all(|it| *it == expected), "{context}: {is_there:?}");
    }
}

/// Cuts after so many operations; false where it was done before.
fn purge_by_force(disks: &Disks, purged: &Purged, at: u64) -> bool {
    assert!(disks.machine.live(async |runtime, sim| {
        let volume = disks.open(&runtime, &sim, 1).await;
        dirty(&volume).await;
        volume.stop().await.unwrap();
    }));
    let was_done = disks.machine.live(async |runtime, sim| {
        let volume = disks.open(&runtime, &sim, 2).await;
        disks.machine.power.cut_after(at);
        let identities = [1, 2].map(|which| Uuid::from_u128(u128::from(at) * 4 + which + 100));
        let keep = |description: &Description| disks.keep(description);
        volume.purge_cache(Dirty::Drop, identities, &keep).await.unwrap();
        purged.is_done.set(true);
        for core in &devices_of(&volume) {
            write(core, 0, AFTERWARDS).await;
            core.flush().await.unwrap();
        }
        purged.is_written.set(true);
        volume.stop().await.unwrap();
    });
    disks.lose_power(at + 1);
    !was_done
}

#[test]
fn cache_that_is_purged_by_force_is_whole_or_empty_wherever_the_power_is_cut() {
    let (mut at, mut whole) = (0, 0);
    loop {
        let (disks, purged) = (Disks::new(), Purged::default());
        let was_cut = purge_by_force(&disks, &purged, at);
        let context = format!("purge by force, cut {at}");
        disks.machine.check_labels(&context);
        let copy = disks.duplicate();
        assert!(disks.machine.live(async |runtime, sim| {
            let volume = disks.open(&runtime, &sim, at + 1).await;
            purged.check(&volume, &context).await;
            whole += u64::from(read(&devices_of(&volume)[0], 8192).await == 1);
            volume.self_check();
            volume.stop().await.unwrap();
        }));
        copy.machine.live(async |runtime, sim| {
            let devices = Devices { cache: None, ..copy.devices(&runtime, &sim, at + 1) };
            match Volume::open(&runtime, &copy.kept(), devices, careful()).await {
                Ok(volume) => purged.check(&Rc::new(volume), &format!("{context}, without")).await,
                Err(error) => assert!(error.is_refusal(), "{context}: {error}"),
            }
        });
        if !was_cut {
            break;
        }
        at += 1;
    }
    assert!(at > 30 && (1..at).contains(&whole), "{at} cuts, {whole} with all of it");
}
