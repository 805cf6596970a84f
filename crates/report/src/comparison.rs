//! A few values side by side: bars that lie, each under its name, with how sure they are.

use super::axis::{Axis, Unit};
use super::{Chart, Entry, WIDTH, escape, framed_to};

/// Of a row: its name, each of its bars, and the room below.
const NAME: f64 = 17.0;
const BAR: f64 = 14.0;
const GAP: f64 = 8.0;
/// Room for the words behind the longest bar.
const WORDS: f64 = 90.0;

/// A chart with a bar of each series under each name.
pub struct Comparison {
    pub title: String,
    pub note: String,
    pub series: Vec<Entry>,
    /// What is not known has no bar.
    pub rows: Vec<(String, Vec<Option<Compared>>)>,
    pub scale: Scale,
}

/// How the length of a bar goes with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    Linear(Unit),
    /// From the power of ten below the least on, with a line at each power of ten.
    Logarithmic(Unit),
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
        let all = self.rows.iter().flat_map(|(_, bars)| bars.iter().flatten());
        let axis = self.scale.axis(&all.flat_map(Compared::ends).collect::<Vec<_>>());
        let mut inside = String::new();
        let mut top = 0.0;
        for (name, bars) in &self.rows {
            let y = top + NAME - 5.0;
            inside.push_str(&format!("<text x=\"0\" y=\"{y:.1}\">{}</text>", escape(name)));
            top += NAME;
            let known = bars.iter().enumerate().filter_map(|(at, bar)| Some((at, bar.as_ref()?)));
            inside.push_str(&lines(&axis, top, BAR * known.clone().count() as f64));
            for (series, bar) in known {
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
        let across = |value| across(axis, value);
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
        let [_, longest] = bar.ends();
        let words_from = across(longest) + 6.0;
        format!(
            "<rect class=\"bar s{}\" x=\"0\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>{}\
             <text class=\"value\" x=\"{words_from:.1}\" y=\"{:.1}\">{}</text>",
            self.series[series].colour,
            across(bar.value).max(0.5),
            BAR - 2.0,
            whisker.unwrap_or_default(),
            middle + 3.0,
            escape(&axis.words(bar.value))
        )
    }
}

impl Compared {
    /// From where to where it is drawn.
    fn ends(&self) -> [f64; 2] {
        let (low, high) = self.span.unwrap_or((self.value, self.value));
        [low.min(self.value), high.max(self.value)]
    }
}

impl Scale {
    fn axis(self, values: &[f64]) -> Axis {
        let most = values.iter().copied().fold(0.0, f64::max);
        match self {
            Self::Linear(unit) => Axis::linear(0.0, most, unit),
            Self::Logarithmic(unit) => {
                let least = values.iter().copied().filter(|it| *it > 0.0).fold(most, f64::min);
                Axis::logarithmic(10f64.powf(least.log10().ceil() - 1.0), most, unit)
            }
        }
    }
}

fn across(axis: &Axis, value: f64) -> f64 {
    axis.place(value) * (WIDTH - WORDS)
}

/// Behind the bars of a row: the powers of ten of a logarithmic axis.
fn lines(axis: &Axis, top: f64, height: f64) -> String {
    let line = |value| format!("M{:.1} {top:.1}v{height:.1}", across(axis, value));
    let lines: String = axis.decades().map(line).collect();
    match lines.is_empty() {
        true => lines,
        false => format!("<path class=\"grid\" d=\"{lines}\"/>"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_its_name_its_bars_and_their_whiskers_within_the_drawing() {
        let bars = |value, span| vec![Some(Compared { value, span })];
        let rows = vec![
            ("a < b".to_owned(), bars(100.0, Some((50.0, 200.0)))),
            ("plain".to_owned(), bars(0.0, None)),
            ("unknown".to_owned(), vec![None]),
        ];
        let series = vec![Entry::new("", 2)];
        let (title, note) = ("t".to_owned(), String::new());
        let scale = Scale::Linear(Unit::Count);
        let chart = Comparison { title, note, series, rows, scale }.draw();
        let svg = chart.svg;
        assert!(svg.contains("a &lt; b") && svg.matches("class=\"bar s2\"").count() == 2, "{svg}");
        assert_eq!(svg.matches("class=\"whisker\"").count(), 1);
        // 200 is the longest: its whisker ends where the words begin.
        assert!(svg.contains(&format!("H{:.1}", WIDTH - WORDS)), "{svg}");
        assert!(chart.legend.is_empty() && !svg.contains("class=\"grid\""));
    }

    #[test]
    fn on_a_logarithmic_scale_ten_times_as_much_is_as_much_longer_wherever_it_begins() {
        let bar = |value| Some(Compared { value, span: None });
        let series = vec![Entry::new("<a>", 0), Entry::new("b", 1), Entry::new("c", 2)];
        let rows = vec![("it".to_owned(), vec![bar(100.0), bar(1000.0), bar(10_000.0)])];
        let (title, note) = ("t".to_owned(), String::new());
        let scale = Scale::Logarithmic(Unit::Number);
        let chart = Comparison { title, note, series, rows, scale }.draw();
        let third = (WIDTH - WORDS) / 3.0;
        for (colour, decades) in [1.0, 2.0, 3.0].into_iter().enumerate() {
            let bar = format!("class=\"bar s{colour}\" x=\"0\"");
            let bar = &chart.svg[chart.svg.find(&bar).expect("a bar")..];
            let width = format!("width=\"{:.1}\"", decades * third);
            assert!(bar[..bar.find("/>").unwrap()].contains(&width), "{width}: {bar}");
        }
        let line = format!("M0.0 17.0v42.0M{third:.1} 17.0v42.0M");
        assert!(chart.svg.contains(&line), "{line} in {}", chart.svg);
        assert_eq!(chart.legend.len(), 3);
    }

    #[test]
    fn where_nothing_is_positive_a_logarithmic_scale_has_bars_without_length() {
        for values in [&[0.0][..], &[]] {
            let axis = Scale::Logarithmic(Unit::Count).axis(values);
            assert_eq!((across(&axis, 0.0), axis.place(f64::MAX)), (0.0, 1.0));
        }
    }
}
