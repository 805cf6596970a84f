//! How long the processor takes for models: pieces of some cells are gone through, and the rest is
//! taken to be like them.
//!
//! **Not here**: what a piece cannot show, as a cache that fills later than it ends.

use super::course;
use super::virtual_time::{self, VirtualError, rounds};
use crate::plan::{Cell, Kind, Plan};
use headpond_whatif::rounds::{Length, Round, Rounds, simulate_rounds};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Cells that are looked at, evenly over all that are left.
const CELLS_MAX: usize = 8;
/// A piece is over after so long on the clock of this world, at the end of a step of virtual time.
const PIECE: Duration = Duration::from_millis(200);
const STEP: Duration = Duration::from_millis(50);

/// The time of models on the clock of this world.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ModelTime {
    pub seconds: f64,
    /// Cells that pieces were gone through of, and all that are left.
    pub probed: usize,
    pub cells: usize,
    /// Machines that are gone through side by side.
    pub at_once: usize,
}

/// What a piece of a cell cost.
struct Piece {
    /// Seconds of this world: to put the machine together, and for the piece.
    setup: f64,
    took: f64,
    /// Seconds of its own, and bytes moved by each phase on average.
    virtual_seconds: f64,
    bytes: f64,
}

/// The time of what is left of a plan on models; nothing where there is none.
///
/// # Errors
/// Where a machine cannot be put together.
pub fn model_time(plan: &Plan, done: &BTreeSet<usize>) -> Result<Option<ModelTime>, VirtualError> {
    let batches = course::batches(plan, done).into_iter();
    let is_model = |batch: &Vec<Cell>| plan.targets[batch[0].target].kind() == Kind::Machine;
    let mut cells: Vec<_> = batches.filter(is_model).flatten().collect();
    if cells.is_empty() {
        return Ok(None);
    }
    // What is alike is side by side, so that a few of them stand for all.
    cells.sort_by_key(|cell| cell.number);
    let probed = cells.len().min(CELLS_MAX);
    let mut seconds = 0.0;
    for number in 0..probed {
        let cell = &cells[(2 * number + 1) * cells.len() / (2 * probed)];
        seconds += whole(plan, cell, &piece(plan, cell)?) / probed as f64;
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let at_once = threads.min(cells.len());
    let seconds = seconds * cells.len() as f64 / at_once as f64;
    Ok(Some(ModelTime { seconds, probed, cells: cells.len(), at_once }))
}

/// What all rounds of a cell take whose piece took so long.
fn whole(plan: &Plan, cell: &Cell, piece: &Piece) -> f64 {
    let target = &plan.targets[cell.target];
    let round = plan.rounds_of(target);
    let phases = cell.load.rw.split('+').count() as f64;
    let rate = piece.took / piece.virtual_seconds.max(1e-9);
    let seconds = match (round.pass, plan.matrix.size) {
        // The region once, at the rate at which it was moved.
        (true, Some(size)) => size.bytes() as f64 / piece.bytes.max(1.0) * piece.virtual_seconds,
        _ => round.seconds,
    };
    piece.setup + f64::from(round.most()) * phases * seconds * rate
}

/// Goes through the beginning of a cell.
fn piece(plan: &Plan, cell: &Cell) -> Result<Piece, VirtualError> {
    let target = &plan.targets[cell.target];
    let stack = target.stack(&cell.settings)?;
    let all = rounds(plan, std::slice::from_ref(cell)).remove(0);
    let length = match all.length {
        Length::Time(length) => length.min(STEP),
        Length::Pass => STEP,
    };
    let phases = all.phases.len();
    let steps = Rounds { length: Length::Time(length), windows: 1, ..all };
    let (begun, mut since, mut bytes, mut count) = (Instant::now(), None, 0.0, 0_u32);
    let most = (plan.rounds_of(target).seconds * 1e3 / length.as_millis().max(1) as f64) as u32;
    let seed = virtual_time::seed(plan, cell);
    simulate_rounds(&stack, &[steps], seed, &mut |_, round| {
        // The first step is counted with what comes before it.
        let Some(first) = since else {
            since = Some(Instant::now());
            return true;
        };
        bytes += moved(&round);
        count += 1;
        first.elapsed() < PIECE && count < most.max(1)
    })?;
    let since = since.unwrap_or(begun);
    let (setup, took) = (since.duration_since(begun), since.elapsed());
    Ok(Piece {
        setup: setup.as_secs_f64(),
        took: took.as_secs_f64(),
        virtual_seconds: f64::from(count) * length.as_secs_f64() * phases as f64,
        bytes: bytes / phases as f64,
    })
}

fn moved(round: &Round) -> f64 {
    let sides = round.jobs.iter().map(|job| {
        let rate = job.measured.read.mb_per_s + job.measured.write.mb_per_s;
        rate * 1e6 * job.measured.seconds
    });
    sides.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODEL: &str = "name = \"t\"\n[[target]]\nname = \"it\"\n\
        machine = { core = { raid = 0, drives = 1, drive = \"ssd-dc-960g\" } }\n\
        [matrix]\nrw = [\"randread\", \"write\"]\nbs = [\"4K\"]\ndepth = [1, 2, 4, 8, 16, 32]\n\
        [rounds]\nwarm_up = 1\ncount = 2\nseconds = 10\n";

    fn cell(plan: &Plan, piece: &Piece) -> f64 {
        whole(plan, &plan.cells()[0], piece)
    }

    #[test]
    fn a_few_cells_stand_for_all_that_are_left_and_real_targets_have_none() {
        let plan = Plan::parse(MODEL).unwrap();
        let time = model_time(&plan, &BTreeSet::new()).unwrap().unwrap();
        assert_eq!((time.probed, time.cells), (8, 12));
        assert!(time.seconds > 0.0 && time.at_once >= 1, "{time:?}");
        let left = model_time(&plan, &(0..9).collect()).unwrap().unwrap();
        assert_eq!((left.probed, left.cells), (3, 3));
        assert_eq!(model_time(&plan, &(0..12).collect()).unwrap(), None);
        let machine = "machine = { core = { raid = 0, drives = 1, drive = \"ssd-dc-960g\" } }";
        let real = Plan::parse(&MODEL.replace(machine, "device = \"/dev/x\"")).unwrap();
        assert_eq!(model_time(&real, &BTreeSet::new()).unwrap(), None);
    }

    #[test]
    fn all_rounds_take_what_the_piece_took_of_each_second_and_passes_what_their_bytes_take() {
        let plan = Plan::parse(MODEL).unwrap();
        let piece = Piece { setup: 1.0, took: 0.5, virtual_seconds: 2.0, bytes: 1e6 };
        // Three rounds of ten seconds at a quarter of a second each.
        assert!((cell(&plan, &piece) - 8.5).abs() < 1e-9);
        let passes =
            MODEL.replace("seconds = 10", "pass = true").replace("rw =", "size = \"1M\"\nrw =");
        let passes = Plan::parse(&passes).unwrap();
        let seconds = 3.0 * 1.048576 * 2.0 * 0.25;
        assert!((cell(&passes, &piece) - 1.0 - seconds).abs() < 1e-9);
    }
}
