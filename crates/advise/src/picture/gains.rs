//! Figures in a table, with a bar beside each.
//!
//! Gains stand on a logarithmic scale on both sides of one, for twice as fast is as far from it as
//! half as fast.

use crate::search::{Gain, between};
use headpond_report::escape;
use headpond_report::factor;

/// One row: what it is, its gain, and what else is known of it.
pub(super) struct Row {
    pub name: String,
    pub gain: Option<Gain>,
    /// Words beside it.
    pub words: String,
    pub is_chosen: bool,
}

/// Names of the columns: of the rows, and of the words beside them.
pub(super) struct Heads {
    pub name: &'static str,
    pub words: &'static str,
    /// `words` where they are sentences, nothing where they are figures.
    pub class: &'static str,
}

/// From where to where a bar may go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    /// That holds all of these positive numbers.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let fits = |value: &f64| value.is_finite() && *value > 0.0;
        let logs = values.into_iter().filter(fits).map(f64::ln);
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        if low > high {
            Self { low: 0.0, high: 1.0 }
        } else {
            Self { low, high: high.max(low + 0.1) }
        }
    }

    /// Per cent of the way.
    pub(super) fn place(self, value: f64) -> f64 {
        let part = (value.max(f64::MIN_POSITIVE).ln() - self.low) / (self.high - self.low);
        part.clamp(0.0, 1.0) * 100.0
    }
}

/// A table of gains.
pub(super) fn table(heads: &Heads, rows: &[Row]) -> String {
    let ends = |gain: &Gain| [gain.factor, gain.low, gain.high];
    let values = rows.iter().filter_map(|row| row.gain.as_ref()).flat_map(ends);
    let scale = Scale::of(values.chain([1.0]));
    let body: String = rows.iter().map(|row| drawn(row, heads, scale)).collect();
    format!(
        "<table>\n<thead><tr><th scope=\"col\">{}</th><th></th><th scope=\"col\">gain</th>\
         <th scope=\"col\">between</th><th scope=\"col\" class=\"{}\">{}</th></tr></thead>\n<tbody>\n{body}</tbody>\n\
         </table>\n",
        heads.name, heads.class, heads.words
    )
}

fn drawn(row: &Row, heads: &Heads, scale: Scale) -> String {
    let class = if row.is_chosen { " class=\"chosen\"" } else { "" };
    let figures = match row.gain {
        None => "<td class=\"bars\"></td><td></td><td></td>".to_owned(),
        Some(gain) => format!(
            "<td class=\"bars\">{}</td><td data-name=\"gain\">{}</td><td data-name=\"between\">{}</td>",
            bar(gain, scale),
            factor(gain.factor),
            between(gain)
        ),
    };
    let words = match row.words.is_empty() {
        true => "<td></td>".to_owned(),
        false => {
            format!(
                "<td class=\"{}\" data-name=\"{}\">{}</td>",
                heads.class,
                heads.words,
                escape(&row.words)
            )
        }
    };
    format!("<tr{class}><th scope=\"row\">{}</th>{figures}{words}</tr>\n", escape(&row.name))
}

/// From one to the gain, with a line over where it may lie.
fn bar(gain: Gain, scale: Scale) -> String {
    let (one, end) = (scale.place(1.0), scale.place(gain.factor));
    let class = if gain.factor < 1.0 { " class=\"less\"" } else { "" };
    let mut inside = format!(
        "<i{class} style=\"left:{:.1}%;width:{:.1}%\"></i>",
        one.min(end),
        (one - end).abs().max(0.3)
    );
    if let Some((low, high)) = gain.interval() {
        let (low, high) = (scale.place(low), scale.place(high));
        inside += &format!("<u style=\"left:{low:.1}%;width:{:.1}%\"></u>", (high - low).max(0.3));
    }
    format!("<span class=\"track\" style=\"--one:{one:.1}%\" aria-hidden=\"true\">{inside}</span>")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twice_as_fast_is_as_far_from_one_as_half_as_fast() {
        let scale = Scale::of([0.5, 2.0, f64::INFINITY, 0.0]);
        assert_eq!((scale.place(0.5), scale.place(2.0)), (0.0, 100.0));
        assert!((scale.place(1.0) - 50.0).abs() < 1e-9);
        assert_eq!(scale.place(1000.0), 100.0);
    }

    #[test]
    fn a_loss_goes_to_the_left_and_what_has_no_interval_has_no_line() {
        let gain = |factor, low, high| Gain { factor, low, high };
        let scale = Scale::of([0.5, 2.0]);
        let less = bar(gain(0.5, 0.0, f64::INFINITY), scale);
        assert!(less.contains("class=\"less\" style=\"left:0.0%;width:50.0%\""), "{less}");
        assert!(!less.contains("<u") && bar(gain(2.0, 1.5, 2.0), scale).contains("<u"));
    }
}
