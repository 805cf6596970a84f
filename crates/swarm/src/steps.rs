//! What happens beside the workload of a life: commands, and faults.

mod copies;
mod copy_count;
mod cores;
mod exchanges;
mod members;
mod reshape;
mod returns;

pub(crate) use copies::{CopyCommand, whole_copies};
pub(crate) use exchanges::Exchange;
pub(crate) use returns::is_whole;

use crate::expect::Excuses;
use crate::faults::{CacheIll, Ill};
use crate::machine::{Aim, Controls, Face, Machine, Pages};
use crate::offence::Offence;
use crate::tally::Tally;
use crate::topology::{
    draw_bypass, draw_checkpoint, draw_classes, draw_eviction, draw_mode, draw_promotion,
    draw_readahead,
};
use headpond_block::{BlockDevice, Request, Runtime};
use headpond_raid::{ArrayState, JournalWhen, Occupied};
use headpond_sim::{Picture, Random, Sim};
use headpond_volume::{CacheSettings, Description, Dirty, Keeping, SettingChange, Volume};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::ready;
use std::rc::Rc;
use std::time::Duration;
use uuid::Uuid;

/// Pages of the cache that are watched for a chance to damage one.
const PAGES: usize = 96;
/// Longer than an idle log waits before it is sealed.
const UNTIL_SEALED: Duration = Duration::from_millis(60);
const TRUST_POLL: Duration = Duration::from_millis(10);
const TRUST_POLLS_MAX: u32 = 500;

/// Changes of how the cleaner works, as a user would write them.
const CLEANING: [&str; 8] = [
    "cleaning=stripe",
    "cleaning=nop",
    "cleaning=alru",
    "preset=alru-very-aggressive",
    "cleaning=acp",
    "preset=acp-very-aggressive",
    "cleaning.alru.dirty-ratio-threshold-percent=2",
    "cleaning.acp.flush-max-buffers=3",
];

/// Changes of the tier beside its mode and whom it evicts.
const TIER: [&str; 5] = [
    "tier.cleaning=alru",
    "tier.cleaning=nop",
    "tier.cleaning=stripe",
    "tier.promotion=nhit",
    "tier.promotion=always",
];

/// Changes of what the others only switch on.
const FINE: [&str; 12] = [
    "preset=lustre",
    "preset=none",
    "cleaning.stripe.low-percent=0",
    "cleaning.stripe.high-percent=100",
    "cleaning.stripe.idle-after-ms=100",
    "cleaning.core-flush-interval-ms=1",
    "cleaning.core-flush-interval-ms=1000",
    "seq-cutoff=always",
    "seq-cutoff.promotion-count=1",
    "seq-cutoff.promotion-count=64",
    "readahead.degree-max=128K",
    "readahead.degree-max=8M",
];

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Set(SettingChange),
    /// The same, with everything cleaned before it and after it.
    SetAndClean(SettingChange),
    CleanAll,
    /// The stop at the end of the life cleans everything first.
    StopClean,
    ResetStats,
    /// Takes the cache away, or puts it back, empty.
    SwitchCache,
    /// The same with the tier, where there may be one.
    SwitchTier,
    /// Takes a core away of which nothing is asked, or makes it anew and adds it.
    SwitchCore,
    /// Another cache in its place.
    Exchange(Exchange),
    ScrubCache,
    /// Of those that the cache lies on, where they are several.
    Copies(CopyCommand),
    /// Another disk takes the place of a member, beside the requests.
    ReplaceMember,
    ScrubArray,
    /// Another stripe journal, where there is one, also where that is lost, or was taken away.
    ExchangeJournal,
    /// The stripe journal is taken away.
    DropJournal,
    /// A RAID 1 is given so many copies more.
    AddCopies(usize),
    /// It gives one up.
    DropCopy,
    /// Copies that a cut has left out of use go, or others take their place.
    MendCopies,
    /// The array is given so many members more; a cache or tier is detached before.
    Grow(usize),
    /// Until all of its data has moved.
    AwaitReshape,
    /// Whoever was lost comes back.
    ReAdd,
    /// Until every role has a member that holds everything.
    AwaitWhole,
    /// Until every stripe has been looked at.
    AwaitScrub,
    /// Until parity that was never computed is.
    AwaitParity,
    /// All of the array has checksums that count.
    ExpectSigned,
    Ill(Ill),
}

impl Step {
    pub fn draw_command(random: &mut Random) -> Self {
        // Drawn aside: the other steps are what they are without these.
        let mut aside = random.clone().fork().fork().fork();
        let mut fine = aside.clone().fork();
        let usual = Self::draw_usual(random);
        if fine.one_in(16) {
            return Self::Set(fine.pick(&FINE).parse().expect("key=value"));
        }
        if aside.one_in(6) { Self::draw_seldom(&mut aside) } else { usual }
    }

    fn draw_seldom(random: &mut Random) -> Self {
        let change = |random: &mut Random, all: &[&str]| {
            Self::Set(random.pick(all).parse().expect("key=value"))
        };
        match random.below(8) {
            0 | 1 => Self::SetAndClean(SettingChange::new("mode", draw_mode(random))),
            2 => Self::StopClean,
            3 => change(random, &["fallback.errors=0", "fallback.errors=2", "fallback.window-s=1"]),
            4 => change(random, &["discard=true", "discard=false"]),
            5 => change(random, &["checksums=auto", "checksums=always"]),
            6 => Self::Set(SettingChange::new("tier.eviction", draw_eviction(random))),
            _ => change(random, &TIER),
        }
    }

    fn draw_usual(random: &mut Random) -> Self {
        let cutoffs = ["never", "full", "32K"];
        // Drawn aside: the other steps are what they are without these.
        let mut aside = random.clone().fork();
        let mut of_array = aside.clone().fork();
        match random.below(12) {
            9..=11 if of_array.one_in(5) => Self::ReplaceMember,
            9..=11 if of_array.one_in(12) => Self::ScrubArray,
            0 | 1 => Self::Set(SettingChange::new("mode", draw_mode(random))),
            2 => {
                let other = random.pick(&CLEANING);
                let cleaning = if aside.one_in(8) { "cleaning=ordered" } else { other };
                Self::Set(cleaning.parse().expect("key=value"))
            }
            3 => Self::Set(SettingChange::new("seq-cutoff", random.pick(&cutoffs))),
            4 => Self::Set(SettingChange::new("classes", draw_classes(random))),
            5 => Self::Set(SettingChange::new("promotion", draw_promotion(random).policy)),
            6 if aside.one_in(2) => Self::Exchange(Exchange::draw(&mut aside)),
            6 => Self::SwitchCache,
            7 => Self::Set(SettingChange::new("readahead", draw_readahead(random))),
            8 => Self::Set(SettingChange::new("eviction", draw_eviction(random))),
            9 if aside.one_in(2) => Self::ScrubCache,
            9 => Self::ResetStats,
            10 if aside.one_in(3) => Self::SwitchTier,
            10 if aside.one_in(2) => {
                Self::Set(SettingChange::new("tier.mode", draw_mode(&mut aside)))
            }
            10 if aside.one_in(2) => {
                let wait = aside.pick(&["auto", "off", "0", "50", "20000"]);
                Self::Set(SettingChange::new("merge-wait-us", wait))
            }
            11 if aside.one_in(2) => {
                Self::Set(SettingChange::new("checkpoint.every", draw_checkpoint(&mut aside)))
            }
            11 if aside.one_in(2) => {
                Self::Set(SettingChange::new("bypass", draw_bypass(&mut aside)))
            }
            _ => Self::CleanAll,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Set(change) => write!(f, "set {change}"),
            Self::SetAndClean(change) => write!(f, "clean all and set {change}"),
            Self::StopClean => write!(f, "clean all before the stop"),
            Self::CleanAll => write!(f, "clean all"),
            Self::ResetStats => write!(f, "reset the statistics"),
            Self::SwitchCache => write!(f, "detach the cache, or attach it"),
            Self::SwitchTier => write!(f, "detach the tier, or attach it"),
            Self::SwitchCore => write!(f, "remove the idle core, or add it"),
            Self::Exchange(exchange) => write!(f, "{exchange}"),
            Self::ScrubCache => write!(f, "scrub the cache"),
            Self::Copies(command) => write!(f, "{command}"),
            Self::ReplaceMember => write!(f, "replace a member"),
            Self::ScrubArray => write!(f, "scrub the array"),
            Self::ExchangeJournal => write!(f, "exchange the stripe journal"),
            Self::DropJournal => write!(f, "take the stripe journal away"),
            Self::AddCopies(more) => write!(f, "add {more} copies"),
            Self::MendCopies => write!(f, "mend what a cut has left of copies"),
            Self::DropCopy => write!(f, "give up a copy"),
            Self::Grow(more) => write!(f, "grow by {more} members"),
            Self::ReAdd => write!(f, "have lost members come back"),
            Self::AwaitWhole => write!(f, "wait until every role has a member"),
            Self::AwaitScrub => write!(f, "wait until every stripe has been looked at"),
            Self::AwaitParity => write!(f, "wait until all parity was computed"),
            Self::ExpectSigned => write!(f, "all of the array is signed"),
            Self::AwaitReshape => write!(f, "wait until the array has grown"),
            Self::Ill(ill) => write!(f, "{ill}"),
        }
    }
}

/// Where the steps of a life are carried out.
pub(crate) struct Stage<'a> {
    pub machine: &'a Machine,
    pub volume: &'a Volume,
    /// What may be attached: the usual disk, and the spare one.
    pub caches: Vec<Rc<dyn BlockDevice>>,
    pub settings: &'a CacheSettings,
    pub runtime: &'a Runtime,
    pub sim: &'a Sim,
    pub controls: &'a Controls,
    /// Disks that are not there in this life.
    pub absent: &'a BTreeSet<usize>,
    pub absent_copies: &'a BTreeSet<usize>,
    pub excuses: &'a RefCell<Excuses>,
    pub tally: &'a RefCell<Tally>,
    pub random: &'a RefCell<Random>,
    pub is_over: &'a Cell<bool>,
    /// Sectors that the newest scrub had located before this life.
    pub located_before: u64,
}

impl Stage<'_> {
    /// Carries out all steps at their times, until the life is over.
    ///
    /// # Errors
    /// A command that failed though nothing excuses it.
    pub async fn run(&self, steps: &[(Duration, Step)]) -> Result<(), Offence> {
        let begun = self.runtime.now();
        let damaged = steps.iter().filter_map(|(_, step)| match step {
            Step::Ill(ill) => Some(ill.damage()?.0),
            _ => None,
        });
        let pictures = damaged.filter_map(|copy| Some((copy, self.machine.face(copy)?.picture())));
        let before: BTreeMap<Option<usize>, Picture> = pictures.collect();
        let is_on_spare = self.machine.is_on_spare();
        for (at, step) in steps {
            self.runtime.sleep_until(begun + *at).await;
            if self.is_over.get() {
                break;
            }
            match step.clone() {
                Step::Set(change) => self.set(change).await?,
                Step::SetAndClean(change) => self.set_and_clean(change).await?,
                // The life sees to it.
                Step::StopClean => {}
                Step::CleanAll => self.clean_all().await?,
                Step::ResetStats => self.reset_stats(),
                Step::SwitchCache => self.switch_cache().await?,
                Step::SwitchTier => self.switch_tier().await?,
                Step::SwitchCore => self.switch_core().await?,
                Step::Exchange(exchange) => self.exchange(exchange).await?,
                Step::ScrubCache => self.scrub_cache().await?,
                Step::ReplaceMember => self.replace_member().await?,
                Step::ScrubArray => self.scrub_array()?,
                Step::ExchangeJournal => self.exchange_journal().await?,
                Step::DropJournal => self.drop_journal().await?,
                Step::AddCopies(more) => self.add_copies(more).await?,
                Step::DropCopy => self.drop_copy().await?,
                Step::MendCopies => self.mend_copies().await?,
                Step::Grow(more) => self.grow(more).await?,
                Step::ReAdd => self.re_add_lost().await?,
                Step::AwaitWhole => self.await_whole().await?,
                Step::AwaitScrub => self.await_scrub().await?,
                Step::AwaitParity => drop(self.parity_is_there().await),
                Step::ExpectSigned => self.expect_signed()?,
                Step::AwaitReshape => self.await_reshape().await?,
                Step::Copies(command) => self.change_copies(command).await?,
                Step::Ill(ill) => match ill.damage() {
                    Some((copy, _)) => {
                        // Of this disk, and not of one that was the cache when the life began.
                        let before = before.get(&copy);
                        let before = before.filter(|_| self.machine.is_on_spare() == is_on_spare);
                        self.damage(ill, before).await;
                    }
                    None => self.befall(ill).await,
                },
            }
        }
        Ok(())
    }

    /// The disk that may be the cache and is not.
    pub fn other_cache(&self) -> Option<&Rc<dyn BlockDevice>> {
        self.caches.get(usize::from(!self.machine.is_on_spare()))
    }

    /// One that nothing has had yet in this case: lives that are drawn aside may draw the same
    /// numbers, and what an older cache has left on its device would count as the new one's.
    pub(crate) fn identity(&self) -> Uuid {
        let drawn = self.random.borrow_mut().number();
        Uuid::from_u64_pair(self.machine.count_identity(), drawn)
    }

    pub fn note(&self, what: impl fmt::Display) {
        let now = self.runtime.now().since(headpond_block::Instant::START);
        let text = format!("{:.3} ms: {what}", now.as_secs_f64() * 1e3);
        self.machine.witness.borrow_mut().note(text);
    }

    async fn set(&self, change: SettingChange) -> Result<(), Offence> {
        let status = self.volume.status();
        let is_there = match change.of_tier() {
            Some(_) => status.tier.is_some(),
            None => status.cache.is_some() || change.is_of_array(),
        };
        // Which is refused.
        let is_disorder = self.machine.topology.slices > 1
            && change.value_of("cleaning").is_some_and(|policy| policy == "ordered");
        if !is_there || is_disorder {
            return Ok(());
        }
        self.note(Step::Set(change.clone()));
        self.tally.borrow_mut().commands += 1;
        match self.volume.set(std::slice::from_ref(&change)).await {
            Err(error) if !self.excuses.borrow().errors => {
                Err(Offence::Command(format!("{change}: {error}")))
            }
            _ => Ok(()),
        }
    }

    async fn set_and_clean(&self, change: SettingChange) -> Result<(), Offence> {
        if self.volume.status().cache.is_none() {
            return Ok(());
        }
        self.note(Step::SetAndClean(change.clone()));
        self.tally.borrow_mut().commands += 1;
        match self.volume.set_and_clean(std::slice::from_ref(&change)).await {
            Err(error) if !self.excuses.borrow().errors => {
                Err(Offence::Command(format!("clean and set {change}: {error}")))
            }
            _ => Ok(()),
        }
    }

    async fn clean_all(&self) -> Result<(), Offence> {
        self.note(Step::CleanAll);
        self.tally.borrow_mut().commands += 1;
        match self.volume.clean_all().await {
            Err(error) if !self.excuses.borrow().errors => {
                Err(Offence::Command(format!("clean all: {error}")))
            }
            _ => Ok(()),
        }
    }

    fn reset_stats(&self) {
        self.note(Step::ResetStats);
        self.tally.borrow_mut().commands += 1;
        self.volume.reset_stats();
        self.volume.self_check();
    }

    pub(crate) async fn switch_cache(&self) -> Result<(), Offence> {
        if self.machine.topology.copies().is_some() {
            return self.switch_copies().await;
        }
        let at = usize::from(self.machine.is_on_spare());
        let Some(device) = self.caches.get(at) else { return Ok(()) };
        if self.machine.reshape.may_be_under_way() && !self.machine.topology.grows_behind_caches() {
            return Ok(());
        }
        self.note(Step::SwitchCache);
        self.tally.borrow_mut().commands += 1;
        let identity = self.identity();
        match switch_cache(self.machine, self.volume, device, self.settings, identity).await {
            Err(error) if !self.excuses.borrow().errors => Err(Offence::Command(error)),
            _ => Ok(()),
        }
    }

    /// Takes the tier and the cache away, with all that they hold on the array.
    pub(crate) async fn detach_caches(&self) -> Result<(), String> {
        let detached = async {
            if self.volume.status().tier.is_some() {
                self.volume.detach_tier(Dirty::Clean).await.map_err(|error| error.to_string())?;
            }
            if self.volume.status().cache.is_some() {
                self.volume.detach(Dirty::Clean).await.map_err(|error| error.to_string())?;
            }
            Ok(())
        };
        let detached: Result<(), String> = detached.await;
        self.machine.names_cache.set(self.volume.description().cache.is_some());
        detached.map_err(|error| format!("detach: {error}"))
    }

    async fn switch_tier(&self) -> Result<(), Offence> {
        let Some(shape) = &self.machine.topology.tier else { return Ok(()) };
        if self.machine.reshape.may_be_under_way() && !self.machine.topology.grows_behind_caches() {
            return Ok(());
        }
        self.note(Step::SwitchTier);
        self.tally.borrow_mut().commands += 1;
        let switched = match (self.volume.status().tier, self.machine.tier_device()) {
            (None, Some(device)) => {
                let attached = self.volume.attach_tier(shape.description(), device).await;
                attached.map_err(|error| format!("attach the tier: {error}"))
            }
            _ => {
                let detached = self.volume.detach_tier(Dirty::Clean).await;
                detached.map_err(|error| format!("detach the tier: {error}"))
            }
        };
        match switched {
            Err(error) if !self.excuses.borrow().errors => Err(Offence::Command(error)),
            _ => Ok(()),
        }
    }

    async fn befall(&self, ill: Ill) {
        if ill.member().is_some() && !self.parity_is_there().await {
            return;
        }
        if ill.asks_redundancy() && self.strikes_late() && !self.redundancy_holds().await {
            return;
        }
        let control = match (ill.member(), ill) {
            (Some(member), _) => &self.controls.members[member],
            (None, Ill::Cache { copy: Some(copy), .. }) => &self.controls.copies[copy],
            (None, Ill::Cache { copy: None, .. }) if self.machine.cache_disk().is_none() => return,
            (None, Ill::Cache { copy: None, .. }) => &self.controls.cache,
            (None, _) => &self.controls.journal,
        };
        self.note(ill);
        self.excuses.borrow_mut().note(ill, &self.machine.topology);
        if ill.asks_redundancy() && self.pending_blocks() > 0 {
            // What lies beside them nobody can know then: errors, and nothing wrong.
            self.excuses.borrow_mut().errors = true;
        }
        if self.excuses.borrow().is_beyond_redundancy(&self.machine.topology) {
            self.machine.witnesses().for_each(|it| it.borrow_mut().let_failures_linger());
        }
        self.count(ill);
        control.add(ill.rule().expect("a fault of a device"));
        // Drawn aside: a case without a journal is what it was.
        let mut aside = self.random.borrow().clone().fork();
        let is_guarded = self.machine.topology.journal.is_some();
        if is_guarded && ill.costs_member().is_some() && !aside.one_in(4) {
            // While writes pass from without the journal to with it.
            self.machine.power.cut_after(aside.below(40));
        }
    }

    /// Half of what asks the redundancy comes when all of that is right, and has to be put up with
    /// without an error; the rest comes as soon as it likes, after an unclean stop as well.
    fn strikes_late(&self) -> bool {
        // Drawn aside: a case is what it was.
        self.random.borrow().clone().fork().fork().one_in(2)
    }

    /// Blocks whose parity an unclean stop may have torn, and that the log of the cache has still
    /// to write again; none where a journal has every write.
    fn pending_blocks(&self) -> u64 {
        let topology = &self.machine.topology;
        let is_always = topology.journal == Some(JournalWhen::Always);
        let is_covered = is_always && self.excuses.borrow().is_guarded();
        let cache = self.volume.status().cache;
        let cache = cache.filter(|_| topology.has_parity() && !is_covered);
        cache.map_or(0, |cache| cache.replayed_blocks)
    }

    /// Waits until the redundancy is right, also where the log has still to make it so.
    pub async fn redundancy_holds(&self) -> bool {
        self.parity_is_there().await && self.comes_true(|| self.pending_blocks() == 0).await
    }

    /// Waits until parity that was never computed is: before that no member may fail.
    async fn parity_is_there(&self) -> bool {
        self.comes_true(|| {
            let array = &self.volume.status().cores[self.machine.topology.worked_on()].array;
            let is_right = array.parity_initialised || array.state != ArrayState::Optimal;
            is_right || !self.machine.topology.has_parity()
        })
        .await
    }

    async fn comes_true(&self, holds: impl Fn() -> bool) -> bool {
        for _ in 0..TRUST_POLLS_MAX {
            if holds() {
                return true;
            }
            self.runtime.sleep(TRUST_POLL).await;
            if self.is_over.get() {
                return false;
            }
        }
        false
    }

    /// Damages a block of the cache that has been stable for so long that the log itself says so.
    async fn damage(&self, ill: Ill, before: Option<&Picture>) {
        let Some((copy, damage)) = ill.damage() else { return };
        let Some(face) = self.machine.face(copy) else { return };
        // Drawn aside: which pages were written last is drawn as it was without an aim.
        let aim = Aim::draw(&mut self.random.borrow().clone().fork());
        let Some(pages) = self.settled_pages(&face, aim).await else { return };
        let changed = pages.damage(&face, damage, before, &mut self.random.borrow_mut());
        let Some(address) = changed else { return };
        self.note(format!("{ill}, at {address} ({aim:?})"));
        self.excuses.borrow_mut().note(ill, &self.machine.topology);
        self.count(ill);
        let mut random = self.random.borrow_mut();
        if random.one_in(2) {
            // Before it is noticed, or has been cleaned: recovery is to notice it.
            self.machine.power.cut_after(random.below(100));
        }
    }

    /// Pages of the cache that the volume has been able to rely on for some time; `None` where it
    /// fails.
    async fn settled_pages(&self, cache: &Face<'_>, aim: Aim) -> Option<Pages> {
        let latest = Pages::latest(cache, PAGES, &mut self.random.borrow_mut());
        for _ in 0..2 {
            self.volume.submit(Request::flush()).await.ok()?;
            self.runtime.sleep(UNTIL_SEALED).await;
        }
        // What the disk says by now is stable after another flush.
        let mut targets = aim.targets(cache);
        self.volume.submit(Request::flush()).await.ok()?;
        let now = aim.targets(cache);
        targets.retain(|target| now.contains(target));
        let mut pages = match targets.is_empty() {
            true => latest,
            false => Pages::at(cache, targets.iter().map(|target| target.address)),
        };
        pages.retain_unchanged(cache);
        Some(pages)
    }

    fn count(&self, ill: Ill) {
        let mut tally = self.tally.borrow_mut();
        tally.note(ill);
        if let Ill::Cache { copy: None, ill: CacheIll::Gone } = ill {
            let dirty = self.volume.status().cache.map_or(0, |cache| cache.dirty_bytes);
            tally.row(if dirty > 0 { 18 } else { 17 });
        }
    }
}

/// Detaches the cache, or attaches it where there is none, keeping the description as an operator
/// does.
pub(crate) async fn switch_cache(
    machine: &Machine,
    volume: &Volume,
    device: &Rc<dyn BlockDevice>,
    settings: &CacheSettings,
    identity: Uuid,
) -> Result<(), String> {
    let outcome = if volume.status().cache.is_some() {
        volume.detach(Dirty::Clean).await.map_err(|error| format!("detach: {error}"))
    } else {
        let described = machine.topology.description(settings).cache.expect("a cache");
        let described = machine.on_this(described);
        let attach = async {
            let occupied = Occupied::Overwrite;
            let new = volume.make_cache(Rc::clone(device), described, identity, occupied).await?;
            let keep = |_: &Description| -> Keeping<'_> {
                machine.names_cache.set(true);
                Box::pin(ready(Ok(())))
            };
            volume.attach(new, &keep).await
        };
        attach.await.map_err(|error| format!("attach: {error}"))
    };
    machine.names_cache.set(volume.description().cache.is_some());
    outcome
}
