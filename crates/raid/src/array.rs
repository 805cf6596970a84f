//! An array as a block device.
//!
//! Lifecycle: 1. `create` writes the superblocks; 2. `assemble` finds the members and makes an
//! [`Array`]; 3. requests are served, and members that fail are excluded; 4. [`Array::stop`]
//! records the array as clean. A submission must be driven to its end: dropping one half-way is a
//! power cut for its stripe.
//!
//! **Invariants**
//! - Parity levels change a stripe only under its lock, and so that data and parity on the
//!   remaining members are consistent once the lock is free.
//! - A write that was executed without a member is acknowledged only after the survivors durably
//!   exclude this member.
//! - Once a group has lost more members than it tolerates, nothing is written any more.
//! - Lost blocks are read as errors until they are written again.
//! - Order of acquisition: stripe lock, intent mark, scratch memory. No task waits for a lock with
//!   scratch.
//!
//! **Not here**: addresses (`layout`), the I/O that a write requires (`plan`), arithmetic
//! (`parity`), the bytes on the members (`superblock`, `intent`).

mod absence;
mod begin_reshape;
mod beside;
mod columns;
mod copies;
mod copy_count;
mod damage;
mod failure;
mod fill;
mod flush;
mod gate;
mod gather;
mod guard;
mod health;
mod integrity;
mod intents;
mod journal;
mod journal_change;
mod label;
mod lost;
mod members;
mod merge;
mod mirror;
mod operation;
mod parity_write;
mod plain;
mod read;
mod rebuild;
mod replay;
mod reshape;
mod resync;
mod returning;
mod runs;
mod scratch;
mod scrub;
mod scrub_report;
mod second_half;
mod self_check;
mod spares;
mod status;
mod suspect_parity;
mod sweep;
mod unverified;
mod verifier;
mod verify;
mod volume_record;
mod watch;
mod writers;
mod zero;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use headpond_block::sync::KeyLocks;
use headpond_block::{
    BlockDevice, Buffer, Cause, ChangingGeometry, Copies, DeviceError, DeviceName, Geometry,
    Request, RequestKind, Runtime, Stability, StripeGeometry, Submission,
};

use crate::balance::Balance;
use crate::deadlines::Deadlines;
use crate::layout::{Layout, Role, Stripe};
use crate::level::Level;
use crate::superblock::{ArrayRecord, RecordedParity, RoleState};
use absence::Absence;
pub(crate) use absence::AbsenceFound;
pub use begin_reshape::{Addition, GrowError};
use beside::Beside;
pub use beside::OnAnswer;
pub use copy_count::WhichCopy;
use failure::Recorder;
pub use fill::Filled;
pub use flush::OwnerStopped;
use guard::Guard;
pub(crate) use guard::Guarded;
use integrity::Integrity;
pub use integrity::IntegrityStatus;
use intents::Intents;
use journal::Lease;
pub(crate) use journal::{Journal, read_journal_label, write_journal_label};
pub use journal_change::JournalError;
pub(crate) use label::{Bitmap, read_bitmap_page, write_bitmap_page, write_superblock, zero_copy};
pub use label::{Inspection, erase, erase_unlisted, inspect};
pub(crate) use lost::{Lost, find_lost};
pub use lost::{LostRange, LostStatus};
pub(crate) use members::{FoundMembers, Member, Members};
use merge::Merging;
pub(crate) use replay::{Contents, Walk};
pub(crate) use reshape::Reshape;
pub use reshape::{Grown, ReshapeStatus};
pub use returning::ReturnError;
use scratch::Scratch;
pub use scratch::{Tuning, WhenFull};
pub use scrub::Scrubbed;
use scrub_report::ArrayHistory;
pub(crate) use second_half::SecondHalf;
pub use spares::MemberError;
use status::Counters;
pub use status::{
    Answers, ArrayProgress, ArrayState, ArrayStatus, DeadlineStatus, DeclusteredStatus,
    FillingStatus, HealthState, JournalStatus, MemberStatus, PlanCounts, Progress, SpareStatus,
    StandInStatus,
};
use suspect_parity::SuspectParity;
pub(crate) use unverified::UnverifiedParity;
pub use verifier::{Answer, ContentVerifier};
pub use volume_record::{
    newest_volume_record, replace_volume_record, volume_record_of, write_first_volume_record,
};
use watch::Watch;
use writers::Writers;

/// What to do with parity that may be torn when a lost strip could only come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TornParity {
    /// Answer with an error.
    Refuse,
    /// Use it: the administrator has accepted it by name, and nothing says where it may be torn.
    Use,
}

/// How far the parity is to be trusted.
pub(crate) struct Trust {
    pub(crate) parity: RecordedParity,
    /// Stripes from the start on with valid parity, while the others have none.
    pub(crate) initialised_stripes: u64,
    pub(crate) torn_parity: TornParity,
    pub(crate) absence: AbsenceFound,
    /// Stripes that were written to since a scrub signed them, where there is an integrity region.
    pub(crate) unsigned: Vec<Range<u64>>,
    /// What the stripe journal has to say, where there is one.
    pub(crate) guarded: Option<Guarded>,
}

/// An assembled array.
pub struct Array {
    runtime: Runtime,
    name: DeviceName,
    geometry: ChangingGeometry,
    layout: Layout,
    members: Members,
    watch: Watch,
    /// Of each group, where there are copies.
    balances: RefCell<Vec<Balance>>,
    recorder: Recorder,
    locks: KeyLocks,
    intents: Option<Intents>,
    absence: Option<Absence>,
    /// Where there is an integrity region.
    integrity: Option<Integrity>,
    /// The verifier that a scrub asks on a mismatch.
    verifier: RefCell<Option<Rc<dyn ContentVerifier>>>,
    /// Where there is a stripe journal.
    guard: Option<Guard>,
    scratch: Scratch,
    beside: Beside,
    counters: Counters,
    parity: Cell<RecordedParity>,
    /// Stripes from the start on with valid parity, if not all have it.
    initialised: Cell<u64>,
    initialising: Cell<Option<Progress>>,
    scrubbing: Cell<Option<Progress>>,
    history: ArrayHistory,
    torn_parity: TornParity,
    /// The work after an unclean shutdown is complete.
    is_begun: Cell<bool>,
    /// Stripes whose redundancy does not fit: a write stopped half-way for want of space, with what
    /// the journal has of it, or the power went and something cannot be read.
    torn: RefCell<BTreeMap<Stripe, Vec<Lease>>>,
    /// A log above has still to write again what was being written when the array stopped.
    needs_parity: Cell<bool>,
    suspect_parity: SuspectParity,
    /// Lost blocks.
    lost: Lost,
    writers: Writers,
    merging: Merging,
    stopped: Cell<bool>,
    /// The copy that the array has no more, as soon as it is put together again.
    dropped: Cell<Option<Role>>,
    /// Zeros to write from, made when they are first needed.
    zeros: OnceCell<Buffer>,
    /// While a part of its data is still in an array of fewer members.
    reshape: Option<Reshape>,
}

impl Array {
    /// Members as they were found, with the newest record on any of them.
    pub(crate) fn new(
        runtime: Runtime,
        record: ArrayRecord,
        layout: Layout,
        found: FoundMembers,
        tuning: Tuning,
        trust: Trust,
        lost: Lost,
    ) -> Array {
        let Trust { parity, initialised_stripes, torn_parity, absence, unsigned, guarded } = trust;
        let name = DeviceName::new(record.name.clone());
        let geometry = geometry(&layout, &record, &found);
        let intents = record
            .intent_region_stripes
            .map(|region| Intents::new(Bitmap::Intent, record.uuid, layout.stripes(), region));
        let stripes = layout.stripes();
        let history = ArrayHistory::new(tuning.history.clone(), record.uuid);
        found.count_errors_in(&history.all);
        let lacking = lacking_at_start(&record, &layout, &found);
        let guard = record.journal.as_ref().zip(guarded);
        let guard = guard.map(|(journal, start)| Guard::new(journal, &lacking, start));
        Array {
            guard,
            watch: Watch::new(runtime.clone(), tuning.deadlines),
            merging: Merging::new(runtime.clone(), &layout),
            runtime,
            name,
            geometry: ChangingGeometry::new(geometry),
            members: Members::new(found, &record, &layout),
            balances: RefCell::new(vec![Balance::default(); layout.groups()]),
            scratch: Scratch::new(tuning, &layout),
            layout,
            parity: Cell::new(parity),
            absence: Absence::new(&record, stripes, &absence),
            integrity: Integrity::new(&record, stripes, &unsigned),
            verifier: RefCell::default(),
            recorder: Recorder::new(record, parity, initialised_stripes),
            locks: KeyLocks::new(),
            intents,
            beside: Beside::default(),
            counters: Counters::default(),
            initialised: Cell::new(initialised_stripes),
            initialising: Cell::new(None),
            scrubbing: Cell::new(None),
            history,
            torn_parity,
            is_begun: Cell::new(false),
            torn: RefCell::default(),
            needs_parity: Cell::new(false),
            suspect_parity: SuspectParity::default(),
            lost,
            writers: Writers::default(),
            stopped: Cell::new(false),
            dropped: Cell::new(None),
            zeros: OnceCell::new(),
            reshape: None,
        }
    }

    /// The shape of the array.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// How long members are waited for; `None`: until they answer.
    pub fn deadlines(&self) -> Option<Deadlines> {
        self.watch.deadlines()
    }

    /// After which a device counts as hung.
    fn deadline(&self) -> Option<Duration> {
        self.deadlines().and_then(|deadlines| deadlines.deadline)
    }

    /// Changes the timeouts of members, from the next operation on: for operations in flight the
    /// time starts again. The stripe journal has the same timeout.
    pub fn set_deadlines(&self, deadlines: Option<Deadlines>) {
        self.watch.set_deadlines(deadlines);
        if let Some(former) = self.former() {
            former.set_deadlines(deadlines);
        }
        if let Some(journal) = self.journal() {
            journal.set_deadline(self.deadline());
        }
    }

    /// Whether writes can be served.
    fn check_writable(&self) -> Result<(), DeviceError> {
        if self.stopped.get() {
            return Err(DeviceError::new(&self.name, Cause::ReadOnly));
        }
        self.check_intact()
    }

    /// Whether it was stopped, so that it takes no writes any more.
    pub fn is_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// Whether the redundancy still holds everything.
    fn check_intact(&self) -> Result<(), DeviceError> {
        if self.members.is_broken() {
            return Err(DeviceError::new(&self.name, Cause::Gone));
        }
        Ok(())
    }

    fn write(&self, request: Request) -> Submission<'_> {
        if let Err(error) = self.check_writable() {
            return Submission::ready(Err(error));
        }
        if self.layout.parity_strips() > 0 {
            return self.parity_write(request);
        }
        if self.layout.level().is_mirrored() {
            return self.mirror_write(request);
        }
        self.plain_write(request)
    }
}

impl BlockDevice for Array {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        self.geometry.now()
    }

    fn copies(&self) -> Option<&dyn Copies> {
        let has_copies = self.layout.level().is_mirrored() && self.growing().is_none();
        has_copies.then_some(self as &dyn Copies)
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.counters.requests.count();
        let is_flush = request.kind == RequestKind::Flush;
        let submission = match self.growing() {
            Some(reshape) => Submission::pending(self.serve_divided(reshape, request)),
            None => self.serve(request),
        };
        if is_flush { submission } else { self.heard(submission) }
    }
}

impl Array {
    /// Executes a request on the data of this array.
    fn serve(&self, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Flush {
            return Submission::pending(self.flush());
        }
        if let Err(error) = request.check(&self.name, self.geometry()) {
            return Submission::ready(Err(error));
        }
        if request.range.is_empty() {
            return Submission::ready(Ok(()));
        }
        match request.kind {
            RequestKind::Read => match self.check_known(request.range) {
                Ok(()) => self.read(request),
                Err(error) => Submission::ready(Err(error)),
            },
            RequestKind::Write => self.write(request),
            RequestKind::Discard | RequestKind::WriteZeroes => {
                Submission::pending(self.zero(request))
            }
            RequestKind::Flush => unreachable!("a flush was answered above"),
        }
    }
}

/// Groups that lack a member by the record, or by the members found.
fn lacking_at_start(record: &ArrayRecord, layout: &Layout, found: &FoundMembers) -> Vec<bool> {
    let is_empty = |role: &Role| {
        let recorded = record.roles[role.index()].state;
        recorded != RoleState::Active || found.roles[role.index()].is_err()
    };
    guard::lacking_without(record, layout, is_empty)
}

fn geometry(layout: &Layout, record: &ArrayRecord, found: &FoundMembers) -> Geometry {
    let present = || found.in_use();
    let stability = present()
        .map(|device| device.geometry().stability)
        .fold(Stability::StableOnCompletion, Stability::worst);
    let stripe = StripeGeometry {
        strip_bytes: layout.strip_bytes(),
        width_bytes: layout.across_bytes() as u32,
    };
    Geometry {
        size_bytes: layout.array_bytes(),
        logical_block_bytes: record.logical_block_bytes,
        preferred_bytes: layout.strip_bytes(),
        stripe: (layout.level() != Level::Raid1).then_some(stripe),
        stability,
        rotational: present().any(|device| device.geometry().rotational),
    }
}
