//! What people look at: figures in words, tables, and charts on a page that needs nothing
//! else, in the light and in the dark, on a desk and on a phone.
//!
//! 1. `words` and [`Table`] are for a terminal, too. 2. [`Lines`], [`Bars`], [`Comparison`] and
//!    [`Heat`] draw SVG over an [`Axis`]; other drawings are put into a [`Chart`] with [`framed`].
//!    3. [`figure`], [`cards`], [`listed`] and others are the parts of a page, where [`Table`] and
//!    [`Grid`] draw themselves; [`document`] is around all of it.
//!
//! **Invariants**: no script, nothing from elsewhere; words of users are escaped.
//!
//! **Not here**: what is said (each crate says it of its own results); JSON.

#![forbid(unsafe_code)]

mod axis;
mod bars;
mod comparison;
mod grid;
mod heat;
mod lines;
mod page;
mod table;
mod width;
mod words;

pub use axis::{Axis, Unit};
pub use bars::Bars;
pub use comparison::{Compared, Comparison, Scale};
pub use grid::{Grid, Tone};
pub use heat::{Heat, HeatColumn};
pub use lines::{Line, Lines};
pub use page::{cards, document, figure, folded, listed, part, section, side_by_side, verbatim};
pub use table::{Align, Table};
pub use width::{columns, fold, set_columns};
pub use words::{
    a_request, count, duration, factor, figure as number, micros, percent, rate, shell_word,
    shell_words, size, throughput,
};

/// The inside of a chart, in its own units, and the room around it for labels.
const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 200.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 12.0;
const BOTTOM: f64 = 40.0;

/// Colours that series have, from 0 on.
pub const COLOURS: usize = 8;

/// One drawing with its words.
#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    pub note: String,
    pub legend: Vec<Entry>,
    pub svg: String,
}

/// A series by its name and the number of its colour.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    pub colour: usize,
}

impl Entry {
    pub fn new(name: &str, colour: usize) -> Self {
        Self { name: name.to_owned(), colour }
    }
}

/// Text that stands in HTML or SVG.
pub fn escape(text: &str) -> String {
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
pub fn framed(label: &str, inside: &str) -> String {
    framed_to(HEIGHT + BOTTOM, label, inside)
}

/// The same around what is so high, with what stands below it.
fn framed_to(inside_height: f64, label: &str, inside: &str) -> String {
    let (width, height) = (LEFT + WIDTH + RIGHT, TOP + inside_height);
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">\
         <g transform=\"translate({LEFT} {TOP})\">{inside}</g></svg>\n",
        escape(label)
    )
}
