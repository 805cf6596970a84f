//! Bars side by side: a distribution, or several over the same values.

use super::axis::{Axis, Unit, label_below};
use super::{Chart, Entry, HEIGHT, WIDTH, escape, framed};

/// Labels that fit below the bars.
const LABELS_MAX: usize = 9;

/// A chart with a bar of each series for each value.
pub struct Bars {
    pub title: String,
    pub note: String,
    pub series: Vec<Entry>,
    /// A label and the figure of each series, in order.
    pub values: Vec<(String, Vec<f64>)>,
    pub unit: Unit,
}

impl Bars {
    pub fn draw(self) -> Chart {
        let highest = self.values.iter().flat_map(|(_, shares)| shares.iter().copied());
        let up = Axis::linear(0.0, highest.fold(0.0, f64::max), self.unit);
        let step = WIDTH / self.values.len().max(1) as f64;
        let every = self.values.len().div_ceil(LABELS_MAX).max(1);
        let mut inside = up.draw_up();
        for (index, (label, shares)) in self.values.iter().enumerate() {
            let left = index as f64 * step;
            inside.push_str(&self.group(left, step, label, shares, &up));
            if index.is_multiple_of(every) {
                inside.push_str(&label_below(index / every, left + step / 2.0, label));
            }
        }
        inside.push_str(&format!("<path class=\"base\" d=\"M0 {HEIGHT}H{WIDTH}\"/>"));
        Chart {
            svg: framed(&self.title, &inside),
            title: self.title,
            note: self.note,
            legend: if self.series.len() > 1 { self.series } else { Vec::new() },
        }
    }

    fn group(&self, left: f64, step: f64, label: &str, shares: &[f64], up: &Axis) -> String {
        let width = (step * 0.84 / shares.len().max(1) as f64).min(48.0);
        let begin = left + (step - width * shares.len() as f64) / 2.0;
        let bar = |(index, &share): (usize, &f64)| {
            let (x, y) = (begin + index as f64 * width, up.up(share));
            let words = up.words(share);
            let colour = self.series[index].colour;
            format!(
                "<rect class=\"bar s{colour}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{}: {words}</title></rect>",
                (width - 1.0).max(0.5),
                HEIGHT - y,
                escape(label)
            )
        };
        shares.iter().enumerate().filter(|(_, share)| **share > 0.0).map(bar).collect()
    }
}
