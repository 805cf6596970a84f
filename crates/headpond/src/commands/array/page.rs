//! Planned arrays as one page that needs nothing else.

use super::Planned;
use super::report::{self, Pick, SPEEDS};
use headpond_report::{COLOURS, Chart, Compared, Comparison, Entry, Scale, Unit};
use headpond_report::{document, escape, section, side_by_side, verbatim};
use headpond_whatif::Condition;
use headpond_whatif::plan::{Assumptions, AtDepth, DriveFigures};

const MODELLED: &str = "Modelled: figures are computed by formulas, and by a model where they say simulated; none was \
     measured.";

/// The whole page.
pub fn page(drive: &DriveFigures, given: &Assumptions, arrays: &[Planned]) -> String {
    let names: Vec<_> = arrays.iter().map(|it| it.name.as_str()).collect();
    let tables = report::tables(arrays).into_iter().filter(|(_, table)| !table.is_empty());
    let tables: String = tables.map(|(title, table)| section(title, &table.draw())).collect();
    let body = format!(
        "<h1>Arrays: {}</h1>\n{}{}{tables}<p>{}</p>\n",
        escape(&names.join(", ")),
        verbatim(&report::head(drive)),
        side_by_side(&charts(arrays)),
        escape(&report::notes(drive, given)),
    );
    document("arrays", MODELLED, &body)
}

/// A chart for each kind of load, with a bar for each condition; and one with a bar for each depth,
/// and for what the simulator says of it.
fn charts(arrays: &[Planned]) -> Vec<Chart> {
    let conditions = SPEEDS.into_iter().map(|(title, pick)| {
        let names = Condition::ALL.iter().map(Condition::to_string);
        let speed =
            |it: &Planned, condition| it.plan.when(condition).map(|expected| pick(expected.full));
        chart(title, names, arrays, |it| Condition::ALL.map(|when| speed(it, when)).to_vec())
    });
    let depths = SPEEDS.into_iter().map(|(title, pick)| {
        by_depth(&format!("{title}, healthy, by requests in flight"), arrays, pick)
    });
    conditions.chain(depths).collect()
}

type Source = fn(&Planned) -> &[AtDepth];
const SOURCES: [(&str, Source); 2] = [("", expected), (", simulated", simulated)];

fn by_depth(title: &str, arrays: &[Planned], pick: Pick) -> Chart {
    let depths = arrays.iter().map(expected).find(|it| !it.is_empty()).unwrap_or_default();
    let is_known = |(_, of): &(&str, Source)| arrays.iter().any(|it| !of(it).is_empty());
    let sources: Vec<_> = SOURCES.into_iter().filter(is_known).collect();
    let all = || (0..depths.len()).flat_map(|at| sources.iter().map(move |of| (at, of)));
    let names = all().map(|(at, (of, _))| format!("depth {}{of}", depths[at].depth));
    let speed = |it: &AtDepth| pick(it.speeds);
    chart(title, names, arrays, |it| all().map(|(at, (_, of))| of(it).get(at).map(speed)).collect())
}

fn expected(array: &Planned) -> &[AtDepth] {
    array.plan.when(Condition::Healthy).map_or(&[], |it| &it.by_depth)
}

fn simulated(array: &Planned) -> &[AtDepth] {
    array.simulated.first().map_or(&[], |it| &it.by_depth)
}

/// Bars of these names for each array.
fn chart(
    title: &str,
    names: impl Iterator<Item = String>,
    arrays: &[Planned],
    speeds: impl Fn(&Planned) -> Vec<Option<f64>>,
) -> Chart {
    let bar = |speed: Option<f64>| speed.map(|value| Compared { value, span: None });
    let row = |it: &Planned| (it.name.clone(), speeds(it).into_iter().map(bar).collect());
    let entry = |(index, name): (usize, String)| Entry::new(&name, index % COLOURS);
    let comparison = Comparison {
        title: title.to_owned(),
        note: String::new(),
        series: names.enumerate().map(entry).collect(),
        rows: arrays.iter().map(row).collect(),
        scale: Scale::Linear(Unit::Number),
    };
    comparison.draw()
}
