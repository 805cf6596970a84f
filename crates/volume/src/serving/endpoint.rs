//! Where the requests of one core come in, and the core as a device of its own.
//!
//! Lifecycle: 1. a door is there for as long as its core is; 2. it moves when cores before it go or
//! grow, and grows with its own; 3. it is closed when its core goes, and then answers that the core
//! is gone.

use crate::serving::dispatcher::RequestDispatcher;
use crate::serving::metadata::Recogniser;
use headpond_block::{
    BlockDevice, ByteRange, Cause, ChangingGeometry, DeviceError, DeviceName, Geometry, Request,
    RequestKind, StripeGeometry, Submission,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// One of the cores, seen from above.
pub(crate) struct CoreEndpoint {
    /// What rules call the core.
    pub id: u16,
    place: Cell<ByteRange>,
    /// What its clients are told.
    geometry: ChangingGeometry,
    is_closed: Cell<bool>,
    counts: Cell<CoreCounts>,
    /// Where a rule asks for metadata.
    recogniser: RefCell<Option<Rc<Recogniser>>>,
}

/// What clients have asked of one core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CoreCounts {
    pub reads: u64,
    pub read_bytes: u64,
    pub writes: u64,
    pub written_bytes: u64,
    pub flushes: u64,
    /// Discards and writes of zeros.
    pub others: u64,
}

/// A further core as its clients see it.
pub struct CoreDevice {
    dispatcher: Rc<RequestDispatcher>,
    endpoint: Rc<CoreEndpoint>,
    name: DeviceName,
}

impl CoreEndpoint {
    pub fn new(id: u16, place: ByteRange, geometry: Geometry) -> Self {
        assert_eq!(place.len(), geometry.size_bytes, "a core is told in its size");
        let (is_closed, counts) = (Cell::new(false), Cell::default());
        let (place, geometry) = (Cell::new(place), ChangingGeometry::new(geometry));
        Self { id, place, geometry, is_closed, counts, recogniser: RefCell::default() }
    }

    /// What clients are told of the core.
    pub fn geometry(&self) -> &Geometry {
        self.geometry.now()
    }

    /// Where the core lies among the addresses below.
    pub fn place(&self) -> ByteRange {
        self.place.get()
    }

    /// The core lies there from now on, with these stripes. It may have grown.
    pub fn move_to(&self, place: ByteRange, stripe: Option<StripeGeometry>) {
        let told = self.geometry().clone();
        self.geometry.change(Geometry { size_bytes: place.len(), stripe, ..told });
        self.place.set(place);
    }

    pub fn close(&self) {
        self.is_closed.set(true);
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// Who finds the metadata on the core, where somebody does.
    pub fn recogniser(&self) -> Option<Rc<Recogniser>> {
        self.recogniser.borrow().clone()
    }

    pub fn recognise_by(&self, recogniser: Rc<Recogniser>) {
        assert!(self.recogniser.replace(Some(recogniser)).is_none(), "one for each core");
    }

    pub fn counts(&self) -> CoreCounts {
        self.counts.get()
    }

    pub fn reset_counts(&self) {
        self.counts.take();
    }

    pub fn count(&self, request: &Request) {
        let mut counts = self.counts.get();
        match request.kind {
            RequestKind::Read => {
                counts.reads += 1;
                counts.read_bytes += request.range.len();
            }
            RequestKind::Write => {
                counts.writes += 1;
                counts.written_bytes += request.range.len();
            }
            RequestKind::Flush => counts.flushes += 1,
            RequestKind::Discard | RequestKind::WriteZeroes => counts.others += 1,
        }
        self.counts.set(counts);
    }
}

impl CoreDevice {
    pub(crate) fn new(
        dispatcher: Rc<RequestDispatcher>,
        endpoint: Rc<CoreEndpoint>,
        name: String,
    ) -> Self {
        Self { dispatcher, endpoint, name: DeviceName::new(name) }
    }
}

impl BlockDevice for CoreDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        self.endpoint.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind != RequestKind::Flush
            && let Err(error) = request.check(&self.name, self.geometry())
        {
            return Submission::ready(Err(error));
        }
        if self.endpoint.is_closed() {
            return Submission::ready(Err(DeviceError::new(&self.name, Cause::Gone)));
        }
        self.dispatcher.enter(request, &self.endpoint)
    }

    fn expect(&self, ranges: &[ByteRange]) {
        let start = self.endpoint.place().start();
        let below = |range: &ByteRange| ByteRange::at(start + range.start(), range.len());
        let below: SmallVec<[ByteRange; 16]> = ranges.iter().map(below).collect();
        self.dispatcher.expect(&below);
    }
}
