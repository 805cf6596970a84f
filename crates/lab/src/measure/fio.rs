//! Rounds of cells by fio: a job file for each round, which is kept, and what fio said of it.

mod jobfile;
mod output;
mod starts;

pub(super) use jobfile::fill;
pub use output::OutputError;

use super::place;
use super::stop::Stop;
use crate::environment;
use crate::plan::{Cell, Plan, Sync, Target};
use headpond_uring::safety::System;
use headpond_whatif::Bins;
use headpond_whatif::rounds::{Next, Round};
use jobfile::CellRound;
use starts::Starts;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// An fio that can be used.
#[derive(Clone, Debug)]
pub struct Fio {
    program: PathBuf,
    pub version: String,
    /// The engine for devices and files.
    engine: &'static str,
    /// Whether it has the engine whose flushes hold up their job.
    knows_libaio: bool,
    /// Whether it opens files so that each write is stable by itself.
    knows_dsync: bool,
    /// Whether it can bind memory to a node.
    pub(super) knows_nodes: bool,
    /// Whether it is to end.
    stop: Stop,
}

/// What keeps fio from measuring.
#[derive(Debug, thiserror::Error)]
pub enum FioError {
    #[error(
        "fio was not found: install it (apt install fio), or set load = \"in-process\" and leave \
         fills out"
    )]
    Missing,
    #[error("this is {version}; the lab needs fio 3.1 or later, whose output tells all latencies")]
    TooOld { version: String },
    #[error(
        "sync = \"fua\" is fio's sync=dsync, which {version} does not know: take a later fio (it came \
         in the autumn of 2020), sync = \"fdatasync\", or load = \"in-process\""
    )]
    NoDsync { version: String },
    #[error(
        "flushes = \"in-turn\" needs fio's engine libaio, which this {version} was built without: take \
         another fio, leave flushes out, or set load = \"in-process\""
    )]
    NoLibaio { version: String },
    #[error("{path}: {error}")]
    Io { path: PathBuf, error: io::Error },
    #[error("fio failed at {job}: {said}")]
    Failed { job: PathBuf, said: String },
    #[error("fio was ended, because that was asked for")]
    Stopped,
    #[error("what fio wrote of {job} is not understood: {error}")]
    Output { job: PathBuf, error: OutputError },
}

/// fio's engine that carries flushes out in the thread that submits.
const LIBAIO: &str = "libaio";

/// The first version with latencies as bins in its JSON output.
const OLDEST: (u32, u32) = (3, 1);

impl Fio {
    /// Looks for fio on the path.
    ///
    /// # Errors
    /// Where it is missing or too old.
    pub fn find(stop: Stop) -> Result<Self, FioError> {
        Self::at(Path::new("fio"), stop)
    }

    fn at(program: &Path, stop: Stop) -> Result<Self, FioError> {
        let says = |argument: &str| {
            let output = Command::new(program).arg(argument).output();
            output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let version = says("--version").map_err(|_| FioError::Missing)?;
        if numbers(&version).is_none_or(|found| found < OLDEST) {
            return Err(FioError::TooOld { version });
        }
        let engines = says("--enghelp").unwrap_or_default();
        let has = |engine: &str| engines.lines().any(|line| line.trim() == engine);
        let engine = ["io_uring", LIBAIO].into_iter().find(|engine| has(engine));
        let (engine, knows_libaio) = (engine.unwrap_or("psync"), has(LIBAIO));
        let knows_dsync = names_dsync(&says("--cmdhelp=sync").unwrap_or_default());
        let knows_nodes = binds_memory(&says("--cmdhelp=numa_mem_policy").unwrap_or_default());
        let program = program.to_owned();
        Ok(Self { program, version, engine, knows_libaio, knows_dsync, knows_nodes, stop })
    }

    /// Checks that it can make the load that a plan wants of it.
    ///
    /// # Errors
    /// Where it is too old for that.
    pub(super) fn check(&self, plan: &Plan) -> Result<(), FioError> {
        let by_fio = plan.targets.iter().any(|target| !target.is_in_process(&plan.matrix));
        let version = || self.version.clone();
        if by_fio && plan.matrix.sync.contains(&Sync::Fua) && !self.knows_dsync {
            return Err(FioError::NoDsync { version: version() });
        }
        if by_fio && plan.matrix.flushes_in_turn() && !self.knows_libaio {
            return Err(FioError::NoLibaio { version: version() });
        }
        Ok(())
    }

    /// Measures cells, a round of each in turn, and each round by a run of fio.
    ///
    /// # Errors
    /// Where fio fails, or says what is not understood.
    pub(super) fn measure(
        &self,
        plan: &Plan,
        cells: &[Cell],
        grounds: &[Ground<'_>],
        next: Next<'_>,
    ) -> Result<(), FioError> {
        let mut starts = vec![Starts::default(); cells.len()];
        for number in 0.. {
            for (index, (cell, starts)) in cells.iter().zip(&mut starts).enumerate() {
                let round = self.round(plan, cell, grounds, &CellRound { number, starts })?;
                starts.go_on(plan, cell, grounds, &round);
                if !next(index, round) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn round(
        &self,
        plan: &Plan,
        cell: &Cell,
        grounds: &[Ground<'_>],
        turn: &CellRound<'_>,
    ) -> Result<Round, FioError> {
        let number = turn.number;
        let stem = grounds[0].raw.join(format!("cell-{:04}-round-{number:03}", cell.number));
        // fio goes on where a log of an earlier run ends.
        for phase in 0..cell.load.rw.split('+').count() {
            let logs = [output::log_of(&stem, phase), output::histograms_of(&stem, phase)];
            logs.into_iter().for_each(|log| drop(std::fs::remove_file(log)));
        }
        // All cells of a plan by one engine, so that those without a flush compare.
        let engine = match plan.matrix.flushes_in_turn() {
            true => LIBAIO,
            false => self.engine_for(&grounds[0]),
        };
        let text = jobfile::text(plan, cell, grounds, engine, &stem, turn);
        let output = self.run(&stem.with_extension("fio"), &text)?;
        let rounds = plan.rounds_of(&plan.targets[cell.target]);
        output::round(&output, &stem, rounds)
            .map_err(|error| FioError::Output { job: stem.with_extension("fio"), error })
    }

    /// fio's engine for a target.
    pub(super) fn engine_for(&self, ground: &Ground<'_>) -> &'static str {
        if ground.is_nbd { "nbd" } else { self.engine }
    }

    /// Runs a job file; what fio says is kept beside it.
    ///
    /// # Errors
    /// Where it fails, or was ended.
    pub(super) fn run(&self, job: &Path, text: &str) -> Result<String, FioError> {
        let io = |error| FioError::Io { path: job.to_owned(), error };
        std::fs::write(job, text).map_err(io)?;
        let said = job.with_extension("json");
        // The logs are written to where fio runs, and so is everything else.
        let mut command = Command::new(&self.program);
        command.arg("--output-format=json+").arg("--output");
        command.arg(said.file_name().unwrap_or_default()).arg(job.file_name().unwrap_or_default());
        command.current_dir(job.parent().unwrap_or(Path::new(".")));
        let complaints = job.with_extension("err");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(File::create(&complaints).map_err(io)?);
        let status = self.stop.run(&mut command).map_err(io)?.ok_or(FioError::Stopped)?;
        let text = std::fs::read_to_string(&said).unwrap_or_default();
        if !status.success() {
            // What it says may be in front of its JSON.
            let words = std::fs::read(&complaints).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned() + "\n" + &text;
            let mut lines = words.lines().map(str::trim);
            let words = lines.find(|line| line.len() > 1).unwrap_or("nothing was said").to_owned();
            return Err(FioError::Failed { job: job.to_owned(), said: words });
        }
        Ok(text)
    }
}

/// Where fio finds a target.
pub(super) struct Ground<'a> {
    pub place: String,
    pub is_nbd: bool,
    pub raw: &'a Path,
    /// How much it holds, where that is known.
    pub bytes: Option<u64>,
    /// The processors that it is bound to, and the node that its memory comes from.
    pub cpus: Option<String>,
    pub memory_node: Option<u32>,
}

impl<'a> Ground<'a> {
    pub fn new(target: &Target, export: Option<String>, raw: &'a Path) -> Self {
        let is_nbd = target.kind().is_nbd();
        // fio runs in a folder of its own.
        let path = target.device.as_ref().or(target.file.as_ref());
        let path = path.map(|path| std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        let path = path.map(|path| path.display().to_string());
        let place = export.or(path).or_else(|| target.place()).unwrap_or_default();
        let system = System::host();
        let cpus = environment::cpus_for(&system, target);
        let memory_node = environment::memory_node_for(&system, target);
        let bytes = place::bytes(target);
        Self { place, is_nbd, raw, bytes, cpus, memory_node }
    }
}

/// The bins of a list that fio's JSON holds as an object.
fn bins(object: Option<&serde_json::Value>) -> Bins {
    let entries = object.and_then(serde_json::Value::as_object).into_iter().flatten();
    Bins::of(entries.filter_map(|(nanos, count)| Some((nanos.parse().ok()?, count.as_u64()?))))
}

/// Whether `dsync` is among the values that fio's help of an option names, one in a line.
///
/// Source: axboe/fio pull request 1080 (2020), which made words of what was yes or no.
fn names_dsync(help: &str) -> bool {
    help.lines().any(|line| line.split([':', ' ', '\t']).any(|word| word == "dsync"))
}

/// Whether the help of the option is that of an fio that was built with it.
///
/// Source: fio's `options.c`: what it was built without is there, and says what it was to be built
/// with.
fn binds_memory(help: &str) -> bool {
    help.contains("numa_mem_policy") && !help.contains("Build fio with")
}

/// "fio-3.33" as numbers.
fn numbers(version: &str) -> Option<(u32, u32)> {
    let (major, minor) = version.strip_prefix("fio-")?.split_once('.')?;
    let minor: String = minor.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Flushes;

    #[test]
    fn versions_are_told_apart() {
        assert_eq!(numbers("fio-3.33"), Some((3, 33)));
        assert_eq!(numbers("fio-3.36-12-gdeadbeef"), Some((3, 36)));
        assert!(numbers("fio-2.99").unwrap() < OLDEST);
        assert_eq!(numbers("flexible"), None);
        let missing =
            Fio::at(Path::new("/nonexistent/fio"), Stop::default()).unwrap_err().to_string();
        assert!(missing.contains("apt install fio"), "{missing}");
    }

    #[test]
    fn memory_is_bound_by_an_fio_that_was_built_for_it() {
        let help = "     numa_mem_policy: NUMA memory policy setup\n                type: string\n";
        let without = help.replace("NUMA memory policy setup", "Build fio with libnuma-dev(el)");
        assert!(binds_memory(help) && !binds_memory(&without) && !binds_memory(""));
    }

    /// As fio says it since it knows the word, and as it did before.
    const HELP: &str = "sync: Use synchronous write IO\n        type: string (opt=bla)\n     \
                        default: none\nvalid values: none\n            : sync\n            : dsync\n";
    const OLD_HELP: &str = "sync: Use O_SYNC for buffered writes\n        type: boolean value\n";

    #[test]
    fn writes_that_are_stable_by_themselves_need_an_fio_that_knows_the_word_for_it() {
        assert!(names_dsync(HELP) && !names_dsync(OLD_HELP) && !names_dsync(""));
        let old = Fio {
            program: "fio".into(),
            version: "fio-3.19".into(),
            engine: "io_uring",
            knows_libaio: false,
            knows_dsync: false,
            knows_nodes: false,
            stop: Stop::default(),
        };
        let plan = |load: &str, sync: &str| {
            let text = format!(
                "name = \"t\"\n[[target]]\nname = \"it\"\nfile = \"x\"\nsize = \"1G\"\nload = \"{load}\"\n\
                 [matrix]\nrw = [\"write\"]\nbs = [\"4K\"]\nsync = [\"none\", \"{sync}\"]\n"
            );
            Plan::parse(&text).unwrap()
        };
        let error = old.check(&plan("fio", "fua")).unwrap_err().to_string();
        assert!(error.contains("fio-3.19 does not know") && error.contains("fdatasync"), "{error}");
        old.check(&plan("fio", "fdatasync")).unwrap();
        old.check(&plan("in-process", "fua")).unwrap();
        let later = Fio { knows_dsync: true, ..old };
        later.check(&plan("auto", "fua")).unwrap();
        // Likewise the engine whose flushes hold up their job.
        let mut in_turn = plan("fio", "fdatasync");
        in_turn.matrix.flushes = Flushes::InTurn;
        let error = later.check(&in_turn).unwrap_err().to_string();
        assert!(error.contains("libaio") && error.contains("fio-3.19"), "{error}");
        Fio { knows_libaio: true, ..later }.check(&in_turn).unwrap();
    }

    #[test]
    fn the_fio_of_this_machine_says_whether_it_knows_that_word() {
        if headpond_testkit::tool("fio").is_none() {
            headpond_testkit::skip!(
                "the_fio_of_this_machine_says_whether_it_knows_that_word",
                "no fio"
            );
        }
        let fio = Fio::find(Stop::default()).unwrap();
        // The word came between 3.22 and 3.26.
        match numbers(&fio.version).unwrap() {
            later if later >= (3, 26) => assert!(fio.knows_dsync),
            earlier if earlier < (3, 22) => assert!(!fio.knows_dsync),
            _ => {}
        }
    }
}
