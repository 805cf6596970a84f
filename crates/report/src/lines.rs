//! Lines over an axis.

use super::axis::Axis;
use super::{Chart, Entry, HEIGHT, WIDTH, escape, framed};

/// Between the words of marks, which may stand close to each other.
const MARK_STEP: f64 = 16.0;

/// A chart with a line for each series.
pub struct Lines {
    pub title: String,
    pub note: String,
    pub across: Axis,
    pub up: Axis,
    pub series: Vec<Line>,
    /// Places on the axis that are pointed out, and their words.
    pub marks: Vec<(f64, String)>,
    /// A height that is pointed out.
    pub level: Option<f64>,
    /// Values hold until the next one.
    pub are_steps: bool,
}

/// One of them.
pub struct Line {
    pub entry: Entry,
    pub points: Vec<(f64, f64)>,
    /// Between which each point lies, where that is known: the place, the low and the high end.
    pub spans: Vec<(f64, f64, f64)>,
    /// Each point is marked, and says this when it is pointed at.
    pub dots: Vec<String>,
}

impl Line {
    pub fn new(name: &str, colour: usize, points: Vec<(f64, f64)>) -> Self {
        Self { entry: Entry::new(name, colour), points, spans: Vec::new(), dots: Vec::new() }
    }
}

impl Lines {
    pub fn draw(self) -> Chart {
        let mut inside = self.across.draw_across() + &self.up.draw_up();
        if let Some(level) = self.level {
            let y = self.up.up(level);
            inside.push_str(&format!("<path class=\"base\" d=\"M0 {y:.1}H{WIDTH}\"/>"));
        }
        for line in &self.series {
            inside.push_str(&self.spans(line));
            inside.push_str(&self.line(line));
        }
        for (index, (value, words)) in self.marks.iter().enumerate() {
            inside.push_str(&self.pointer(*value, words, 14.0 + index as f64 * MARK_STEP));
        }
        let is_one = self.series.len() == 1 && self.series[0].entry.name.is_empty();
        Chart {
            svg: framed(&self.title, &inside),
            title: self.title,
            note: self.note,
            legend: match is_one {
                true => Vec::new(),
                false => self.series.into_iter().map(|line| line.entry).collect(),
            },
        }
    }

    fn line(&self, line: &Line) -> String {
        let mut path = String::new();
        for (number, &(x, y)) in line.points.iter().enumerate() {
            let (x, y) = (self.across.across(x), self.up.up(y));
            path.push_str(&match number {
                0 => format!("M{x:.1} {y:.1}"),
                _ if self.are_steps => format!("H{x:.1}V{y:.1}"),
                _ => format!("L{x:.1} {y:.1}"),
            });
        }
        format!("<path class=\"line s{}\" d=\"{path}\"/>", line.entry.colour) + &self.dots(line)
    }

    fn dots(&self, line: &Line) -> String {
        let dot = |(&(x, y), words): (&(f64, f64), &String)| {
            let (x, y) = (self.across.across(x), self.up.up(y));
            format!(
                "<circle class=\"dot s{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"><title>{}</title></circle>",
                line.entry.colour,
                escape(words)
            )
        };
        line.points.iter().zip(&line.dots).map(dot).collect()
    }

    fn spans(&self, line: &Line) -> String {
        let span = |&(x, low, high): &(f64, f64, f64)| {
            let (x, low, high) = (self.across.across(x), self.up.up(low), self.up.up(high));
            format!(
                "<path class=\"span\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h8M{:.1} {high:.1}h8\"/>",
                x - 4.0,
                x - 4.0
            )
        };
        line.spans.iter().map(span).collect()
    }

    fn pointer(&self, value: f64, words: &str, y: f64) -> String {
        let (x, words) = (self.across.across(value), escape(words));
        let (class, beside) =
            if self.across.place(value) > 0.6 { ("end", x - 6.0) } else { ("", x + 6.0) };
        format!(
            "<path class=\"mark\" d=\"M{x:.1} 0V{HEIGHT}\"/>\
             <text class=\"marked {class}\" x=\"{beside:.1}\" y=\"{y}\">{words}</text>"
        )
    }
}
