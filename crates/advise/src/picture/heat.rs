//! Requests over time and address, the darker the more.

use crate::signature::{HeatCell, HeatMap};
use headpond_report::{Axis, Unit};
use headpond_report::{Chart, framed};

/// Shades that are told apart, each twice as many requests or more.
const SHADES: usize = 6;

/// Draws the requests that `pick` counts; `None` where there are none. `class` names their colour.
pub(super) fn draw(
    title: &str,
    map: &HeatMap,
    class: &str,
    pick: fn(&HeatCell) -> u64,
) -> Option<Chart> {
    let most = map.cells.iter().map(pick).max().filter(|&most| most > 0)?;
    let ends = |cell: &HeatCell| cell.from_ns.saturating_add(map.cell_ns);
    let last_ns = map.cells.iter().map(ends).max()?;
    let low = map.cells.iter().map(|cell| cell.offset_bytes).min()?;
    let high =
        map.cells.iter().map(|cell| cell.offset_bytes.saturating_add(map.cell_bytes)).max()?;
    let across = Axis::linear(0.0, last_ns as f64, Unit::Nanos);
    let up = Axis::linear(low as f64, high as f64, Unit::Bytes);
    let mut paths = vec![String::new(); SHADES];
    for cell in map.cells.iter().filter(|cell| pick(cell) > 0) {
        let x = across.across(cell.from_ns as f64);
        let width = across.across(ends(cell) as f64) - x;
        let bottom = up.up(cell.offset_bytes as f64);
        let height = bottom - up.up(cell.offset_bytes as f64 + map.cell_bytes as f64);
        // A little over its edge, so that neighbours leave no gap.
        let (width, height) = (width + 0.3, height + 0.3);
        let path = &mut paths[shade(pick(cell), most)];
        path.push_str(&format!(
            "M{x:.1} {:.1}h{width:.1}v{height:.1}h-{width:.1}z",
            bottom - height
        ));
    }
    let mut inside = across.draw_across() + &up.draw_up();
    for (shade, path) in paths.iter().enumerate().filter(|(_, path)| !path.is_empty()) {
        let opacity = (shade + 1) as f64 / SHADES as f64;
        inside.push_str(&format!(
            "<path class=\"{class}\" fill-opacity=\"{opacity:.2}\" d=\"{path}\"/>"
        ));
    }
    Some(Chart {
        title: title.to_owned(),
        note: format!(
            "address over time; a cell is {} by {}, and the darkest has {} {}",
            headpond_report::duration(map.cell_ns),
            headpond_report::size(map.cell_bytes),
            headpond_report::count(most),
            if most == 1 { "request" } else { "requests" }
        ),
        legend: Vec::new(),
        svg: framed(title, &inside),
    })
}

/// By the logarithm of the count.
fn shade(count: u64, most: u64) -> usize {
    let part = (count as f64).ln_1p() / (most as f64).ln_1p();
    ((part * SHADES as f64).ceil() as usize).clamp(1, SHADES) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_is_the_darkest_and_one_of_many_the_lightest() {
        assert_eq!((shade(1, 1), shade(1000, 1000)), (SHADES - 1, SHADES - 1));
        assert_eq!(shade(1, 1_000_000), 0);
    }

    #[test]
    fn a_map_without_such_requests_is_not_drawn() {
        let cell = HeatCell { from_ns: 0, offset_bytes: u64::MAX - 10, reads: 1, writes: 0 };
        let map = HeatMap { cell_ns: 1 << 63, cell_bytes: 4096, cells: vec![cell] };
        assert!(draw("writes", &map, "s1", |cell| cell.writes).is_none());
        assert!(draw("reads", &map, "s0", |cell| cell.reads).unwrap().svg.contains("fill-opacity"));
    }
}
