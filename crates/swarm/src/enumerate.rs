//! Every short workload, cut at every write it causes, with every outcome of the cut.
//!
//! 1. All sequences of up to so many operations are gone through; 2. each is carried out once to
//!    see which device writes its last operation causes (those before are the shorter sequences');
//!    3. for each such write, and once more when all is acknowledged, the power is cut with the
//!    write on its way, and every [`Loss`]; 4. the volume is opened again and everything read, then
//!    once more without a member.
//!
//! **Invariants**: nothing is drawn; two enumerations make the same runs.

use crate::expect::Excuses;
use crate::life::{Cut, End, Order, World};
use crate::machine::{Absent, Machine, careful};
use crate::offence::Offence;
use crate::steps::switch_cache;
use crate::tally::Tally;
use crate::topology::{CacheShape, Topology};
use headpond_block::decorators::WindowDevice;
use headpond_block::{BLOCK_BYTES, BlockDevice, ByteRange, Runtime, SECTOR_BYTES, Stability};
use headpond_cache::Mode;
use headpond_raid::Level;
use headpond_sim::{Ended, Loss, Random, Sim, run_until_cut};
use headpond_volume::{CacheSettings, SettingChange, Volume};
use headpond_witness::{Client, Promise};
use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use uuid::Uuid;

const SEED: u64 = 1;
/// Room for the smallest log there is.
const CACHE_BYTES: u64 = 8 << 20;

/// One operation of a workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Blocks from the first on.
    Write {
        first: u64,
        blocks: u64,
    },
    WriteFua,
    /// One sector of the first block.
    WriteSector,
    Zero,
    Discard,
    Flush,
    CleanAll,
    /// To a mode that makes no dirty data, or back.
    SwitchMode,
    /// The cache is detached, or attached.
    SwitchCache,
}

const ALPHABET: [Operation; 11] = [
    Operation::Write { first: 0, blocks: 1 },
    Operation::Write { first: 1, blocks: 1 },
    Operation::Write { first: 0, blocks: 2 },
    Operation::WriteFua,
    Operation::WriteSector,
    Operation::Zero,
    Operation::Discard,
    Operation::Flush,
    Operation::CleanAll,
    Operation::SwitchMode,
    Operation::SwitchCache,
];

const LOSSES: [Loss; 5] =
    [Loss::TheLast, Loss::Nothing, Loss::HalfOfTheLast, Loss::AllButTheLast, Loss::Everything];

/// What is enumerated.
#[derive(Clone, Copy, Debug)]
pub struct Enumeration {
    pub mode: Mode,
    pub operations_max: usize,
}

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Enumerated {
    pub workloads: u64,
    /// Runs that were cut, one for each write and loss.
    pub cuts: u64,
    /// Workload, place of the cut, and what was wrong.
    pub failures: Vec<String>,
}

/// Where a run is cut.
#[derive(Clone, Copy, Debug)]
enum CutPoint {
    /// With this write on its way, counted from the first of the workload.
    Write(u64),
    /// When everything has been acknowledged.
    End,
}

/// Goes through all workloads on all processors; `done` hears of each.
pub fn enumerate(enumeration: Enumeration, done: impl Fn(&Enumerated) + Sync) -> Enumerated {
    let workloads = workloads(enumeration);
    let next = AtomicUsize::new(0);
    let sum = Mutex::new(Enumerated::default());
    let work = || {
        let bench = Bench::new(enumeration.mode);
        while let Some(workload) = workloads.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (cuts, failures) = bench.exhaust(workload);
            let mut sum = sum.lock().expect("nobody panics with it");
            sum.workloads += 1;
            sum.cuts += cuts;
            sum.failures.extend(failures);
            done(&sum);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    sum.into_inner().expect("nobody panics with it")
}

/// All sequences, the shorter ones first. Past the cache a sector may be torn from its block, so
/// only a mode that logs everything writes sectors.
fn workloads(enumeration: Enumeration) -> Vec<Vec<Operation>> {
    let is_logged = enumeration.mode.is_write_back();
    let fits = |operation: &Operation| is_logged || *operation != Operation::WriteSector;
    let alphabet: Vec<Operation> = ALPHABET.into_iter().filter(fits).collect();
    let mut all: Vec<Vec<Operation>> = Vec::new();
    let mut longest: Vec<Vec<Operation>> = vec![Vec::new()];
    for _ in 0..enumeration.operations_max {
        let longer = |workload: &Vec<Operation>| {
            let workload = workload.clone();
            alphabet.iter().map(move |next| [&workload[..], &[*next]].concat()).collect::<Vec<_>>()
        };
        longest = longest.iter().flat_map(longer).collect();
        longest.retain(|workload| !mixes_sectors(workload));
        all.extend(longest.iter().cloned());
    }
    all
}

/// Whether sectors are written while the mode may send them past the log.
fn mixes_sectors(workload: &[Operation]) -> bool {
    let switches = [Operation::SwitchMode, Operation::SwitchCache];
    workload.contains(&Operation::WriteSector) && switches.iter().any(|it| workload.contains(it))
}

/// What an operation is carried out with.
struct Hands<'a> {
    machine: &'a Machine,
    volume: &'a Volume,
    /// What may be attached.
    cache: Rc<dyn BlockDevice>,
    client: Client,
}

/// A new volume, of which every run uses a copy.
struct Bench {
    base: Machine,
    settings: CacheSettings,
}

impl Bench {
    fn new(mode: Mode) -> Self {
        let topology = Topology {
            level: Level::Raid5,
            groups: 1,
            spread: None,
            weights: None,
            members: 3,
            strip_bytes: 4096,
            has_intent: true,
            has_integrity: false,
            is_initialised: true,
            members_are: Stability::Flushable,
            slices: 1,
            cache: Some(CacheShape {
                bytes: CACHE_BYTES,
                line_bytes: BLOCK_BYTES,
                stability: Stability::Flushable,
                copies: 1,
            }),
            tier: None,
            idle_core: None,
            works_beside: false,
            existing_beside: false,
            journal: None,
            window_start: 0,
            window_bytes: 64 << 10,
        };
        let settings = CacheSettings { mode, ..CacheSettings::default() };
        Self { base: Machine::new(topology, SEED).expect("a usual volume"), settings }
    }

    /// Cuts the workload everywhere; the number of cuts, and what was wrong.
    fn exhaust(&self, workload: &[Operation]) -> (u64, Vec<String>) {
        let machine = self.base.duplicate();
        let before = self.perform(&machine, &workload[..workload.len() - 1], None);
        let machine = self.base.duplicate();
        let all = self.perform(&machine, workload, None);
        let places = (before..all).map(|write| CutPoint::Write(write + 1)).chain([CutPoint::End]);
        let (mut cuts, mut failures) = (0, Vec::new());
        for place in places {
            for loss in LOSSES {
                cuts += 1;
                if let Err(offence) = self.cut(workload, place, loss) {
                    failures.push(format!("{workload:?}, {place:?}, {loss:?}: {offence}"));
                }
            }
        }
        (cuts, failures)
    }

    fn cut(&self, workload: &[Operation], place: CutPoint, loss: Loss) -> Result<(), Offence> {
        let machine = self.base.duplicate();
        match place {
            CutPoint::Write(number) => drop(self.perform(&machine, workload, Some(number))),
            CutPoint::End => drop(self.perform(&machine, workload, None)),
        }
        let last = machine.power.last_written();
        for medium in machine.media() {
            let is_last = last.as_ref() == Some(medium.name());
            medium.lose_power_as(match (is_last, loss) {
                (true, loss) => loss,
                (false, Loss::Everything | Loss::AllButTheLast) => Loss::Everything,
                (false, _) => Loss::Nothing,
            });
        }
        machine.power.restore();
        machine.witness.borrow_mut().crash();
        self.judge(&machine)
    }

    /// Opens a copy and carries out the operations one after the other; the writes they caused.
    fn perform(&self, machine: &Machine, workload: &[Operation], cut_at: Option<u64>) -> u64 {
        let begun = RefCell::new(0);
        let main = async |runtime: Runtime, sim: Sim| {
            let controls = machine.controls();
            let devices = machine.devices(&runtime, &sim, &Absent::default(), &controls);
            let cache = machine.cache_device(&runtime, &sim, &controls).expect("a cache");
            let description = machine.description(&self.settings);
            let volume = Volume::open(&runtime, &description, devices, careful()).await;
            let volume = Rc::new(volume.expect("opens after a clean stop"));
            *begun.borrow_mut() = machine.power.writes();
            if let Some(writes) = cut_at {
                machine.power.cut_at_write(writes);
            }
            let window_bytes = machine.topology.window_bytes;
            let whole: Rc<dyn BlockDevice> = volume.clone();
            let window = Rc::new(WindowDevice::new(whole, 0, window_bytes));
            let client = Client::new(window, Rc::clone(&machine.witness), &runtime);
            let hands = Hands { machine, volume: &volume, cache, client };
            for operation in workload {
                self.carry_out(*operation, &hands).await;
            }
        };
        let ended = run_until_cut(SEED, &machine.power, main).expect("nothing hangs");
        assert_eq!(ended.was_cut(), cut_at.is_some(), "{workload:?}, {cut_at:?}");
        assert!(matches!(ended, Ended::Finished(()) | Ended::Cut));
        machine.power.writes() - begun.take()
    }

    async fn carry_out(&self, operation: Operation, hands: &Hands<'_>) {
        let Hands { machine, volume, cache, client } = hands;
        let block = ByteRange::at(0, BLOCK_BYTES);
        match operation {
            Operation::Write { first, blocks } => {
                let range = ByteRange::at(first * BLOCK_BYTES, blocks * BLOCK_BYTES);
                client.write(range, Promise::Volatile).await;
            }
            Operation::WriteFua => client.write(block, Promise::Stable).await,
            Operation::WriteSector => {
                client.write(ByteRange::at(SECTOR_BYTES, SECTOR_BYTES), Promise::Volatile).await;
            }
            Operation::Zero => client.write_zeroes(block, Promise::Volatile).await,
            Operation::Discard => client.discard(block).await,
            Operation::Flush => client.flush().await,
            Operation::CleanAll => drop(volume.clean_all().await.expect("healthy disks")),
            Operation::SwitchMode => {
                let Some(cache) = volume.description().cache else { return };
                let mode = match cache.settings.mode {
                    Mode::WriteBack => Mode::WriteThrough,
                    _ => Mode::WriteBack,
                };
                volume.set(&[SettingChange::new("mode", mode)]).await.expect("a healthy cache");
            }
            Operation::SwitchCache => {
                let identity = Uuid::from_u128(SEED.into());
                let switched = switch_cache(machine, volume, cache, &self.settings, identity);
                switched.await.expect("healthy disks");
            }
        }
    }

    /// Opens what is left, reads it twice and stops; then the same without a member.
    fn judge(&self, machine: &Machine) -> Result<(), Offence> {
        let live = |machine: &Machine, absent: Absent, excuses: Excuses| {
            let order = Order {
                seed: SEED,
                settings: self.settings.clone(),
                absent,
                workload: None,
                steps: Vec::new(),
                rotted: 0,
                copied: None,
                cut: Cut::Never,
            };
            let (excuses, tally) = (RefCell::new(excuses), RefCell::new(Tally::default()));
            let random = RefCell::new(Random::new(SEED));
            let (excuses, tally, random) = (&excuses, &tally, &random);
            match (World { machine, excuses, tally, random }).live(&order).0 {
                End::Offence(offence) => Err(offence),
                End::Stopped => Ok(()),
                end => Err(Offence::Setup(format!("{end:?}"))),
            }
        };
        live(machine, Absent::default(), Excuses::default())?;
        machine.media().for_each(|medium| medium.rest());
        let missing = Absent { members: [1].into(), ..Absent::default() };
        let excuses = Excuses { lost: missing.members.clone(), ..Excuses::default() };
        live(machine, missing, excuses)
    }
}

impl fmt::Display for Enumerated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workloads, cuts, failures } = self;
        write!(f, "{workloads} workloads, {cuts} cuts, {} of them wrong", failures.len())
    }
}
