//! The swarm's command line; `cargo xtask swarm` builds and calls it.

mod summary;

use clap::Parser;
use headpond_cache::Mode;
use headpond_swarm::enumerate::{Enumeration, enumerate};
use headpond_swarm::scenarios::{self, Scenario};
use headpond_swarm::{Failure, Hunt, hunt, play, run_case};
use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Runs volumes in virtual time with injected faults, and verifies their reads.
#[derive(Parser)]
#[command(name = "cargo xtask swarm", bin_name = "cargo xtask swarm", version)]
struct Arguments {
    /// First seed; the others follow it. Default: from the clock.
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after this many minutes.
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// Stop after this many cases, without a time limit.
    #[arg(long)]
    cases: Option<u64>,
    /// Replay one seed, with a log of every step.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["seed", "cases"])]
    replay: Option<u64>,
    /// Run all workloads of up to this many operations, cut at every write, in every mode.
    #[arg(long, value_name = "OPERATIONS", conflicts_with_all = ["seed", "cases", "replay"])]
    enumerate: Option<usize>,
    /// Run the scenarios of the fault table, and print the table.
    #[arg(long, conflicts_with_all = ["seed", "cases", "replay", "enumerate"])]
    scenarios: bool,
    /// Continue after a failure.
    #[arg(long)]
    keep_going: bool,
    /// Print the totals as JSON.
    #[arg(long)]
    json: bool,
    /// The commit under test, for the reports.
    #[arg(long, hide = true, default_value = "unknown")]
    commit: String,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if arguments.scenarios {
        return play_all(&scenarios::all());
    }
    if let Some(operations) = arguments.enumerate {
        return exhaust(operations);
    }
    let failures = match arguments.replay {
        Some(seed) => replay(seed),
        None => run(&arguments),
    };
    failures.iter().for_each(|failure| report(failure, &arguments.commit));
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn play_all(all: &[Scenario]) -> ExitCode {
    let broken = play(all);
    summary::print_table(&broken);
    println!("{} scenarios, {} of them failed", all.len(), broken.len());
    if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn exhaust(operations_max: usize) -> ExitCode {
    let mut is_clean = true;
    for mode in Mode::ALL {
        let begun = Instant::now();
        let all = enumerate(Enumeration { mode, operations_max }, |_| {});
        println!("{mode:?}: {all} ({:.0} s)", begun.elapsed().as_secs_f64());
        all.failures.iter().take(10).for_each(|failure| println!("  {failure}"));
        is_clean &= all.failures.is_empty();
    }
    if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn replay(seed: u64) -> Vec<Failure> {
    let outcome = run_case(seed, &mut |line| println!("{line}"));
    match outcome {
        Ok(tally) => {
            println!("seed {seed}: passed");
            summary::print(&tally, None);
            Vec::new()
        }
        Err(failure) => {
            println!("{}", failure.offence);
            vec![*failure]
        }
    }
}

fn run(arguments: &Arguments) -> Vec<Failure> {
    let seed = arguments.seed.unwrap_or_else(seed_of_the_clock);
    let time_max = Duration::from_secs_f64(arguments.minutes * 60.0);
    let order = Hunt {
        cases_max: arguments.cases.unwrap_or(u64::MAX),
        time_max: arguments.cases.is_none().then_some(time_max),
        stops_at_failure: !arguments.keep_going,
        ..Hunt::from_seed(seed)
    };
    eprintln!("swarm: from seed {seed} on, commit {}", arguments.commit);
    let begun = Instant::now();
    let shows_progress = std::io::stderr().is_terminal();
    let (tally, failures) = hunt(&order, |tally| {
        if shows_progress {
            eprint!(
                "\r{} cases, {} requests, {} crashes",
                tally.cases,
                tally.requests,
                tally.crashes()
            );
            let _ = std::io::stderr().flush();
        }
    });
    if shows_progress {
        eprintln!();
    }
    match arguments.json {
        true => println!("{}", serde_json::to_string_pretty(&tally).expect("plain data")),
        false => summary::print(&tally, Some(begun.elapsed())),
    }
    failures
}

fn seed_of_the_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_secs() * 1_000_000)
}

fn report(failure: &Failure, commit: &str) {
    let seed = failure.seed;
    println!("\nfailed: seed {seed}, commit {commit}");
    println!("{}", failure.offence);
    println!("replay: cargo xtask swarm --replay {seed}");
}
