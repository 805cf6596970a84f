//! `headpond trace convert`.

use super::args::ConvertArgs;
use super::damage;
use crate::commands::reading;
use anyhow::{Context, Result};
use headpond_api::outcome::Exit;
use headpond_trace::{Conversion, Demand, TraceReader, convert};
use serde_json::json;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Writes a trace in another format.
///
/// # Errors
/// Where the trace cannot be read, and what is wrong with it where; where the output exists or
/// cannot be written. A partial output is removed.
pub fn run(args: &ConvertArgs) -> Result<Exit> {
    let mut reader = TraceReader::open(&args.input, args.read.options(Demand::References))?;
    let conversion = if args.output == Path::new("-") {
        write(args, &mut reader, io::stdout())?
    } else {
        write_file(args, &mut reader)?
    };
    tell(args, &reader, conversion);
    Ok(Exit::Ok)
}

fn write_file(args: &ConvertArgs, reader: &mut TraceReader) -> Result<Conversion> {
    let output = || args.output.display().to_string();
    let file = File::create_new(&args.output).with_context(output)?;
    let conversion = write(args, reader, file);
    if conversion.is_err() {
        fs::remove_file(&args.output).with_context(output)?;
    }
    conversion.with_context(output)
}

fn write(
    args: &ConvertArgs,
    reader: &mut TraceReader,
    output: impl io::Write + Send,
) -> Result<Conversion> {
    let bar = reading::bar("converting");
    let conversion = convert(reader, output, args.to, |reader| reading::show(&bar, reader));
    bar.finish_and_clear();
    Ok(conversion?)
}

/// Standard output may be taken by the trace.
fn tell(args: &ConvertArgs, reader: &TraceReader, conversion: Conversion) {
    let said =
        if args.json { json(args, reader, conversion) } else { text(args, reader, conversion) };
    if args.output == Path::new("-") { eprint!("{said}") } else { print!("{said}") }
}

fn json(args: &ConvertArgs, reader: &TraceReader, conversion: Conversion) -> String {
    let (from, to, tally) = (reader.format(), args.to.name(), reader.tally());
    let Conversion { records, left_out } = conversion;
    let answer = json!({
        "from": from, "to": to, "records": records, "left_out": left_out, "tally": tally
    });
    format!("{answer}\n")
}

fn text(args: &ConvertArgs, reader: &TraceReader, conversion: Conversion) -> String {
    let (from, to, name) = (reader.format().words(), args.to.name(), args.output.display());
    let mut said = format!("{name}: {} requests from {from} to {to}\n", conversion.records);
    if conversion.left_out > 0 {
        said += &format!("{} were left out: {to} cannot represent them\n", conversion.left_out);
    }
    said + &damage::table(&reader.tally().damage)
}
