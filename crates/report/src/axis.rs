//! Scales and their marks.

use super::{HEIGHT, WIDTH, escape};
use crate::words::{count, duration, figure, percent, size};

/// Marks that fit along an axis.
const MARKS_ACROSS: usize = 7;
const MARKS_UP: usize = 4;

/// Round numbers within a decade, from many to one.
const DECADES: [&[f64]; 4] = [
    &[1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0],
    &[1.0, 1.5, 2.0, 3.0, 5.0, 7.0],
    &[1.0, 2.0, 5.0],
    &[1.0],
];

/// What the numbers of an axis are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Bytes,
    Nanos,
    Share,
    /// How many times as good.
    Factor,
    Count,
    /// A plain number, in whatever the title says.
    Number,
}

/// Numbers along a length.
#[derive(Clone, Copy, Debug)]
pub struct Axis {
    from: f64,
    to: f64,
    is_logarithmic: bool,
    unit: Unit,
}

impl Axis {
    pub fn linear(from: f64, to: f64, unit: Unit) -> Self {
        let to = if to > from { to } else { from + 1.0 };
        Self { from, to, is_logarithmic: false, unit }
    }

    /// Of positive numbers.
    pub fn logarithmic(from: f64, to: f64, unit: Unit) -> Self {
        let from = from.max(1e-6);
        Self { from, to: to.max(2.0 * from), is_logarithmic: true, unit }
    }

    /// Where a number stands, from 0 to 1.
    pub fn place(&self, value: f64) -> f64 {
        let part = match self.is_logarithmic {
            true => (value.max(self.from) / self.from).ln() / (self.to / self.from).ln(),
            false => (value - self.from) / (self.to - self.from),
        };
        part.clamp(0.0, 1.0)
    }

    pub fn across(&self, value: f64) -> f64 {
        self.place(value) * WIDTH
    }

    pub fn up(&self, value: f64) -> f64 {
        HEIGHT - self.place(value) * HEIGHT
    }

    /// Marks with their words along the bottom.
    pub fn draw_across(&self) -> String {
        let mark = |(index, value): (usize, f64)| {
            let x = self.across(value);
            format!("<path class=\"grid\" d=\"M{x:.1} 0V{HEIGHT}\"/>")
                + &label_below(index, x, &self.words(value))
        };
        self.marks(MARKS_ACROSS).into_iter().enumerate().map(mark).collect()
    }

    /// Marks with their words along the left side.
    pub fn draw_up(&self) -> String {
        let mark = |value: f64| {
            let (y, words) = (self.up(value), self.words(value));
            format!(
                "<path class=\"grid\" d=\"M0 {y:.1}H{WIDTH}\"/>\
                 <text class=\"end\" x=\"-8\" y=\"{:.1}\">{words}</text>",
                y + 4.0
            )
        };
        self.marks(MARKS_UP).into_iter().map(mark).collect()
    }

    pub(crate) fn words(&self, value: f64) -> String {
        match self.unit {
            Unit::Bytes => size(value as u64),
            Unit::Nanos => clock(value),
            Unit::Share => percent(value).replace(".0 %", " %"),
            Unit::Factor => format!("{}x", (value * 100.0).round() / 100.0),
            Unit::Count => count(value as u64),
            Unit::Number => figure((value * 1e6).round() / 1e6),
        }
    }

    /// The powers of ten on a logarithmic axis; none on another.
    pub(crate) fn decades(&self) -> impl Iterator<Item = f64> {
        let (first, last) = (self.from.log10().ceil() as i32, self.to.log10().floor() as i32);
        (first..=last).map(|power| 10f64.powi(power)).take_while(|_| self.is_logarithmic)
    }

    fn marks(&self, wanted: usize) -> Vec<f64> {
        // Sizes and depths are powers of two.
        if self.is_logarithmic && !matches!(self.unit, Unit::Bytes | Unit::Count) {
            return self.decimal_marks(wanted);
        }
        if self.is_logarithmic {
            let doublings = (self.to / self.from).log2();
            let step = (doublings / wanted as f64).ceil().max(1.0);
            let first = self.from.log2().ceil();
            let marks = (0..=wanted).map(|index| (first + index as f64 * step).exp2());
            return marks.filter(|&mark| mark <= self.to * 1.001).collect();
        }
        let step = self.round_step((self.to - self.from) / wanted as f64);
        let first = (self.from / step).ceil();
        let marks = (0..=2 * wanted).map(|index| (first + index as f64) * step);
        marks.filter(|&mark| mark <= self.to * 1.000_001).collect()
    }

    /// Round numbers of a logarithmic axis: as many in each decade as there is room for, or
    /// decades that lie apart.
    fn decimal_marks(&self, wanted: usize) -> Vec<f64> {
        let decades = self.from.log10().floor() as i32..=self.to.log10().ceil() as i32;
        let marks = |within: &[f64], apart: i32| {
            let decades = decades.clone().filter(|decade| decade.rem_euclid(apart) == 0);
            let all =
                decades.flat_map(|decade| within.iter().map(move |it| it * 10f64.powi(decade)));
            all.filter(|&it| it >= self.from * 0.999 && it <= self.to * 1.001).collect::<Vec<_>>()
        };
        let dense = DECADES.iter().map(|within| marks(within, 1));
        let sparse = (2..).map(|apart| marks(&[1.0], apart));
        dense.chain(sparse).find(|marks| marks.len() <= wanted + 1).expect("at last there is one")
    }

    /// The next round number that is not smaller.
    fn round_step(&self, least: f64) -> f64 {
        if self.unit == Unit::Bytes {
            return least.log2().ceil().exp2();
        }
        let minute = 60e9;
        if self.unit == Unit::Nanos && least > 30e9 {
            let steps = [1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 360.0, 720.0, 1440.0];
            let fitting = steps.into_iter().find(|step| step * minute >= least);
            return fitting.map_or(least, |step| step * minute);
        }
        let power = 10f64.powf(least.log10().floor());
        let fitting = [1.0, 2.0, 5.0, 10.0].into_iter().find(|step| step * power >= least);
        fitting.unwrap_or(10.0) * power
    }
}

/// Words below the chart; where there is little room, every other one is left out.
pub(crate) fn label_below(index: usize, x: f64, words: &str) -> String {
    let class = if index.is_multiple_of(2) { "mid" } else { "mid odd" };
    let y = HEIGHT + 16.0;
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y}\">{}</text>", escape(words))
}

/// A time along an axis: hours and minutes where seconds are too many.
fn clock(nanos: f64) -> String {
    let minutes = (nanos / 60e9).round() as u64;
    match minutes {
        _ if nanos == 0.0 => "0".to_owned(),
        _ if nanos < 120e9 => duration(nanos as u64),
        0..120 => format!("{minutes} min"),
        _ if minutes.is_multiple_of(60) => format!("{} h", minutes / 60),
        _ => format!("{} h {} min", minutes / 60, minutes % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_within_the_axis() {
        let time = Axis::linear(0.0, 7_200e9, Unit::Nanos);
        let words: Vec<_> = time.marks(7).iter().map(|&mark| time.words(mark)).collect();
        assert_eq!(words, ["0", "30 min", "60 min", "90 min", "2 h"]);
        let sizes = Axis::logarithmic(4096.0, (1u64 << 30) as f64, Unit::Bytes);
        let marks = sizes.marks(7);
        assert_eq!((marks[0], marks[1]), (4096.0, 32768.0));
        assert!(marks.len() >= 6 && *marks.last().unwrap() <= (1u64 << 30) as f64);
        assert_eq!(Axis::linear(0.0, 1.0, Unit::Share).marks(4), [0.0, 0.5, 1.0]);
    }

    #[test]
    fn marks_of_times_are_round_decimals_however_long_the_axis() {
        let marks = |from: f64, to: f64| {
            let axis = Axis::logarithmic(from, to, Unit::Nanos);
            axis.marks(4).iter().map(|&mark| axis.words(mark)).collect::<Vec<_>>()
        };
        assert_eq!(marks(3.2e6, 6.9e6), ["4 ms", "5 ms", "6 ms"]);
        assert_eq!(marks(3e6, 12e6), ["3 ms", "5 ms", "7 ms", "10 ms"]);
        assert_eq!(marks(0.11e6, 3e6), ["200 us", "500 us", "1 ms", "2 ms"]);
        assert_eq!(marks(90e3, 1.1e9), ["100 us", "1 ms", "10 ms", "100 ms", "1 s"]);
        assert_eq!(marks(1.0, 1e9).len(), 5);
    }

    #[test]
    fn a_value_beyond_the_axis_stands_at_its_end() {
        let axis = Axis::logarithmic(0.0, 0.0, Unit::Bytes);
        assert_eq!((axis.across(0.0), axis.across(1e30)), (0.0, WIDTH));
        assert_eq!(Axis::linear(5.0, 5.0, Unit::Bytes).place(5.0), 0.0);
    }
}
