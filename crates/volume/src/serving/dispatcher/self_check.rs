//! That doors, slices and what is recognised before them fit each other.

use super::RequestDispatcher;
use headpond_block::ByteRange;
use std::rc::Rc;

impl RequestDispatcher {
    /// Checks by where requests come in, and where they go; for tests and simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub fn self_check(&self) {
        let (endpoints, slicing) = (self.endpoints.borrow(), self.slicing.get());
        let slices = usize::from(slicing.slices());
        assert_eq!(self.slices.borrow().len(), slices, "each slice has a device");
        assert!(
            !endpoints.iter().any(|endpoint| endpoint.is_closed()),
            "requests come in by open doors"
        );
        let is_first = endpoints.first().is_some_and(|endpoint| Rc::ptr_eq(endpoint, &self.first));
        assert!(is_first, "the first door is the volume's own");
        let is_behind = |one: &ByteRange, next: &ByteRange| one.end() < next.start();
        assert!(self.places().is_sorted_by(is_behind), "no address lies behind two doors");
        self.streams.borrow().self_check();
        if let Some(ahead) = &*self.ahead.borrow() {
            assert_eq!(ahead.slices.len(), slices, "each slice is read ahead into");
            ahead.windows.self_check();
        }
        if let Some(plain) = &*self.plain.borrow() {
            plain.self_check();
            assert_eq!(plain.places(), self.places(), "metadata is looked for by the same doors");
            assert_eq!(plain.slicing.get(), slicing, "metadata is dealt out in the same way");
        }
        for recogniser in endpoints.iter().filter_map(|endpoint| endpoint.recogniser()) {
            recogniser.self_check();
        }
    }

    /// What lies behind the doors, in order of address.
    pub fn places(&self) -> Vec<ByteRange> {
        self.endpoints.borrow().iter().map(|endpoint| endpoint.place()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assembly::slicing::Slicing;
    use headpond_block::devices::RamDevice;
    use headpond_block::{BlockDevice, Geometry};
    use headpond_testkit::{Break, assert_trips};

    /// Of two cores in two slices, by which metadata is looked for.
    fn dispatcher() -> RequestDispatcher {
        let slices: [Rc<dyn BlockDevice>; 2] =
            ["a", "b"].map(|name| Rc::new(RamDevice::new(name, 64 << 20)) as _);
        let geometry = Geometry::of_size(16 << 20);
        let dispatcher =
            RequestDispatcher::new("v".into(), geometry, Slicing::new(2, 64 << 10), slices.into());
        let places = [0, 32 << 20].map(|start| ByteRange::at(start, 16 << 20));
        dispatcher.place_endpoints(&[(1, places[0], None), (2, places[1], None)]);
        dispatcher.plain();
        dispatcher
    }

    #[test]
    fn check_notices_doors_and_slices_that_do_not_fit() {
        let breaks: [Break<RequestDispatcher>; 7] = [
            ("each slice has a device", |it| _ = it.slices.borrow_mut().pop()),
            ("by open doors", |it| it.endpoints.borrow()[1].close()),
            ("the volume's own", |it| it.endpoints.borrow_mut().reverse()),
            ("behind two doors", |it| {
                it.endpoints.borrow()[1].move_to(ByteRange::at(4096, 16 << 20), None);
            }),
            ("by the same doors", |it| _ = it.endpoints.borrow_mut().pop()),
            ("dealt out in the same way", |it| it.slicing.set(Slicing::new(2, 12 << 20))),
            ("each slice is read ahead into", |it| {
                let (slices, settings, windows) = Default::default();
                it.ahead.replace(Some(super::super::ReadingAhead { slices, settings, windows }));
            }),
        ];
        assert_trips(dispatcher, RequestDispatcher::self_check, &breaks);
    }
}
