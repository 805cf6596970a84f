//! The page around the charts.

use super::{Chart, Entry, escape};

const STYLE: &str = include_str!("page.css");

/// What every page begins and ends with; `body` is HTML.
pub fn document(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Headpond: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         {body}</body>\n</html>\n"
    )
}

/// Figures that stand out, each with its name below it.
pub fn cards<'a>(figures: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let card = |(name, value): (&str, String)| {
        format!("<div><b>{}</b><span>{name}</span></div>\n", escape(&value))
    };
    figures.into_iter().map(card).collect()
}

/// A chart with its words.
pub fn figure(chart: &Chart) -> String {
    let entry =
        |entry: &Entry| format!("<span class=\"s{}\">{}</span>", entry.colour, escape(&entry.name));
    let legend: String = chart.legend.iter().map(entry).collect();
    let legend = match legend.is_empty() {
        true => legend,
        false => format!("<div class=\"legend\">{legend}</div>\n"),
    };
    format!(
        "<figure>\n<h2>{}</h2>\n<p>{}</p>\n{legend}{}</figure>\n",
        escape(&chart.title),
        escape(&chart.note),
        chart.svg
    )
}
