//! `headpond array plan` of drives that differ: what striping makes of them, and what a plain
//! stripe would lose.

use super::args::PlanArgs;
use crate::telling::print_json;
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_raid::Level;
use headpond_raid::superblock::DATA_OFFSET_MIN;
use headpond_report::{Align, Table, size};
use headpond_whatif::plan::{Different, DriveFigures, Outlook, outlooks};
use serde_json::json;

/// # Errors
/// Where the level is not 0, a drive is unknown, or what is asked needs drives of one kind.
pub fn plan(args: &PlanArgs) -> Result<Exit> {
    if args.level != [Level::Raid0] {
        return Err(Failure::usage("drives that differ are planned for --level 0"));
    }
    let others = args.simulate || args.simulate_rebuild.is_some() || args.html.is_some();
    if others || args.cache.is_some() || args.members.is_some() {
        return Err(Failure::usage(
            "of drives that differ there are formulas only: each --drive is a member, without \
             --members, --cache, --simulate, --simulate-rebuild and --html",
        ));
    }
    let strip_bytes = u32::try_from(args.strip.bytes()).ok().filter(|bytes| *bytes > 0);
    let strip_bytes =
        strip_bytes.ok_or_else(|| Failure::usage("--strip is a power of two from 4K to 1M"))?;
    let drives: Vec<DriveFigures> =
        args.drive.iter().map(|word| super::find(word)).collect::<Result<_>>()?;
    let members: Vec<Different> = drives.iter().map(member).collect();
    let all = outlooks(&members, strip_bytes).map_err(Failure::usage)?;
    if args.json {
        let told = json!({ "members": members, "strip_bytes": strip_bytes, "striping": all });
        print_json(&Versioned::new(told))?;
    } else {
        print!("{}", text(&members, &all));
    }
    Ok(Exit::Ok)
}

fn member(drive: &DriveFigures) -> Different {
    Different {
        name: drive.name.clone(),
        room_bytes: drive.capacity_bytes.saturating_sub(DATA_OFFSET_MIN),
        sequential_read_mb_per_s: Some(drive.sequential_read_mb_per_s),
        random_read_iops: Some(drive.random_read_iops),
    }
}

fn text(members: &[Different], all: &[Outlook]) -> String {
    let mut drives = Table::new(columns(&["drive", "capacity", "sequential read", "random read"]));
    for member in members {
        let speeds = [member.sequential_read_mb_per_s, member.random_read_iops];
        let [sequential, random] = told(speeds);
        drives.row([member.name.clone(), size(member.room_bytes), sequential, random]);
    }
    let names = ["striping", "weights", "capacity", "sequential read", "random read"];
    let mut ways = Table::new(columns(&names));
    for way in all {
        let [sequential, random] = told([way.sequential_read_mb_per_s, way.random_read_iops]);
        let (name, weights) = (way.striping.to_owned(), way.weights.to_string());
        ways.row([name, weights, size(way.capacity_bytes), sequential, random]);
    }
    format!("{}\n{}\n{}\n", drives.render(), ways.render(), lost(all))
}

fn columns<'a>(names: &[&'a str]) -> Vec<(&'a str, Align)> {
    let align = |index| if index == 0 { Align::Left } else { Align::Right };
    names.iter().enumerate().map(|(index, name)| (*name, align(index))).collect()
}

fn told([sequential, random]: [Option<f64>; 2]) -> [String; 2] {
    let words = |figure: Option<f64>, unit: &str| {
        figure.map_or_else(|| "-".to_owned(), |figure| format!("{figure:.0} {unit}"))
    };
    [words(sequential, "MB/s"), words(random, "IOPS")]
}

/// What plain striping leaves of what the best of the others reaches.
fn lost(all: &[Outlook]) -> String {
    let best = |of: &dyn Fn(&Outlook) -> f64| all.iter().map(of).fold(0.0, f64::max);
    let lost = |of: &dyn Fn(&Outlook) -> f64| {
        let share = 1.0 - of(&all[0]) / best(of).max(f64::MIN_POSITIVE);
        format!("{:.0} %", share * 100.0)
    };
    format!(
        "A plain stripe loses {} of the capacity, {} of the sequential and {} of the random \
         throughput that weights can have.",
        lost(&|way| way.capacity_bytes as f64),
        lost(&|way| way.sequential_read_mb_per_s.unwrap_or(0.0)),
        lost(&|way| way.random_read_iops.unwrap_or(0.0))
    )
}
