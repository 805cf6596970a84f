//! What is printed at the end of a run.

use headpond_swarm::Tally;
use headpond_swarm::scenarios::{About, Proof, ROWS_AND_LOSSES};
use std::time::Duration;

/// The totals of a run, and which rows of the fault table its cases have exercised.
pub fn print(tally: &Tally, elapsed: Option<Duration>) {
    let Tally { cases, full_cases, lives, requests, failed_requests, .. } = tally;
    println!(
        "{cases} cases, {full_cases} of them with 1,000 requests, 3 crashes, 2 faults or more"
    );
    println!("{lives} lives");
    println!("{requests} requests, {failed_requests} of them failed, as faults allow");
    println!(
        "{} crashes: {} power cuts, {} killed programs; {} clean stops; {} commands; {} arrays \
         grown, {} copies added and {} given up, {} journals set and {} taken away, {} members \
         returned, {} times all copies of a cache again, {} cores switched, {} \
         rotten sectors healed",
        tally.crashes(),
        tally.power_cuts,
        tally.kills,
        tally.clean_stops,
        tally.commands,
        tally.grown,
        tally.copies_added,
        tally.copies_dropped,
        tally.journals_set,
        tally.journals_dropped,
        tally.returned,
        tally.copies_filled,
        tally.cores_switched,
        tally.rot_healed
    );
    println!("{} faults:", tally.faults_total());
    tally.faults.iter().for_each(|(kind, count)| println!("  {count:>8} {kind}"));
    println!("refusals, as they must be:");
    tally.refusals.iter().for_each(|(reason, count)| println!("  {count:>8} {reason}"));
    print_rows(tally);
    if let Some(elapsed) = elapsed {
        let rate = *cases as f64 / elapsed.as_secs_f64() * 60.0;
        println!("{:.0} s, {rate:.0} seeds a minute", elapsed.as_secs_f64());
    }
}

fn print_rows(tally: &Tally) {
    println!("rows of the fault table: cases that exercised them, and how else they are tried:");
    for entry in ROWS_AND_LOSSES {
        let About::Row(row) = entry.about else { continue };
        let cases = tally.rows.get(&row).unwrap_or(&0);
        let count = |is: fn(&Proof) -> bool| entry.proofs.iter().filter(|proof| is(proof)).count();
        let scenarios = count(|proof| matches!(proof, Proof::Scenario(_)));
        let tests = count(|proof| matches!(proof, Proof::Test(..)));
        let mut how = format!("{scenarios} scenarios, {tests} tests");
        for proof in entry.proofs {
            if let Proof::NotYet(what) = proof {
                how += &format!("; not yet: {what}");
            }
        }
        println!("  {cases:>8} row {row}: {} ({how})", entry.fault);
    }
}

/// The fault table with the scenarios of each row, and what those say whose rule is broken.
pub fn print_table(broken: &[(&'static str, String)]) {
    for entry in ROWS_AND_LOSSES {
        println!("{}: {}", entry.about, entry.fault);
        for proof in entry.proofs {
            match proof {
                Proof::Scenario(scenario) => {
                    let said = broken.iter().find(|(name, _)| *name == scenario.name);
                    match said {
                        None => println!("  holds    {}", scenario.name),
                        Some((name, said)) => println!("  BROKEN   {name}: {said}"),
                    }
                }
                Proof::Test(file, name) => println!("  a test   {name} ({file})"),
                Proof::NotYet(what) => println!("  not yet  {what}"),
            }
        }
    }
}
