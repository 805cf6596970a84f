//! The page of an advice.

use super::gains::{Heads, Row, Scale, table};
use super::page::{figures, summary};
use super::{charts, courses, turning};
use crate::advice::{Advice, Decision, KindAdvice, Reason};
use crate::render::{kind_and_size, render_advice, render_signature};
use crate::search::{Expected, Gain};
use crate::signature::Signature;
use crate::situation::Situation;
use crate::wear::Wear;
use headpond_report::{Table, cards, document, escape, folded, listed, part};
use headpond_report::{a_request, count, factor, micros, percent, rate, side_by_side, verbatim};

/// Alternatives that are shown.
const ALTERNATIVES_MAX: usize = 12;

const MODELLED: &str =
    "Modelled: gains are of models that replayed the trace; the trace itself was recorded.";

/// The whole page; `title` says what was analysed.
pub fn render_advice_page(
    title: &str,
    signature: &Signature,
    advice: &Advice,
    situation: &Situation,
    commands: &[String],
) -> String {
    let cache_bytes = situation.stack.cache.as_ref().map(|cache| cache.size.bytes());
    let text = render_advice(advice, commands) + "\n" + &render_signature(signature);
    let body = [
        head(title, advice),
        applied(commands),
        sentences("Warnings", &advice.warnings),
        decisions(advice),
        compared(advice),
        contributions(advice),
        turning_points(&turning::figures(advice, signature, situation)),
        long_run(advice),
        side_by_side(&courses::all(&advice.courses)),
        kinds(advice),
        part("The workload", &format!("<p>{}</p>\n", escape(&summary(signature)))),
        cards(figures(signature)),
        side_by_side(&charts::all(signature, cache_bytes)),
        sentences("The figures hold for", &advice.assumptions),
        evidence(advice),
        folded("as text", &verbatim(&text)),
    ];
    document(title, MODELLED, &body.concat())
}

/// What carries the advice out.
fn applied(commands: &[String]) -> String {
    match commands {
        [] => String::new(),
        commands => part("To apply it", &verbatim(&commands.join("\n"))),
    }
}

fn head(title: &str, advice: &Advice) -> String {
    let verdict = advice.verdict();
    let why = advice.reasons.first().map_or("", |reason| reason.reason.as_str());
    let why = why.strip_prefix("do not cache: ").unwrap_or(why);
    let setting =
        |it: &crate::Setting| format!("<li><code>{}</code></li>", escape(&it.to_string()));
    let settings: String = advice.settings.iter().map(setting).collect();
    let lasts = advice.wear.as_ref().and_then(Wear::told);
    let lasts = lasts.map(|told| format!("<p>{}.</p>\n", escape(&told))).unwrap_or_default();
    format!(
        "<h1>{verdict}</h1>\n<p>{}; wanted: {}</p>\n<p class=\"verdict\">{}.</p>\n{lasts}\
         <ul class=\"settings\">{settings}</ul>\n",
        escape(title),
        advice.goal,
        escape(&sentence(why))
    )
}

/// With a capital letter.
fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

fn section(title: &str, note: &str, inside: &str) -> String {
    headpond_report::section(title, &format!("<p>{}</p>\n{inside}", escape(note)))
}

fn sentences(title: &str, lines: &[String]) -> String {
    match lines.is_empty() {
        true => String::new(),
        false => headpond_report::section(title, &listed(lines)),
    }
}

/// The curves, and why they need not meet the verdict.
fn turning_points(figures: &str) -> String {
    if figures.is_empty() {
        return String::new();
    }
    let inside = format!(
        "<p>Replays of a part of the sample: where this machine is marked they may differ from the \
         verdict, which is of all of it.</p>\n<div class=\"charts\">\n{figures}</div>\n"
    );
    part("What would change the answer", &inside)
}

/// From question to question.
fn decisions(advice: &Advice) -> String {
    if advice.decisions.is_empty() {
        return String::new();
    }
    let row = |it: &Decision| [it.question.clone(), it.figure.clone(), it.branch.clone()];
    let table = Table::of(&["question", "figure", "so"], 3, advice.decisions.iter().map(row));
    let note = "from the first question to the last, with the figure that answered each";
    section("How it was decided", note, &table.draw())
}

/// The advice among what else was tried, the array by itself last.
fn compared(advice: &Advice) -> String {
    if advice.alternatives.is_empty() {
        return String::new();
    }
    let mut rows = Vec::new();
    if advice.cache {
        rows.push(Row {
            name: format!("as advised: {}", advice.settings_line()),
            gain: Some(advice.gain),
            words: a_request(advice.with_advice.cache_bytes_per_request),
            is_chosen: true,
        });
    }
    rows.extend(advice.alternatives.iter().take(ALTERNATIVES_MAX).map(|it| Row {
        name: it.settings.to_string(),
        gain: Some(it.gain),
        words: a_request(it.cache_bytes_per_request),
        is_chosen: false,
    }));
    rows.push(Row {
        name: "the array alone".to_owned(),
        gain: Some(Gain { factor: 1.0, low: 0.0, high: f64::INFINITY }),
        words: String::new(),
        is_chosen: !advice.cache,
    });
    let note = format!(
        "gain of {} over the array alone, on a logarithmic scale; the line over a bar is where it lies nine \
         times in ten",
        advice.goal.what()
    );
    let heads = Heads { name: "settings", words: "written to the cache", class: "" };
    section("What was compared", &note, &table(&heads, &rows))
}

/// What each setting adds to the best of its other values.
fn contributions(advice: &Advice) -> String {
    let row = |reason: &Reason| Row {
        name: reason.setting.clone(),
        gain: reason.gain,
        words: reason.reason.clone(),
        is_chosen: false,
    };
    // The first is the whole of it, and stands above.
    let rows: Vec<Row> = advice.reasons.iter().skip(1).map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let note =
        "each by itself, around the best that was found on the way, beside its next best value";
    let heads = Heads { name: "setting", words: "why", class: "words" };
    section("What each setting contributes", note, &table(&heads, &rows))
}

fn long_run(advice: &Advice) -> String {
    if advice.kinds.is_empty() {
        return String::new();
    }
    let row = |(name, it): (&str, &Expected)| {
        [
            name.to_owned(),
            rate(it.requests_per_second),
            micros(it.mean_us),
            micros(it.p99_us),
            percent(it.read_hit_ratio),
            percent(it.dirty_ratio),
            a_request(it.cache_bytes_per_request),
        ]
    };
    let advised = advice.cache.then_some(("as advised", &advice.with_advice));
    let rows = [("no cache", &advice.without_cache)].into_iter().chain(advised).map(row);
    let heads = ["", "requests", "mean", "p99", "read hits", "dirty", "written to the cache"];
    let table = Table::of(&heads, 1, rows).draw();
    section("In the long run", "what the models say, once the cache is full", &table)
}

fn plain(heads: &[&str], rows: &str) -> String {
    let head = |head: &&str| match head.is_empty() {
        true => "<td></td>".to_owned(),
        false => format!("<th scope=\"col\">{head}</th>"),
    };
    let heads: String = heads.iter().map(head).collect();
    format!("<table>\n<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n")
}

/// What requests of each kind and size get.
fn kinds(advice: &Advice) -> String {
    if advice.kinds.is_empty() {
        return String::new();
    }
    let ends = |it: &KindAdvice| [it.without_cache_us, it.with_advice_us];
    let times = advice.kinds.iter().flat_map(ends).filter(|us| *us > 0.0);
    let shortest = times.clone().fold(f64::INFINITY, f64::min);
    // The shortest bar is one, too.
    let scale = Scale::of(times.chain([shortest / 2.0]));
    let rows: String = advice.kinds.iter().map(|it| kind(it, advice.cache, scale)).collect();
    let (note, heads): (&str, &[&str]) = match advice.cache {
        true => (
            "mean responses; above without a cache, below as advised, on a logarithmic scale",
            &["requests", "", "number", "no cache", "as advised", "gain"],
        ),
        false => {
            ("mean responses, on a logarithmic scale", &["requests", "", "number", "no cache"])
        }
    };
    section("What requests get", note, &plain(heads, &rows))
}

fn kind(kind: &KindAdvice, has_cache: bool, scale: Scale) -> String {
    let name = kind_and_size(kind);
    let (without, with) = (kind.without_cache_us, kind.with_advice_us);
    let bar = |class: &str, us: f64| {
        format!("<i class=\"{class}\" style=\"left:0;width:{:.1}%\"></i>", scale.place(us))
    };
    let (bars, further) = match has_cache {
        true => (
            bar("before", without) + &bar("after", with),
            format!(
                "<td data-name=\"as advised\">{}</td><td data-name=\"gain\">{}</td>",
                micros(with),
                factor(without / with)
            ),
        ),
        false => (bar("", without), String::new()),
    };
    format!(
        "<tr><th scope=\"row\">{name}</th><td class=\"bars\"><span class=\"track\" aria-hidden=\"true\">\
         {bars}</span></td><td data-name=\"number\">{}</td><td data-name=\"no cache\">{}</td>{further}</tr>\n",
        count(kind.requests),
        micros(without)
    )
}

fn evidence(advice: &Advice) -> String {
    let evidence = advice.evidence;
    if evidence.replays == 0 {
        return String::new();
    }
    format!(
        "<p>{} replays of up to {} of {} requests on models of the devices, each after a warm-up of several \
         rounds.</p>\n",
        evidence.replays,
        count(evidence.requests as u64),
        count(evidence.of_requests)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Alternative, Course, Point, Turning};
    use crate::search::Candidate;
    use crate::testing::{Job, advice, half_reads, scattered, situation, together};

    fn signature() -> Signature {
        let job = Job::new(8, 3000, 8192);
        together(vec![job.run(|n| (half_reads(n), scattered(n, 8192) % (1 << 24)))])
    }

    fn whole() -> Advice {
        let gain = |factor| Gain { factor, low: factor / 2.0, high: factor * 2.0 };
        let reason = |setting: &str, gain| Reason {
            setting: setting.to_owned(),
            reason: "because of <b>".to_owned(),
            gain,
        };
        let turning = |of, at: [f64; 2]| Turning {
            of,
            points: at.map(|at| Point { at, gain: gain(at.ln().max(0.3)) }).into(),
            says: "it turns".to_owned(),
        };
        Advice {
            reasons: vec![
                reason("mode=write-back", None),
                reason("line=4K", Some(gain(1.5))),
                reason("eviction=s3-fifo", None),
            ],
            alternatives: vec![Alternative {
                settings: Candidate::new([("mode", "write-around".to_owned())]),
                gain: gain(0.5),
                cache_bytes_per_request: 0.0,
            }],
            turning: vec![
                turning("cache size", [1e9, 1e11]),
                turning("depth", [1.0, 64.0]),
                turning("share of reads", [0.0, 1.0]),
            ],
            warnings: vec!["mind the gap & more".to_owned()],
            decisions: vec![Decision {
                question: "Why write-back & not write-only?".to_owned(),
                figure: "1.30x".to_owned(),
                branch: "it does more".to_owned(),
            }],
            courses: ["no cache", "as advised"]
                .map(|name| Course {
                    name,
                    dirty: vec![(1.0, 0.1), (2.0, 0.5)],
                    measured_from_s: 1.0,
                    took: vec![(10.0, 0.5), (900.0, 1.0)],
                })
                .into(),
            ..advice("mode=write-back cleaning=stripe")
        }
    }

    fn page(advice: &Advice) -> String {
        let situation = situation("size = \"64G\"\nmodel = \"nvme-dc-2t\"\n");
        let page = render_advice_page("a <b> trace", &signature(), advice, &situation, &[]);
        for outside in ["http", "<script", "@import", "NaN", "inf", "<b> "] {
            assert!(!page.contains(outside), "{outside} in {page}");
        }
        page
    }

    #[test]
    fn the_page_has_the_verdict_bars_curves_tables_and_the_workload() {
        let page = page(&whole());
        for part in [
            "<h1>Use the cache</h1>",
            "<li><code>mode=write-back</code></li>",
            "mind the gap &amp; more",
            "What was compared",
            "How it was decided",
            "Why write-back &amp; not write-only?",
            "Dirty ratio over time",
            "How long requests take",
            "as advised: mode=write-back cleaning=stripe",
            "<th scope=\"row\">mode=write-around</th>",
            "class=\"less\"",
            "<th scope=\"row\">line=4K</th>",
            "here: 64 GiB",
            "here: 8<",
            "<th scope=\"row\">read of 4 KiB and more</th>",
            "<i class=\"after\"",
            "this cache: 64 GiB",
            "a cache of 64 GiB on nvme-dc-2t",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        let svgs = page.matches("<svg ").count();
        assert_eq!(svgs, 5 + charts::all(&signature(), None).len());
    }

    #[test]
    fn the_longest_bar_is_of_the_best_and_the_line_of_one_is_in_all() {
        let page = page(&whole());
        let compared = &page[page.find("What was compared").unwrap()..];
        let compared = &compared[..compared.find("</section>").unwrap()];
        let ones: Vec<&str> =
            compared.match_indices("--one:").map(|(at, _)| &compared[at..at + 12]).collect();
        assert_eq!(ones.len(), 3);
        assert!(ones.iter().all(|one| one == &ones[0]), "{ones:?}");
    }

    #[test]
    fn where_no_cache_is_advised_the_page_says_so_and_compares_with_nothing() {
        let reason = "do not cache: the best is 1.01x".to_owned();
        let none = Advice {
            reasons: vec![Reason { setting: "mode=pass-through".into(), reason, gain: None }],
            ..advice("mode=pass-through")
        };
        let page = page(&none);
        assert!(page.contains("<h1>Do not cache</h1>") && page.contains(">The best is 1.01x.<"));
        assert!(!page.contains("<i class=\"after\"") && !page.contains("What was compared"));
        page_of_nothing();
    }

    fn page_of_nothing() {
        let nothing = Advice { kinds: Vec::new(), ..advice("mode=pass-through") };
        let situation = situation("size = \"1G\"\n");
        let page = render_advice_page("empty", &together(vec![]), &nothing, &situation, &[]);
        assert!(page.contains("no requests") && !page.contains("<svg"), "{page}");
    }
}
