//! How long a plan takes, on the clock of this world.

use super::{course, place};
use crate::plan::{Cell, Kind, Plan, RoundPlan, Target};
use std::collections::BTreeSet;

/// So fast a target is taken to be filled, in 10^6 bytes a second: what a SATA drive writes.
pub const FILL_MB_PER_S: f64 = 500.0;

/// The time of what is left of a plan, as far as it is known before.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Seconds of rounds, fills and pauses: where every cell is steady at once, and where none is.
    pub least: f64,
    pub most: f64,
    /// Of both, what fills take at [`FILL_MB_PER_S`].
    pub fills: f64,
    /// Seconds that models go through at most, in a time of their own and not of this world.
    pub of_models: f64,
    /// What takes as long as it takes, and is in none of these.
    pub unknown: Vec<String>,
}

/// The time of a plan of which some cells are done.
pub fn estimate(plan: &Plan, done: &BTreeSet<usize>) -> Estimate {
    let batches = course::batches(plan, done);
    let mut estimate = Estimate::default();
    let mut prepared = BTreeSet::new();
    for batch in &batches {
        let target = &plan.targets[batch[0].target];
        // Virtual time passes as it likes.
        if target.kind() == Kind::Machine {
            let rounds = plan.rounds_of(target);
            estimate.of_models += f64::from(rounds.most()) * round_seconds(rounds, batch);
            continue;
        }
        if prepared.insert(batch[0].target) {
            estimate.prepare(plan, target);
        }
        estimate.measure(plan, target, batch);
    }
    estimate
}

impl Estimate {
    fn prepare(&mut self, plan: &Plan, target: &Target) {
        let (precondition, name) = (&plan.precondition, &target.name);
        if precondition.purge {
            self.unknown.push(format!("to discard everything on {name}"));
        }
        if precondition.fills > 0 {
            let size = plan.matrix.size.or(target.size).map(|size| size.bytes());
            let bytes = |it: &Target| size.or_else(|| place::bytes(it));
            match target.each().iter().map(bytes).sum::<Option<u64>>() {
                Some(bytes) => {
                    let bytes = bytes as f64 * f64::from(precondition.fills);
                    self.add_fills(bytes / (FILL_MB_PER_S * 1e6));
                }
                None => self.unknown.push(format!("to fill {name}, whose size is not said")),
            }
        }
        if plan.rounds_of(target).pass {
            self.unknown.push(format!("to pass over {name}, once a round"));
        }
    }

    fn add_fills(&mut self, seconds: f64) {
        self.fills += seconds;
        self.least += seconds;
        self.most += seconds;
    }

    fn measure(&mut self, plan: &Plan, target: &Target, batch: &[Cell]) {
        let rounds = plan.rounds_of(target);
        let round = round_seconds(rounds, batch);
        self.least += f64::from(rounds.fewest()) * round + rounds.cool_down_seconds;
        self.most += f64::from(rounds.most()) * round + rounds.cool_down_seconds;
        assert!(self.least <= self.most, "{self:?}");
    }
}

/// A round of all cells of a batch; of passes nobody knows.
fn round_seconds(rounds: &RoundPlan, batch: &[Cell]) -> f64 {
    let phases: usize = batch.iter().map(|cell| cell.load.rw.split('+').count()).sum();
    if rounds.pass { 0.0 } else { rounds.seconds * phases as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MATRIX: &str = "[matrix]\nrw = [\"write+read\", \"read\"]\nbs = [\"4K\"]\n";
    const FILE: &str = "[[target]]\nname = \"it\"\nfile = \"/nonexistent/x\"\nsize = \"5G\"\n";

    fn of(text: &str, done: &[usize]) -> Estimate {
        let plan = Plan::parse(&format!("name = \"t\"\n{text}")).unwrap();
        estimate(&plan, &done.iter().copied().collect())
    }

    #[test]
    fn rounds_of_each_phase_and_pauses_are_counted_of_what_is_left() {
        let rounds = "[rounds]\nwarm_up = 1\ncount = 2\nseconds = 10\ncool_down_seconds = 5\n";
        let text = format!("{FILE}{MATRIX}{rounds}");
        let all = of(&text, &[]);
        assert_eq!((all.least, all.most, all.fills), (100.0, 100.0, 0.0));
        assert_eq!(of(&text, &[0]).most, 35.0);
        assert_eq!(of(&text, &[0, 1]), Estimate::default());
        let steady = text.replace("count = 2", "steady = { rounds = 3, most = 5 }");
        let steady = of(&steady, &[]);
        assert_eq!((steady.least, steady.most), (130.0, 190.0));
    }

    #[test]
    fn fills_are_counted_once_at_the_rate_that_is_said_and_what_is_not_known_is_named() {
        let rounds = "[rounds]\nwarm_up = 0\ncount = 1\nseconds = 1\n[precondition]\nfills = 2\n";
        let text = format!("{FILE}{MATRIX}{rounds}purge = true\n");
        let filled = of(&text, &[]);
        let fills = 2.0 * f64::from(5 << 10) * 1_048_576.0 / 500e6;
        assert!((filled.fills - fills).abs() < 1e-9 && (filled.most - fills - 3.0).abs() < 1e-9);
        assert_eq!(filled.unknown, ["to discard everything on it"]);
        let export =
            text.replace("file = \"/nonexistent/x\"\nsize = \"5G\"", "export = \"nbd://h\"");
        let export = of(&export.replace("seconds = 1", "pass = true"), &[]);
        assert_eq!((export.fills, export.most, export.unknown.len()), (0.0, 0.0, 3));
        assert!(export.unknown[1].contains("whose size is not said"), "{export:?}");
        assert_eq!(export.unknown[2], "to pass over it, once a round");
    }

    #[test]
    fn models_take_no_time_of_this_world() {
        let model = "[[target]]\nname = \"it\"\nmachine = { core = { raid = 0, drives = 1, \
                     drive = \"ssd-dc-960g\" } }\n";
        let rounds = "[rounds]\nwarm_up = 1\ncount = 2\nseconds = 10\n";
        let estimate = of(&format!("{model}{MATRIX}{rounds}"), &[]);
        let own = Estimate { of_models: 90.0, ..Estimate::default() };
        assert_eq!(estimate, own, "but of their own: three rounds of three phases");
    }
}
