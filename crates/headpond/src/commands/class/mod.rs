//! `headpond class`: files of I/O classes, checked, imported and tried on a trace.

mod trial;

use crate::telling::{document, print_json};
use anyhow::{Context, Result, ensure};
use clap::{Args, Subcommand};
use headpond_api::answers::Versioned;
use headpond_api::outcome::{Exit, Failure};
use headpond_cache::classes::{
    Class, ClassError, Classes, OneRule, Priority, Rule, UnknowableRule, Unknown,
};
use headpond_report::{Align, Table};
use headpond_trace::TraceFormat;
use headpond_volume::{ClassSetting, SettingChange};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// I/O classes: which requests are promoted to the cache, and how they are treated there.
#[derive(Subcommand)]
#[command(after_help = "Examples:\n  headpond class import ioclass-config.csv -o classes.toml\n  \
    headpond class check classes.toml\n  headpond class test classes.toml monday.hptrace")]
pub enum ClassCommand {
    Check(CheckArgs),
    Import(ImportArgs),
    Test(TestArgs),
}

/// Check a file of classes: show its classes, or the errors by line.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond class check classes.toml\n  \
    headpond class check ioclass-config.csv\n  headpond class check lustre\n  headpond class check past:request_size:ge:128K")]
pub struct CheckArgs {
    /// A Headpond file, or Open CAS's CSV; or `lustre`, which is built in; or only:RULE, past:RULE,
    /// keep:RULE.
    pub file: PathBuf,
    #[command(flatten)]
    pub strictness: Strictness,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// What to do with Open CAS's conditions that a block device cannot evaluate.
#[derive(Args)]
pub struct Strictness {
    /// Refuse a CSV with conditions that only a file system knows (`file_size`, `directory`, ...).
    /// Without it they never hold, and each rule that has one is named.
    #[arg(long)]
    pub strict: bool,
}

impl Strictness {
    fn unknown(&self) -> Unknown {
        if self.strict { Unknown::Refuse } else { Unknown::NeverHolds }
    }
}

/// Convert Open CAS's CSV into a Headpond file.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond class import ioclass-config.csv -o classes.toml\n  \
    headpond class import ioclass-config.csv --strict    # refused where a rule asks what only a file system knows")]
pub struct ImportArgs {
    /// The CSV.
    pub file: PathBuf,
    /// Output file; default: standard output. An existing file is not overwritten.
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    #[command(flatten)]
    pub strictness: Strictness,
}

/// Show which rule takes each request of a trace.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond class test classes.toml monday.hptrace\n  \
    headpond class test lustre sda.blktrace.0 --requests")]
pub struct TestArgs {
    /// A Headpond file, or Open CAS's CSV; or `lustre`, which is built in; or only:RULE, past:RULE,
    /// keep:RULE.
    pub rules: PathBuf,
    /// A trace of any format (docs/traces.md), plain, gzip, zstd or xz.
    pub trace: PathBuf,
    /// Also list every request with its class.
    #[arg(long)]
    pub requests: bool,
    /// The format of the trace, if it is not to be detected (as of `headpond analyze`).
    #[arg(long, value_name = "NAME", hide_possible_values = true)]
    pub format: Option<TraceFormat>,
    /// Skip and count damaged records of the trace instead of failing.
    #[arg(long)]
    pub lenient: bool,
    #[command(flatten)]
    pub strictness: Strictness,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

/// Runs the command.
///
/// # Errors
/// If a file cannot be read or is invalid, with the line and what is allowed there.
pub fn run(command: &ClassCommand) -> Result<Exit> {
    match command {
        ClassCommand::Check(args) => check(args),
        ClassCommand::Import(args) => import(args),
        ClassCommand::Test(args) => trial::run(args),
    }
}

fn check(args: &CheckArgs) -> Result<Exit> {
    let classes = load(&args.file, args.strictness.unknown())?;
    if args.json {
        let all: Vec<_> = classes.iter().map(as_json).map(Versioned::new).collect();
        print_json(&all)?;
        return Ok(Exit::Ok);
    }
    let (left, right) = (|name| (name, Align::Left), |name| (name, Align::Right));
    let mut table = Table::new([right("id"), left("rule"), right("priority"), right("share")]);
    for class in classes.iter() {
        let rule = class.rule.as_ref().map_or("everything else".into(), Rule::to_string);
        table.row([class.id.to_string(), rule, priority(class), share(class)]);
    }
    print!("{}", table.render());
    for class in classes.iter().filter(|class| !can_hold(class)) {
        println!("class {} matches no request: one of its conditions never holds", class.id);
    }
    Ok(Exit::Ok)
}

fn import(args: &ImportArgs) -> Result<Exit> {
    let read = Classes::from_csv(&text_of(&args.file)?, args.strictness.unknown());
    let text = told(&args.file, read)?.to_toml();
    match &args.output {
        None => document(&text),
        Some(path) => write_new(path, &text)?,
    }
    Ok(Exit::Ok)
}

fn write_new(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    let mut file = match opened {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let told = format!("{} exists already; remove it first", path.display());
            return Err(Failure::refused(told));
        }
        opened => opened.with_context(|| format!("cannot write {}", path.display()))?,
    };
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a file of classes, whichever of the two forms it has; or answers with those that are built
/// in under this name, or of the one rule that it is. Rules that cannot hold as they are written
/// are told of.
///
/// # Errors
/// Where it cannot be read, or is wrong: file, line, and what is allowed there.
pub fn load(path: &Path, unknown: Unknown) -> Result<Classes> {
    if path == Path::new("lustre") {
        return Ok(Classes::lustre());
    }
    if let Some(rule) = path.to_str().and_then(OneRule::parse) {
        return Ok(rule.map_err(Failure::usage)?.classes());
    }
    ensure!(
        path.exists(),
        "cannot read {}: there is no such file, nor is it lustre, only:RULE, past:RULE or keep:RULE",
        path.display()
    );
    let text = text_of(path)?;
    if text.trim().is_empty() {
        // An empty file would mean no classes: more likely it was not written yet.
        return Err(Failure::usage(format!(
            "{} is empty; to have no classes, set classes=none",
            path.display()
        )));
    }
    told(path, Classes::read(&text, unknown))
}

/// The classes that were read; reports rules that cannot hold as written.
fn told(path: &Path, read: Result<(Classes, Vec<UnknowableRule>), ClassError>) -> Result<Classes> {
    let file = path.display();
    let (classes, unknowable) = read.with_context(|| file.to_string())?;
    unknowable.iter().for_each(|rule| eprintln!("headpond: note: {file}: {rule}"));
    Ok(classes)
}

/// The changes with the text of a file of classes in place of its name: the user reads it, not the
/// daemon.
///
/// # Errors
/// Where a file cannot be read, or is wrong.
pub fn read_named_files(changes: &[SettingChange]) -> Result<Vec<SettingChange>> {
    let read = |change: &SettingChange| match change.value_of("classes") {
        Some(value) => {
            let mut setting = ClassSetting::try_from(value.to_owned()).map_err(Failure::usage)?;
            read_named_file(&mut setting)?;
            Ok(SettingChange::new("classes", setting))
        }
        None => Ok(change.clone()),
    };
    changes.iter().map(read).collect()
}

/// Reads the file that a setting names, where it names one.
///
/// # Errors
/// Where it cannot be read, or is wrong.
pub fn read_named_file(setting: &mut ClassSetting) -> Result<()> {
    if let Some(path) = setting.file().map(PathBuf::from) {
        *setting = ClassSetting::Inline(Arc::new(load(&path, Unknown::NeverHolds)?));
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn can_hold(class: &Class) -> bool {
    class.rule.as_ref().is_none_or(Rule::can_hold)
}

fn priority(class: &Class) -> String {
    match class.priority {
        Priority::Pinned => "pinned".into(),
        Priority::Level(level) => level.to_string(),
    }
}

fn share(class: &Class) -> String {
    match class.is_pass_through() {
        true => "bypass".into(),
        false => format!("{} %", class.occupancy.get()),
    }
}

fn as_json(class: &Class) -> serde_json::Value {
    json!({
        "id": class.id,
        "name": class.name,
        "rule": class.rule.as_ref().map(Rule::to_string),
        "priority": priority(class),
        "occupancy_percent": class.occupancy.get(),
        "pass_through": class.is_pass_through(),
        "can_hold": can_hold(class),
    })
}
