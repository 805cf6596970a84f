//! Test programs side by side: those that wait beside those that compute.
//!
//! 1. Programs that start others and wait for them have lanes of their own, with more tests at a
//!    time than there are processors.
//! 2. All others compute. There are as many at a time as processors, and the kernel gives them what
//!    nobody else wants: a daemon that is woken runs at once. (Niceness is not enough: since 6.6 a
//!    task that computes goes on for its slice, and each wake-up took 4 ms.)
//! 3. In each lane what took longest the last time comes first.
//!
//! **Invariants**: what a program prints is shown in one piece, when it has ended.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::build::Program;

/// Packages whose tests run whole programs, or wait for the kernel.
const WAITING: [&str; 3] = ["headpond", "nbd", "uring"];
const WAITING_TESTS_PER_PROCESSOR: usize = 2;
/// Runs a program when nothing else wants to run; of util-linux. Where it is not there, or not
/// allowed, as in some containers, all run alike.
const IDLE: [&str; 3] = ["chrt", "--idle", "0"];
/// How many tests libtest runs at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// What became of a program.
pub struct Ended {
    pub program: Program,
    pub output: Output,
    pub took: Duration,
}

/// Runs all programs, each with these arguments, and hands over what ended.
///
/// # Errors
/// When a program cannot be started.
pub fn run(
    programs: Vec<Program>,
    arguments: &[String],
    skip_log: &Path,
    took_before: &BTreeMap<String, f64>,
    mut ended: impl FnMut(Ended) -> Result<()>,
) -> Result<()> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let (waiting, computing): (Vec<_>, Vec<_>) =
        programs.into_iter().partition(|it| WAITING.contains(&it.package.as_str()));
    let lanes = [
        Lane::new(waiting, took_before, 1, WAITING_TESTS_PER_PROCESSOR * processors, false),
        Lane::new(computing, took_before, processors, processors, may_idle()),
    ];
    thread::scope(|scope| {
        let (sender, receiver) = mpsc::channel();
        for lane in &lanes {
            for _ in 0..lane.programs_at_a_time {
                let sender = sender.clone();
                scope.spawn(move || {
                    while let Some(program) = lane.next() {
                        let _ = sender.send(lane.run(program, arguments, skip_log));
                    }
                });
            }
        }
        drop(sender);
        receiver.into_iter().try_for_each(|it| ended(it?))
    })
}

fn may_idle() -> bool {
    let mut command = Command::new(IDLE[0]);
    command.args(&IDLE[1..]).arg("true").stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

struct Lane {
    /// What comes next is last.
    programs: Mutex<Vec<Program>>,
    programs_at_a_time: usize,
    tests_at_a_time: usize,
    is_idle: bool,
}

impl Lane {
    fn new(
        mut programs: Vec<Program>,
        took_before: &BTreeMap<String, f64>,
        programs_at_a_time: usize,
        tests_at_a_time: usize,
        is_idle: bool,
    ) -> Self {
        // What is new may be long.
        let before = |it: &Program| took_before.get(&it.name).copied().unwrap_or(f64::MAX);
        programs.sort_by(|a, b| before(a).total_cmp(&before(b)).then(b.name.cmp(&a.name)));
        Self { programs: Mutex::new(programs), programs_at_a_time, tests_at_a_time, is_idle }
    }

    fn next(&self) -> Option<Program> {
        self.programs.lock().expect("nobody panics with it").pop()
    }

    fn run(&self, program: Program, arguments: &[String], skip_log: &Path) -> Result<Ended> {
        let started = Instant::now();
        let mut command = match self.is_idle {
            true => Command::new(IDLE[0]),
            false => Command::new(&program.path),
        };
        if self.is_idle {
            command.args(&IDLE[1..]).arg(&program.path);
        }
        command.args(arguments).current_dir(&program.folder).stdin(Stdio::null());
        command.env("CARGO_MANIFEST_DIR", &program.folder).env("HEADPOND_SKIP_LOG", skip_log);
        if std::env::var_os(THREADS).is_none() {
            command.env(THREADS, self.tests_at_a_time.to_string());
        }
        let output = command.output().with_context(|| format!("starting {}", program.name))?;
        Ok(Ended { program, output, took: started.elapsed() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(name: &str, script: &Path) -> Program {
        Program {
            name: name.to_owned(),
            package: name.to_owned(),
            path: script.to_owned(),
            folder: "/".into(),
        }
    }

    #[test]
    fn the_longest_comes_first_and_what_is_new_before_it() {
        let before = [("a", 1.0), ("b", 30.0)].map(|(name, it)| (name.to_owned(), it)).into();
        let programs = ["a", "b", "c"].map(|name| program(name, Path::new("/bin/true"))).into();
        let lane = Lane::new(programs, &before, 1, 1, false);
        let order: Vec<_> = std::iter::from_fn(|| lane.next()).map(|it| it.name).collect();
        assert_eq!(order, ["c", "b", "a"]);
    }

    #[test]
    fn each_program_is_run_once_with_its_arguments_whatever_becomes_of_others() {
        let names = ["raid", "cache", "headpond", "nbd"];
        let programs = names.map(|name| program(name, Path::new("/bin/echo"))).into();
        let mut told = Vec::new();
        let arguments = ["--skip".to_owned(), "it".to_owned()];
        run(programs, &arguments, Path::new("/dev/null"), &BTreeMap::new(), |it| {
            told.push((it.program.name, String::from_utf8(it.output.stdout).unwrap()));
            Ok(())
        })
        .unwrap();
        told.sort();
        let expected =
            ["cache", "headpond", "nbd", "raid"].map(|it| (it.into(), "--skip it\n".into()));
        assert_eq!(told, expected);
    }

    #[test]
    fn a_program_that_cannot_be_started_is_an_error() {
        let programs = vec![program("headpond", Path::new("/no/such/program"))];
        run(programs, &[], Path::new("/dev/null"), &BTreeMap::new(), |_| Ok(())).unwrap_err();
    }
}
