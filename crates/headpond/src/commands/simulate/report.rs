//! Results of simulations, for a terminal.

use super::comparison;
use super::picture::sparkline;
use headpond_report::{Align, Table, count, percent, throughput};
use headpond_whatif::{DeviceShare, JobOutcome, Outcome, Window};
use std::fmt::Write as _;

/// The whole report.
pub fn text(outcomes: &[Outcome]) -> String {
    let mut text = jobs(outcomes).render();
    let devices = devices(outcomes).render() + &each_drive(outcomes);
    for part in [comparison::table(outcomes), courses(outcomes), devices] {
        if !part.is_empty() {
            text += &format!("\n{part}");
        }
    }
    for outcome in outcomes {
        writeln!(text, "\n{}:", outcome.name).expect("a string can be written to");
        for line in &outcome.why {
            writeln!(text, "  - {line}").expect("a string can be written to");
        }
    }
    text
}

/// Results of the jobs.
pub fn jobs(outcomes: &[Outcome]) -> Table {
    let right = ["", "IOPS", "MB/s", "mean ms", "p50", "p99", "p99.9", "p99.99"];
    let columns = [("stack", Align::Left), ("job", Align::Left)]
        .into_iter()
        .chain(right.map(|name| (name, Align::Right)));
    let mut table = Table::new(columns);
    for outcome in outcomes {
        for job in &outcome.jobs {
            job_rows(&mut table, &outcome.name, job);
        }
    }
    table
}

fn job_rows(table: &mut Table, stack: &str, job: &JobOutcome) {
    let measured = &job.measured;
    let sides = [("read", measured.read), ("write", measured.write), ("flush", measured.flush)];
    for (name, side) in sides.into_iter().filter(|(_, side)| side.requests > 0) {
        let latency = side.latency;
        table.row([
            stack.to_owned(),
            job.name.clone(),
            name.to_owned(),
            count(side.iops.round() as u64),
            throughput(side.mb_per_s * 1e6),
            ms(latency.mean_us),
            ms(latency.p50_us),
            ms(latency.p99_us),
            ms(latency.p99_9_us),
            ms(latency.p99_99_us),
        ]);
    }
}

/// Utilisation of the devices.
pub fn devices(outcomes: &[Outcome]) -> Table {
    let right = ["busy", "busiest", "reads/s", "writes/s", "read ms", "write ms"];
    let columns = [("stack", Align::Left), ("device", Align::Left)]
        .into_iter()
        .chain(right.map(|name| (name, Align::Right)));
    let mut table = Table::new(columns);
    for outcome in outcomes {
        let name = &outcome.name;
        if let Some(engine) = &outcome.engine {
            let none = || "-".to_owned();
            let device = format!("core ({})", engine.name);
            let busy = percent(engine.busy);
            table.row([name.clone(), device, busy, none(), none(), none(), none(), none()]);
        }
        if let Some(cache) = &outcome.cache {
            table.row(device_row(name, "cache", &cache.device));
        }
        let drives = format!("{} drives", outcome.drives.devices);
        table.row(device_row(name, &drives, &outcome.drives));
    }
    table
}

fn device_row(stack: &str, device: &str, share: &DeviceShare) -> [String; 8] {
    [
        stack.to_owned(),
        device.to_owned(),
        percent(share.busy_mean),
        percent(share.busy_max),
        count(share.reads_per_s.round() as u64),
        count(share.writes_per_s.round() as u64),
        ms(share.read_mean_us),
        ms(share.write_mean_us),
    ]
}

/// Time series, each metric with one scale for all stacks.
fn courses(outcomes: &[Outcome]) -> String {
    type Pick = fn(&Window) -> f64;
    let kinds: [(&str, Pick); 3] = [
        ("read IOPS", |window| window.read_iops),
        ("write IOPS", |window| window.write_iops),
        ("dirty", |window| window.dirty_ratio),
    ];
    let mut text = String::new();
    let width = outcomes.iter().map(|outcome| outcome.name.chars().count()).max().unwrap_or(0);
    for (name, pick) in kinds {
        let figures = |outcome: &Outcome| outcome.windows.iter().map(pick).collect::<Vec<_>>();
        let top = outcomes.iter().flat_map(figures).fold(0.0, f64::max);
        if top <= 0.0 {
            continue;
        }
        let shown = outcomes.iter().filter(|outcome| name != "dirty" || outcome.cache.is_some());
        for outcome in shown {
            let (figures, seconds) = (figures(outcome), outcome.windows.last().map(|it| it.at_s));
            let (top, words) = match name {
                "dirty" => (1.0, format!("up to {}", percent(top))),
                _ => (top, format!("up to {}", count(top.round() as u64))),
            };
            let (stack, line) = (&outcome.name, sparkline(&figures, top));
            let seconds = seconds.unwrap_or(0.0);
            writeln!(text, "{stack:<width$}  {name:<10}  |{line}|  {seconds:.0} s, {words}")
                .expect("a string can be written to");
        }
    }
    text
}

/// Utilisation by drive, which shows outliers.
fn each_drive(outcomes: &[Outcome]) -> String {
    let width = outcomes.iter().map(|outcome| outcome.name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for outcome in outcomes {
        let busy: Vec<f64> = outcome.each_drive.iter().map(|drive| drive.busy_mean).collect();
        let (stack, line) = (&outcome.name, sparkline(&busy, 1.0));
        writeln!(text, "{stack:<width$}  drive by drive  |{line}|  of 100 %")
            .expect("a string can be written to");
    }
    text
}

pub fn ms(micros: f64) -> String {
    format!("{:.2}", micros / 1e3)
}
