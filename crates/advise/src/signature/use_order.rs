//! Seats in the order of their last use.
//!
//! **Invariants**: a ring through all seats that are in, and through place 0, which is nobody's:
//! behind it is the one used longest ago, before it the one used last.

use super::edges::{SEATS, Seat};

/// The ring.
#[derive(Debug)]
pub(crate) struct UseOrder {
    /// Before and behind each place; a seat has the place after its number.
    links: Box<[[Seat; 2]; SEATS + 1]>,
    len: usize,
}

impl Default for UseOrder {
    fn default() -> Self {
        Self { links: Box::new([[0; 2]; SEATS + 1]), len: 0 }
    }
}

impl UseOrder {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A seat that was not in is used.
    #[inline]
    pub(crate) fn push(&mut self, seat: Seat) {
        self.len += 1;
        self.link(usize::from(seat) + 1);
    }

    /// A seat that is in is used.
    #[inline]
    pub(crate) fn renew(&mut self, seat: Seat) {
        let place = usize::from(seat) + 1;
        if usize::from(self.links[0][0]) != place {
            self.unlink(place);
            self.link(place);
        }
    }

    /// Takes a seat out.
    #[inline]
    pub(crate) fn remove(&mut self, seat: Seat) {
        assert!(self.len > 0, "the seat is in");
        self.len -= 1;
        self.unlink(usize::from(seat) + 1);
    }

    /// The seat used longest ago.
    #[inline]
    pub(crate) fn oldest(&self) -> Option<Seat> {
        self.links[0][1].checked_sub(1)
    }

    #[inline]
    fn link(&mut self, place: usize) {
        let latest = self.links[0][0];
        self.links[place] = [latest, 0];
        self.links[usize::from(latest)][1] = place as Seat;
        self.links[0][0] = place as Seat;
    }

    #[inline]
    fn unlink(&mut self, place: usize) {
        let [before, behind] = self.links[place];
        self.links[usize::from(before)][1] = behind;
        self.links[usize::from(behind)][0] = before;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_oldest_is_the_front_of_a_queue(
            steps in prop::collection::vec((any::<bool>(), 0u16..30), 0..300),
        ) {
            let (mut ours, mut queue) = (UseOrder::default(), Vec::new());
            for (is_used, seat) in steps {
                let at = queue.iter().position(|&other| other == seat);
                at.map(|at| queue.remove(at));
                match (is_used, at) {
                    (true, Some(_)) => ours.renew(seat),
                    (true, None) => ours.push(seat),
                    (false, Some(_)) => ours.remove(seat),
                    (false, None) => {}
                }
                if is_used {
                    queue.push(seat);
                }
                prop_assert_eq!((ours.oldest(), ours.len()), (queue.first().copied(), queue.len()));
            }
        }
    }
}
