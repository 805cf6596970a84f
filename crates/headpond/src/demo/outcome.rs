//! The results of the demo, as numbers and as a table.

use super::load::{Measured, Workload};
use headpond_report::{Grid, Tone};
use serde::Serialize;

/// The whole result; the page and `--json` show the same.
#[derive(Debug, Serialize)]
pub struct DemoOutcome {
    pub load_by: String,
    pub volume_bytes: u64,
    pub cache_bytes: u64,
    /// What was applied after the first half.
    pub applied: Vec<String>,
    pub rows: Vec<Row>,
    /// Blocks of 4 KiB a second that `flush` reached on a cache full of random dirty blocks.
    pub offline_cleaning_iops: f64,
    pub signature: String,
    pub advice: String,
}

/// One workload, three times.
#[derive(Debug, Serialize)]
pub struct Row {
    pub workload: Workload,
    pub before: Measured,
    /// While the cache absorbs it.
    pub burst: Measured,
    /// With the cache full of dirty data, or as full as this workload can make it.
    pub sustained: Measured,
    /// Dirty ratio when the sustained run began.
    pub sustained_dirty_ratio: f64,
}

impl Row {
    pub fn burst_gain(&self) -> f64 {
        self.burst.iops() / self.before.iops().max(f64::MIN_POSITIVE)
    }

    pub fn sustained_gain(&self) -> f64 {
        self.sustained.iops() / self.before.iops().max(f64::MIN_POSITIVE)
    }
}

impl DemoOutcome {
    /// The table that ends the demo.
    pub fn grid(&self) -> Grid {
        let row = |row: &Row| {
            let rate = |of: &Measured| (rate(of, row.workload), Tone::Blank);
            let cells = [
                rate(&row.before),
                rate(&row.burst),
                gain(row.burst_gain()),
                rate(&row.sustained),
                gain(row.sustained_gain()),
            ];
            (row.workload.name.to_owned(), cells.to_vec())
        };
        let columns = ["before", "after: burst", "gain", "after: sustained", "gain"];
        Grid {
            corner: "workload".to_owned(),
            columns: columns.map(str::to_owned).to_vec(),
            rows: self.rows.iter().map(row).collect(),
            note: String::new(),
        }
    }

    /// The sustained column against the rate of the array itself.
    pub fn footnotes(&self) -> Vec<String> {
        let mut notes = vec![format!(
            "sustained: with the cache full of dirty data ({} at the start of each run)",
            self.rows
                .iter()
                .map(|row| format!("{:.0} %", row.sustained_dirty_ratio * 100.0))
                .collect::<Vec<_>>()
                .join(", ")
        )];
        notes.extend(self.offline_note());
        notes.push(format!("load by {}", self.load_by));
        notes
    }

    fn offline_note(&self) -> Option<String> {
        let offline = self.offline_cleaning_iops;
        if offline == 0.0 {
            return Some("with the applied settings there is no dirty data to clean".to_owned());
        }
        let share = self.rows.first()?.sustained.iops() / offline * 100.0;
        Some(format!(
            "cleaning the same dirty set offline in address order: {offline:.0} blocks/s; depth 1 \
             sustained reaches {share:.0} % of that (in a run this short the drives' own caches \
             take a part)"
        ))
    }
}

fn rate(measured: &Measured, workload: Workload) -> String {
    if workload.block_bytes > 4096 {
        return format!("{:.1} MB/s", measured.mb_per_s);
    }
    match measured.read_iops > 0.0 {
        true => format!("{:.0} + {:.0} IOPS", measured.read_iops, measured.write_iops),
        false => format!("{:.0} IOPS", measured.write_iops),
    }
}

/// Less than a twentieth is nothing that shows in runs this short.
fn gain(factor: f64) -> (String, Tone) {
    let words = if factor < 10.0 { format!("{factor:.1} x") } else { format!("{factor:.0} x") };
    (words, Tone::of_factor(factor, 0.05))
}
