//! The command line of `headpond lab`.

use anyhow::Result;
use clap::{Args, Subcommand};
use headpond_api::outcome::Failure;
use headpond_lab::{ArrayOf, Target};
use std::path::{Path, PathBuf};

/// Measure block devices, volumes and models rigorously: plans, rounds, steady state,
/// statistics, a report.
#[derive(Subcommand)]
pub enum LabCommand {
    Plans(PlansArgs),
    Check(CheckArgs),
    Run(RunArgs),
    Resume(ResumeArgs),
    Report(ReportArgs),
    Compare(CompareArgs),
}

/// List the built-in plans, or print one to start from.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  headpond lab plans\n  headpond lab plans write-policy > mine.toml"
)]
pub struct PlansArgs {
    /// Print this plan.
    pub name: Option<String>,
}

/// Print what a plan will do, how long it takes and what it overwrites, without running it.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond lab check write-policy\n  \
    headpond lab check mine.toml --target disk=/dev/sdb")]
pub struct CheckArgs {
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Run a plan and store every round.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond lab run write-policy --out results\n  \
    headpond lab run snia-iops --target drive=/dev/sdb --overwrite /dev/sdb --out results\n  \
    headpond lab run sync-write --target drive=/dev/sdb --overwrite /dev/sdb --out results \\\n      \
    --set 'headpond drive set /dev/sdb write-cache={value}' \\\n      \
    --restore 'headpond drive restore /dev/sdb'\n  \
    headpond lab run array --target r5=/dev/md0 --target r5=/dev/md1 --overwrite /dev/md0 \\\n      \
    --overwrite /dev/md1 --array '{ raid = 5, drives = 4, drive = \"hdd-7k2-14t\" }' --out results\n  \
    headpond lab run mine.toml --out results --html report.html\n\n\
    A target is a block device, a file (path:SIZE), an NBD export (nbd://..., nbd+unix://...), or a\n\
    served volume (volume:NAME). A target that is written must be confirmed with --overwrite; a \
    device\n\
    that is mounted, in use or holds a file system is refused. docs/lab.md has the form of plans.")]
pub struct RunArgs {
    #[command(flatten)]
    pub plan: PlanArgs,
    /// Folder for the results; it is created.
    #[arg(long, value_name = "FOLDER")]
    pub out: PathBuf,
    /// A target that may be overwritten, as named in the plan or by --target.
    #[arg(long, value_name = "TARGET")]
    pub overwrite: Vec<String>,
    #[command(flatten)]
    pub shown: ShownArgs,
}

/// Resume an interrupted plan; completed measurements are kept.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond lab resume results --overwrite /dev/sdb")]
pub struct ResumeArgs {
    /// Folder of the results.
    pub folder: PathBuf,
    /// A target that may be overwritten.
    #[arg(long, value_name = "TARGET")]
    pub overwrite: Vec<String>,
    #[command(flatten)]
    pub shown: ShownArgs,
}

/// Report on results: conclusions, figures, charts.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond lab report results\n  \
    headpond lab report results --html report.html --csv cells.csv")]
pub struct ReportArgs {
    /// Folder of the results.
    pub folder: PathBuf,
    #[command(flatten)]
    pub shown: ShownArgs,
}

/// Compare two results: significant differences.
#[derive(Args)]
#[command(after_help = "Example:\n  headpond lab compare before after")]
pub struct CompareArgs {
    /// Folder of the first results.
    pub first: PathBuf,
    /// Folder of the second results.
    pub second: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// The plan, and its targets.
#[derive(Args)]
pub struct PlanArgs {
    /// A built-in plan (`headpond lab plans`), or a file.
    pub plan: String,
    /// A target instead of the plan's own; NAME=TARGET gives it a name, and several of one name are
    /// arrays that are loaded concurrently.
    #[arg(long, value_name = "[NAME=]TARGET", value_parser = target)]
    pub target: Vec<Target>,
    /// The array that these targets form, for its expected performance: '{ raid = 5, drives = 4,
    /// drive = "hdd-7k2-14t" }'.
    #[arg(long, value_name = "TABLE", requires = "target")]
    pub array: Option<ArrayOf>,
    /// The command that changes a setting of these targets; {name} and {value} stand for both.
    #[arg(long, value_name = "COMMAND", requires = "target")]
    pub set: Option<String>,
    /// The command that restores the settings changed by --set, run at the end of the plan in any
    /// case; {name} stands for each changed setting.
    #[arg(long, value_name = "COMMAND", requires = "set")]
    pub restore: Option<String>,
}

/// How results are shown.
#[derive(Args)]
pub struct ShownArgs {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Write a page with all charts.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write a line for each cell.
    #[arg(long, value_name = "FILE")]
    pub csv: Option<PathBuf>,
}

impl ShownArgs {
    /// Checks that results can be written to the requested folders.
    ///
    /// # Errors
    /// If a folder is missing and will not be created.
    pub fn check(&self, made: Option<&Path>) -> Result<()> {
        let plain = |folder: &Path| std::path::absolute(folder).ok();
        let is_made = |folder: &Path| made.is_some_and(|made| plain(folder) == plain(made));
        for file in [&self.html, &self.csv].into_iter().flatten() {
            let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
            if folder.is_some_and(|folder| !folder.is_dir() && !is_made(folder)) {
                return Err(Failure::usage(format!(
                    "{}: no such folder; create it first, or name another file",
                    file.display()
                )));
            }
        }
        Ok(())
    }
}

/// A target from a word.
fn target(text: &str) -> std::result::Result<Target, String> {
    // A query of an NBD address has = in it, a name has no slash.
    let (name, place) = match text.split_once('=') {
        Some((name, place)) if !name.contains(['/', ':']) => (name, place),
        _ => (text, text),
    };
    if place.is_empty() {
        return Err("name a target too, as in disk=/dev/sdb".to_owned());
    }
    let named = Target { name: name.to_owned(), ..Target::default() };
    if let Some(volume) = place.strip_prefix("volume:") {
        return Ok(Target { volume: Some(volume.to_owned()), ..named });
    }
    if place.starts_with("nbd:") || place.starts_with("nbd+unix:") {
        return Ok(Target { export: Some(place.to_owned()), ..named });
    }
    // Names of devices have colons too.
    if std::path::Path::new(place).exists() && place.starts_with("/dev/") {
        return Ok(Target { device: Some(place.into()), ..named });
    }
    if let Some((path, size)) = place.rsplit_once(':') {
        let size = size.parse().map_err(|_| format!("{size:?} after the colon is not a size"))?;
        return Ok(Target { file: Some(path.into()), size: Some(size), ..named });
    }
    match place.starts_with("/dev/") {
        true => Ok(Target { device: Some(place.into()), ..named }),
        false => Err(format!("{place:?} is not a device; a file needs a size: {place}:1G")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_target_has_its_word() {
        assert_eq!(target("/dev/sdb").unwrap().device.unwrap(), PathBuf::from("/dev/sdb"));
        let file = target("mine=/x/y.img:2G").unwrap();
        assert_eq!((file.name.as_str(), file.size.unwrap().bytes()), ("mine", 2 << 30));
        let export = target("nbd+unix:///?socket=/x").unwrap();
        assert_eq!(export.export.unwrap(), "nbd+unix:///?socket=/x");
        assert_eq!(target("v=volume:hv0").unwrap().volume.unwrap(), "hv0");
        let text = "{ raid = 5, drives = 4, drive = \"hdd-7k2-14t\", strip = \"64K\" }";
        assert_eq!(text.parse::<ArrayOf>().unwrap().drives, 4);
        assert!("{ raid = 5 }".parse::<ArrayOf>().unwrap_err().contains("drive"));
        assert!(target("y.img").unwrap_err().contains("y.img:1G"));
        assert!(target("disk=").unwrap_err().contains("disk=/dev/sdb"));
        assert!(target("y.img:soon").unwrap_err().contains("not a size"));
    }
}
