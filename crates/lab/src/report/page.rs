//! Results as one page that needs nothing else.

use super::over_time::{course, latencies};
use super::text::{cells, origin, remarks};
use crate::answer::{Answer, answers};
use crate::environment::{Environment, ExportFacts, TargetFacts};
use crate::results::Results;
use headpond_report::{Table, cards, document, escape, folded, listed, part, section};
use headpond_report::{side_by_side, size};

/// More charts over time than this say nothing to anybody.
const COURSES_MAX: usize = 120;

/// The whole page.
pub fn page(results: &Results) -> String {
    let plan = &results.plan;
    let answers = answers(results);
    let answered: String = answers.iter().map(answer).collect();
    let remarks = remarks(results);
    let remarks = match remarks.is_empty() {
        true => String::new(),
        false => part("To know of single cells", &listed(&remarks)),
    };
    let cells = part("All cells", &section("", &cells(results).draw()));
    let measured_on = section("", &environment(&results.environment));
    let body = format!(
        "<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n{}{answered}{remarks}{cells}{}{}",
        escape(&plan.name),
        escape(&plan.question),
        cards(figures(results)),
        courses(results),
        part("On what it was measured", &measured_on),
    );
    document(&plan.name, &origin(plan), &body)
}

fn figures(results: &Results) -> Vec<(&'static str, String)> {
    let measured = results.measured().count();
    let rounds: usize = results.cells.iter().map(|cell| cell.rounds.len()).sum();
    vec![
        ("cells measured", format!("{measured} of {}", results.cells.len())),
        ("rounds", rounds.to_string()),
        ("targets", results.plan.targets.len().to_string()),
    ]
}

fn answer(answer: &Answer) -> String {
    let grids = answer.grids.iter().map(|(title, grid)| section(title, &grid.draw()));
    let grids: String = grids.collect();
    let charts = side_by_side(&answer.charts);
    let tables: String =
        answer.tables.iter().filter(|it| !it.is_empty()).map(Table::draw).collect();
    let tables = match tables.is_empty() {
        true => tables,
        false => section("", &folded("figures", &tables)),
    };
    part(&answer.title, &(listed(&answer.sentences) + &grids + &charts + &tables))
}

/// The first of each target, in order, where there are more than so many: none goes without.
fn shared_out<T>(of_targets: Vec<(usize, T)>, most: usize) -> Vec<T> {
    let mut seen = std::collections::BTreeMap::new();
    let rank = |target: usize| {
        let rank = seen.entry(target).or_insert(0_usize);
        *rank += 1;
        *rank
    };
    let ranks: Vec<_> = of_targets.iter().map(|(target, _)| *target).map(rank).collect();
    let mut by_rank: Vec<_> = (0..ranks.len()).collect();
    by_rank.sort_by_key(|&index| ranks[index]);
    let kept: std::collections::BTreeSet<_> = by_rank.into_iter().take(most).collect();
    let all = of_targets.into_iter().enumerate();
    all.filter(|(index, _)| kept.contains(index)).map(|(_, (_, it))| it).collect()
}

/// Each cell over time.
fn courses(results: &Results) -> String {
    let cells = results.measured().map(|(cell, _)| cell);
    let charts = cells.flat_map(|cell| {
        let of_cell = [course(results, cell), latencies(results, cell)].into_iter().flatten();
        of_cell.map(|chart| (cell.cell.target, chart))
    });
    let charts: Vec<_> = charts.collect();
    let count = charts.len();
    if count == 0 {
        return String::new();
    }
    let left_out = match count.saturating_sub(COURSES_MAX) {
        0 => String::new(),
        more => format!("<p>{more} more are left out.</p>\n"),
    };
    let figures = side_by_side(&shared_out(charts, COURSES_MAX));
    let summary = format!("{count} charts: each cell's throughput, and its latency");
    part("Over time", &folded(&summary, &(figures + &left_out)))
}

fn environment(environment: &Environment) -> String {
    let mut rows = vec![
        ("kernel", environment.kernel.clone()),
        ("processor", format!("{} ({} usable)", environment.processor, environment.processors)),
        ("memory", format!("{:.1} GiB", environment.memory_gib)),
        ("headpond", environment.lab.clone()),
    ];
    if let Some(fio) = &environment.fio {
        rows.push(("load", fio.clone()));
    }
    let rows = rows.into_iter().map(|(name, value)| [name.to_owned(), value]);
    let targets = environment.targets.iter().flat_map(rows_of);
    Table::of(&["", ""], 2, rows.chain(targets)).draw()
}

/// A target, and what it is made of and set to.
fn rows_of(facts: &TargetFacts) -> Vec<[String; 2]> {
    let part = |part: &TargetFacts| {
        let name = format!("{}, {}", facts.name, part.name);
        rows_of(&TargetFacts { name, ..part.clone() })
    };
    let changed = facts.settings.iter().filter(|it| !it.is_default);
    let changed: Vec<_> = changed.map(|it| format!("{} {}", it.name, it.value)).collect();
    let settings = match facts.settings.is_empty() {
        true => None,
        false if changed.is_empty() => Some("as delivered".to_owned()),
        false => Some(changed.join(", ")),
    };
    let settings = settings.map(|words| [format!("{}, settings", facts.name), words]);
    let parts = facts.parts.iter().flat_map(part);
    let alike = facts.alike.iter().zip(2..).flat_map(|(one, number)| {
        let name = format!("{}, array {number}", facts.name);
        rows_of(&TargetFacts { name, ..one.clone() })
    });
    [target(facts)].into_iter().chain(parts).chain(settings).chain(alike).collect()
}

fn target(facts: &TargetFacts) -> [String; 2] {
    let named =
        |name: &str, value: &Option<String>| value.as_ref().map(|value| format!("{name} {value}"));
    let parts = [
        Some(facts.place.clone()),
        facts.model.clone(),
        named("firmware", &facts.firmware),
        named("scheduler", &facts.scheduler),
        named("write cache", &facts.write_cache),
        facts.rotational.map(|turns| if turns { "turns" } else { "does not turn" }.to_owned()),
        facts.node.map(|node| format!("node {node}")),
        named("processors", &facts.cpus),
        facts.memory_node.map(|node| format!("memory of node {node}")),
        facts.export.as_ref().map(exported),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    [facts.name.clone(), parts.join(", ")]
}

/// What the server of an export says of it.
fn exported(export: &ExportFacts) -> String {
    let [least, preferred, most] = export.block_bytes.map(|bytes| size(u64::from(bytes)));
    let quoted = |text: &String| (!text.is_empty()).then(|| format!("{text:?}"));
    let named = [quoted(&export.name), quoted(&export.description)];
    let named: Vec<_> = named.into_iter().flatten().collect();
    let volume = export.volume.as_ref().map(|name| format!(", the volume {name} of this machine"));
    format!(
        "export {} of {}{}, requests of {least} to {most}, best {preferred}: {}",
        named.join(" "),
        size(export.size_bytes),
        volume.unwrap_or_default(),
        export.flags.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charts_that_are_too_many_are_shared_out_among_targets() {
        let of =
            |target: usize, count: usize| (0..count).map(move |number| (target, (target, number)));
        let all: Vec<_> = of(0, 100).chain(of(1, 5)).chain(of(2, 100)).collect();
        let kept = shared_out(all.clone(), 45);
        let count = |target| kept.iter().filter(|(of, _)| *of == target).count();
        assert_eq!([count(0), count(1), count(2)], [20, 5, 20]);
        assert!(kept.is_sorted(), "in the order of the plan");
        assert_eq!(shared_out(all, 1000).len(), 205);
    }
}
