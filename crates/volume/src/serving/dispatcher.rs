//! The volume as its clients see it: requests are recognised as streams, split, and joined again.

mod self_check;

use crate::assembly::cores::Core;
use crate::assembly::gate::{HeldIoGate, IoGate};
use crate::assembly::slicing::Slicing;
use crate::description::FIRST_CORE;
use crate::description::cutoff::SeqCutoff;
use crate::description::readahead::{Readahead, ReadaheadPolicy};
use crate::description::settings::CacheSettings;
use crate::serving::endpoint::{CoreDevice, CoreEndpoint};
use crate::serving::metadata::{CoreFileSystem, Recogniser};
use crate::serving::readahead::{Advance, InFlight, Limits, ReadaheadStats, Windows};
use crate::serving::streams::{Direction, Sighting, StreamTable};
use headpond_block::sync::{BusyGuard, join_all};
use headpond_block::{
    BlockDevice, ByteRange, Cause, DeviceError, DeviceName, Geometry, Outcome, Request,
    RequestFlags, RequestKind, Runtime, SECTOR_BYTES, StripeGeometry, Submission,
};
use headpond_cache::classes::{ClassId, Classes, Facts};
use headpond_cache::{Coverage, CutoffPolicy, Slice};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

/// Splits requests over the slices. Streams and classes are recognised before the split, while
/// requests are whole.
pub struct RequestDispatcher {
    name: DeviceName,
    slicing: Cell<Slicing>,
    slices: RefCell<Vec<Rc<dyn BlockDevice>>>,
    /// By which the requests to the front itself come in.
    first: Rc<CoreEndpoint>,
    /// Those of all cores.
    endpoints: RefCell<Vec<Rc<CoreEndpoint>>>,
    streams: RefCell<StreamTable>,
    cutoff: Cell<SeqCutoff>,
    /// Where there are rules.
    classes: RefCell<Option<Arc<Classes>>>,
    /// By which metadata is looked for, so that what is read for it is no client's.
    plain: RefCell<Option<Rc<RequestDispatcher>>>,
    ahead: RefCell<Option<ReadingAhead>>,
    /// To the slices.
    gate: IoGate,
    is_read_only: Cell<bool>,
}

/// New requests wait while this is there, and nothing is read in search of metadata.
pub struct Held<'a> {
    dispatcher: &'a RequestDispatcher,
    // Who looks for metadata begins again before requests do: fields go in this order.
    _rest: Vec<BusyGuard>,
    _gate: HeldIoGate<'a>,
}

/// Reading ahead into the slices of a cache.
struct ReadingAhead {
    slices: Vec<Slice>,
    settings: Readahead,
    windows: Windows,
}

impl RequestDispatcher {
    /// # Panics
    /// Where there are not as many slices as `slicing` says.
    pub fn new(
        name: DeviceName,
        geometry: Geometry,
        slicing: Slicing,
        slices: Vec<Rc<dyn BlockDevice>>,
    ) -> Self {
        let place = ByteRange::at(0, geometry.size_bytes);
        let first = Rc::new(CoreEndpoint::new(FIRST_CORE, place, geometry));
        let dispatcher = Self {
            name,
            slicing: Cell::new(slicing),
            slices: RefCell::default(),
            endpoints: RefCell::new(vec![Rc::clone(&first)]),
            first,
            streams: RefCell::default(),
            cutoff: Cell::new(SeqCutoff::NEVER),
            classes: RefCell::default(),
            plain: RefCell::default(),
            ahead: RefCell::default(),
            gate: IoGate::default(),
            is_read_only: Cell::new(false),
        };
        dispatcher.put(slices);
        dispatcher
    }

    /// Lets no request in until the answer is dropped, and waits for those that are: what is read
    /// in search of metadata asks the slices too.
    ///
    /// # Panics
    /// Where it is held already.
    pub async fn hold(&self) -> Held<'_> {
        let gate = self.gate.hold().await;
        Held { dispatcher: self, _rest: self.rest().await, _gate: gate }
    }

    /// Has nothing read in search of metadata until the answer is dropped; waits for what is read
    /// now.
    pub async fn rest(&self) -> Vec<BusyGuard> {
        let endpoints = self.endpoints.borrow().clone();
        let mut rest = Vec::new();
        for recogniser in endpoints.iter().filter_map(|endpoint| endpoint.recogniser()) {
            rest.push(recogniser.rest().await);
        }
        rest
    }

    /// Leads requests to these from now on, which have the same at the same addresses.
    ///
    /// # Panics
    /// Where there are not as many as slices.
    pub fn put(&self, slices: Vec<Rc<dyn BlockDevice>>) {
        assert_eq!(slices.len(), usize::from(self.slicing.get().slices()), "one device a slice");
        if let Some(plain) = &*self.plain.borrow() {
            plain.put(slices.clone());
        }
        self.slices.replace(slices);
    }

    /// Takes no writes from here on.
    pub fn refuse_writes(&self) {
        self.is_read_only.set(true);
    }

    pub fn slicing(&self) -> Slicing {
        self.slicing.get()
    }

    /// Opens a door for each of these cores, which keep the one they have, and closes all others.
    pub fn open_endpoints<'a>(&self, cores: impl Iterator<Item = (&'a Rc<Core>, ByteRange)>) {
        let place = |(core, place): (&Rc<Core>, _)| (core.id, place, core.array.geometry().stripe);
        let places: Vec<_> = cores.map(place).collect();
        self.place_endpoints(&places);
        if let Some(plain) = &*self.plain.borrow() {
            plain.place_endpoints(&places);
        }
    }

    fn place_endpoints(&self, places: &[(u16, ByteRange, Option<StripeGeometry>)]) {
        let old = self.endpoints.take();
        let mut endpoints = Vec::new();
        for &(id, place, stripe) in places {
            let known = old.iter().find(|endpoint| endpoint.id == id).cloned();
            let endpoint = known.unwrap_or_else(|| {
                let size_bytes = place.len();
                let told = Geometry { size_bytes, stripe, ..self.geometry().clone() };
                Rc::new(CoreEndpoint::new(id, place, told))
            });
            endpoint.move_to(place, stripe);
            endpoints.push(endpoint);
        }
        let is_gone =
            |endpoint: &&Rc<CoreEndpoint>| endpoints.iter().all(|kept| !Rc::ptr_eq(kept, endpoint));
        old.iter().filter(is_gone).for_each(|endpoint| endpoint.close());
        self.endpoints.replace(endpoints);
    }

    /// The door of the core that rules call so.
    pub fn endpoint(&self, core: u16) -> Option<Rc<CoreEndpoint>> {
        self.endpoints.borrow().iter().find(|endpoint| endpoint.id == core).cloned()
    }

    pub fn reset_counts(&self) {
        self.endpoints.borrow().iter().for_each(|endpoint| endpoint.reset_counts());
    }

    /// Reads ahead of sequential readers into these slices, as the settings say; of nobody where
    /// there are none.
    pub fn read_ahead_into(&self, slices: &[Slice]) {
        let (settings, windows) = (Readahead::default(), Windows::default());
        let ahead = ReadingAhead { slices: slices.to_vec(), settings, windows };
        self.ahead.replace((!slices.is_empty()).then_some(ahead));
    }

    /// There is no cache that streams or classes could go past.
    pub fn lead_past(&self) {
        self.ahead.take();
        self.classes.take();
        self.cutoff.set(SeqCutoff::NEVER);
    }

    pub fn readahead_stats(&self) -> ReadaheadStats {
        self.ahead.borrow().as_ref().map(|ahead| ahead.windows.stats).unwrap_or_default()
    }

    pub fn reset_readahead_stats(&self) {
        if let Some(ahead) = &mut *self.ahead.borrow_mut() {
            ahead.windows.stats = ReadaheadStats::default();
        }
    }

    /// Other settings, for requests from now on.
    pub fn set(&self, settings: &CacheSettings) {
        self.cutoff.set(settings.seq_cutoff);
        if let Some(ahead) = &mut *self.ahead.borrow_mut() {
            ahead.settings = settings.readahead;
        }
        let classes = settings.classes.classes();
        self.classes.replace((!classes.is_trivial()).then_some(classes));
    }

    /// Where a rule asks for metadata, has it recognised from now on, on every core on which nobody
    /// looks for it yet; answers who does.
    pub fn recognise(&self, runtime: &Runtime) -> Vec<Rc<Recogniser>> {
        let asks = |classes: &Arc<Classes>| classes.asks_for_metadata();
        if !self.classes.borrow().as_ref().is_some_and(asks) {
            return Vec::new();
        }
        let (endpoints, plain) = (self.endpoints.borrow(), self.plain());
        let lacking = endpoints.iter().filter(|endpoint| endpoint.recogniser().is_none());
        let begin = |endpoint: &Rc<CoreEndpoint>| {
            let aside = plain.endpoint(endpoint.id).expect("it has the same doors");
            let device = CoreDevice::new(Rc::clone(&plain), aside, self.name.to_string());
            let recogniser = Recogniser::new(runtime.clone(), Rc::new(device));
            endpoint.recognise_by(Rc::clone(&recogniser));
            recogniser
        };
        lacking.map(begin).collect()
    }

    fn plain(&self) -> Rc<Self> {
        let make = || {
            let (name, geometry) = (self.name.clone(), self.geometry().clone());
            let slices = self.slices.borrow().clone();
            let plain = Self::new(name, geometry, self.slicing.get(), slices);
            let place = |endpoint: &Rc<CoreEndpoint>| {
                (endpoint.id, endpoint.place(), endpoint.geometry().stripe)
            };
            plain.place_endpoints(&self.endpoints.borrow().iter().map(place).collect::<Vec<_>>());
            Rc::new(plain)
        };
        Rc::clone(self.plain.borrow_mut().get_or_insert_with(make))
    }

    /// Those that were found, on all cores.
    pub fn file_systems(&self) -> Vec<CoreFileSystem> {
        let endpoints = self.endpoints.borrow();
        let looked =
            endpoints.iter().filter_map(|endpoint| Some((endpoint.id, endpoint.recogniser()?)));
        let found = |(core, recogniser): (u16, Rc<Recogniser>)| {
            recogniser.found().into_iter().map(move |found| CoreFileSystem { core, found })
        };
        looked.flat_map(found).collect()
    }

    /// What is known of a request while it is whole, and at its address on its core.
    fn mark(&self, request: &mut Request, endpoint: &CoreEndpoint) {
        if let Some(classes) = &*self.classes.borrow() {
            self.mark_class(request, classes, endpoint);
        }
    }

    /// What is known of it at its address below; the answer is kept as long as it is in flight.
    fn mark_below(&self, request: &mut Request, endpoint: &CoreEndpoint) -> Option<InFlight> {
        let run = self.mark_stream(request);
        match (run, request.kind) {
            (Some(run), RequestKind::Read) => self.read_ahead_of(request, run, endpoint.place()),
            _ => None,
        }
    }

    fn mark_stream(&self, request: &mut Request) -> Option<Sighting> {
        let cutoff = self.cutoff.get();
        let direction = match request.kind {
            RequestKind::Read => Direction::Read,
            RequestKind::Write => Direction::Write,
            _ => return None,
        };
        let is_cut = cutoff.policy != CutoffPolicy::Never;
        if !is_cut && (direction == Direction::Write || !self.reads_ahead()) {
            return None;
        }
        let stream_promotion = cutoff.stream_promotion();
        let run = self.streams.borrow_mut().observe(request.range, direction, stream_promotion);
        if is_cut && run.bytes > cutoff.threshold.bytes() {
            request.flags |= RequestFlags::STREAMING;
        }
        Some(run)
    }

    fn reads_ahead(&self) -> bool {
        let ahead = self.ahead.borrow();
        ahead.as_ref().is_some_and(|ahead| ahead.settings.policy == ReadaheadPolicy::Adaptive)
    }

    /// Begins to read what a reader will want next, where what it reads enters the cache.
    fn read_ahead_of(&self, request: &Request, run: Sighting, core: ByteRange) -> Option<InFlight> {
        let slicing = self.slicing.get();
        let mut ahead = self.ahead.borrow_mut();
        let ReadingAhead { slices, settings, windows } = ahead.as_mut()?;
        let admits = |part: (usize, ByteRange)| slices[part.0].admits(request);
        if settings.policy == ReadaheadPolicy::Off || !slicing.split(request.range).all(admits) {
            return None;
        }
        let limits = Limits {
            degree_max: settings.degree_max.bytes(),
            device_bytes: core.end(),
            stripe_bytes: self.geometry().stripe.map_or(0, |stripe| stripe.width_bytes.into()),
        };
        let worst = |range: ByteRange| {
            let parts = slicing.split(range).map(|(at, part)| slices[at].coverage(part));
            parts.max().unwrap_or(Coverage::Cached)
        };
        let Advance { in_flight, piece } = windows.advance(request.range, run, limits, worst)?;
        for (at, part) in piece.into_iter().flat_map(|piece| slicing.split(piece)) {
            let class = ClassId::new(request.hints.class.into()).unwrap_or_default();
            slices[at].read_ahead(part, class, request.buffers.is_payload_free());
        }
        Some(in_flight)
    }

    fn mark_class(&self, request: &mut Request, classes: &Classes, endpoint: &CoreEndpoint) {
        let is_write = match request.kind {
            RequestKind::Read => false,
            RequestKind::Write | RequestKind::WriteZeroes => true,
            RequestKind::Discard | RequestKind::Flush => return,
        };
        let facts = Facts {
            size_bytes: request.range.len(),
            lba: request.range.start() / SECTOR_BYTES,
            is_write,
            is_metadata: request.hints.metadata || is_metadata(request, classes, endpoint),
            core_id: endpoint.id.into(),
        };
        request.hints.class = classes.classify(&facts).get();
    }

    fn pass_on(&self, request: Request) -> Submission<'_> {
        let slicing = self.slicing.get();
        if let Some(slice) = slicing.single(request.range) {
            return self.submit_to(slice, request);
        }
        let parts = slicing.split(request.range);
        let submit = |(slice, part): (usize, ByteRange)| {
            self.submit_to(slice, request.part(part, part.start()))
        };
        Submission::pending(Self::all(parts.map(submit).collect()))
    }

    fn submit_to(&self, slice: usize, request: Request) -> Submission<'_> {
        let device = Rc::clone(&self.slices.borrow()[slice]);
        self.gate.pass(&device, request)
    }

    /// A request to a core, at its address there, which has been checked against it.
    pub fn enter<'a>(&'a self, mut request: Request, endpoint: &'a CoreEndpoint) -> Submission<'a> {
        if self.gate.is_held() {
            return Submission::pending(async move {
                self.gate.until_released().await;
                self.enter(request, endpoint).await
            });
        }
        if endpoint.is_closed() {
            return Submission::ready(Err(DeviceError::new(&self.name, Cause::Gone)));
        }
        if self.is_read_only.get() && request.is_mutation() {
            return Submission::ready(Err(DeviceError::new(&self.name, Cause::ReadOnly)));
        }
        endpoint.count(&request);
        if request.kind == RequestKind::Flush {
            return self.flush(&request);
        }
        self.mark(&mut request, endpoint);
        let recogniser = told_by(&request, endpoint);
        if endpoint.id != FIRST_CORE {
            request = request.part(request.range, endpoint.place().start() + request.range.start());
        }
        let in_flight = self.mark_below(&mut request, endpoint);
        let submission = self.pass_on(request);
        if in_flight.is_none() && recogniser.is_none() {
            return submission;
        }
        let done = move |outcome| {
            drop(in_flight);
            if let Some(recogniser) = recogniser {
                recogniser.look_again_later();
            }
            outcome
        };
        match submission.now_or() {
            Ok(outcome) => Submission::ready(done(outcome)),
            Err(pending) => Submission::pending(async move { done(pending.await) }),
        }
    }

    async fn all(submissions: Vec<Submission<'_>>) -> Outcome {
        join_all(submissions).await.into_iter().collect()
    }

    fn flush(&self, request: &Request) -> Submission<'_> {
        let slices = self.slicing.get().slices();
        if slices == 1 {
            return self.submit_to(0, request.clone());
        }
        let slices = 0..usize::from(slices);
        let flushes = slices.map(|slice| self.submit_to(slice, request.clone())).collect();
        Submission::pending(Self::all(flushes))
    }
}

fn is_metadata(request: &Request, classes: &Classes, endpoint: &CoreEndpoint) -> bool {
    let recogniser = if classes.asks_for_metadata() { endpoint.recogniser() } else { None };
    recogniser.is_some_and(|recogniser| recogniser.is_metadata(request))
}

/// The recogniser, where the request changes what it has to look at again.
fn told_by(request: &Request, endpoint: &CoreEndpoint) -> Option<Rc<Recogniser>> {
    let recogniser = if request.is_mutation() { endpoint.recogniser() } else { None };
    recogniser.filter(|recogniser| recogniser.is_watched(request.range))
}

impl Held<'_> {
    /// Deals addresses out in another way from now on.
    pub fn reslice(&self, slicing: Slicing) {
        assert_eq!(slicing.slices(), self.dispatcher.slicing.get().slices(), "fixed at create");
        self.dispatcher.slicing.set(slicing);
        if let Some(plain) = &*self.dispatcher.plain.borrow() {
            plain.slicing.set(slicing);
        }
    }

    /// Puts other devices in the place of the slices.
    ///
    /// # Panics
    /// Where there are not as many.
    pub fn replace(&self, slices: Vec<Rc<dyn BlockDevice>>) {
        self.dispatcher.put(slices);
    }
}

impl BlockDevice for RequestDispatcher {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        self.first.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind != RequestKind::Flush
            && let Err(error) = request.check(&self.name, self.geometry())
        {
            return Submission::ready(Err(error));
        }
        self.enter(request, &self.first)
    }

    fn expect(&self, ranges: &[ByteRange]) {
        let slicing = self.slicing.get();
        let slices = self.slices.borrow();
        if let [only] = slices.as_slice() {
            return only.expect(ranges);
        }
        for (at, slice) in slices.iter().enumerate() {
            let is_its = |range: &&ByteRange| slicing.single(**range) == Some(at);
            let its: SmallVec<[ByteRange; 16]> = ranges.iter().filter(is_its).copied().collect();
            slice.expect(&its);
        }
    }
}

#[cfg(test)]
impl RequestDispatcher {
    pub(crate) fn class_of(&self, mut request: Request) -> u8 {
        self.mark(&mut request, &self.first);
        request.hints.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ClassSetting, Size};
    use headpond_block::Buffer;
    use headpond_block::devices::RamDevice;
    use proptest::prelude::*;

    const SIZE: u64 = 64 << 20;

    fn dispatcher(slices: u16) -> (RequestDispatcher, Vec<Rc<RamDevice>>) {
        let devices: Vec<_> = (0..slices).map(|_| Rc::new(RamDevice::new("slice", SIZE))).collect();
        let parts = devices.iter().map(|device| Rc::clone(device) as Rc<dyn BlockDevice>).collect();
        let slicing = Slicing::new(slices, 64 << 10);
        let geometry = Geometry::of_size(SIZE);
        (RequestDispatcher::new("v".into(), geometry, slicing, parts), devices)
    }

    fn done(mut submission: Submission<'_>) -> Outcome {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(&mut submission).poll(&mut context) {
            std::task::Poll::Ready(outcome) => outcome,
            std::task::Poll::Pending => panic!("RAM answers at once"),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn every_byte_is_written_to_its_slice_and_read_back(
            slices in 1u16..5, start in 0u64..SIZE / 512, blocks in 1u64..40_000,
        ) {
            let (dispatcher, devices) = dispatcher(slices);
            let range = ByteRange::at(start * 512, (blocks * 512).min(SIZE - start * 512));
            let data: Vec<u8> = (0..range.len()).map(|at| (at % 251) as u8).collect();
            done((&dispatcher as &dyn BlockDevice).write(range.start(), Buffer::from_slice(&data))).unwrap();
            let back = Buffer::zeroed(data.len());
            done((&dispatcher as &dyn BlockDevice).read(range.start(), &back)).unwrap();
            prop_assert_eq!(back.to_vec(), &data[..]);
            let byte = range.start() + range.len() / 2;
            let slice = dispatcher.slicing.get().slice_of(byte);
            let held = devices[slice].memory().slice(byte as usize..byte as usize + 1).to_vec()[0];
            prop_assert_eq!(held, data[(range.len() / 2) as usize]);
        }
    }

    #[test]
    fn long_streams_are_marked_and_short_ones_are_not() {
        let (dispatcher, _) = dispatcher(1);
        let seq_cutoff = SeqCutoff::always(Size(8192));
        dispatcher.set(&CacheSettings { seq_cutoff, ..CacheSettings::default() });
        let marked = |offset: u64| {
            let mut request = Request::write(offset, Buffer::zeroed(4096));
            dispatcher.mark_below(&mut request, &dispatcher.first);
            request.flags.contains(RequestFlags::STREAMING)
        };
        assert_eq!([0, 4096, 8192, 1 << 20].map(marked), [false, false, true, false]);
    }

    #[test]
    fn a_request_has_the_class_of_the_whole_of_it_in_every_slice() {
        let (dispatcher, _) = dispatcher(4);
        let classes = "[[class]]\nid = 5\nwhen = \"request_size:gt:128000&lba:ge:8\"\n";
        let classes = ClassSetting::parse(classes).unwrap();
        dispatcher.set(&CacheSettings { classes, ..CacheSettings::default() });
        let class = |offset: u64, len: usize| {
            let mut request = Request::write(offset, Buffer::zeroed(len));
            dispatcher.mark(&mut request, &dispatcher.first);
            assert_eq!(dispatcher.class_of(request.clone()), request.hints.class);
            let part = request.part(ByteRange::at(offset, 512), offset);
            assert_eq!(part.hints.class, request.hints.class);
            request.hints.class
        };
        assert_eq!([class(4096, 131_072), class(0, 131_072), class(4096, 65_536)], [5, 0, 0]);
        dispatcher.set(&CacheSettings::default());
        assert_eq!(class(4096, 131_072), 0);
    }
}
