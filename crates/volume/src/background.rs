//! Work on an array that goes on beside the requests, one piece at a time, most urgent first:
//! an array that grows moves its data, distributed spare space stands in for a member that is lost,
//! a role without a member is given to a spare, parity that was never computed is, a scrub that was
//! asked for goes on. What a stop or a pause interrupts goes on later where it was.
//!
//! A member that is found hung is taken out of use here where no request waits for it: its peers
//! answer what is read.
//!
//! It leaves room: while clients ask something of the array it goes as fast as they do not feel
//! much of it, between the floor and the ceiling of its pace, and otherwise at the ceiling.

mod rate;
mod throttle;

use crate::jobs::{JobKind, JobStatus};
use headpond_block::sync::Notify;
use headpond_block::{BlockDevice, DeviceError, Instant, JoinHandle, Runtime, Size};
use headpond_raid::{Array, ArrayState, ArrayStatus, Filled, Role};
pub use rate::{BackgroundRate, BackgroundRateError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use throttle::{Kind, Rest, Step, Steps, Throttle};

/// A stop or a pause is noticed after so long, however slow the pace.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// After a request the work counts as being beside requests for so long.
const ASKED_FOR: Duration = Duration::from_millis(100);

/// The work on one array.
pub(crate) struct BackgroundWork {
    shared: Rc<Shared>,
    task: Cell<Option<JoinHandle<()>>>,
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Distributed spare space is given what a lost member held.
    StandIn { role: u16 },
    /// A spare is given what a role holds.
    Rebuild { role: u16 },
    /// Parity is computed that never was.
    Parity,
    /// Every stripe is looked at.
    Scrub,
    /// The data moves to more members.
    Reshape,
}

/// The work on an array, for its operator.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BackgroundStatus {
    pub paused: bool,
    /// Scrubs are paused; other work goes on.
    pub scrub_paused: bool,
    /// At least, while clients ask something of the array.
    pub min_bytes_per_s: u64,
    /// At most; as fast as the members can, where there is none.
    pub max_bytes_per_s: Option<u64>,
    /// A scrub is under way, or will be when nothing is more urgent.
    pub scrub_wanted: bool,
    /// Why a piece of work ended before its end; it is tried again on `resume`.
    pub failure: Option<String>,
}

/// Is told that an array has grown, as soon as it has.
pub(crate) type OnGrown = Box<dyn Fn()>;

/// Is told of an array in which a spare has taken a role, and who had that before.
pub(crate) type OnExchange = Box<dyn Fn(&ArrayStatus, Option<&str>)>;

struct Shared {
    array: Rc<Array>,
    runtime: Runtime,
    pace: Cell<BackgroundRate>,
    is_stopping: Cell<bool>,
    is_paused: Cell<bool>,
    is_scrub_paused: Cell<bool>,
    is_scrub_wanted: Cell<bool>,
    wake: Notify,
    under_way: Cell<Option<UnderWay>>,
    /// Not tried again before somebody says so.
    failures: RefCell<Vec<(Work, DeviceError)>>,
    on_exchange: RefCell<Option<OnExchange>>,
    on_grown: RefCell<Option<OnGrown>>,
}

#[derive(Clone, Copy)]
struct UnderWay {
    work: Work,
    since: Instant,
    /// Of it, when it was begun or gone on with.
    done_bytes: u64,
}

impl BackgroundWork {
    pub fn new(array: &Rc<Array>, runtime: &Runtime) -> Self {
        let shared = Shared {
            array: Rc::clone(array),
            runtime: runtime.clone(),
            pace: Cell::default(),
            is_stopping: Cell::new(false),
            is_paused: Cell::new(false),
            is_scrub_paused: Cell::new(false),
            is_scrub_wanted: Cell::new(array.is_scrub_begun()),
            wake: Notify::new(),
            under_way: Cell::new(None),
            failures: RefCell::default(),
            on_exchange: RefCell::default(),
            on_grown: RefCell::default(),
        };
        Self { shared: Rc::new(shared), task: Cell::default() }
    }

    /// Begins, and goes on until it is stopped.
    pub fn begin(&self) {
        let array = &self.shared.array;
        let has_work = array.layout().redundancy() > 0 || array.is_growing();
        if !has_work || self.shared.is_stopping.get() {
            return;
        }
        let before = self.task.take();
        if before.is_some() {
            return self.task.set(before);
        }
        let shared = Rc::clone(&self.shared);
        // The array must not keep alive what keeps it alive.
        let woken = Rc::downgrade(&self.shared);
        self.shared.array.watch(Box::new(move || {
            if let Some(woken) = woken.upgrade() {
                woken.wake.notify_all();
            }
        }));
        let runtime = shared.runtime.clone();
        self.task.set(Some(runtime.spawn(async move { shared.go_on().await })));
    }

    /// Waits until nothing of it is under way; nothing more will be begun.
    pub async fn stop(&self) {
        self.shared.is_stopping.set(true);
        self.shared.wake.notify_all();
        if let Some(task) = self.task.take() {
            task.await;
        }
    }

    /// Begins once more after it was stopped.
    pub fn begin_again(&self) {
        self.shared.is_stopping.set(false);
        self.begin();
    }

    /// Takes over pause and scrub of the work on the array before.
    pub fn go_on_from(&self, before: &BackgroundWork) {
        self.shared.is_paused.set(before.shared.is_paused.get());
        self.shared.is_scrub_paused.set(before.shared.is_scrub_paused.get());
        let is_wanted = self.shared.is_scrub_wanted.get() || before.shared.is_scrub_wanted.get();
        self.shared.is_scrub_wanted.set(is_wanted);
    }

    pub fn when_exchanged(&self, tell: OnExchange) {
        self.shared.on_exchange.replace(Some(tell));
    }

    pub fn when_grown(&self, tell: OnGrown) {
        self.shared.on_grown.replace(Some(tell));
    }

    /// Checks what is under way, and what is not tried again; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self, array: &Rc<Array>) {
        let Shared { failures, under_way, .. } = &*self.shared;
        assert!(Rc::ptr_eq(array, &self.shared.array), "it works on the array of its core");
        let failures = failures.borrow();
        for (at, (work, _)) in failures.iter().enumerate() {
            let is_first = failures[..at].iter().all(|(other, _)| other != work);
            assert!(is_first, "{work:?} has failed twice, and was not to be tried again");
        }
        let under_way = under_way.get().map(|under_way| under_way.work);
        let has_failed = under_way.is_some_and(|work| self.shared.has_failed(work));
        assert!(!has_failed, "{under_way:?} has failed, and goes on");
    }

    /// Pauses the work after its present step, or resumes it, also after a failure.
    pub fn pause(&self, is_paused: bool) {
        self.shared.is_paused.set(is_paused);
        if !is_paused {
            self.shared.is_scrub_paused.set(false);
        }
        self.shared.failures.take();
        self.shared.wake.notify_all();
    }

    /// The same for scrubs only: a window of time for these must not keep a rebuild from starting.
    pub fn pause_scrub(&self, is_paused: bool) {
        self.shared.is_scrub_paused.set(is_paused);
        self.shared.failures.borrow_mut().retain(|(work, _)| *work != Work::Scrub);
        self.shared.wake.notify_all();
    }

    /// Checks for work; failed work is retried.
    pub fn wake(&self) {
        self.shared.failures.take();
        self.shared.wake.notify_all();
    }

    pub fn set_background_rate(&self, pace: BackgroundRate) {
        self.shared.pace.set(pace);
    }

    pub fn pace(&self) -> BackgroundRate {
        self.shared.pace.get()
    }

    /// Scrubs every stripe once nothing is more urgent; ends a pause of scrubs.
    pub fn scrub(&self) {
        self.shared.is_scrub_paused.set(false);
        self.shared.is_scrub_wanted.set(true);
        self.shared.failures.take();
        self.shared.wake.notify_all();
    }

    pub fn status(&self) -> BackgroundStatus {
        let (failures, pace) = (self.shared.failures.borrow(), self.shared.pace.get());
        BackgroundStatus {
            paused: self.shared.is_paused.get(),
            scrub_paused: self.shared.is_scrub_paused.get(),
            min_bytes_per_s: pace.min.bytes(),
            max_bytes_per_s: pace.max.map(Size::bytes),
            scrub_wanted: self.shared.is_scrub_wanted.get(),
            failure: failures.first().map(|(work, error)| work.failure(error)),
        }
    }

    /// Progress of the present work.
    pub fn job(&self, runtime: &Runtime) -> Option<JobStatus> {
        let UnderWay { work, since, done_bytes } = self.shared.under_way.get()?;
        let (done, total) = self.shared.progress(work);
        let elapsed_s = runtime.now().since(since).as_secs_f64();
        let job = JobStatus::gone_on(work.job(), done_bytes, (done, total), elapsed_s);
        let left_s = job.left_s.filter(|_| !self.shared.is_at_rest(work));
        Some(JobStatus { left_s, ..job })
    }

    /// Why the initial sync failed.
    pub fn parity_failure(&self) -> Option<String> {
        let failures = self.shared.failures.borrow();
        let (_, error) = failures.iter().find(|(work, _)| *work == Work::Parity)?;
        Some(error.to_string())
    }
}

impl Work {
    fn job(self) -> JobKind {
        match self {
            Self::StandIn { .. } => JobKind::StandIn,
            Self::Rebuild { .. } => JobKind::Rebuild,
            Self::Parity => JobKind::Parity,
            Self::Scrub => JobKind::ArrayScrub,
            Self::Reshape => JobKind::Reshape,
        }
    }

    fn failure(self, error: &DeviceError) -> String {
        match self {
            Self::StandIn { role } => {
                format!("the rebuild of role {role} onto spare space failed: {error}")
            }
            Self::Rebuild { role } => format!("the rebuild of role {role} failed: {error}"),
            Self::Parity => format!("the initial sync failed: {error}"),
            Self::Scrub => format!("the scrub ended early: {error}"),
            Self::Reshape => format!("the reshape failed: {error}"),
        }
    }
}

impl Shared {
    async fn go_on(&self) {
        while !self.is_stopping.get() {
            let wake = self.wake.wait();
            self.array.evict_hung().await;
            match self.next().await {
                Some(work) => self.carry_out(work).await,
                None => wake.await,
            }
        }
    }

    /// The most urgent piece of work that can be done now.
    async fn next(&self) -> Option<Work> {
        if self.is_paused.get() || self.array.state() == ArrayState::Failed {
            return None;
        }
        if self.array.reshape_status().is_some() {
            return Some(Work::Reshape).filter(|work| !self.has_failed(*work));
        }
        self.assign().await;
        let is_healthy = self.array.state() == ArrayState::Optimal;
        // A lost member cannot be reconstructed before the initial sync.
        let needs_parity = is_healthy && !self.array.is_parity_initialised();
        let parity = needs_parity.then_some(Work::Parity);
        let scrub = self.is_scrub_wanted.get() && !self.is_at_rest(Work::Scrub);
        let scrub = scrub.then_some(Work::Scrub);
        self.stand_in_to_do().or_else(|| self.rebuild_to_do()).or_else(|| {
            let mut others = [parity, scrub].into_iter().flatten();
            others.find(|work| !self.has_failed(*work))
        })
    }

    fn stand_in_to_do(&self) -> Option<Work> {
        let roles = self.array.lent_roles().into_iter();
        let mut works = roles.map(|role| Work::StandIn { role: role.0 });
        works.find(|work| !self.has_failed(*work))
    }

    fn rebuild_to_do(&self) -> Option<Work> {
        let roles = self.array.filling_roles().into_iter();
        let mut rebuilds = roles.map(|role| Work::Rebuild { role: role.0 });
        rebuilds.find(|work| !self.has_failed(*work))
    }

    fn has_failed(&self, work: Work) -> bool {
        self.failures.borrow().iter().any(|(failed, _)| *failed == work)
    }

    /// Assigns spare space to a vacant role, or a hot spare. Spare space comes first: all members
    /// rebuild it, and then the device as well.
    async fn assign(&self) {
        while let Ok(Some(_)) = self.array.lend_slot().await {}
        if self.stand_in_to_do().is_some() {
            return;
        }
        while let Some(role) = self.array.vacant_role() {
            if self.array.assign_spare(role, None).await.is_err() {
                return;
            }
        }
    }

    async fn carry_out(&self, work: Work) {
        let (done_bytes, _) = self.progress(work);
        let since = self.runtime.now();
        self.under_way.set(Some(UnderWay { work, since, done_bytes }));
        let outcome = match work {
            Work::StandIn { role } => {
                self.array.fill_slot(Role(role), self.breathe(work)).await.map(drop)
            }
            Work::Rebuild { role } => self.rebuild(Role(role)).await,
            Work::Parity => self.array.initialise(self.breathe(work)).await,
            Work::Scrub => self.scrub().await,
            Work::Reshape => self.grow().await,
        };
        self.array.hear(None);
        self.under_way.set(None);
        if let Err(error) = outcome {
            self.failures.borrow_mut().push((work, error));
        }
    }

    async fn rebuild(&self, role: Role) -> Result<(), DeviceError> {
        let work = Work::Rebuild { role: role.0 };
        let Filled::Whole { before } = self.array.fill(role, self.breathe(work)).await? else {
            return Ok(());
        };
        let old = before.as_ref().map(|before| before.name().to_string());
        if let Some(tell) = &*self.on_exchange.borrow() {
            tell(&self.array.status(), old.as_deref());
        }
        if let Some(before) = before {
            headpond_raid::erase_unlisted(&self.runtime, before).await;
        }
        Ok(())
    }

    async fn grow(&self) -> Result<(), DeviceError> {
        let grown = self.array.grow(self.breathe(Work::Reshape)).await?;
        if let (headpond_raid::Grown::Whole, Some(tell)) = (grown, &*self.on_grown.borrow()) {
            tell();
        }
        Ok(())
    }

    async fn scrub(&self) -> Result<(), DeviceError> {
        let scrubbed = self.array.scrub(self.breathe(Work::Scrub)).await?;
        if scrubbed == headpond_raid::Scrubbed::Whole {
            self.is_scrub_wanted.set(false);
        }
        Ok(())
    }

    /// Throttles after each step of a work, and returns whether it may continue.
    fn breathe(&self, work: Work) -> impl AsyncFnMut() -> bool + '_ {
        let (mut begun, mut before) = (self.runtime.now(), self.array.requests());
        let mut done = self.progress(work).0;
        let kind = Kind {
            is_rotational: self.array.geometry().rotational,
            is_mirrored: self.array.layout().level().is_mirrored(),
            is_of_loss: matches!(work, Work::Rebuild { .. })
                && self.array.state() == ArrayState::Degraded,
            steps: match work {
                Work::StandIn { .. } => Steps::Overlapping,
                _ => Steps::Apart,
            },
        };
        let throttle = Rc::new(Throttle::new(begun, kind));
        let mut asked = None;
        self.array.hear(Some(self.ear(&throttle)));
        async move || {
            let (now_done, whole) = self.progress(work);
            let share_done = now_done as f64 / whole.max(1) as f64;
            let bytes = now_done.saturating_sub(done);
            done = now_done;
            let (ended, requests) = (self.runtime.now(), self.array.requests());
            if requests != before {
                asked = Some(ended);
            }
            // A step may be shorter than the time between two requests.
            let is_asked = asked.is_some_and(|asked| ended.since(asked) < ASKED_FOR);
            let step = Step { begun, ended, bytes, is_asked, share_done };
            let Rest { until, rows } = throttle.end(&step, self.pace.get());
            self.array.set_rows_at_a_time(rows);
            while self.goes_on(work) && self.runtime.now() < until {
                self.runtime.sleep_until(until.min(self.runtime.now() + LOOK_EVERY)).await;
            }
            // Requests of a pause have completed by now.
            (begun, before) = (self.runtime.now(), requests);
            self.goes_on(work)
        }
    }

    /// Records the latency of requests during the work.
    fn ear(&self, throttle: &Rc<Throttle>) -> headpond_raid::OnAnswer {
        let (throttle, runtime) = (Rc::clone(throttle), self.runtime.clone());
        Rc::new(move |begun| throttle.note(begun, runtime.now()))
    }

    fn goes_on(&self, work: Work) -> bool {
        !self.is_stopping.get() && !self.is_at_rest(work) && !self.is_overtaken(work)
    }

    /// Whether such work is paused.
    fn is_at_rest(&self, work: Work) -> bool {
        self.is_paused.get() || work == Work::Scrub && self.is_scrub_paused.get()
    }

    /// Whether something more urgent has come up.
    fn is_overtaken(&self, work: Work) -> bool {
        if work == Work::Reshape {
            return false;
        }
        let is_stand_in = matches!(work, Work::StandIn { .. });
        let is_rebuild = matches!(work, Work::Rebuild { .. });
        let can_stand_in = self.array.can_lend_slot() || self.stand_in_to_do().is_some();
        let can_assign = self.array.vacant_role().is_some()
            && self.array.has_spare()
            && self.array.is_parity_initialised();
        let can_rebuild = can_assign || self.rebuild_to_do().is_some();
        (!is_stand_in && can_stand_in) || (!is_stand_in && !is_rebuild && can_rebuild)
    }

    /// Bytes done of how many: of each member for a rebuild and a reshape, else of the array.
    fn progress(&self, work: Work) -> (u64, u64) {
        let (array, layout) = (&self.array, self.array.layout());
        let strip_bytes = u64::from(layout.strip_bytes());
        let (rows, whole) = (layout.rows(), layout.array_bytes());
        let stripes = |progress: Option<headpond_raid::Progress>| {
            progress.map_or(0, |progress| progress.stripes_done * layout.stripe_bytes())
        };
        match work {
            Work::StandIn { role } => {
                // Of each of the others, which share in what is read and written for a row.
                let others = (layout.members() - 1) as u64;
                let share = |rows: u64| rows * strip_bytes * layout.width() as u64 / others;
                (share(array.stood_in_rows(Role(role)).unwrap_or(rows)), share(rows))
            }
            Work::Rebuild { role } => {
                let done = array.filled_rows(Role(role)).unwrap_or(rows);
                (done * strip_bytes, rows * strip_bytes)
            }
            Work::Parity => (stripes(array.initialising()), whole),
            Work::Scrub => (stripes(array.scrubbing()), whole),
            Work::Reshape => {
                let done = array.reshape_status().map_or(rows, |it| it.rows_done);
                (done * strip_bytes, rows * strip_bytes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Volume;
    use crate::volume::self_check::tests::lived;
    use headpond_block::Cause;
    use headpond_testkit::{Break, assert_trips};

    /// A volume, and the array that is worked on.
    type Kept = (Volume, Rc<Array>);

    fn fail(volume: &Volume) {
        let failed = (Work::Scrub, DeviceError::new(&"m0".into(), Cause::Gone));
        volume.cores().first().background.shared.failures.borrow_mut().push(failed);
    }

    #[test]
    fn check_notices_work_that_goes_on_though_it_has_failed() {
        let make = || {
            let volume = lived();
            let array = Rc::clone(&volume.cores().first().array);
            (volume, array)
        };
        let breaks: [Break<Kept>; 3] = [
            ("has failed twice", |(it, _)| (0..2).for_each(|_| fail(it))),
            ("has failed, and goes on", |(it, _)| {
                fail(it);
                let (work, since) = (Work::Scrub, Instant::START);
                let under_way = UnderWay { work, since, done_bytes: 0 };
                it.cores().first().background.shared.under_way.set(Some(under_way));
            }),
            ("on the array of its core", |(it, array)| {
                *array = it.cores().arrays().pop().expect("it has two");
            }),
        ];
        let check = |(it, array): &Kept| it.cores().first().background.self_check(array);
        assert_trips(make, check, &breaks);
    }
}
