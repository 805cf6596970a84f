//! A line for each cell, for tables of others.

use crate::results::{Ending, Latencies, Results, Summary};

const HEAD: &str = "cell,target,settings,rw,read_percent,block_bytes,jobs,depth,sync,rate,ending,rounds,\
    iops_median,iops_min,iops_max,mb_per_s_median,mean_ms,\
    read_iops,read_mean_ms,read_p50_ms,read_p99_ms,read_p99_9_ms,read_p99_99_ms,read_max_ms,\
    write_iops,write_mean_ms,write_p50_ms,write_p99_ms,write_p99_9_ms,write_p99_99_ms,write_max_ms,\
    flush_iops,flush_mean_ms,flush_p50_ms,flush_p99_ms,flush_p99_9_ms,flush_p99_99_ms,flush_max_ms,\
    all_p50_ms,all_p99_ms,all_p99_9_ms,all_p99_99_ms,all_max_ms,all_is_at_most,\
    errors";

/// All cells; those that were not measured have no figures.
pub fn csv(results: &Results) -> String {
    let mut text = format!("{HEAD}\n");
    for cell in &results.cells {
        let load = &cell.cell.load;
        let ending = match &cell.ending {
            None => "open",
            Some(Ending::Complete) => "complete",
            Some(Ending::Steady { .. }) => "steady",
            Some(Ending::NotSteady { .. }) => "not steady",
            Some(Ending::Cut { .. }) => "cut short",
            Some(Ending::LeftOut { .. }) => "left out",
            Some(Ending::Failed { .. }) => "failed",
        };
        let mut fields = vec![
            cell.cell.number.to_string(),
            quoted(&results.plan.targets[cell.cell.target].name),
            quoted(&cell.cell.settings_text()),
            load.rw.clone(),
            load.mix.map(|mix| mix.to_string()).unwrap_or_default(),
            load.bs.bytes().to_string(),
            load.jobs.to_string(),
            load.depth.to_string(),
            load.sync.to_string(),
            load.rate.map(|rate| rate.to_string()).unwrap_or_default(),
            ending.to_owned(),
        ];
        match cell.summary(&results.plan) {
            Some(summary) => fields.extend(figures(&summary)),
            None => fields.extend((0..FIGURES).map(|_| String::new())),
        }
        text += &fields.join(",");
        text.push('\n');
    }
    text
}

const FIGURES: usize = 34;

fn figures(summary: &Summary) -> Vec<String> {
    // What did not happen took no time, which is not none.
    let side = |side: &Latencies| {
        let latencies = [side.mean, side.p50, side.p99, side.p99_9, side.p99_99, side.max];
        let text = |figure| if side.requests == 0 { String::new() } else { number(figure) };
        [number(side.iops)].into_iter().chain(latencies.map(text)).collect::<Vec<_>>()
    };
    let mut fields = vec![
        summary.rounds.to_string(),
        number(summary.iops.median),
        number(summary.iops.smallest),
        number(summary.iops.largest),
        number(summary.mb_per_s.median),
        number(summary.mean_ms.median),
    ];
    fields.extend(side(&summary.read));
    fields.extend(side(&summary.write));
    fields.extend(side(&summary.flush));
    let all = &summary.all;
    fields.extend([all.p50, all.p99, all.p99_9, all.p99_99, all.max].map(number));
    fields.push(summary.all_is_at_most.to_string());
    fields.push(summary.errors.to_string());
    assert_eq!(fields.len(), FIGURES, "a field for each column");
    fields
}

fn number(figure: f64) -> String {
    format!("{figure:.6}").trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn quoted(text: &str) -> String {
    match text.contains([',', '"', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_owned(),
    }
}
