//! Progress of a plan.

use headpond_daemon::progress_bar;
use headpond_lab::{Cell, Ending, Plan, Watcher, iops};
use headpond_report::number;
use headpond_whatif::rounds::Round;
use indicatif::ProgressBar;
use std::collections::BTreeMap;
use std::io::IsTerminal;

/// A bar on standard error, a step for each round; a line for each cell where that is no terminal.
pub struct Bar<'a> {
    plan: &'a Plan,
    bar: ProgressBar,
    has_lines: bool,
    /// Cells that are over, of how many.
    over: usize,
    cells: usize,
    /// Rounds of cells that are not over, and the last figure of each.
    under_way: BTreeMap<usize, (u32, f64)>,
}

impl<'a> Bar<'a> {
    /// For these cells, in so many rounds at most.
    pub fn new<'b>(plan: &'a Plan, left: impl Iterator<Item = &'b Cell>) -> Self {
        let rounds: Vec<_> = left.map(|cell| u64::from(most(plan, cell))).collect();
        let bar = ProgressBar::new(rounds.iter().sum());
        bar.set_style(progress_bar::style("{wide_bar} {msg} (left: {left})"));
        let has_lines = !std::io::stderr().is_terminal();
        let (cells, under_way) = (rounds.len(), BTreeMap::new());
        Self { plan, bar, has_lines, over: 0, cells, under_way }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, what: &str) {
        self.bar.set_message(format!("{} of {} cells; {what}", self.over, self.cells));
    }

    fn say_line(&self, cell: &Cell, what: &str) {
        if !self.has_lines {
            return;
        }
        let left = match self.cells - self.over {
            0 => String::new(),
            _ => format!(" (left: {})", progress_bar::left(self.bar.eta())),
        };
        let title = cell.title(self.plan);
        eprintln!("{} of {} cells{left}: {title}: {what}", self.over, self.cells);
    }
}

/// Rounds of a cell at most.
fn most(plan: &Plan, cell: &Cell) -> u32 {
    plan.rounds_of(&plan.targets[cell.target]).most()
}

impl Watcher for Bar<'_> {
    fn begins(&mut self, cell: &Cell) {
        self.under_way.insert(cell.number, (0, 0.0));
        self.say(&cell.title(self.plan));
    }

    fn round(&mut self, cell: &Cell, number_of_round: u32, round: &Round) {
        let (title, iops) = (cell.title(self.plan), iops(round));
        self.under_way.insert(cell.number, (number_of_round + 1, iops));
        self.bar.inc(1);
        self.say(&format!("{title}, round {}: {}/s", number_of_round + 1, number(iops)));
    }

    fn ends(&mut self, cell: &Cell, ending: &Ending) {
        self.over += 1;
        let (rounds, iops) = self.under_way.remove(&cell.number).unwrap_or_default();
        // Cells that were steady early or left out need no more rounds.
        let spared = u64::from(most(self.plan, cell).saturating_sub(rounds));
        let length = self.bar.length().unwrap_or_default();
        self.bar.set_length(length.saturating_sub(spared));
        let what = match ending {
            Ending::Cut { why } => format!("cut short: {why}"),
            Ending::LeftOut { why } => format!("left out: {why}"),
            Ending::Failed { why } => format!("failed: {why}"),
            Ending::Complete | Ending::Steady { .. } | Ending::NotSteady { .. } => {
                let figure = format!("{}/s in the last of {rounds} rounds", number(iops));
                self.say_line(cell, &figure);
                return;
            }
        };
        self.say(&what);
        self.say_line(cell, &what);
    }

    fn prepares(&mut self, what: &str) {
        self.say(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "name = \"t\"\n[[target]]\nname = \"it\"\nfile = \"/nonexistent/x\"\n\
        size = \"1G\"\n[matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\ndepth = [1, 2, 4]\n\
        [rounds]\nwarm_up = 2\nsteady = { rounds = 5, most = 20 }\n";

    #[test]
    fn rounds_that_a_steady_state_spares_are_not_waited_for() {
        let plan = Plan::parse(PLAN).unwrap();
        let (cells, round) = (plan.cells(), round());
        let mut bar = Bar::new(&plan, cells.iter().skip(1));
        assert_eq!(bar.bar.length(), Some(44));
        bar.begins(&cells[1]);
        (0..7).for_each(|number| bar.round(&cells[1], number, &round));
        bar.ends(&cells[1], &Ending::NotSteady { drift: None });
        assert_eq!((bar.bar.position(), bar.bar.length()), (7, Some(29)));
        bar.ends(&cells[2], &Ending::LeftOut { why: "it would wait too long".into() });
        assert_eq!((bar.bar.position(), bar.bar.length()), (7, Some(7)));
    }

    #[test]
    fn a_cell_that_needs_all_rounds_spares_none() {
        let plan = Plan::parse(PLAN).unwrap();
        let (cells, round) = (plan.cells(), round());
        let mut bar = Bar::new(&plan, cells.iter());
        bar.begins(&cells[0]);
        (0..22).for_each(|number| bar.round(&cells[0], number, &round));
        bar.ends(&cells[0], &Ending::NotSteady { drift: None });
        assert_eq!((bar.bar.position(), bar.bar.length()), (22, Some(66)));
    }

    fn round() -> Round {
        Round { jobs: Vec::new(), windows: Vec::new(), latencies: Vec::new(), machine: None }
    }
}
