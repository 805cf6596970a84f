//! Results as one page that needs nothing else.

use super::over_time::{course, latencies};
use super::text::{cells, remarks};
use crate::answer::{Answer, Rows, answers};
use crate::environment::{Environment, ExportFacts, TargetFacts};
use crate::results::Results;
use headpond_report::{cards, document, escape, figure, size};

/// More charts over time than this say nothing to anybody.
const COURSES_MAX: usize = 120;

/// The whole page.
pub fn page(results: &Results) -> String {
    let plan = &results.plan;
    let answers = answers(results);
    let answered: String = answers.iter().map(answer).collect();
    let remarks: String = remarks(results).iter().map(|it| item(it)).collect();
    let remarks = match remarks.is_empty() {
        true => remarks,
        false => format!(
            "<h1 class=\"part\">To know of single cells</h1>\n<ul class=\"findings\">{remarks}</ul>\n"
        ),
    };
    let body = format!(
        "<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n<div class=\"figures\">\n{}</div>\n{answered}\
         {remarks}<h1 class=\"part\">All cells</h1>\n<section>{}</section>\n{}\
         <h1 class=\"part\">On what it was measured</h1>\n<section>{}</section>\n",
        escape(&plan.name),
        escape(&plan.question),
        cards(figures(results)),
        table(&cells(results)),
        courses(results),
        environment(&results.environment),
    );
    document(&plan.name, &body)
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
    let findings: String = answer.sentences.iter().map(|it| item(it)).collect();
    let grids = answer.grids.iter().map(|(title, grid)| {
        format!("<section><h2>{}</h2>\n{}</section>\n", escape(title), grid.draw())
    });
    let grids: String = grids.collect();
    let charts: String = answer.charts.iter().map(figure).collect();
    let charts = match charts.is_empty() {
        true => charts,
        false => format!("<div class=\"charts\">\n{charts}</div>\n"),
    };
    let tables: String = answer.tables.iter().filter(|it| !it.rows.is_empty()).map(table).collect();
    let tables = match tables.is_empty() {
        true => tables,
        false => {
            format!("<section><details><summary>figures</summary>{tables}</details></section>\n")
        }
    };
    format!(
        "<h1 class=\"part\">{}</h1>\n<ul class=\"findings\">{findings}</ul>\n{grids}\
         {charts}{tables}",
        escape(&answer.title)
    )
}

fn item(words: &str) -> String {
    format!("<li>{}</li>\n", escape(words))
}

fn table(rows: &Rows) -> String {
    let class = |index: usize| if index < rows.words { " class=\"words\"" } else { "" };
    let head = rows.columns.iter().enumerate();
    let head: String =
        head.map(|(index, name)| format!("<th{}>{}</th>", class(index), escape(name))).collect();
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().enumerate().map(|(index, words)| {
            let name = escape(rows.columns[index]);
            format!("<td{} data-name=\"{name}\">{}</td>", class(index), escape(words))
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let body: String = rows.rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\
         </table></div>\n"
    )
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
    let figures: String = shared_out(charts, COURSES_MAX).iter().map(figure).collect();
    format!(
        "<h1 class=\"part\">Over time</h1>\n<details><summary>{} charts: each cell's throughput, and its latency</summary>\
         \n<div class=\"charts\">\n{figures}</div>{left_out}</details>\n",
        count
    )
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
    let rows: String = rows.into_iter().map(|(name, value)| row(name, &value)).collect();
    let targets: String = environment.targets.iter().flat_map(rows_of).collect();
    format!("<table><tbody>{rows}{targets}</tbody></table>")
}

/// A target, and what it is made of and set to.
fn rows_of(facts: &TargetFacts) -> Vec<String> {
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
    let settings = settings.map(|words| row(&format!("{}, settings", facts.name), &words));
    let parts = facts.parts.iter().flat_map(part);
    let alike = facts.alike.iter().zip(2..).flat_map(|(one, number)| {
        let name = format!("{}, array {number}", facts.name);
        rows_of(&TargetFacts { name, ..one.clone() })
    });
    [target(facts)].into_iter().chain(parts).chain(settings).chain(alike).collect()
}

fn target(facts: &TargetFacts) -> String {
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
    row(&facts.name, &parts.join(", "))
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

fn row(name: &str, value: &str) -> String {
    format!("<tr><th>{}</th><td class=\"words\">{}</td></tr>\n", escape(name), escape(value))
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
