//! Advice as text.

use crate::advice::{Advice, KindAdvice};
use crate::search::{Expected, between, told};
use crate::wear::Wear;
use headpond_report::{Align, Table};
use headpond_report::{a_request, count, factor, micros, percent, rate, size};
use headpond_whatif::Kind;

/// Alternatives that are shown.
const ALTERNATIVES_MAX: usize = 8;

/// The answer with its gain, what carries it out, and warnings; then the reasons, what requests
/// get, what else was considered, what would change the answer, and assumptions.
pub fn render_advice(advice: &Advice, commands: &[String]) -> String {
    let mut out = answer(advice);
    if !commands.is_empty() {
        out.push_str("To apply it (--emit headpond writes a script):\n");
        commands.iter().for_each(|command| out.push_str(&format!("    {command}\n")));
    }
    for warning in &advice.warnings {
        out.push_str(&format!("Warning: {warning}\n"));
    }
    out.push('\n');
    for reason in &advice.reasons {
        out.push_str(&format!("{}\n    {}\n", reason.setting, reason.reason));
    }
    if !advice.kinds.is_empty() {
        out.push('\n');
        out.push_str(&expected(advice));
        out.push('\n');
        out.push_str(&kinds(&advice.kinds));
        out.push('\n');
        out.push_str(&alternatives(advice));
    }
    if !advice.turning.is_empty() {
        out.push('\n');
        out.push_str(&turning(advice));
    }
    let decided = advice.decisions.iter();
    let decided = decided.map(|it| format!("{} {}: {}", it.question, it.figure, it.branch));
    list("How it was decided", &decided.collect::<Vec<_>>(), &mut out);
    list("The figures hold for", &advice.assumptions, &mut out);
    let evidence = advice.evidence;
    if evidence.replays > 0 {
        out.push_str(&format!(
            "\n{} replays of up to {} of {} requests, each after a warm-up of several rounds; goal: {}\n",
            evidence.replays,
            count(evidence.requests as u64),
            count(evidence.of_requests),
            advice.goal
        ));
    }
    out
}

/// In two or three lines.
fn answer(advice: &Advice) -> String {
    let mut out = format!("{}: {}\n", advice.verdict(), advice.settings_line());
    if advice.cache {
        let (gain, goal) = (told(advice.gain), advice.goal.what());
        out.push_str(&format!("{gain} of {goal} without a cache, say models\n"));
    }
    if let Some(lasts) = advice.wear.as_ref().and_then(Wear::told) {
        out.push_str(&format!("{lasts}\n"));
    }
    if let Some(gain) = advice.standing.as_ref().and_then(|standing| standing.gain) {
        out.push_str(&format!(
            "{} of what it does as it is set now: {}\n",
            told(gain),
            if advice.is_worth_changing() { "worth a change" } else { "not worth a change" }
        ));
    }
    out
}

fn expected(advice: &Advice) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("in the long run", Left),
        ("requests", Right),
        ("mean", Right),
        ("p99", Right),
        ("read hits", Right),
        ("dirty", Right),
    ]);
    let mut row = |name: &str, it: &Expected| {
        table.row([
            name.to_owned(),
            rate(it.requests_per_second),
            micros(it.mean_us),
            micros(it.p99_us),
            percent(it.read_hit_ratio),
            percent(it.dirty_ratio),
        ]);
    };
    row("no cache", &advice.without_cache);
    if let Some(standing) = &advice.standing {
        row("as it is set", &standing.expected);
    }
    if advice.cache {
        row("as advised", &advice.with_advice);
    }
    table.render()
}

fn kinds(kinds: &[KindAdvice]) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("requests", Left),
        ("number", Right),
        ("no cache", Right),
        ("as advised", Right),
        ("gain", Right),
    ]);
    for kind in kinds {
        table.row([
            kind_and_size(kind),
            count(kind.requests),
            micros(kind.without_cache_us),
            micros(kind.with_advice_us),
            factor(kind.without_cache_us / kind.with_advice_us),
        ]);
    }
    table.render()
}

/// `read of 4 KiB and more`.
pub(crate) fn kind_and_size(kind: &KindAdvice) -> String {
    let name = match kind.kind {
        Kind::Read => "read",
        Kind::Write => "write",
        Kind::Flush => "flush",
    };
    match kind.bytes {
        0 => name.to_owned(),
        bytes => format!("{name} of {} and more", size(bytes)),
    }
}

fn alternatives(advice: &Advice) -> String {
    use Align::{Left, Right};
    let mut table = Table::new([
        ("also considered", Left),
        ("gain", Right),
        ("between", Right),
        ("written to the cache", Right),
    ]);
    for it in advice.alternatives.iter().take(ALTERNATIVES_MAX) {
        table.row([
            it.settings.to_string(),
            factor(it.gain.factor),
            between(it.gain),
            a_request(it.cache_bytes_per_request),
        ]);
    }
    table.render()
}

fn turning(advice: &Advice) -> String {
    let mut out = String::from("What would change the answer:\n");
    for turning in &advice.turning {
        let words = |at: f64| match turning.of {
            "cache size" => size(at as u64),
            "depth" => format!("{at:.0}"),
            _ => percent(at),
        };
        let points = turning.points.iter();
        let points: Vec<String> = points
            .map(|point| format!("{} {}", words(point.at), factor(point.gain.factor)))
            .collect();
        out.push_str(&format!("  - {}: {}\n    {}\n", turning.of, points.join(", "), turning.says));
    }
    out
}

fn list(title: &str, lines: &[String], out: &mut String) {
    if lines.is_empty() {
        return;
    }
    out.push_str(&format!("\n{title}:\n"));
    lines.iter().for_each(|line| out.push_str(&format!("  - {line}\n")));
}
