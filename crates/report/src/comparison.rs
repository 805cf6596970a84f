//! A few values side by side: bars that lie, each under its name, with how sure they are.

use super::axis::{Axis, Unit};
use super::{Chart, Entry, WIDTH, escape, framed_to};

/// Of a row: its name, each of its bars, and the room below.
const NAME: f64 = 17.0;
const BAR: f64 = 12.0;
const GAP: f64 = 8.0;
/// Room for the words behind the longest bar.
const WORDS: f64 = 90.0;

/// A chart with a bar of each series under each name.
pub struct Comparison {
    pub title: String,
    pub note: String,
    pub series: Vec<Entry>,
    pub rows: Vec<(String, Vec<Compared>)>,
    pub unit: Unit,
}

/// One of the values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    pub value: f64,
    /// Between which it lies, where that is known.
    pub span: Option<(f64, f64)>,
}

impl Comparison {
    pub fn draw(self) -> Chart {
        let all = self.rows.iter().flat_map(|(_, bars)| bars);
        let highest = all.map(|it| it.span.map_or(it.value, |span| span.1.max(it.value)));
        let axis = Axis::linear(0.0, highest.fold(0.0, f64::max), self.unit);
        let mut inside = String::new();
        let mut top = 0.0;
        for (name, bars) in &self.rows {
            let y = top + NAME - 5.0;
            inside.push_str(&format!("<text x=\"0\" y=\"{y:.1}\">{}</text>", escape(name)));
            top += NAME;
            for (series, bar) in bars.iter().enumerate() {
                inside.push_str(&self.bar(series, bar, top, &axis));
                top += BAR;
            }
            top += GAP;
        }
        Chart {
            svg: framed_to(top, &self.title, &inside),
            title: self.title,
            note: self.note,
            legend: if self.series.len() > 1 { self.series } else { Vec::new() },
        }
    }

    fn bar(&self, series: usize, bar: &Compared, top: f64, axis: &Axis) -> String {
        let across = |value: f64| axis.place(value) * (WIDTH - WORDS);
        let (middle, bottom) = (top + BAR / 2.0, top + BAR - 3.0);
        let whisker = bar.span.map(|(low, high)| {
            let (low, high) = (across(low), across(high));
            format!(
                "<path class=\"whisker\" d=\"M{low:.1} {middle:.1}H{high:.1}M{low:.1} {:.1}V{bottom:.1}\
                 M{high:.1} {:.1}V{bottom:.1}\"/>",
                top + 2.0,
                top + 2.0
            )
        });
        let words_from = across(bar.span.map_or(bar.value, |span| span.1.max(bar.value))) + 6.0;
        format!(
            "<rect class=\"bar s{}\" x=\"0\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>{}\
             <text x=\"{words_from:.1}\" y=\"{:.1}\">{}</text>",
            self.series[series].colour,
            across(bar.value).max(0.5),
            BAR - 2.0,
            whisker.unwrap_or_default(),
            middle + 3.0,
            escape(&axis.words(bar.value))
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_name_its_bars_and_their_whiskers_within_the_drawing() {
        let bars = |value, span| vec![Compared { value, span }];
        let rows = vec![
            ("a < b".to_owned(), bars(100.0, Some((50.0, 200.0)))),
            ("plain".to_owned(), bars(0.0, None)),
        ];
        let series = vec![Entry::new("", 2)];
        let (title, note) = ("t".to_owned(), String::new());
        let chart = Comparison { title, note, series, rows, unit: Unit::Count }.draw();
        let svg = chart.svg;
        assert!(svg.contains("a &lt; b") && svg.matches("class=\"bar s2\"").count() == 2, "{svg}");
        assert_eq!(svg.matches("class=\"whisker\"").count(), 1);
        // 200 is the longest: its whisker ends where the words begin.
        assert!(svg.contains(&format!("H{:.1}", WIDTH - WORDS)), "{svg}");
        assert!(chart.legend.is_empty());
    }
}
