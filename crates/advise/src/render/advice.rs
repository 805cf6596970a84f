//! Advice as text.

use super::figures::{factor, rate};
use super::table::{Align, Table};
use crate::advice::Advice;

/// The settings, their reasons, what each stream gets, warnings and assumptions.
pub fn render_advice(advice: &Advice) -> String {
    let verdict = if advice.cache { "Use the cache" } else { "Do not cache" };
    let mut out = format!("{verdict}: {}\n\n", advice.settings_line());
    for (name, value, reason) in [
        ("mode", advice.mode.value.to_string(), &advice.mode.reason),
        ("cleaning", advice.cleaning.value.to_string(), &advice.cleaning.reason),
        ("seq-cutoff", advice.seq_cutoff.value.to_string(), &advice.seq_cutoff.reason),
    ] {
        out.push_str(&format!("{name} = {value}\n    {reason}\n"));
    }
    if !advice.streams.is_empty() {
        out.push('\n');
        out.push_str(&streams(advice));
    }
    out.push('\n');
    out.push_str(&alternatives(advice));
    list("Warnings", &advice.warnings, &mut out);
    list("The figures hold for", &advice.assumptions, &mut out);
    out
}

fn streams(advice: &Advice) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("stream", Right),
        ("load", Left),
        ("traced", Right),
        ("no cache", Right),
        ("burst", Right),
        ("gain", Right),
        ("sustained", Right),
        ("gain", Right),
        ("way", Left),
    ]);
    for stream in &advice.streams {
        let rates = &stream.rates;
        let way = if stream.past_the_cache { "past the cache" } else { "cache" };
        table.row([
            stream.number.to_string(),
            stream.description.clone(),
            rate(stream.measured),
            rate(rates.without_cache),
            rate(rates.burst),
            factor(rates.burst_gain()),
            rate(rates.sustained),
            factor(rates.sustained_gain()),
            if advice.cache { way } else { "no cache" }.to_owned(),
        ]);
    }
    table.render()
}

fn alternatives(advice: &Advice) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("considered", Left),
        ("cleaning", Left),
        ("seq-cutoff", Left),
        ("burst", Right),
        ("sustained", Right),
        ("", Left),
    ]);
    for alternative in &advice.alternatives {
        let is_chosen = alternative.mode == advice.mode.value;
        let note = match (is_chosen, alternative.refused) {
            (true, _) => "advised",
            (_, true) => "refused on this cache",
            _ => "",
        };
        table.row([
            alternative.mode.to_string(),
            alternative.cleaning.to_string(),
            alternative.seq_cutoff.to_string(),
            factor(alternative.burst_gain),
            factor(alternative.sustained_gain),
            note.to_owned(),
        ]);
    }
    table.render()
}

fn list(title: &str, lines: &[String], out: &mut String) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}:\n"));
    lines.iter().for_each(|line| out.push_str(&format!("  - {line}\n")));
}
