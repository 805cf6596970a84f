//! Arm and spindle: where the heads are, and when a sector passes under them.

use super::{
    layout::{Place, Sector},
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
        if sector == self.last + 1 {
            return self.continues(sector, at);
        }
        let place = self.model.layout().place(sector);
        let move_ns = self.move_ns(place);
        let settle_ns = match purpose {
            Purpose::Write if move_ns > 0 => self.model.write_settle_ns,
            _ => 0,
        };
        self.next_pass(place, at + move_ns + settle_ns)
    }

    /// When `sector` passes if the heads simply stay on after the one before it ended at `ended`.
    pub(super) fn continues(&self, sector: Sector, ended: u64) -> u64 {
        let place = self.model.layout().place(sector);
        match place.index {
            0 => self.next_pass(place, ended + self.switch_ns(place)),
            _ => self.next_pass(place, ended.saturating_sub(ROUNDING_NS)),
        }
    }

    /// Follows `sectors` from `sector`, whose first bit passes at `at`; leaves the heads on the
    /// last track and answers when the last bit has passed.
    pub(super) fn follow(&mut self, sector: Sector, sectors: u64, at: u64) -> u64 {
        let mut pass = self.passage(sector, at);
        while pass.sectors < sectors {
            pass = self.next_track(pass);
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
            pass = self.next_track(pass);
        }
        let missing = pass.sectors_in(pass.ends.saturating_sub(until)).min(pass.on_track);
        let passed = (pass.sectors - missing).min(sectors_max);
        if passed > 0 {
            self.stand_on(sector + passed - 1);
        }
        passed
    }

    fn stand_on(&mut self, sector: Sector) {
        let place = self.model.layout().place(sector);
        (self.cylinder, self.head, self.last) = (place.cylinder, place.head, sector);
    }

    fn move_ns(&self, place: Place) -> u64 {
        let switch = if place.head == self.head { 0 } else { self.model.head_switch_ns };
        self.model.seek.time_ns(place.cylinder.abs_diff(self.cylinder)).max(switch)
    }

    /// The first time not before `at` at which `place` starts to pass.
    fn next_pass(&self, place: Place, at: u64) -> u64 {
        let turn = self.model.revolution_ns;
        let heads = u64::from(self.model.parameters().geometry.heads);
        let per_cylinder = (heads - 1) * self.model.head_skew_ns + self.model.cylinder_skew_ns;
        let track_start = u64::from(place.cylinder) * per_cylinder
            + u64::from(place.head) * self.model.head_skew_ns;
        let along = u64::from(place.index) * turn / u64::from(place.sectors_per_track);
        let target = (track_start + along) % turn;
        let angle = (at + self.phase_ns) % turn;
        at + (target + turn - angle) % turn
    }

    /// The rest of the track from `sector`, which passes at `at`.
    fn passage(&self, sector: Sector, at: u64) -> Passage {
        let place = self.model.layout().place(sector);
        let on_track = u64::from(place.sectors_per_track - place.index);
        let per_track = u64::from(place.sectors_per_track);
        let mut pass = Passage {
            next: sector + on_track,
            sectors: on_track,
            on_track,
            ends: at,
            per_track,
            turn_ns: self.model.revolution_ns,
        };
        pass.ends += pass.time_ns(on_track);
        pass
    }

    /// Goes on to the track behind, for which the skew leaves just time enough.
    fn next_track(&self, pass: Passage) -> Passage {
        let place = self.model.layout().place(pass.next);
        let starts = self.next_pass(place, pass.ends + self.switch_ns(place));
        let track = self.passage(pass.next, starts);
        Passage { sectors: pass.sectors + track.sectors, ..track }
    }

    /// From the end of the track before to the one of `place`.
    fn switch_ns(&self, place: Place) -> u64 {
        match place.head {
            0 => self.model.seek.time_ns(1).max(self.model.head_switch_ns),
            _ => self.model.head_switch_ns,
        }
    }
}

/// How far a run along the tracks has come.
#[derive(Clone, Copy, Debug)]
struct Passage {
    next: Sector,
    /// Passed since the start of the run.
    sectors: u64,
    /// Of these, on the last track.
    on_track: u64,
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
