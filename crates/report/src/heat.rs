//! How often what was seen, over time: a map whose darkness is the count.

use super::axis::Axis;
use super::{Chart, HEIGHT, escape, framed};

/// Steps of darkness that an eye tells apart.
const STEPS: usize = 8;
/// Columns that the drawing has room for; neighbours are drawn as one.
const COLUMNS_MAX: usize = 140;

/// A map of counts over two axes.
pub struct Heat {
    pub title: String,
    pub note: String,
    pub across: Axis,
    pub up: Axis,
    /// From left to right.
    pub columns: Vec<HeatColumn>,
    /// Places on the axis that are pointed out, and their words.
    pub marks: Vec<(f64, String)>,
}

/// A stretch of the axis across, and what was seen in it.
#[derive(Clone, Debug, Default)]
pub struct HeatColumn {
    pub from: f64,
    pub to: f64,
    /// From where to where of the axis up, and how often.
    pub cells: Vec<(f64, f64, u64)>,
}

impl Heat {
    pub fn draw(self) -> Chart {
        let columns = narrowed(self.columns);
        let most = columns.iter().flat_map(|column| &column.cells).map(|cell| cell.2).max();
        let mut paths = vec![String::new(); STEPS];
        for column in &columns {
            let (left, right) = (self.across.across(column.from), self.across.across(column.to));
            for &(from, to, count) in &column.cells {
                let (bottom, top) = (self.up.up(from), self.up.up(to));
                let step = step(count, most.unwrap_or(1));
                paths[step]
                    .push_str(&format!("M{left:.1} {top:.1}H{right:.1}V{bottom:.1}H{left:.1}z"));
            }
        }
        let mut inside = self.across.draw_across() + &self.up.draw_up();
        for (step, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
            let opacity = (step + 1) as f64 / STEPS as f64;
            inside.push_str(&format!(
                "<path class=\"heat\" fill-opacity=\"{opacity:.2}\" d=\"{path}\"/>"
            ));
        }
        for (value, words) in &self.marks {
            let x = self.across.across(*value);
            inside.push_str(&format!(
                "<path class=\"mark\" d=\"M{x:.1} 0V{HEIGHT}\"/>\
                 <text class=\"marked\" x=\"{:.1}\" y=\"14\">{}</text>",
                x + 6.0,
                escape(words)
            ));
        }
        let svg = framed(&self.title, &inside);
        Chart { svg, title: self.title, note: self.note, legend: Vec::new() }
    }
}

/// One request in a thousand is to be seen beside the others: darkness goes by the logarithm.
fn step(count: u64, most: u64) -> usize {
    let share = (count as f64).ln_1p() / (most.max(1) as f64).ln_1p();
    ((share * STEPS as f64).ceil() as usize).clamp(1, STEPS) - 1
}

/// As many columns as there is room for.
fn narrowed(columns: Vec<HeatColumn>) -> Vec<HeatColumn> {
    let together = columns.len().div_ceil(COLUMNS_MAX).max(1);
    columns.chunks(together).map(joined).collect()
}

fn joined(columns: &[HeatColumn]) -> HeatColumn {
    let mut all =
        HeatColumn { from: columns[0].from, to: columns[columns.len() - 1].to, cells: Vec::new() };
    for &(from, to, count) in columns.iter().flat_map(|column| &column.cells) {
        match all.cells.iter_mut().find(|cell| (cell.0, cell.1) == (from, to)) {
            Some(cell) => cell.2 += count,
            None => all.cells.push((from, to, count)),
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    #[test]
    fn the_rare_is_light_and_the_frequent_dark_but_nothing_is_invisible() {
        assert_eq!((step(1, 1_000_000), step(1_000_000, 1_000_000)), (0, STEPS - 1));
        assert!(step(1000, 1_000_000) > step(30, 1_000_000));
        assert_eq!(step(1, 1), STEPS - 1);
    }

    #[test]
    fn many_columns_become_few_and_nothing_is_lost() {
        let column = |number: usize| HeatColumn {
            from: number as f64,
            to: (number + 1) as f64,
            cells: vec![(1.0, 2.0, 3), (2.0, 4.0, number as u64 % 2)],
        };
        let few = narrowed((0..1000).map(column).collect());
        assert!(few.len() <= COLUMNS_MAX && few.len() > COLUMNS_MAX / 2, "{}", few.len());
        let sum: u64 = few.iter().flat_map(|it| &it.cells).map(|cell| cell.2).sum();
        assert_eq!(sum, 3500);
        assert_eq!((few[0].from, few.last().unwrap().to), (0.0, 1000.0));
    }

    #[test]
    fn it_is_drawn_with_a_path_for_each_darkness() {
        let cells = vec![(1.0, 2.0, 1), (2.0, 4.0, 1000)];
        let heat = Heat {
            title: "a".into(),
            note: "b".into(),
            across: Axis::linear(0.0, 1.0, Unit::Number),
            up: Axis::logarithmic(1.0, 4.0, Unit::Number),
            columns: vec![HeatColumn { from: 0.0, to: 1.0, cells }],
            marks: vec![(0.5, "here".into())],
        };
        let svg = heat.draw().svg;
        assert_eq!(svg.matches("class=\"heat\"").count(), 2, "{svg}");
        assert!(svg.contains("here"), "{svg}");
    }
}
