//! Damage that lenient reading skipped, as text.

use headpond_report::{Align, Table};
use headpond_trace::DamageCounts;

/// A table of the kinds that occurred; nothing where none did.
pub fn table(damage: &DamageCounts) -> String {
    if damage.places() == 0 {
        return String::new();
    }
    let heads = [
        ("skipped", Align::Left),
        ("places", Align::Right),
        ("bytes", Align::Right),
        ("first at", Align::Right),
    ];
    let mut table = Table::new(heads);
    for (kind, count) in damage.iter() {
        table.row([
            kind.words().to_owned(),
            count.places.to_string(),
            count.skipped_bytes.to_string(),
            count.first.to_string(),
        ]);
    }
    format!("\n{}", table.render())
}
