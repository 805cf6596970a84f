//! The page around the charts, and its parts: all of them HTML.

use super::{Chart, Entry, escape, shell_words};
use std::path::Path;

const STYLE: &str = include_str!("page.css");

/// What every page begins and ends with; `body` is HTML, and `figures_are` says which of them come
/// from models and which were measured.
pub fn document(title: &str, figures_are: &str, body: &str) -> String {
    let (title, figures_are) = (escape(title), escape(figures_are));
    let (version, command) = (env!("CARGO_PKG_VERSION"), escape(&command()));
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Headpond: {title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <p class=\"origin\"><b>{figures_are}</b> headpond {version}: <code>{command}</code></p>\n\
         {body}</body>\n</html>\n"
    )
}

/// As it would be typed.
fn command() -> String {
    let mut words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    if let Some(program) = words.first_mut()
        && let Some(name) = Path::new(program.as_str()).file_name()
    {
        *program = name.to_string_lossy().into_owned();
    }
    shell_words(words)
}

/// Figures that stand out, each with its name below it.
pub fn cards<'a>(figures: impl IntoIterator<Item = (&'a str, String)>) -> String {
    let card = |(name, value): (&str, String)| {
        format!("<div><b>{}</b><span>{name}</span></div>\n", escape(&value))
    };
    let cards: String = figures.into_iter().map(card).collect();
    format!("<div class=\"figures\">\n{cards}</div>\n")
}

/// A part of the page under its heading; `inside` is HTML.
pub fn part(title: &str, inside: &str) -> String {
    format!("<h1 class=\"part\">{}</h1>\n{inside}", escape(title))
}

/// What stands by itself within a part; `inside` is HTML.
pub fn section(title: &str, inside: &str) -> String {
    let title = match title.is_empty() {
        true => String::new(),
        false => format!("<h2>{}</h2>\n", escape(title)),
    };
    format!("<section>\n{title}{inside}</section>\n")
}

/// Sentences below each other.
pub fn listed(sentences: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let item = |it: &str| format!("<li>{}</li>\n", escape(it));
    let items: String = sentences.into_iter().map(|it| item(it.as_ref())).collect();
    format!("<ul>\n{items}</ul>\n")
}

/// What is shown when it is asked for; `inside` is HTML.
pub fn folded(summary: &str, inside: &str) -> String {
    let summary = escape(summary);
    format!("<details><summary>{summary}</summary>\n{inside}</details>\n")
}

/// Text as it would stand in a terminal.
pub fn verbatim(text: &str) -> String {
    format!("<pre>{}</pre>\n", escape(text))
}

/// Charts side by side, as far as there is room; nothing where there are none.
pub fn side_by_side(charts: &[Chart]) -> String {
    match charts.is_empty() {
        true => String::new(),
        false => {
            let figures: String = charts.iter().map(figure).collect();
            format!("<div class=\"charts\">\n{figures}</div>\n")
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_users_are_escaped_in_every_part() {
        let words = "<i> & \"c\"";
        let chart = Chart {
            title: words.to_owned(),
            note: words.to_owned(),
            legend: vec![Entry::new(words, 0)],
            svg: String::new(),
        };
        let parts = [
            part(words, &section(words, &folded(words, &listed([words])))),
            cards([("n", words.to_owned())]),
            verbatim(words),
            side_by_side(&[chart]),
        ];
        let page = document(words, words, &parts.concat());
        assert_eq!(page.matches("&lt;i&gt; &amp; &quot;c&quot;").count(), 11, "{page}");
        assert!(page.contains(concat!("headpond ", env!("CARGO_PKG_VERSION"), ": <code>")));
        assert!(!page.contains("<i>"), "{page}");
        assert!(!section("", "").contains("<h2>") && side_by_side(&[]).is_empty());
    }
}
