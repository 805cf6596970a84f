//! The description, kept as it changes: on the members, and by the caller.
//!
//! The errors of devices and the scrubs are kept beside it on the members, by a task of their own:
//! 1. a second after a change, so that those of one cause are kept together; 2. not again within
//!    ten seconds; 3. at once when they are cleared, and at a stop. No request waits for it. A
//!    power cut loses what was counted since.
//!
//! **Invariants**
//! - A record on the members is newer than all that were begun before it.
//! - Keeping errors changes no setting: the newest record is written again with them.

use super::Volume;
use super::devices::history_of;
use crate::assembly::cached::Cached;
use crate::assembly::cores::Cores;
use crate::description::Description;
use crate::history::KeptHistory;
use crate::record::{RecordError, VolumeRecord};
use headpond_block::sync::{Busy, BusyGuard, join_all};
use headpond_block::{DeviceName, ErrorLog, LocalFuture, Runtime};
use headpond_raid::{Array, History};
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// From the first error until it is kept, with those that follow it.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// From one write of errors to the next.
const INTERVAL: Duration = Duration::from_secs(10);

/// An error of the caller.
pub type CallerError = Box<dyn std::error::Error + Send + Sync>;

/// Saves a description, durably, before it takes effect.
pub type Keep<'a> = &'a dyn Fn(&Description) -> Keeping<'a>;

/// A description being saved.
pub type Keeping<'a> = LocalFuture<'a, Result<(), CallerError>>;

/// Keeps a description that has changed.
type KeepChanged = dyn Fn(&Description) -> LocalFuture<'static, ()>;

/// The caller's way to keep descriptions.
pub struct DescriptionKeeper {
    /// Is given the description when it has changed without being asked; what is answered ends when
    /// it is kept durably. Those that are given later are kept later.
    pub keep: Box<KeepChanged>,
    /// The name of a device, by what the description calls it.
    pub name_of: Box<dyn Fn(&str) -> String>,
}

/// The place of a cache.
type CachedCell = RefCell<Option<Rc<Cached>>>;

/// Where the description of a volume is kept.
pub(crate) struct KeptDescription {
    pub(crate) keeper: RefCell<Option<DescriptionKeeper>>,
    /// Of the volume, whose background work has a handle of this.
    cores: Weak<RefCell<Rc<Cores>>>,
    caches: [Weak<CachedCell>; 2],
    history: History,
    /// The changes of it that the members have.
    history_written: Cell<u64>,
    history_sequence: Cell<u64>,
    /// The device of the cache that was detached last, and its errors.
    detached: RefCell<Option<(DeviceName, Rc<ErrorLog>)>>,
    /// Of the newest record.
    generation: Cell<u64>,
    /// Of the newest one that was written.
    written: Cell<u64>,
    writing: Busy,
}

impl KeptDescription {
    pub(crate) fn new(cores: &Rc<RefCell<Rc<Cores>>>, caches: [&Rc<CachedCell>; 2]) -> Self {
        let history = cores.borrow().first().array.history().clone();
        let (keeper, writing, detached) = Default::default();
        let [generation, written, history_written, history_sequence] = Default::default();
        Self {
            keeper,
            cores: Rc::downgrade(cores),
            caches: caches.map(Rc::downgrade),
            history,
            history_written,
            history_sequence,
            detached,
            generation,
            written,
            writing,
        }
    }

    /// Keeps it on the members and by the keeper; ends when it is kept.
    pub(crate) fn tell(self: &Rc<Self>, description: &Description) -> LocalFuture<'static, ()> {
        let recorded = self.record(description);
        let kept: LocalFuture<'static, ()> = match &*self.keeper.borrow() {
            Some(keeper) => (keeper.keep)(description),
            None => Box::pin(ready(())),
        };
        Box::pin(async move {
            // An array that has lost too many members takes no record, and its state says so.
            let _ = recorded.await;
            kept.await;
        })
    }

    /// Keeps it on the members and by a command, before it takes effect.
    ///
    /// # Errors
    /// Where either is not possible.
    pub(crate) async fn keep_with(
        self: &Rc<Self>,
        keep: Keep<'_>,
        description: &Description,
    ) -> Result<(), CallerError> {
        self.record(description).await?;
        keep(description).await
    }

    /// Writes the record of a description to the members of all arrays, stably.
    pub(crate) fn record(
        self: &Rc<Self>,
        description: &Description,
    ) -> LocalFuture<'static, Result<(), RecordError>> {
        let generation = self.generation.get() + 1;
        self.generation.set(generation);
        let record = VolumeRecord::new(generation, description);
        let kept = Rc::clone(self);
        Box::pin(async move {
            record.to_bytes()?;
            let _turn = kept.turn().await;
            if generation < kept.written.get() {
                return Ok(());
            }
            kept.written.set(generation);
            let changes = kept.history.changes();
            let bytes = record.with_history(kept.history_now()).to_bytes()?;
            let writes = kept.arrays().into_iter().map(|array| {
                let bytes = bytes.clone();
                Box::pin(async move { array.write_volume_record(&bytes).await })
            });
            let outcomes = join_all(writes.collect()).await;
            // The newest one of all arrays counts.
            match outcomes.iter().any(Result::is_ok) {
                true => {
                    kept.history_written.set(changes);
                    Ok(())
                }
                false => outcomes.into_iter().collect::<Result<(), _>>().map_err(Into::into),
            }
        })
    }

    async fn turn(&self) -> BusyGuard {
        while !self.writing.is_idle() {
            self.writing.until_idle().await;
        }
        self.writing.begin()
    }

    /// Continues after a record that the members have.
    pub(crate) fn continue_after(&self, begun: &BegunRecords) {
        self.generation.set(begun.generation);
        self.written.set(begun.generation);
        self.history_sequence.set(begun.history.sequence);
    }

    /// What the members are to keep of errors and scrubs now.
    fn history_now(&self) -> KeptHistory {
        let Some(cores) = self.cores.upgrade() else { return KeptHistory::default() };
        let cores = Rc::clone(&cores.borrow());
        let caches = self.caches.iter().filter_map(Weak::upgrade);
        let caches: Vec<_> = caches.filter_map(|cell| cell.borrow().clone()).collect();
        let sequence = self.history_sequence.get() + 1;
        self.history_sequence.set(sequence);
        history_of(&cores, &caches, sequence)
    }

    /// A cache is detached.
    pub(crate) fn note_detached(&self, cached: &Cached) {
        let left = (cached.device.name().clone(), Rc::clone(&cached.errors));
        self.detached.replace(Some(left));
    }

    /// A cache is attached: one with a new identity on the device of the former one has its errors.
    pub(crate) fn note_attached(&self, cached: &Cached) {
        let Some((device, errors)) = self.detached.take() else { return };
        if device == *cached.device.name() && !Rc::ptr_eq(&errors, &cached.errors) {
            cached.errors.restore(errors.counts(), errors.last());
            self.history.note_change();
        }
    }

    fn is_history_due(&self) -> bool {
        self.history.changes() != self.history_written.get()
    }

    /// Writes errors and scrubs to the members, where they have changed. A member that does not
    /// take them has the ones before.
    pub(crate) async fn record_history(&self) {
        let _turn = self.turn().await;
        let (changes, arrays) = (self.history.changes(), self.arrays());
        let records = arrays.iter().filter_map(|it| VolumeRecord::parse(&it.volume_record()?).ok());
        let newest = records.max_by_key(|it| (it.generation, it.history.sequence));
        let Some(newest) = newest.filter(|_| self.is_history_due()) else {
            return self.history_written.set(changes);
        };
        let Ok(bytes) = newest.with_history(self.history_now()).to_bytes() else { return };
        let writes = arrays.iter().map(|array| Box::pin(array.refresh_volume_record(&bytes)));
        let outcomes = join_all(writes.collect()).await;
        // An error of this write itself is kept with the next one: it asks for none.
        let missed = outcomes.into_iter().map(|it| it.unwrap_or(u64::MAX));
        let own = missed.fold(0_u64, u64::saturating_add);
        self.history_written.set(self.history.changes().min(changes.saturating_add(own)));
    }

    /// Keeps errors and scrubs on the members from now on, until the volume is gone.
    pub(crate) fn follow_history(self: &Rc<Self>, runtime: &Runtime) {
        let (kept, history, runtime) = (Rc::downgrade(self), self.history.clone(), runtime.clone());
        let spawner = runtime.clone();
        drop(spawner.spawn(async move {
            while let Some(is_due) = kept.upgrade().map(|kept| kept.is_history_due()) {
                if !is_due {
                    history.changed().await;
                    continue;
                }
                runtime.sleep(GATHER_TIME).await;
                let Some(kept) = kept.upgrade() else { return };
                kept.record_history().await;
                drop(kept);
                runtime.sleep(INTERVAL).await;
            }
        }));
    }

    fn arrays(&self) -> Vec<Rc<Array>> {
        // A volume that is closed has none.
        let Some(cores) = self.cores.upgrade() else { return Vec::new() };
        let cores = Rc::clone(&cores.borrow());
        cores.iter().map(|(core, _)| Rc::clone(&core.array)).collect()
    }

    pub(crate) fn name_of(&self, word: &str) -> String {
        let keeper = self.keeper.borrow();
        keeper.as_ref().map_or_else(|| word.to_owned(), |keeper| (keeper.name_of)(word))
    }
}

impl Drop for KeptDescription {
    fn drop(&mut self) {
        self.history.wake();
    }
}

/// The record that the members have.
pub(crate) struct BegunRecords {
    pub generation: u64,
    pub history: KeptHistory,
}

/// Brings the record on the members of all arrays up to date, before a cache makes use of them.
///
/// # Errors
/// Where it is too long.
pub(crate) async fn begin_records(
    cores: &Cores,
    description: &Description,
) -> Result<BegunRecords, RecordError> {
    let arrays: Vec<&Array> = cores.iter().map(|(core, _)| &*core.array).collect();
    let parse = |array: &&Array| VolumeRecord::parse(&array.volume_record()?).ok();
    let found: Vec<Option<VolumeRecord>> = arrays.iter().map(parse).collect();
    let newest = found.iter().flatten().map(|record| record.generation).max().unwrap_or(0);
    let history = found.iter().flatten().map(|record| &record.history);
    let history = history.max_by_key(|it| it.sequence).cloned().unwrap_or_default();
    let is_current = |record: &Option<VolumeRecord>| {
        record.as_ref().is_some_and(|it| it.generation == newest && it.agrees(description))
    };
    if found.iter().all(is_current) {
        return Ok(BegunRecords { generation: newest, history });
    }
    let record = VolumeRecord::new(newest + 1, description).with_history(history);
    let bytes = record.to_bytes()?;
    let writes = arrays.iter().map(|array| Box::pin(array.write_volume_record(&bytes)));
    // The state of an array that takes no record says so.
    let _ = join_all(writes.collect()).await;
    Ok(BegunRecords { generation: newest + 1, history: record.history })
}

impl Volume {
    /// Writes the present description to the members.
    ///
    /// # Errors
    /// Where that is not possible.
    pub async fn record(&self) -> Result<(), RecordError> {
        self.kept.record(&self.description()).await
    }
}
