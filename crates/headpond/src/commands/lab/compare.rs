//! Comparison of two results.

use super::args::CompareArgs;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_lab::{Compared, Results, compare};
use headpond_report::{Align, Table, duration, factor, number};

/// Prints the significant differences between two folders.
///
/// # Errors
/// Where one cannot be read, or they have no cell in common.
pub fn run(args: &CompareArgs) -> Result<Exit> {
    let (first, second) = (Results::read(&args.first)?, Results::read(&args.second)?);
    let compared = compare(&first, &second);
    if compared.is_empty() {
        return Err(Failure::usage(format!(
            "{} and {} have no measured cell in common: the same target, settings and load",
            args.first.display(),
            args.second.display()
        )));
    }
    if args.json {
        print_json(&compared.iter().map(Versioned::new).collect::<Vec<_>>())?;
        return Ok(Exit::Ok);
    }
    let left = [("cell", Align::Left)];
    let right = ["first", "second", "second/first", "mean", "mean", "chance"];
    let right = right.map(|name| (name, Align::Right));
    let mut table = Table::new(left.into_iter().chain(right).chain([("", Align::Left)]));
    for it in &compared {
        let verdict = it.verdict;
        table.row([
            it.title.clone(),
            number(it.first_iops),
            number(it.second_iops),
            verdict.map(|verdict| factor(verdict.ratio)).unwrap_or_default(),
            ms(it.first_mean_ms),
            ms(it.second_mean_ms),
            verdict.map(|verdict| format!("{:.3}", verdict.chance)).unwrap_or_default(),
            word(it).to_owned(),
        ]);
    }
    print!("{}", table.render());
    let count = |wanted: bool| {
        let of = |it: &&Compared| {
            it.verdict.and_then(|verdict| verdict.winner_is_second()) == Some(wanted)
        };
        compared.iter().filter(of).count()
    };
    let (faster, slower) = (count(true), count(false));
    let untold = compared.iter().filter(|it| !can_be_told(it)).count();
    println!(
        "\n{} cells: the second is faster in {faster}, slower in {slower}; {untold} have too few \
         rounds, and {} do not differ by more than chance between rounds, or 3 %",
        compared.len(),
        compared.len() - faster - slower - untold
    );
    Ok(Exit::Ok)
}

fn can_be_told(it: &Compared) -> bool {
    it.verdict.is_some_and(|verdict| !verdict.is_short_of_rounds())
}

fn word(it: &Compared) -> &'static str {
    match it.verdict {
        Some(verdict) => match verdict.winner_is_second() {
            Some(true) => "faster",
            Some(false) => "slower",
            None if verdict.is_short_of_rounds() => "too few rounds",
            None => "",
        },
        None => "undecided",
    }
}

fn ms(ms: f64) -> String {
    duration((ms * 1e6) as u64)
}
