//! `headpond trace stats`.

use super::args::StatsArgs;
use super::damage;
use crate::commands::reading::read_through;
use crate::telling::print_json;
use anyhow::Result;
use headpond_advise::render::render_stats;
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_trace::{Demand, Lacks, StatsBuilder, Tally, TraceFormat, TraceReader, TraceStats};
use serde::Serialize;

#[derive(Serialize)]
struct Answer<'a> {
    format: TraceFormat,
    /// False where all requests stand as reads.
    tells_operations: bool,
    /// False where all requests stand at time 0.
    tells_times: bool,
    #[serde(flatten)]
    stats: &'a TraceStats,
    tally: Tally,
}

/// Counts what is in a trace.
///
/// # Errors
/// Where the trace cannot be read, and what is wrong with it where.
pub fn run(args: &StatsArgs) -> Result<Exit> {
    let mut reader = TraceReader::open(&args.file, args.read.options(Demand::References))?;
    let stats = count(&mut reader)?;
    let (lacks, tally) = (reader.lacks(), reader.tally());
    if args.json {
        let answer = Answer {
            format: reader.format(),
            tells_operations: !lacks.contains(Lacks::OPERATIONS),
            tells_times: !lacks.contains(Lacks::TIMES),
            stats: &stats,
            tally,
        };
        print_json(&Versioned::new(answer))?;
        return Ok(Exit::Ok);
    }
    print!("{}", render_stats(reader.format(), &stats, &tally));
    if !lacks.is_empty() {
        println!("\nThe trace has {}: only reuse can be analysed.", lacks.words());
    }
    print!("{}", damage::table(&tally.damage));
    Ok(Exit::Ok)
}

fn count(reader: &mut TraceReader) -> Result<TraceStats> {
    let mut builder = StatsBuilder::default();
    read_through(reader, |record| builder.add(record))?;
    Ok(builder.finish())
}
