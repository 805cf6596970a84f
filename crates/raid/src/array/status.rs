//! The status of an array.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use headpond_block::{BufferPool, DeviceErrors, LastError, RemoteStatus};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::health::Health;
use super::journal::Journal;
use super::members::{Filling, Members, Slot};
use super::{Array, IntegrityStatus, LostStatus, Member, ReshapeStatus};
use crate::history::{History, LastScrub, MemberScrub, ScrubReport};
use crate::journal::JournalWhen;
use crate::layout::{Role, Weights};
use crate::level::Level;
use crate::plan::PlanKind;
use crate::superblock::{JournalRecord, RecordedParity, RoleState};

/// The status of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayStatus {
    pub name: String,
    pub uuid: Uuid,
    pub level: Level,
    pub state: ArrayState,
    pub health: HealthState,
    pub size_bytes: u64,
    pub strip_bytes: u32,
    pub groups: usize,
    /// Where stripes are narrower than their group.
    pub declustered: Option<DeclusteredStatus>,
    /// Where members have weights, by role.
    pub weights: Option<Weights>,
    pub event_count: u64,
    /// Whether the initial sync is complete.
    pub parity_initialised: bool,
    #[serde(flatten)]
    pub progress: ArrayProgress,
    /// The newest scrub; null if there was none.
    pub last_scrub: Option<LastScrub>,
    /// Blocks beside which the parity is suspect after an unclean shutdown, until a log has written
    /// them again: if a member is lost before, its data beside them is lost too.
    pub suspect_parity_blocks: u64,
    /// Lost blocks: they read as errors until they are written again.
    pub lost: LostStatus,
    /// Whether there is an intent bitmap.
    pub intent_bitmap: bool,
    /// How much of it is signed, where it has an integrity region.
    pub integrity: Option<IntegrityStatus>,
    /// The stripe journal, where there is one.
    pub journal: Option<JournalStatus>,
    /// Timeouts of members, where there is redundancy.
    pub deadlines: Option<DeadlineStatus>,
    pub members: Vec<MemberStatus>,
    /// Hot spares.
    pub spares: Vec<SpareStatus>,
    /// Progress of a reshape.
    pub reshape: Option<ReshapeStatus>,
    pub counts: PlanCounts,
}

/// The stripe journal of an array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JournalStatus {
    pub uuid: Uuid,
    /// `None` if it has failed, and is not used.
    pub device: Option<String>,
    pub when: JournalWhen,
    /// Bytes of live records.
    pub live_bytes: u64,
    /// Writes that went through it since the array was assembled, and the records that they shared.
    pub writes: u64,
    pub records: u64,
    pub errors: DeviceErrors,
    pub last_error: Option<LastError>,
}

/// Progress of background work on the whole array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    pub stripes_done: u64,
    pub stripes: u64,
}

/// Progress of background work on the whole array, where it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArrayProgress {
    /// Of the initial sync or resync.
    pub initialising: Option<Progress>,
    /// Of a scrub.
    pub scrubbing: Option<Progress>,
}

/// Whether an array serves, and its redundancy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ArrayState {
    /// All members are in use, or spare space replaces them.
    Optimal,
    /// Some member is failed or missing, and spare space does not replace all of it; everything is
    /// served.
    Degraded,
    /// A group has lost more members than it tolerates: writes are refused, and reads of their
    /// strips.
    Failed,
}

/// Its state together with what has happened to its devices and its data; the worst is last.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum HealthState {
    Healthy,
    /// Everything is in use, and a device has errors that were not cleared, blocks are lost, or a
    /// scrub found what it could not repair.
    Errors,
    Degraded,
    Failed,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MemberStatus {
    pub role: u16,
    pub group: usize,
    pub uuid: Uuid,
    /// Name of the device that has the role, or that had it since the array was assembled.
    pub device: Option<String>,
    pub state: RoleState,
    /// Bytes of the array on it, including copies and parity.
    pub data_bytes: u64,
    /// Response times of the device that has the role.
    #[serde(flatten)]
    pub answers: Answers,
    /// Of the device that has the role, or had it last; until they are cleared.
    pub errors: DeviceErrors,
    pub last_error: Option<LastError>,
    /// Of a device that is storage behind a network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote: Option<RemoteStatus>,
    /// The device that the role is being rebuilt onto.
    pub filling: Option<FillingStatus>,
    /// The distributed spare space that replaces it.
    pub stand_in: Option<StandInStatus>,
}

/// Response times of the device of a member: since the array was assembled, or it was given the
/// role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Answers {
    /// Reads that took much longer than usual in the array.
    pub slow_reads: u64,
    /// Those of them that exceeded the read timeout.
    pub timed_out_reads: u64,
    /// Reads that were reconstructed from its peers: those that it did not complete in time, and
    /// those that were not sent to it while it was slow.
    pub reconstructed_reads: u64,
    /// Whether a slow read is in flight, so that other reads are reconstructed.
    pub is_slow: bool,
    /// Whether it is failed as soon as its group can tolerate it: it exceeded the timeout, or had
    /// too many of them.
    pub is_timed_out: bool,
    /// How often it was slow within the last ten minutes; concurrent slow reads count once.
    pub slow_events: u32,
    /// Its timeouts within the last ten minutes.
    pub timeouts: u32,
    /// Median time of its newest sampled reads; nothing if they complete at once.
    pub typical_read_us: Option<u64>,
    /// Age of its oldest operation in flight; the timeout at most.
    pub unanswered_ms: u64,
}

/// Timeouts of the members of an array; none where a value is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeadlineStatus {
    /// A read is reconstructed from the peers after this time at the latest.
    pub read_timeout_ms: Option<u64>,
    /// A member that does not complete an operation within this time is failed.
    pub timeout_ms: Option<u64>,
    /// A member with this many timeouts within ten minutes is failed.
    pub timeouts_max: Option<u32>,
}

/// Distributed spare space that replaces a lost member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StandInStatus {
    pub slot: u16,
    /// Rows of the member that are rebuilt.
    pub rows_done: u64,
    pub rows: u64,
}

/// How stripes are distributed over the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeclusteredStatus {
    /// Strips of a stripe, data and parity.
    pub width: usize,
    /// Slots of distributed spare space.
    pub spares: u16,
    /// Free slots.
    pub spares_free: u16,
}

/// A device that a role is being rebuilt onto.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FillingStatus {
    pub uuid: Uuid,
    pub device: String,
    /// Rows of strips that are rebuilt.
    pub rows_done: u64,
    pub rows: u64,
    pub errors: DeviceErrors,
    pub last_error: Option<LastError>,
}

/// A hot spare.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SpareStatus {
    pub uuid: Uuid,
    pub device: String,
    pub errors: DeviceErrors,
    pub last_error: Option<LastError>,
}

/// Plans executed since the array was assembled, or the counts were reset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanCounts {
    pub full_stripe_writes: u64,
    pub reconstruct_writes: u64,
    pub read_modify_writes: u64,
    /// Writes to stripes that have no parity strip left.
    pub data_only_writes: u64,
    /// Writes that were merged into another one to their stripe.
    pub merged_writes: u64,
    /// Reads reconstructed from parity, or from another copy, because of a lost member or an error.
    pub reconstructed_reads: u64,
    /// Strips rewritten after a read error.
    pub rewritten_strips: u64,
    /// Members failed after a timeout.
    pub evictions: u64,
    /// Pages of the intent bitmap written.
    pub intent_pages: u64,
}

#[derive(Default)]
pub(super) struct Counter(Cell<u64>);

impl Counter {
    pub(super) fn count(&self) {
        self.0.set(self.0.get() + 1);
    }
}

#[derive(Default)]
pub(super) struct Counters {
    /// Of clients, whatever they ask; never reset.
    pub(super) requests: Counter,
    full_stripe: Counter,
    reconstruct: Counter,
    read_modify_write: Counter,
    data_only: Counter,
    pub(super) merged_writes: Counter,
    pub(super) reconstructed_reads: Counter,
    pub(super) rewritten_strips: Counter,
    pub(super) evictions: Counter,
    pub(super) intent_pages: Counter,
}

impl Counters {
    pub(super) fn plan(&self, kind: PlanKind) -> &Counter {
        match kind {
            PlanKind::FullStripe => &self.full_stripe,
            PlanKind::Reconstruct => &self.reconstruct,
            PlanKind::ReadModifyWrite => &self.read_modify_write,
            PlanKind::DataOnly => &self.data_only,
        }
    }

    fn reset(&self) {
        let plans =
            [&self.full_stripe, &self.reconstruct, &self.read_modify_write, &self.data_only];
        let others = [
            &self.merged_writes,
            &self.reconstructed_reads,
            &self.rewritten_strips,
            &self.evictions,
            &self.intent_pages,
        ];
        plans.into_iter().chain(others).for_each(|counter| counter.0.set(0));
    }

    fn snapshot(&self) -> PlanCounts {
        PlanCounts {
            full_stripe_writes: self.full_stripe.0.get(),
            reconstruct_writes: self.reconstruct.0.get(),
            read_modify_writes: self.read_modify_write.0.get(),
            data_only_writes: self.data_only.0.get(),
            merged_writes: self.merged_writes.0.get(),
            reconstructed_reads: self.reconstructed_reads.0.get(),
            rewritten_strips: self.rewritten_strips.0.get(),
            evictions: self.evictions.0.get(),
            intent_pages: self.intent_pages.0.get(),
        }
    }
}

impl Array {
    /// Its current state.
    pub fn status(&self) -> ArrayStatus {
        let record = self.recorder.record();
        let status = ArrayStatus {
            name: record.name.clone(),
            uuid: record.uuid,
            level: record.level,
            state: self.state(),
            health: HealthState::Healthy,
            size_bytes: self.geometry.now().size_bytes,
            strip_bytes: self.layout.strip_bytes(),
            groups: self.layout.groups(),
            declustered: self.declustered_status(),
            weights: self.layout.weights().cloned(),
            event_count: record.event_count,
            parity_initialised: self.is_parity_initialised(),
            progress: ArrayProgress {
                initialising: self.initialising.get(),
                scrubbing: self.scrubbing.get(),
            },
            last_scrub: self.last_scrub(),
            suspect_parity_blocks: self.suspect_parity_blocks(),
            lost: self.lost_status(),
            intent_bitmap: self.intents.is_some(),
            integrity: self.integrity_status(),
            journal: record.journal.as_ref().map(|journal| self.journal_status(journal)),
            deadlines: self.deadline_status(),
            members: self.member_statuses(),
            spares: self.spare_statuses(),
            reshape: self.reshape_status(),
            counts: self.counters.snapshot(),
        };
        ArrayStatus { health: status.judged(), ..status }
    }

    /// The newest scrub, with the present names of members.
    fn last_scrub(&self) -> Option<LastScrub> {
        let mut scrub = self.history.last_scrub(&self.runtime)?;
        for member in self.members.present() {
            let its = scrub.members.iter_mut().find(|it| it.uuid == member.uuid);
            its.into_iter().for_each(|it| it.device = member.name().to_string());
        }
        let role = |it: &MemberScrub| {
            self.members.slots().position(|(_, slot)| slot.uuid.get() == it.uuid)
        };
        scrub.members.sort_by_key(|it| role(it).unwrap_or(usize::MAX));
        Some(scrub)
    }

    /// Errors of a device until now.
    fn errors_of(&self, device: Uuid) -> (DeviceErrors, Option<LastError>) {
        let log = self.history.all.errors_of(device);
        (log.counts(), log.last())
    }

    fn deadline_status(&self) -> Option<DeadlineStatus> {
        let deadlines = self.deadlines().filter(|_| self.layout.redundancy() > 0)?;
        let millis = |time: Duration| time.as_millis() as u64;
        Some(DeadlineStatus {
            read_timeout_ms: deadlines.read.map(millis),
            timeout_ms: deadlines.deadline.map(millis),
            timeouts_max: deadlines.timeouts_max,
        })
    }

    fn journal_status(&self, record: &JournalRecord) -> JournalStatus {
        let journal = self.journal();
        let count = |count: fn(&Journal) -> u64| journal.as_deref().map_or(0, count);
        let (errors, last_error) = self.errors_of(record.uuid);
        JournalStatus {
            errors,
            last_error,
            uuid: record.uuid,
            device: journal.as_ref().map(|journal| journal.name().to_string()),
            when: record.when,
            live_bytes: count(Journal::live_bytes),
            writes: count(Journal::writes),
            records: count(Journal::records),
        }
    }

    /// Requests that were submitted since the array was assembled: background work sees whether
    /// there are any.
    pub fn requests(&self) -> u64 {
        self.counters.requests.0.get()
    }

    /// Whether all parity, or all copies, were once made from the data.
    pub fn is_parity_initialised(&self) -> bool {
        self.parity.get() == RecordedParity::Valid
    }

    /// How far [`Array::initialise`] is, while it goes on.
    pub fn initialising(&self) -> Option<Progress> {
        self.initialising.get()
    }

    /// How far [`Array::scrub`] is, while it goes on.
    pub fn scrubbing(&self) -> Option<Progress> {
        self.scrubbing.get()
    }

    /// Rows of a role that were rebuilt onto a spare; none without a rebuild.
    pub fn filled_rows(&self, role: Role) -> Option<u64> {
        Some(self.members.slot(role).filling()?.progress.count())
    }

    /// The same of the spare space that stands in for a role.
    pub fn stood_in_rows(&self, role: Role) -> Option<u64> {
        Some(self.members.lent_to(role)?.progress.count())
    }

    /// The counts begin again at zero, but for those of errors.
    pub fn reset_counts(&self) {
        self.counters.reset();
    }

    /// Where its memory comes from.
    pub fn pool(&self) -> &BufferPool {
        self.scratch.pool()
    }

    /// Where errors and scrubs are counted.
    pub fn history(&self) -> &History {
        &self.history.all
    }

    /// Whether it serves, and with what left to lose.
    pub fn state(&self) -> ArrayState {
        let any = |holds: fn(&Members) -> bool| {
            holds(&self.members) || self.former().is_some_and(|former| holds(&former.members))
        };
        match (any(Members::is_broken), any(Members::is_degraded)) {
            (true, _) => ArrayState::Failed,
            (false, true) => ArrayState::Degraded,
            (false, false) => ArrayState::Optimal,
        }
    }

    fn member_statuses(&self) -> Vec<MemberStatus> {
        let at = self.runtime.now();
        let health = |role| self.members.active(role).map(|member| Rc::clone(&member.health));
        let status = |(role, slot): (Role, &Slot)| {
            let (errors, last_error) = self.errors_of(slot.uuid.get());
            MemberStatus {
                role: role.0,
                group: self.layout.group_of_role(role),
                uuid: slot.uuid.get(),
                device: slot.name.borrow().as_ref().map(ToString::to_string),
                state: slot.state.get(),
                data_bytes: self.layout.row_start(self.layout.rows_of_role(role)),
                answers: health(role)
                    .map(|health| self.answers_of(&health, at))
                    .unwrap_or_default(),
                errors,
                last_error,
                remote: self
                    .members
                    .active(role)
                    .and_then(|member| Some(member.device.remote()?.status())),
                filling: slot.filling().map(|filling| self.filling_status(&filling)),
                stand_in: self.members.lent_to(role).map(|lent| StandInStatus {
                    slot: lent.slot,
                    rows_done: lent.progress.count(),
                    rows: self.layout.rows(),
                }),
            }
        };
        self.members.slots().map(status).collect()
    }

    fn filling_status(&self, filling: &Filling) -> FillingStatus {
        let (errors, last_error) = self.errors_of(filling.member.uuid);
        FillingStatus {
            uuid: filling.member.uuid,
            device: filling.member.name().to_string(),
            rows_done: filling.progress.count(),
            rows: self.layout.rows(),
            errors,
            last_error,
        }
    }

    fn answers_of(&self, health: &Rc<Health>, at: headpond_block::Instant) -> Answers {
        let unanswered_ms = self.watch.longest(health).as_millis() as u64;
        Answers { unanswered_ms, ..health.answers(at) }
    }

    fn declustered_status(&self) -> Option<DeclusteredStatus> {
        let lent = self.members.lent_records();
        self.layout.is_declustered().then(|| DeclusteredStatus {
            width: self.layout.width(),
            spares: self.layout.spare_slots(),
            spares_free: lent.iter().filter(|lent| lent.is_none()).count() as u16,
        })
    }

    fn spare_statuses(&self) -> Vec<SpareStatus> {
        let status = |spare: Rc<Member>| {
            let (errors, last_error) = self.errors_of(spare.uuid);
            let device = spare.name().to_string();
            SpareStatus { uuid: spare.uuid, device, errors, last_error }
        };
        self.members.standing_by().into_iter().map(status).collect()
    }
}

impl ArrayStatus {
    fn judged(&self) -> HealthState {
        let is_unsound = self.last_scrub.as_ref().is_some_and(LastScrub::is_unsound);
        let has_errors = self.errors().any(|errors| errors.total() > 0);
        match self.state {
            ArrayState::Failed => HealthState::Failed,
            ArrayState::Degraded => HealthState::Degraded,
            ArrayState::Optimal if has_errors || is_unsound || self.lost.bytes > 0 => {
                HealthState::Errors
            }
            ArrayState::Optimal => HealthState::Healthy,
        }
    }

    /// Of each of its devices.
    fn errors(&self) -> impl Iterator<Item = DeviceErrors> {
        let filling = self.members.iter().filter_map(|member| member.filling.as_ref());
        let others = filling.map(|it| it.errors).chain(self.spares.iter().map(|it| it.errors));
        let others = others.chain(self.journal.iter().map(|it| it.errors));
        self.members.iter().map(|member| member.errors).chain(others)
    }

    /// Findings of the newest scrub so far; none without one.
    pub fn scrub_report(&self) -> ScrubReport {
        self.last_scrub.as_ref().map(|scrub| scrub.report.clone()).unwrap_or_default()
    }
}
