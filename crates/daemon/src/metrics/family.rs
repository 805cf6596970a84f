//! What metrics there are.

use super::{arrays, cache, cores, server, volume};
use std::fmt::{self, Write};

/// Metrics of one name.
#[derive(Debug)]
pub struct Family {
    pub name: &'static str,
    pub kind: Kind,
    /// Beside `volume`, which all have.
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    /// Rises, until the daemon is started again or the counters are reset.
    Counter,
    Histogram,
}

/// Metrics about one thing.
pub struct Group {
    pub title: &'static str,
    pub families: &'static [&'static Family],
}

/// All metrics, in the order of the document.
pub const GROUPS: [Group; 7] = [
    volume::GROUP,
    cores::GROUP,
    server::GROUP,
    cache::REQUESTS,
    cache::GROUP,
    arrays::GROUP,
    arrays::MEMBERS,
];

/// Defines families as statics, and lists them.
macro_rules! families {
    ($title:literal: $($id:ident = $kind:ident $name:literal [$($label:literal),*] $help:literal;)+) => {
        $(static $id: $crate::metrics::Family = $crate::metrics::Family {
            name: $name,
            kind: $crate::metrics::Kind::$kind,
            labels: &[$($label),*],
            help: $help,
        };)+

        pub const GROUP: $crate::metrics::family::Group =
            $crate::metrics::family::Group { title: $title, families: &[$(&$id),+] };
    };
}

pub(super) use families;

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Histogram => "histogram",
        })
    }
}

/// The tables of `docs/metrics.md`.
pub fn document() -> String {
    let mut text = String::new();
    for Group { title, families } in &GROUPS {
        // A string takes everything.
        let _ = writeln!(
            text,
            "### {title}\n\n| metric | type | labels | meaning |\n|---|---|---|---|"
        );
        for Family { name, kind, labels, help } in *families {
            let labels: Vec<_> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(text, "| `{name}` | {kind} | {} | {help} |", labels.join(", "));
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}
