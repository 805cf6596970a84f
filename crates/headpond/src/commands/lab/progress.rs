//! How far a plan is.

use headpond_lab::{Cell, Ending, Plan, Watcher, iops};
use headpond_report::number;
use headpond_whatif::rounds::Round;
use indicatif::{ProgressBar, ProgressStyle};

/// A bar on standard error, a step for each round.
pub struct Bar<'a> {
    plan: &'a Plan,
    bar: ProgressBar,
    /// Cells that are over, of how many.
    over: usize,
    cells: usize,
}

impl<'a> Bar<'a> {
    pub fn new(plan: &'a Plan, cells: usize) -> Self {
        let rounds = |cell: &Cell| u64::from(plan.rounds_of(&plan.targets[cell.target]).most());
        let all = plan.cells();
        let total: u64 = all.iter().map(rounds).sum();
        let bar = ProgressBar::new(total * cells as u64 / all.len().max(1) as u64);
        let template = "{wide_bar} {msg} (left: {eta})";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is ours"));
        Self { plan, bar, over: 0, cells }
    }

    pub fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, what: &str) {
        self.bar.set_message(format!("{} of {} cells; {what}", self.over, self.cells));
    }
}

impl Watcher for Bar<'_> {
    fn begins(&mut self, cell: &Cell) {
        self.say(&cell.title(self.plan));
    }

    fn round(&mut self, cell: &Cell, number_of_round: u32, round: &Round) {
        let title = cell.title(self.plan);
        self.bar.inc(1);
        self.say(&format!("{title}, round {}: {}/s", number_of_round + 1, number(iops(round))));
    }

    fn ends(&mut self, _: &Cell, ending: &Ending) {
        self.over += 1;
        match ending {
            Ending::Cut { why } => self.say(&format!("cut short: {why}")),
            Ending::LeftOut { why } => self.say(&format!("left out: {why}")),
            Ending::Failed { why } => self.say(&format!("failed: {why}")),
            Ending::Complete | Ending::Steady { .. } | Ending::NotSteady { .. } => {}
        }
    }

    fn prepares(&mut self, what: &str) {
        self.say(what);
    }
}
