//! A signature, and the advice drawn from it, as pictures: one page that needs nothing else, in the
//! light and in the dark, on a desk and on a phone.
//!
//! 1. `charts` says what is shown of a signature, `turning` what would change the answer of an
//!    advice. 2. `lines`, `bars` and `heat` draw it, with the axes of `axis`, as SVG; `gains` puts
//!    bars beside the figures of a table. 3. `page` and `advice_page` put it together.
//!
//! **Invariants**: no script, nothing from elsewhere; what a trace calls itself is escaped.
//!
//! **Not here**: text for a terminal (`render`).

mod advice_page;
mod axis;
mod bars;
mod charts;
mod gains;
mod heat;
mod lines;
mod page;
mod turning;

pub use advice_page::render_advice_page;
pub use page::render_page;

/// The inside of a chart, in its own units, and the room around it for labels.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// One drawing with its words.
pub(crate) struct Chart {
    pub title: String,
    pub note: String,
    pub legend: Vec<Entry>,
    pub svg: String,
}

/// A series by its name and the number of its colour.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub name: String,
    pub colour: usize,
}

impl Entry {
    fn new(name: &str, colour: usize) -> Self {
        Self { name: name.to_owned(), colour }
    }
}

/// Text that stands in HTML or SVG.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            letter => out.push(letter),
        }
    }
    out
}

/// The drawing around what was drawn inside.
fn framed(label: &str, inside: &str) -> String {
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + HEIGHT + BOTTOM);
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\
         <g transform=\"translate({LEFT} {TOP})\">{inside}</g></svg>\n",
        escape(label)
    )
}
