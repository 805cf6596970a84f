//! The controller as a device: one front for each drive behind it.

use super::cache::{Extents, Piece};
use super::parameters::{CacheMode, ControllerModel, FlushRule};
use headpond_block::sync::Notify;
use headpond_block::{
    BlockDevice, Buffer, ByteRange, DeviceName, Geometry, Instant, Outcome, Request, RequestKind,
    Runtime, Stability, Submission,
};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// One controller; the drives are attached to it.
pub struct Controller(Rc<Shared>);

struct Shared {
    model: Rc<ControllerModel>,
    runtime: Runtime,
    /// Until when the processor and either way of the link are taken.
    processor: Cell<Instant>,
    link_in: Cell<Instant>,
    link_out: Cell<Instant>,
    cached_bytes: Cell<u64>,
    /// Writes that wait for room, first come first.
    waiting: RefCell<VecDeque<u64>>,
    next_ticket: Cell<u64>,
    room: Notify,
}

/// A drive behind a controller.
struct Behind {
    drive: Rc<dyn BlockDevice>,
    geometry: Geometry,
    shared: Rc<Shared>,
    contents: Rc<Contents>,
}

/// What the controller's cache holds for a drive.
#[derive(Default)]
struct Contents {
    dirty: RefCell<Extents>,
    /// Under way to the drive.
    flying: RefCell<Extents>,
    /// Where the last write to the drive ended.
    place: Cell<u64>,
    /// Somebody waits until all is on the drive.
    is_drained: Cell<u32>,
    changed: Notify,
    is_closed: Cell<bool>,
    failed: RefCell<Option<headpond_block::DeviceError>>,
}

impl Controller {
    pub fn new(model: Rc<ControllerModel>, runtime: &Runtime) -> Self {
        Self(Rc::new(Shared {
            model,
            runtime: runtime.clone(),
            processor: Cell::default(),
            link_in: Cell::default(),
            link_out: Cell::default(),
            cached_bytes: Cell::new(0),
            waiting: RefCell::default(),
            next_ticket: Cell::new(0),
            room: Notify::new(),
        }))
    }

    /// The drive as the host sees it behind this controller.
    pub fn attach(&self, drive: Rc<dyn BlockDevice>) -> Rc<dyn BlockDevice> {
        let model = &self.0.model;
        let own = drive.geometry().stability;
        // In the protected cache a write is stable; but where flushes end here, what a drive's own
        // volatile cache holds is not.
        let stability = match (model.cache.mode, model.cache.flush) {
            (CacheMode::WriteBack, FlushRule::Answered) => own,
            (CacheMode::WriteBack, FlushRule::PassedOn) => own.worst(Stability::Flushable),
            (CacheMode::WriteThrough, _) => own,
        };
        let geometry = Geometry { stability, ..drive.geometry().clone() };
        let contents: Rc<Contents> = Rc::default();
        if model.cache.mode == CacheMode::WriteBack {
            for _ in 0..model.cache.destage_depth {
                let task = destage(Rc::clone(&contents), Rc::clone(&self.0), Rc::clone(&drive));
                drop(self.0.runtime.spawn(task));
            }
        }
        Rc::new(Behind { drive, geometry, shared: Rc::clone(&self.0), contents })
    }
}

impl BlockDevice for Behind {
    fn name(&self) -> &DeviceName {
        self.drive.name()
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if let Err(error) = request.check(self.name(), &self.geometry) {
            return Submission::ready(Err(error));
        }
        let is_cached = self.shared.model.cache.mode == CacheMode::WriteBack;
        let at = self.shared.turn(&request, is_cached);
        Submission::pending(async move {
            self.shared.runtime.sleep_until(at).await;
            match request.kind {
                RequestKind::Read if is_cached => self.read(request).await,
                RequestKind::Write if is_cached => self.write(request).await,
                RequestKind::Flush => self.flush(request, is_cached).await,
                RequestKind::Read | RequestKind::Write => self.drive.submit(request).await,
                RequestKind::WriteZeroes | RequestKind::Discard => {
                    if is_cached {
                        self.drain().await?;
                    }
                    self.drive.submit(request).await
                }
            }
        })
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        self.contents.is_closed.set(true);
        self.contents.changed.notify_all();
    }
}

impl Behind {
    async fn read(&self, request: Request) -> Outcome {
        let mut pieces = self.contents.flying.borrow().within(request.range);
        pieces.extend(self.contents.dirty.borrow().within(request.range));
        let covered = {
            let dirty = self.contents.dirty.borrow().within(request.range);
            dirty.iter().map(|(_, data)| data.len() as u64).sum::<u64>()
        };
        let (range, into) = (request.range, request.buffers.clone());
        if covered < range.len() {
            self.drive.submit(request).await?;
        }
        for (start, data) in pieces {
            let at = (start - range.start()) as usize;
            let part = into.slice(at..at + data.len());
            part.copy_from_buffers(&data.into());
        }
        Ok(())
    }

    async fn write(&self, request: Request) -> Outcome {
        if let Some(error) = self.contents.failed.borrow().clone() {
            return Err(error);
        }
        let bytes = request.range.len();
        if bytes > self.shared.capacity_bytes() {
            self.drain().await?;
            return self.drive.submit(request).await;
        }
        self.shared.take_room(bytes).await;
        let data = match request.buffers.is_payload_free() {
            true => Buffer::payload_free(bytes as usize),
            false => Buffer::from_slice(&request.buffers.to_vec()),
        };
        let mut dirty = self.contents.dirty.borrow_mut();
        let before = dirty.bytes();
        dirty.insert(request.range.start(), data);
        // What it replaced gives its room back.
        self.shared.give_back(before + bytes - dirty.bytes());
        drop(dirty);
        self.contents.changed.notify_all();
        Ok(())
    }

    async fn flush(&self, request: Request, is_cached: bool) -> Outcome {
        if self.shared.model.cache.flush == FlushRule::Answered {
            return Ok(());
        }
        if is_cached {
            self.drain().await?;
        }
        self.drive.submit(request).await
    }

    /// Waits until nothing is left in the cache for this drive.
    async fn drain(&self) -> Outcome {
        let contents = &self.contents;
        contents.is_drained.set(contents.is_drained.get() + 1);
        contents.changed.notify_all();
        loop {
            let changed = contents.changed.wait();
            let is_empty =
                contents.dirty.borrow().is_empty() && contents.flying.borrow().is_empty();
            if is_empty || contents.failed.borrow().is_some() {
                break;
            }
            changed.await;
        }
        contents.is_drained.set(contents.is_drained.get() - 1);
        contents.failed.borrow().clone().map_or(Ok(()), Err)
    }
}

impl Shared {
    fn capacity_bytes(&self) -> u64 {
        self.model.cache.capacity_mib << 20
    }

    /// When the processor is through with a command and its data has crossed the link.
    fn turn(&self, request: &Request, is_cached: bool) -> Instant {
        let ceilings = &self.model.ceilings;
        let is_write = request.kind == RequestKind::Write;
        // Reads have to be looked up in the cache too; a flush has nothing to look up.
        let is_looked_up =
            is_cached && matches!(request.kind, RequestKind::Read | RequestKind::Write);
        let cached_max = ceilings.cached_iops_max.filter(|_| is_looked_up);
        let iops_max = cached_max.unwrap_or(ceilings.iops_max);
        let now = self.runtime.now();
        let begins = self.processor.get().max(now);
        self.processor.set(begins + Duration::from_secs_f64(1.0 / iops_max));
        let link = if is_write { &self.link_in } else { &self.link_out };
        let crossing = request.buffers.len_bytes() as f64 / (ceilings.mb_per_s * 1e6);
        link.set(link.get().max(now) + Duration::from_secs_f64(crossing));
        begins.max(link.get()) + self.command_time()
    }

    fn command_time(&self) -> Duration {
        Duration::from_secs_f64(self.model.ceilings.command_us / 1e6)
    }

    /// Takes room in the cache, behind those who wait already.
    async fn take_room(&self, bytes: u64) {
        let ticket = self.next_ticket.get();
        self.next_ticket.set(ticket + 1);
        self.waiting.borrow_mut().push_back(ticket);
        loop {
            let changed = self.room.wait();
            let is_next = self.waiting.borrow().front() == Some(&ticket);
            if is_next && self.cached_bytes.get() + bytes <= self.capacity_bytes() {
                break;
            }
            changed.await;
        }
        self.waiting.borrow_mut().pop_front();
        self.cached_bytes.set(self.cached_bytes.get() + bytes);
        if !self.waiting.borrow().is_empty() {
            self.room.notify_all();
        }
    }

    fn give_back(&self, bytes: u64) {
        assert!(bytes <= self.cached_bytes.get(), "room that was taken");
        self.cached_bytes.set(self.cached_bytes.get() - bytes);
        if bytes > 0 {
            self.room.notify_all();
        }
    }

    fn is_full_enough(&self) -> bool {
        let from = self.capacity_bytes() / 100 * self.model.cache.destage_from_percent;
        self.cached_bytes.get() > from || !self.waiting.borrow().is_empty()
    }
}

/// Writes what the cache holds for a drive, one run after the other; ends with the device.
async fn destage(contents: Rc<Contents>, shared: Rc<Shared>, drive: Rc<dyn BlockDevice>) {
    while !contents.is_closed.get() {
        let changed = contents.changed.wait();
        let run = match contents.is_drained.get() > 0 || shared.is_full_enough() {
            true => take_run(&contents, shared.model.cache.destage_kib << 10),
            false => Vec::new(),
        };
        if run.is_empty() {
            changed.await;
            continue;
        }
        let (start, data) = joined(run);
        let range = ByteRange::at(start, data.len_bytes() as u64);
        // What the firmware writes is a command of its own like any other.
        shared.runtime.sleep(shared.command_time()).await;
        let outcome = drive.submit(Request::write(start, data)).await;
        contents.flying.borrow_mut().remove(range);
        if let Err(error) = outcome {
            contents.failed.replace(Some(error));
        }
        shared.give_back(range.len());
        contents.changed.notify_all();
    }
}

fn take_run(contents: &Contents, bytes_max: u64) -> Vec<Piece> {
    let mut flying = contents.flying.borrow_mut();
    let is_busy = |range| flying.overlaps(range);
    let run = contents.dirty.borrow_mut().take_run(contents.place.get(), bytes_max, is_busy);
    for (start, data) in &run {
        flying.insert(*start, data.clone());
        contents.place.set(start + data.len() as u64);
    }
    run
}

fn joined(run: Vec<Piece>) -> (u64, headpond_block::Buffers) {
    let start = run.first().expect("a run is not empty").0;
    let mut data = headpond_block::Buffers::new();
    run.into_iter().for_each(|(_, part)| data.push(part));
    (start, data)
}
