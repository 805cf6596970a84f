//! The cores of a volume as one core device below its cache.
//!
//! A request goes to the one core that it lies on; one that touches the room between cores is
//! refused. FLUSH goes to all, beside each other.
//!
//! **Source** of the geometry: what a cleaner fills is a full stripe of every core where it is a
//! multiple of all their stripes, so the stripe of the whole is the least one; where that is too
//! long to be gathered, there is none.

use super::places::Places;
use headpond_block::sync::join_all;
use headpond_block::{
    BlockDevice, Cause, DeviceError, DeviceName, Geometry, Outcome, Request, RequestKind,
    StripeGeometry, Submission,
};
use std::cell::Cell;
use std::rc::Rc;

/// Longest stripe that a cleaner is asked to fill.
const STRIPE_BYTES_MAX: u64 = 8 << 20;

/// Cores one behind the other, with room between them.
pub(crate) struct SpanDevice {
    name: DeviceName,
    geometry: Geometry,
    places: Places,
    cores: Vec<Rc<dyn BlockDevice>>,
    /// By core: who fails one is not told by what all of them answer.
    failed_flushes: Vec<Cell<u64>>,
}

impl SpanDevice {
    /// # Panics
    /// Where these are not the cores that have those places.
    pub fn new(places: Places, cores: Vec<Rc<dyn BlockDevice>>) -> Self {
        let geometry = geometry(&places, &cores);
        for (index, core) in cores.iter().enumerate() {
            assert_eq!(places.range_of(index).len(), core.size_bytes(), "the place of this core");
        }
        let failed_flushes = vec![Cell::new(0); cores.len()];
        Self { name: DeviceName::new("the cores"), geometry, places, cores, failed_flushes }
    }

    pub fn failed_flushes(&self) -> Vec<u64> {
        self.failed_flushes.iter().map(Cell::get).collect()
    }

    pub fn reset_failed_flushes(&self) {
        self.failed_flushes.iter().for_each(|failed| failed.set(0));
    }

    async fn flush(&self, request: Request) -> Outcome {
        let flushes = self.cores.iter().map(|core| core.submit(request.clone())).collect();
        let outcomes = join_all(flushes).await;
        for (outcome, failed) in outcomes.iter().zip(&self.failed_flushes) {
            failed.set(failed.get() + u64::from(outcome.is_err()));
        }
        outcomes.into_iter().collect()
    }

    fn refusal(&self, request: &Request) -> DeviceError {
        let size_bytes = self.geometry.size_bytes;
        DeviceError::new(&self.name, Cause::OutOfRange { range: request.range, size_bytes })
    }
}

impl BlockDevice for SpanDevice {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        if request.kind == RequestKind::Flush {
            return Submission::pending(self.flush(request));
        }
        match self.places.find(request.range) {
            Some((core, range)) => {
                self.cores[core].submit(request.part(request.range, range.start()))
            }
            None => Submission::ready(Err(self.refusal(&request))),
        }
    }
}

/// What all of them can promise.
fn geometry(places: &Places, cores: &[Rc<dyn BlockDevice>]) -> Geometry {
    let first = cores.first().expect("a volume has a core").geometry();
    let mut whole = Geometry { size_bytes: places.end(), ..first.clone() };
    for core in cores.iter().map(|core| core.geometry()) {
        whole.logical_block_bytes = whole.logical_block_bytes.max(core.logical_block_bytes);
        whole.preferred_bytes = whole.preferred_bytes.max(core.preferred_bytes);
        whole.stability = whole.stability.worst(core.stability);
        whole.rotational |= core.rotational;
    }
    whole.stripe = common_stripe(places, cores);
    whole
}

fn common_stripe(places: &Places, cores: &[Rc<dyn BlockDevice>]) -> Option<StripeGeometry> {
    let stripes = cores.iter().filter_map(|core| core.geometry().stripe);
    let strip_bytes = stripes.map(|stripe| stripe.strip_bytes).min()?;
    let width_bytes = places.unit_bytes();
    (width_bytes <= STRIPE_BYTES_MAX)
        .then_some(StripeGeometry { strip_bytes, width_bytes: width_bytes as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::cores::places::Shape;
    use headpond_block::devices::RamDevice;
    use headpond_block::{Buffer, ByteRange, Stability};
    use proptest::prelude::*;
    use std::task::{Context, Poll, Waker};

    const BLOCK: u64 = 4096;

    /// Memory that counts its flushes, and refuses them when it is told to.
    struct Counted {
        memory: RamDevice,
        flushes: Cell<u32>,
        refuses: Cell<bool>,
    }

    impl BlockDevice for Counted {
        fn name(&self) -> &DeviceName {
            self.memory.name()
        }

        fn geometry(&self) -> &Geometry {
            self.memory.geometry()
        }

        fn submit(&self, request: Request) -> Submission<'_> {
            if request.kind == RequestKind::Flush {
                self.flushes.set(self.flushes.get() + 1);
                if self.refuses.get() {
                    return Submission::ready(Err(DeviceError::new(self.name(), Cause::Gone)));
                }
            }
            self.memory.submit(request)
        }
    }

    fn span(geometries: Vec<Geometry>) -> (SpanDevice, Vec<Rc<Counted>>) {
        let shapes: Vec<_> = geometries.iter().map(Shape::of).collect();
        let places = Places::of(&shapes).unwrap();
        let core = |geometry: Geometry| {
            let memory = RamDevice::with_geometry("core", geometry);
            Rc::new(Counted { memory, flushes: Cell::new(0), refuses: Cell::new(false) })
        };
        let cores: Vec<_> = geometries.into_iter().map(core).collect();
        let devices = cores.iter().map(|core| Rc::clone(core) as Rc<dyn BlockDevice>).collect();
        (SpanDevice::new(places, devices), cores)
    }

    fn done(mut submission: Submission<'_>) -> Outcome {
        let mut context = Context::from_waker(Waker::noop());
        match std::pin::Pin::new(&mut submission).poll(&mut context) {
            Poll::Ready(outcome) => outcome,
            Poll::Pending => panic!("RAM answers at once"),
        }
    }

    fn striped(blocks: u64, strip_bytes: u32, data_members: u32) -> Geometry {
        let width_bytes = strip_bytes * data_members;
        let stripe = Some(StripeGeometry { strip_bytes, width_bytes });
        Geometry { stripe, ..Geometry::of_size(blocks * BLOCK) }
    }

    #[derive(Clone, Debug)]
    struct Step {
        core: usize,
        /// Relative to the start of the core, and beyond its end too.
        block: i64,
        blocks: u64,
        byte: u8,
    }

    prop_compose! {
        fn a_step()(core in 0usize..4, block in -3i64..70, blocks in 1u64..8, byte: u8) -> Step {
            Step { core, block, blocks, byte }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        /// Against one vector of bytes a core.
        #[test]
        fn each_core_has_what_was_written_to_it_and_nothing_else(
            sizes in proptest::collection::vec(1u64..64, 1..4),
            steps in proptest::collection::vec(a_step(), 1..40),
        ) {
            let (span, cores) = span(sizes.iter().map(|blocks| striped(*blocks, 4096, 3)).collect());
            let mut twins: Vec<Vec<u8>> =
                sizes.iter().map(|blocks| vec![0; (blocks * BLOCK) as usize]).collect();
            for Step { core, block, blocks, byte } in steps {
                let core = core % sizes.len();
                let start = span.places.range_of(core).start() as i64 + block * BLOCK as i64;
                let Ok(start) = u64::try_from(start) else { continue };
                let data = vec![byte; (blocks * BLOCK) as usize];
                let written = done((&span as &dyn BlockDevice).write(start, Buffer::from_slice(&data)));
                let is_inside = block >= 0 && block as u64 + blocks <= sizes[core];
                prop_assert_eq!(written.is_ok(), is_inside);
                if is_inside {
                    let at = block as usize * BLOCK as usize;
                    twins[core][at..at + data.len()].copy_from_slice(&data);
                    let back = Buffer::zeroed(data.len());
                    done((&span as &dyn BlockDevice).read(start, &back)).unwrap();
                    prop_assert_eq!(back.to_vec(), data);
                }
            }
            for (core, twin) in cores.iter().zip(&twins) {
                prop_assert_eq!(&core.memory.memory().to_vec(), twin);
            }
        }
    }

    #[test]
    fn a_flush_reaches_every_core_and_is_no_better_than_the_worst_of_them() {
        let (span, cores) = span(vec![striped(4, 4096, 2), striped(8, 4096, 3)]);
        done((&span as &dyn BlockDevice).flush()).unwrap();
        cores[0].refuses.set(true);
        assert!(done((&span as &dyn BlockDevice).flush()).is_err());
        assert_eq!([cores[0].flushes.get(), cores[1].flushes.get()], [2, 2]);
        assert_eq!(span.failed_flushes(), [1, 0]);
    }

    #[test]
    fn the_whole_promises_what_all_of_them_keep() {
        let flushable = Geometry { stability: Stability::Flushable, ..striped(64, 65536, 3) };
        let large =
            Geometry { logical_block_bytes: 4096, rotational: true, ..striped(64, 16384, 8) };
        let (both, _) = span(vec![flushable.clone(), large]);
        let geometry = both.geometry();
        assert_eq!((geometry.stability, geometry.rotational), (Stability::Flushable, true));
        assert_eq!(geometry.logical_block_bytes, 4096);
        let stripe = geometry.stripe.unwrap();
        assert_eq!((stripe.width_bytes, stripe.strip_bytes), (384 << 10, 16384));
        let (same, _) = span(vec![flushable.clone(), flushable.clone()]);
        assert_eq!(same.geometry().stripe, flushable.stripe);
        let (long, _) = span(vec![striped(64, 65536, 7), striped(64, 65536, 11 * 13)]);
        assert_eq!(long.geometry().stripe, None, "nobody gathers 62 MiB");
    }

    #[test]
    fn nothing_is_addressed_between_two_cores() {
        let (span, _) = span(vec![striped(4, 4096, 2), striped(8, 4096, 2)]);
        let between = ByteRange::at(4 * BLOCK, BLOCK);
        assert!(done(span.submit(Request::discard(between))).is_err());
        assert!(done(span.submit(Request::write_zeroes(ByteRange::at(0, 5 * BLOCK)))).is_err());
        done(span.submit(Request::write_zeroes(ByteRange::at(0, 4 * BLOCK)))).unwrap();
    }
}
