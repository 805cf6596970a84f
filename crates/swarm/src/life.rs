//! One life of a volume: from opening to a stop, a power cut, or the death of the program.

use crate::expect::Excuses;
use crate::faults::CacheIll;
use crate::faults::Ill;
use crate::machine::{Absent, Disks, Image, Machine, careful};
use crate::offence::Offence;
use crate::remains::Remains;
use crate::steps::is_whole;
use crate::steps::whole_copies;
use crate::steps::{Stage, Step};
use crate::tally::Tally;
use crate::threads::Threads;
use crate::topology::{BESIDE_BYTES, FURTHER};
use headpond_block::decorators::WindowDevice;
use headpond_block::{BLOCK_BYTES, BlockDevice, Runtime};
use headpond_raid::Level;
use headpond_sim::{Ended, Random, Sim, run_threads_until_cut, run_until_cut};
use headpond_volume::{CacheSettings, Volume};
use headpond_witness::{Client, Verdict, Workload};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

/// Longer than any life takes that is not stuck, in virtual time.
const LIFE_MAX: Duration = Duration::from_secs(1800);
/// Asked of an array that has just grown, at most.
const NEW_ROOM_REQUESTS: u32 = 100;
/// Of the requests, those that another core is asked beside: one in so many.
const BESIDE_PART: u32 = 3;
/// A device that hangs is waited for so long before somebody pulls the plug.
const PATIENCE: Duration = Duration::from_secs(30);

/// What is asked of a life.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub seed: u64,
    pub settings: CacheSettings,
    pub absent: Absent,
    pub workload: Option<Workload>,
    pub steps: Vec<(Duration, Step)>,
    /// Sectors of members have changed while nothing ran: a scrub is to put so many right before
    /// anything is read.
    pub rotted: u64,
    /// When disks are copied, and which.
    pub copied: Option<(Duration, Disks)>,
    pub cut: Cut,
}

/// When a life is over before its end, counted in device operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Never,
    /// From the beginning, while the volume is opened perhaps.
    InOpening(u64),
    /// From when everything was read once.
    InWork(u64),
    /// From when the stop began.
    InStopping(u64),
}

/// In so many lives one has its clients on another thread than the volume.
const CROSSED_ONE_IN: u64 = 3;

/// How a life ended.
#[derive(Debug)]
pub(crate) enum End {
    Stopped,
    /// It could not be stopped in order, and something excuses that.
    StopFailed,
    Cut,
    Refused(&'static str),
    /// The settings in force are kept for the next life.
    Offence(Offence),
}

/// What the lives of a case share.
pub(crate) struct World<'a> {
    pub machine: &'a Machine,
    pub excuses: &'a RefCell<Excuses>,
    pub tally: &'a RefCell<Tally>,
    pub random: &'a RefCell<Random>,
}

impl World<'_> {
    /// Lives once. The caller makes of a cut what it was: the disks still hold everything.
    pub fn live(&self, order: &Order) -> (End, Remains) {
        let remains = Remains::default();
        let is_stuck = Rc::new(Cell::new(false));
        if let Cut::InOpening(operations) = order.cut {
            self.machine.power.cut_after(operations);
        }
        let main = async |threads: Threads, sim: Sim| {
            self.watch(order, &threads.engine, &is_stuck);
            self.copy(order, &threads.engine, &remains);
            match Box::pin(self.act(order, &threads, &sim, &remains)).await {
                Ok(end) => end,
                Err(offence) => End::Offence(offence),
            }
        };
        let (seed, power) = (order.seed, &self.machine.power);
        let ended = match seed.is_multiple_of(CROSSED_ONE_IN) {
            true => run_threads_until_cut(seed, 2, power, |runtimes, sim| {
                let mut runtimes = runtimes.into_iter();
                let engine = runtimes.next().expect("there are two");
                main(Threads { engine, clients: runtimes.next() }, sim)
            }),
            false => run_until_cut(seed, power, |engine, sim| {
                main(Threads { engine, clients: None }, sim)
            }),
        };
        let end = match ended {
            Ok(Ended::Finished(end)) => end,
            Ok(Ended::Cut) if is_stuck.get() && !self.has_last_copy_hung(order) => {
                let (phase, picture) = (remains.phase.get(), remains.picture());
                End::Offence(Offence::Stuck { phase, picture })
            }
            Ok(Ended::Cut) => End::Cut,
            Err(stalled) => End::Offence(Offence::Stalled(stalled.to_string())),
        };
        (end, remains)
    }

    /// Whether a device will hang that the volume cannot do without.
    fn may_hang(&self, order: &Order) -> bool {
        let ills = order.steps.iter().filter_map(|(_, step)| match step {
            Step::Ill(ill) => Some(*ill),
            _ => None,
        });
        let mut excuses = self.excuses.borrow().clone();
        ills.for_each(|ill| excuses.note(ill, &self.machine.topology));
        let hangs = order.steps.iter().any(|(_, step)| {
            matches!(step, Step::Ill(Ill::Hang { .. } | Ill::Cache { ill: CacheIll::Hang, .. }))
        });
        hangs && excuses.errors
    }

    /// Whether a copy of the cache has hung that turned out to be the last: a command had taken
    /// the others out of use.
    fn has_last_copy_hung(&self, order: &Order) -> bool {
        let copies = &self.excuses.borrow().copies;
        let is_left = !copies.are_kept() || copies.hold();
        !is_left
            && order.steps.iter().any(|(_, step)| {
                matches!(step, Step::Ill(Ill::Cache { copy: Some(_), ill: CacheIll::Hang }))
            })
    }

    /// Pulls the plug where a life does not end.
    fn watch(&self, order: &Order, runtime: &Runtime, is_stuck: &Rc<Cell<bool>>) {
        let hangs = self.may_hang(order);
        let (power, runtime, is_stuck) =
            (self.machine.power.clone(), runtime.clone(), Rc::clone(is_stuck));
        drop(runtime.clone().spawn(async move {
            runtime.sleep(if hangs { PATIENCE } else { LIFE_MAX }).await;
            is_stuck.set(!hangs);
            power.cut();
        }));
    }

    fn copy(&self, order: &Order, runtime: &Runtime, remains: &Remains) {
        let Some((after, disks)) = order.copied else { return };
        let of = self.machine.disks(disks);
        let (runtime, image) = (runtime.clone(), Rc::clone(&remains.image));
        drop(runtime.clone().spawn(async move {
            runtime.sleep(after).await;
            image.replace(Some(Image::take(disks, of)));
        }));
    }

    async fn act(
        &self,
        order: &Order,
        threads: &Threads,
        sim: &Sim,
        remains: &Remains,
    ) -> Result<End, Offence> {
        let runtime = &threads.engine;
        let phase = |phase| remains.phase.set(phase);
        phase("opening");
        let machine = self.machine;
        let controls = machine.controls();
        let devices = machine.all_devices(runtime, sim, &order.absent, &controls).await;
        let description = machine.description(&order.settings);
        let volume = match Volume::open(runtime, &description, devices, careful()).await {
            Ok(volume) => Rc::new(volume),
            Err(error) => {
                let excuse = self.excuses.borrow().refusal(&error, &machine.topology);
                return excuse.map(End::Refused).ok_or_else(|| Offence::Refused(error.to_string()));
            }
        };
        remains.volume.replace(Some(Rc::clone(&volume)));
        self.judge_opened(order, &volume)?;
        phase("reading everything");
        let client = self.client(&volume, threads);
        remains.client.replace(Some(client.clone()));
        let beside = self.client_beside(&volume, threads);
        let is_over = Cell::new(false);
        let stage = Stage {
            machine,
            volume: &volume,
            caches: machine.cache_devices(runtime, sim, &controls),
            settings: &order.settings,
            runtime,
            sim,
            controls: &controls,
            absent: &order.absent.members,
            absent_copies: &order.absent.copies,
            excuses: self.excuses,
            tally: self.tally,
            random: self.random,
            is_over: &is_over,
            located_before: located(&volume, machine),
        };
        stage.heal(order.rotted).await?;
        self.look_first(&client, beside.as_ref()).await?;
        if let Cut::InWork(operations) = order.cut {
            self.machine.power.cut_after(operations);
        }
        phase("working");
        let work = async {
            let Some(workload) = self.workload_for(order, &volume) else { return Ok(()) };
            let worked = work_on_both((&client, beside.as_ref()), workload, order.seed).await;
            // Where nothing else is asked the steps are what there is to do.
            is_over.set(true);
            phase("ending the steps");
            worked
        };
        let (worked, stepped) = both(Box::pin(work), Box::pin(stage.run(&order.steps))).await;
        worked?;
        stepped?;
        let client = self.use_new_room(client, order, &volume, threads, remains).await?;
        phase("reading everything again");
        self.look_again(&client, beside.as_ref(), &volume).await?;
        phase("stopping");
        if let Cut::InStopping(operations) = order.cut {
            self.machine.power.cut_after(operations);
        }
        self.stop(order, &volume).await
    }

    /// Ends the life in order, with everything cleaned before where that was asked for.
    async fn stop(&self, order: &Order, volume: &Volume) -> Result<End, Offence> {
        let is_wanted_clean = order.steps.iter().any(|(_, step)| *step == Step::StopClean);
        let stopped = async {
            if is_wanted_clean {
                volume.clean_all().await.map_err(|error| error.to_string())?;
            }
            volume.stop().await.map_err(|error| error.to_string())
        };
        match stopped.await {
            Ok(()) => check_counts(volume).map(|()| End::Stopped),
            Err(_) if self.excuses.borrow().errors => Ok(End::StopFailed),
            Err(error) => Err(Offence::Stop(error)),
        }
    }

    /// Everything is as the lives before have left it, on both cores.
    async fn look_first(&self, client: &Client, beside: Option<&Client>) -> Result<(), Offence> {
        client.check_all().await?;
        self.check_beside(beside).await
    }

    /// Everything is as the contract has it, when all was done.
    async fn look_again(
        &self,
        client: &Client,
        beside: Option<&Client>,
        volume: &Rc<Volume>,
    ) -> Result<(), Offence> {
        client.check_all().await?;
        self.check_errors(client)?;
        volume.self_check();
        self.note_reshape(volume)?;
        self.check_beside(beside).await
    }

    /// Where the array has grown in this life, there is work across the end that there was.
    async fn use_new_room(
        &self,
        before: Client,
        order: &Order,
        volume: &Rc<Volume>,
        threads: &Threads,
        remains: &Remains,
    ) -> Result<Client, Offence> {
        self.note_reshape(volume)?;
        if self.machine.reshape.has_more().is_none() {
            return Ok(before);
        }
        self.check_errors(&before)?;
        remains.phase.set("using the new room");
        let client = self.client(volume, threads);
        remains.client.replace(Some(client.clone()));
        if let Some(workload) = self.workload_for(order, volume) {
            let blocks = self.machine.window_bytes() / BLOCK_BYTES;
            let requests = workload.requests.min(NEW_ROOM_REQUESTS);
            client.run(&Workload { requests, blocks, ..workload }, order.seed ^ 1).await?;
        }
        Ok(client)
    }

    /// It is what it has to be, as far as it says itself.
    fn judge_opened(&self, order: &Order, volume: &Rc<Volume>) -> Result<(), Offence> {
        self.note_opened(order, volume);
        volume.self_check();
        self.judge_copies(volume)?;
        self.judge_journal(volume)?;
        self.judge_size(volume)
    }

    fn judge_copies(&self, volume: &Volume) -> Result<(), Offence> {
        let topology = &self.machine.topology;
        if topology.level != Level::Raid1 {
            return Ok(());
        }
        let array = &volume.status().cores[topology.worked_on()].array;
        self.machine.copy_count.judge(array.members.len(), is_whole(array))
    }

    /// It has a stripe journal, or none, as it was told; one that is there is relied on.
    fn judge_journal(&self, volume: &Volume) -> Result<(), Offence> {
        let journal = &volume.status().cores[self.machine.topology.worked_on()].array.journal;
        let (found, expected) = (journal.is_some(), self.machine.has_journal.get());
        if expected.is_some_and(|expected| expected != found) {
            let told = format!("a stripe journal: {found}, where it was told {expected:?}");
            return Err(Offence::Command(told));
        }
        self.machine.has_journal.set(Some(found));
        if journal.as_ref().is_some_and(|journal| journal.device.is_some()) {
            self.excuses.borrow_mut().journal_dropped = false;
        }
        Ok(())
    }

    /// Whoever failed in an earlier life is whole again, or was replaced: where the array has all
    /// its members it may lose as many as ever.
    fn note_opened(&self, order: &Order, volume: &Volume) {
        let status = volume.status();
        let array = &status.cores[self.machine.topology.worked_on()].array;
        let mut excuses = self.excuses.borrow_mut();
        if let Some(copies) = whole_copies(&status) {
            excuses.copies.note_whole(&copies);
        }
        excuses.note_opened(&order.absent.members);
        if is_whole(array) {
            excuses.note_whole();
        }
    }

    /// A cache that is named may not be attached, after a cut in the middle: then nothing is
    /// logged, and past the log no sectors are written.
    fn workload_for(&self, order: &Order, volume: &Volume) -> Option<Workload> {
        let is_cached = volume.status().cache.is_some();
        self.machine.names_cache.set(is_cached);
        let workload = order.workload?;
        let sector_percent = if is_cached { workload.sector_percent } else { 0 };
        Some(Workload { sector_percent, ..workload })
    }

    fn client(&self, volume: &Rc<Volume>, threads: &Threads) -> Client {
        let (start, len) = (self.machine.topology.window_start, self.machine.window_bytes());
        let window = Rc::new(WindowDevice::new(self.core_of(volume), start, len));
        Client::new(threads.cross(window), Rc::clone(&self.machine.witness), &threads.engine)
    }

    /// Whoever asks something of the other core.
    fn client_beside(&self, volume: &Rc<Volume>, threads: &Threads) -> Option<Client> {
        let witness = Rc::clone(self.machine.beside.as_ref()?);
        let core: Rc<dyn BlockDevice> = match self.machine.topology.worked_on() {
            0 => volume.core_device(FURTHER)?,
            _ => volume.clone(),
        };
        let window = Rc::new(WindowDevice::new(core, 0, BESIDE_BYTES));
        Some(Client::new(threads.cross(window), witness, &threads.engine))
    }

    /// The other core holds what it must as well.
    async fn check_beside(&self, client: Option<&Client>) -> Result<(), Offence> {
        let Some(client) = client else { return Ok(()) };
        client.check_all().await?;
        self.check_errors(client)
    }

    /// The core that is worked on.
    fn core_of(&self, volume: &Rc<Volume>) -> Rc<dyn BlockDevice> {
        match self.machine.topology.worked_on() {
            0 => volume.clone(),
            _ => volume.core_device(FURTHER).expect("the description names it"),
        }
    }

    /// The array has its size from one life to the next, until it has grown.
    fn judge_size(&self, volume: &Rc<Volume>) -> Result<(), Offence> {
        let found = self.core_of(volume).size_bytes();
        self.machine.reshape.judge(&self.machine.topology, found)
    }

    /// What the volume says has grown has its new size, and keeps it however this life ends.
    fn note_reshape(&self, volume: &Rc<Volume>) -> Result<(), Offence> {
        let topology = &self.machine.topology;
        let status = volume.status();
        if topology.size_waits(&status) {
            return Ok(());
        }
        let core = &status.cores[topology.worked_on()];
        self.machine.reshape.note(topology, &core.array, self.core_of(volume).size_bytes())
    }

    /// Where nothing excuses it, nothing fails.
    fn check_errors(&self, client: &Client) -> Result<(), Offence> {
        let tally = client.tally();
        let failed = tally.failed_reads + tally.failed_others;
        if failed > 0 && !self.excuses.borrow().errors {
            let (reads, others) = (tally.failed_reads, tally.failed_others);
            return Err(Offence::Errors { reads, others });
        }
        Ok(())
    }
}

/// The workload, and part of it of the other core where somebody asks something there.
async fn work_on_both(
    (client, beside): (&Client, Option<&Client>),
    workload: Workload,
    seed: u64,
) -> Result<(), Box<Verdict>> {
    let Some(beside) = beside else { return client.run(&workload, seed).await };
    let (requests, blocks) = (workload.requests / BESIDE_PART, BESIDE_BYTES / BLOCK_BYTES);
    let less = Workload { requests, blocks, ..workload };
    let (worked, other) = both(client.run(&workload, seed), beside.run(&less, seed ^ 2)).await;
    worked.and(other)
}

/// Each request that came has been counted, once, and nothing has been added up wrong.
fn check_counts(volume: &Volume) -> Result<(), Offence> {
    volume.self_check();
    let stats = volume.stats();
    let slices = stats.slices.iter().chain(&stats.tier_slices);
    let uncounted: u64 = slices.map(|slice| slice.requests_in_flight).sum();
    if uncounted > 0 {
        return Err(Offence::Stop(format!("{uncounted} requests were not counted")));
    }
    Ok(())
}

/// Waits for both. What is large comes on the heap: a stack holds few copies of it.
async fn both<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> (A, B) {
    let (mut first, mut second) = (std::pin::pin!(first), std::pin::pin!(second));
    let (mut one, mut two) = (None, None);
    std::future::poll_fn(|context| {
        if one.is_none()
            && let std::task::Poll::Ready(output) = first.as_mut().poll(context)
        {
            one = Some(output);
        }
        if two.is_none()
            && let std::task::Poll::Ready(output) = second.as_mut().poll(context)
        {
            two = Some(output);
        }
        match one.is_some() && two.is_some() {
            true => std::task::Poll::Ready(()),
            false => std::task::Poll::Pending,
        }
    })
    .await;
    (one.expect("done"), two.expect("done"))
}

/// Sectors located by a checksum in the newest scrub, which may go on, or stay the newest.
fn located(volume: &Volume, machine: &Machine) -> u64 {
    let array = &volume.status().cores[machine.topology.worked_on()].array;
    array.scrub_report().located_by_checksum
}
