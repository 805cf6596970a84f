//! Arm and spindle: where the heads are, and when a sector passes under them.

use super::{
    layout::{HeadPosition, Sector},
    model::HddModel,
};
use std::rc::Rc;

/// What the head does where it goes; writing needs it quieter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Read,
    Write,
}

/// Sectors start at fractions of a nanosecond: less than this early is not late by a turn.
const ROUNDING_NS: u64 = 100;

/// The moving parts of one drive. Times are nanoseconds since the start of the runtime.
#[derive(Clone, Debug)]
pub(super) struct Mechanism {
    model: Rc<HddModel>,
    /// Where in its turn the spindle was at time zero.
    phase_ns: u64,
    cylinder: u32,
    head: u32,
    /// The last sector that passed.
    last: Sector,
}

impl Mechanism {
    /// Heads at the outer edge, spindle `phase_ns` into its turn at time zero.
    pub(super) fn new(model: Rc<HddModel>, phase_ns: u64) -> Self {
        let phase_ns = phase_ns % model.revolution_ns;
        Self { model, phase_ns, cylinder: 0, head: 0, last: 0 }
    }

    /// The sector that passed last: where the heads are, as an address.
    pub(super) fn last(&self) -> Sector {
        self.last
    }

    /// When the first bit of `sector` passes under its head if the arm sets out at `at`.
    pub(super) fn reach(&self, sector: Sector, at: u64, purpose: Purpose) -> u64 {
        self.reach_late(sector, at, purpose, 0)
    }

    /// The same where the data to be written is not there before `not_before`.
    pub(super) fn reach_late(
        &self,
        sector: Sector,
        at: u64,
        purpose: Purpose,
        not_before: u64,
    ) -> u64 {
        if sector == self.last + 1 {
            return self.continues(sector, at.max(not_before));
        }
        let place = self.model.layout().place(sector);
        self.next_pass(place, self.arrives(place, at, purpose).max(not_before))
    }

    /// When `sector` passes if the heads simply stay on after the one before it ended at `ended`.
    pub(super) fn continues(&self, sector: Sector, ended: u64) -> u64 {
        assert!(sector > 0, "there is one before it");
        let layout = self.model.layout();
        let (before, place) = (layout.place(sector - 1), layout.place(sector));
        match place.is_on_track_of(&before) {
            true => self.next_pass(place, ended.saturating_sub(ROUNDING_NS)),
            false => self.next_pass(place, ended + self.switch_ns(before, place)),
        }
    }

    /// Goes to `sectors` from `sector` and takes each as it passes, in whatever order: heads that
    /// come down among them need not wait for the first. Answers when the first and when the last
    /// to be taken has passed.
    pub(super) fn take_on_arrival(
        &mut self,
        sector: Sector,
        sectors: u64,
        at: u64,
        purpose: Purpose,
    ) -> (u64, u64) {
        let place = self.model.layout().place(sector);
        let arrives = self.arrives(place, at, purpose);
        let first = self.next_pass(place, arrives);
        let mut pass = self.passage(sector, first);
        let taken = pass.time_ns(pass.sectors.min(sectors));
        let turn = self.model.revolution_ns;
        if arrives + turn > first && arrives + turn < first + taken {
            pass.ends = arrives + turn + pass.time_ns(pass.sectors.saturating_sub(sectors));
        }
        (first, self.follow_from(pass, sector, sectors))
    }

    /// Follows `sectors` from `sector`, whose first bit passes at `at`; leaves the heads on the
    /// last track and answers when the last bit has passed.
    pub(super) fn follow(&mut self, sector: Sector, sectors: u64, at: u64) -> u64 {
        let pass = self.passage(sector, at);
        self.follow_from(pass, sector, sectors)
    }

    fn follow_from(&mut self, mut pass: Passage, sector: Sector, sectors: u64) -> u64 {
        while pass.sectors < sectors {
            pass = self.next_run(pass);
        }
        let excess = pass.sectors - sectors;
        self.stand_on(sector + sectors - 1);
        pass.ends - pass.time_ns(excess)
    }

    /// Like [`Self::follow`], but for as long as until `until` and for at most `sectors_max`;
    /// answers how many sectors have passed by then.
    pub(super) fn follow_until(
        &mut self,
        sector: Sector,
        sectors_max: u64,
        at: u64,
        until: u64,
    ) -> u64 {
        let mut pass = self.passage(sector, at);
        while pass.ends < until && pass.sectors < sectors_max {
            pass = self.next_run(pass);
        }
        let missing = pass.sectors_in(pass.ends.saturating_sub(until)).min(pass.run);
        let passed = (pass.sectors - missing).min(sectors_max);
        if passed > 0 {
            self.stand_on(sector + passed - 1);
        }
        passed
    }

    /// The first of the sectors right before `sector` on its track that pass while a head that sets
    /// out at `at` waits for it.
    pub(super) fn passing_before(&self, sector: Sector, at: u64) -> Sector {
        if sector == self.last + 1 {
            return sector;
        }
        let layout = self.model.layout();
        let arrives = self.arrives(layout.place(sector), at, Purpose::Read);
        let passes = |sector| self.next_pass(layout.place(sector), arrives);
        let (mut low, mut high) = (layout.track_of(sector).start, sector);
        while low < high {
            let middle = low + (high - low) / 2;
            match passes(middle) < passes(sector) {
                true => high = middle,
                false => low = middle + 1,
            }
        }
        low
    }

    fn stand_on(&mut self, sector: Sector) {
        let place = self.model.layout().place(sector);
        (self.cylinder, self.head, self.last) = (place.cylinder, place.head, sector);
    }

    /// When the head is settled on the track of `place`.
    pub(super) fn arrives(&self, place: HeadPosition, at: u64, purpose: Purpose) -> u64 {
        let move_ns = self.move_ns(place);
        let settled_ns = match purpose {
            Purpose::Write if move_ns > 0 => {
                move_ns.saturating_add_signed(self.model.write_settle_ns)
            }
            _ => move_ns,
        };
        at + settled_ns
    }

    fn move_ns(&self, place: HeadPosition) -> u64 {
        let switch = if place.head == self.head { 0 } else { self.model.head_switch_ns };
        self.model.seek.time_ns(place.cylinder.abs_diff(self.cylinder)).max(switch)
    }

    /// The first time not before `at` at which `place` starts to pass.
    fn next_pass(&self, place: HeadPosition, at: u64) -> u64 {
        let turn = self.model.revolution_ns;
        let target = place.angle.nanos(turn);
        let angle = (at + self.phase_ns) % turn;
        at + (target + turn - angle) % turn
    }

    /// The sectors from `sector` that lie without a gap on its track; it passes at `at`.
    fn passage(&self, sector: Sector, at: u64) -> Passage {
        let place = self.model.layout().place(sector);
        let mut pass = Passage {
            next: sector + place.run,
            sectors: place.run,
            run: place.run,
            ends: at,
            per_track: u64::from(place.sectors_per_track),
            turn_ns: self.model.revolution_ns,
        };
        pass.ends += pass.time_ns(place.run);
        pass
    }

    /// Goes on behind a defect, or to the track behind, for which the skew leaves just time enough.
    fn next_run(&self, pass: Passage) -> Passage {
        let starts = self.continues(pass.next, pass.ends);
        let run = self.passage(pass.next, starts);
        Passage { sectors: pass.sectors + run.sectors, ..run }
    }

    /// From the end of one track to the next in address.
    fn switch_ns(&self, from: HeadPosition, to: HeadPosition) -> u64 {
        let switch = if from.head == to.head { 0 } else { self.model.head_switch_ns };
        self.model.seek.time_ns(from.cylinder.abs_diff(to.cylinder)).max(switch)
    }
}

/// How far a run along the tracks has come.
#[derive(Clone, Copy, Debug)]
struct Passage {
    next: Sector,
    /// Passed since the start.
    sectors: u64,
    /// Of these, the last ones without a gap.
    run: u64,
    ends: u64,
    per_track: u64,
    turn_ns: u64,
}

impl Passage {
    fn time_ns(&self, sectors: u64) -> u64 {
        sectors * self.turn_ns / self.per_track
    }

    fn sectors_in(&self, ns: u64) -> u64 {
        (ns * self.per_track).div_ceil(self.turn_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mechanism() -> Mechanism {
        Mechanism::new(Rc::new(HddModel::builtin("hdd-7k2-4t").unwrap()), 1_234_567)
    }

    #[test]
    fn the_sector_just_read_comes_back_one_turn_later() {
        let mut heads = mechanism();
        let first = heads.reach(5_000_000, 0, Purpose::Read);
        let end = heads.follow(5_000_000, 8, first);
        let again = heads.reach(5_000_000, end, Purpose::Write);
        let turn = heads.model.revolution_ns();
        assert!(again.abs_diff(first + turn) < 10, "{first} then {again}");
    }

    #[test]
    fn a_long_run_moves_at_the_rate_of_the_data_sheet() {
        let mut heads = mechanism();
        let sectors = 1_000_000;
        let start = heads.reach(0, 0, Purpose::Read);
        let outer_ns = heads.follow(0, sectors, start) - start;
        let last = heads.model.layout().sectors - sectors;
        let start = heads.reach(last, start + outer_ns, Purpose::Read);
        let inner_ns = heads.follow(last, sectors, start) - start;
        let rate = |ns: u64| sectors as f64 * 512.0 / (ns as f64 / 1e9) / 1e6;
        assert!((165.0..190.0).contains(&rate(outer_ns)), "{} MB/s outside", rate(outer_ns));
        assert!((80.0..95.0).contains(&rate(inner_ns)), "{} MB/s inside", rate(inner_ns));
    }

    #[test]
    fn following_until_the_end_passes_what_following_passes() {
        for sectors in [1, 8, 3000, 10_000] {
            let mut heads = mechanism();
            let start = heads.reach(77_777, 0, Purpose::Read);
            let end = heads.clone().follow(77_777, sectors, start);
            assert_eq!(heads.clone().follow_until(77_777, 100_000, start, end), sectors);
            assert_eq!(heads.follow_until(77_777, 100_000, start, start), 0);
        }
    }

    #[test]
    fn random_reads_cost_a_seek_and_half_a_turn() {
        let mut heads = mechanism();
        let sectors = heads.model.layout().sectors;
        let (mut at, mut sector, reads) = (0, 1, 20_000);
        for _ in 0..reads {
            sector = (sector * 48_271 + 11) % (sectors / 8);
            let start = heads.reach(sector * 8, at, Purpose::Read);
            at = heads.follow(sector * 8, 8, start);
        }
        let mean_ms = at as f64 / 1e6 / f64::from(reads);
        assert!((12.0..13.2).contains(&mean_ms), "mean access {mean_ms} ms");
    }
}
