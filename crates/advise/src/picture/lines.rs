//! Lines over an axis.

use super::axis::Axis;
use super::{Chart, HEIGHT, framed};

/// A chart with a line for each series.
pub(super) struct Lines {
    pub title: String,
    pub note: String,
    pub across: Axis,
    pub up: Axis,
    pub series: Vec<(String, Vec<(f64, f64)>)>,
    /// A place on the axis that is pointed out, and its words.
    pub mark: Option<(f64, String)>,
    /// Values hold until the next one.
    pub are_steps: bool,
}

impl Lines {
    pub(super) fn draw(self) -> Chart {
        let mut inside = self.across.draw_across() + &self.up.draw_up();
        for (index, (_, points)) in self.series.iter().enumerate() {
            inside.push_str(&self.line(index, points));
        }
        if let Some((value, words)) = &self.mark {
            inside.push_str(&self.pointer(*value, words));
        }
        Chart {
            svg: framed(&self.title, &inside),
            title: self.title,
            note: self.note,
            legend: self.series.into_iter().map(|(name, _)| name).collect(),
        }
    }

    fn line(&self, index: usize, points: &[(f64, f64)]) -> String {
        let mut path = String::new();
        for (number, &(x, y)) in points.iter().enumerate() {
            let (x, y) = (self.across.across(x), self.up.up(y));
            path.push_str(&match number {
                0 => format!("M{x:.1} {y:.1}"),
                _ if self.are_steps => format!("H{x:.1}V{y:.1}"),
                _ => format!("L{x:.1} {y:.1}"),
            });
        }
        format!("<path class=\"line s{index}\" d=\"{path}\"/>")
    }

    fn pointer(&self, value: f64, words: &str) -> String {
        let x = self.across.across(value);
        let (class, beside) =
            if self.across.place(value) > 0.6 { ("end", x - 6.0) } else { ("", x + 6.0) };
        format!(
            "<path class=\"mark\" d=\"M{x:.1} 0V{HEIGHT}\"/>\
             <text class=\"marked {class}\" x=\"{beside:.1}\" y=\"14\">{words}</text>"
        )
    }
}
