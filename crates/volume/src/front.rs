//! The volume as its clients see it: requests are recognised as streams, split, and joined again.

use crate::settings::SeqCutoff;
use crate::slicing::Slicing;
use crate::streams::StreamTable;
use headpond_block::sync::{Busy, Notify, join_all};
use headpond_block::{
    BlockDevice, ByteRange, DeviceName, Geometry, Outcome, Request, RequestFlags, RequestKind,
    Submission, start,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Splits requests over the slices. Streams are recognised before the split, where they are whole.
pub struct Front {
    name: DeviceName,
    geometry: Geometry,
    slicing: Slicing,
    slices: RefCell<Vec<Rc<dyn BlockDevice>>>,
    streams: RefCell<StreamTable>,
    cutoff: Cell<SeqCutoff>,
    /// Requests that the slices have not answered yet.
    busy: Busy,
    is_held: Cell<bool>,
    released: Notify,
}

/// New requests wait while this is there.
pub struct Held<'a>(&'a Front);

impl Front {
    /// # Panics
    /// Where there are not as many slices as `slicing` says.
    pub fn new(
        name: DeviceName,
        geometry: Geometry,
        slicing: Slicing,
        slices: Vec<Rc<dyn BlockDevice>>,
        cutoff: SeqCutoff,
    ) -> Self {
        let front = Self {
            name,
            geometry,
            slicing,
            slices: RefCell::default(),
            streams: RefCell::new(StreamTable::new()),
            cutoff: Cell::new(cutoff),
            busy: Busy::default(),
            is_held: Cell::new(false),
            released: Notify::new(),
        };
        front.put(slices);
        front
    }

    /// Lets no request in until the answer is dropped, and waits for those that are.
    ///
    /// # Panics
    /// Where it is held already.
    pub async fn hold(&self) -> Held<'_> {
        assert!(!self.is_held.replace(true), "one at a time changes what lies below");
        let held = Held(self);
        self.busy.until_idle().await;
        held
    }

    fn put(&self, slices: Vec<Rc<dyn BlockDevice>>) {
        assert_eq!(slices.len(), usize::from(self.slicing.slices()), "one device a slice");
        self.slices.replace(slices);
    }

    pub fn set_cutoff(&self, cutoff: SeqCutoff) {
        self.cutoff.set(cutoff);
    }

    fn mark_stream(&self, request: &mut Request) {
        let SeqCutoff::After(threshold) = self.cutoff.get() else { return };
        if !matches!(request.kind, RequestKind::Read | RequestKind::Write) {
            return;
        }
        let run_bytes = self.streams.borrow_mut().observe(request.range);
        if run_bytes > threshold.bytes() {
            request.flags |= RequestFlags::STREAMING;
        }
    }

    fn submit_to(&self, slice: usize, request: Request) -> Submission<'_> {
        let device = Rc::clone(&self.slices.borrow()[slice]);
        match start(&device, request) {
            Ok(outcome) => Submission::ready(outcome),
            Err(started) => {
                let busy = self.busy.begin();
                Submission::pending(async move {
                    let _busy = busy;
                    started.await
                })
            }
        }
    }

    async fn all(submissions: Vec<Submission<'_>>) -> Outcome {
        join_all(submissions).await.into_iter().collect()
    }

    fn flush(&self, request: &Request) -> Submission<'_> {
        if self.slicing.slices() == 1 {
            return self.submit_to(0, request.clone());
        }
        let slices = 0..usize::from(self.slicing.slices());
        let flushes = slices.map(|slice| self.submit_to(slice, request.clone())).collect();
        Submission::pending(Self::all(flushes))
    }
}

impl Held<'_> {
    /// Puts other devices in the place of the slices.
    ///
    /// # Panics
    /// Where there are not as many.
    pub fn replace(&self, slices: Vec<Rc<dyn BlockDevice>>) {
        self.0.put(slices);
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.is_held.set(false);
        self.0.released.notify_all();
    }
}

impl BlockDevice for Front {
    fn name(&self) -> &DeviceName {
        &self.name
    }

    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn submit(&self, mut request: Request) -> Submission<'_> {
        if self.is_held.get() {
            return Submission::pending(async move {
                while self.is_held.get() {
                    self.released.wait().await;
                }
                self.submit(request).await
            });
        }
        if request.kind == RequestKind::Flush {
            return self.flush(&request);
        }
        if let Err(error) = request.check(&self.name, &self.geometry) {
            return Submission::ready(Err(error));
        }
        self.mark_stream(&mut request);
        if let Some(slice) = self.slicing.single(request.range) {
            return self.submit_to(slice, request);
        }
        let parts = self.slicing.split(request.range);
        let submit = |(slice, part): (usize, ByteRange)| {
            self.submit_to(slice, request.part(part, part.start()))
        };
        Submission::pending(Self::all(parts.map(submit).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Size;
    use headpond_block::Buffer;
    use headpond_block::devices::RamDevice;
    use proptest::prelude::*;

    const SIZE: u64 = 64 << 20;

    fn front(slices: u16) -> (Front, Vec<Rc<RamDevice>>) {
        let devices: Vec<_> = (0..slices).map(|_| Rc::new(RamDevice::new("slice", SIZE))).collect();
        let parts = devices.iter().map(|device| Rc::clone(device) as Rc<dyn BlockDevice>).collect();
        let slicing = Slicing::new(slices, 64 << 10);
        let geometry = Geometry::of_size(SIZE);
        (Front::new("v".into(), geometry, slicing, parts, SeqCutoff::Never), devices)
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
            let (front, devices) = front(slices);
            let range = ByteRange::at(start * 512, (blocks * 512).min(SIZE - start * 512));
            let data: Vec<u8> = (0..range.len()).map(|at| (at % 251) as u8).collect();
            done((&front as &dyn BlockDevice).write(range.start(), Buffer::from_slice(&data))).unwrap();
            let back = Buffer::zeroed(data.len());
            done((&front as &dyn BlockDevice).read(range.start(), &back)).unwrap();
            prop_assert_eq!(back.to_vec(), &data[..]);
            let byte = range.start() + range.len() / 2;
            let slice = front.slicing.slice_of(byte);
            let held = devices[slice].memory().slice(byte as usize..byte as usize + 1).to_vec()[0];
            prop_assert_eq!(held, data[(range.len() / 2) as usize]);
        }
    }

    #[test]
    fn long_streams_are_marked_and_short_ones_are_not() {
        let (front, _) = front(1);
        front.set_cutoff(SeqCutoff::After(Size(8192)));
        let marked = |offset: u64| {
            let mut request = Request::write(offset, Buffer::zeroed(4096));
            front.mark_stream(&mut request);
            request.flags.contains(RequestFlags::STREAMING)
        };
        assert_eq!([0, 4096, 8192, 1 << 20].map(marked), [false, false, true, false]);
    }
}
