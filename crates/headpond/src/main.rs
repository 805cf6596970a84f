//! Headpond's command line: see [`cli`] for the commands, [`daemon`] for what `serve` runs.

#[macro_use]
mod telling;

mod args;
mod cli;
mod commands;
mod demo;
mod device;
mod interrupt;

use clap::{CommandFactory, Parser};
use cli::{Cli, Command};
use commands::array::ArrayCommand;
use commands::drive::DriveCommand;
use commands::export::ExportCommand;
use commands::lab::LabCommand;
use commands::label::LabelCommand;
use commands::trace::TraceCommand;
use headpond_api::config::ConfigFile;
use headpond_api::outcome::{Exit, Failure, told};
use headpond_api::place::Places;
use headpond_block::memory::ReservedMemory;
use headpond_daemon::log;
use std::process::ExitCode;
use std::time::Duration;
use telling::plain;

/// For the last lines of a daemon's log.
const LOG_TIME: Duration = Duration::from_secs(1);
/// For the locks of images of Ceph, which another host would wait for.
const CLOSE_TIME: Duration = Duration::from_secs(10);

#[global_allocator]
static MEMORY: ReservedMemory = ReservedMemory::new();

fn main() -> ExitCode {
    let cli = Cli::parse();
    telling::fit_terminal();
    if is_printer(&cli.command) {
        end_with_the_reader();
    }
    let is_daemon = matches!(cli.command, Command::Serve(_) | Command::Import(_));
    let watched = match is_daemon {
        true => {
            outlive_the_terminal();
            Ok(())
        }
        false => {
            log::print_notes();
            interrupt::watch()
        }
    };
    let exit = match watched.and_then(|()| run(&cli.command)) {
        Ok(Exit::Ok) if telling::is_lost() => Exit::Error,
        Ok(exit) => exit,
        Err(error) => report(&error),
    };
    headpond_rbd::wait_until_closed(CLOSE_TIME);
    log::await_written(LOG_TIME);
    if interrupt::is_interrupted() { Exit::Interrupted.into() } else { exit.into() }
}

/// Whether a command does nothing but print: then `| head` may end it at any time.
fn is_printer(command: &Command) -> bool {
    matches!(
        command,
        Command::Status(_)
            | Command::Scan(_)
            | Command::Stats(_)
            | Command::Events(_)
            | Command::Probe(_)
            | Command::CheckConfig(_)
            | Command::Label(LabelCommand::Show(_))
            | Command::Trace(TraceCommand::Stats(_) | TraceCommand::Convert(_))
            | Command::Analyze(_)
            | Command::Merge(_)
            | Command::Simulate(_)
            | Command::Array(ArrayCommand::Plan(_))
            | Command::Drive(DriveCommand::Show(_))
            | Command::Lab(LabCommand::Plans(_) | LabCommand::Check(_) | LabCommand::Report(_))
            | Command::Lab(LabCommand::Compare(_))
            | Command::Model(_)
            | Command::Export(ExportCommand::List(_))
            | Command::Class(_)
            | Command::Version(_)
    ) || matches!(command, Command::Advise(args) if args.live.live.is_none())
        || matches!(command, Command::Metrics(args) if args.listen.is_none())
        || matches!(command, Command::Set(args) if args.is_printer())
        || matches!(command, Command::Witness(args) if args.is_printer())
}

/// Writing to a closed pipe ends the program, as it does for other tools.
fn end_with_the_reader() {
    // SAFETY: no other thread runs yet, and the default action needs no handler of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

/// Also while a volume is loaded, before the daemon handles signals.
fn outlive_the_terminal() {
    // SAFETY: no other thread runs yet, and to ignore a signal needs no handler of ours.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
}

fn run(command: &Command) -> anyhow::Result<Exit> {
    let file = ConfigFile::find();
    heed_errors(&file, command)?;
    let config = &file.config;
    let places = Places::find(config)?;
    match command {
        Command::CheckConfig(args) => commands::check_config::run(&file, args),
        Command::Try(args) => demo::run(args),
        Command::Create(args) => commands::create::run(&places, &config.defaults, args),
        Command::Serve(args) => commands::serve::run(&places, &file, args),
        Command::Scan(args) => commands::scan::run(&places, args),
        Command::Import(args) => commands::scan::import(&places, &file, args),
        Command::Describe(args) => commands::scan::describe(&places, args),
        Command::Status(args) => commands::status::run(&places, args),
        Command::Stats(args) => commands::stats::run(&places, args),
        Command::Metrics(args) => commands::metrics::run(&places, config, args),
        Command::Events(args) => commands::events::run(&places, args),
        Command::Clear(args) => commands::clear::run(&places, args),
        Command::Set(args) => commands::set::run(&places, args),
        Command::Cache(command) => commands::cache::run(&places, command),
        Command::Core(command) => commands::core::run(&places, command),
        Command::Export(command) => commands::export::run(&places, command),
        Command::Flush(args) => commands::flush::run(&places, args),
        Command::Stop(args) => commands::stop::run(&places, args),
        Command::Attach(args) => commands::attach::run(&places, args),
        Command::Detach(args) => commands::detach::run(&places, args),
        Command::Destroy(args) => commands::destroy::run(&places, args),
        Command::Probe(args) => commands::probe::run(&places, args),
        Command::Label(command) => commands::label::run(&places, command),
        Command::Trace(command) => commands::trace::run(&places, command),
        Command::Analyze(args) => commands::analyze::run(args),
        Command::Merge(args) => commands::merge::run(args),
        Command::Advise(args) => commands::advise::run(&places, args),
        Command::Simulate(args) => commands::simulate::run(args),
        Command::Array(command) => commands::array::run(&places, command),
        Command::Drive(command) => commands::drive::run(&places, command),
        Command::Lab(command) => commands::lab::run(&places, command),
        Command::Model(command) => commands::model::run(command),
        Command::Class(command) => commands::class::run(command),
        Command::Witness(args) => commands::witness::run(args),
        Command::Version(args) => commands::version::run(args),
        Command::Generate(command) => commands::generate::run(Cli::command(), command),
    }
}

/// A mistake in the configuration keeps a volume from being made or served, as it could be served
/// otherwise than meant. Whatever else is done with volumes, such as a look or a stop, goes on with
/// the keys that are right.
fn heed_errors(file: &ConfigFile, command: &Command) -> anyhow::Result<()> {
    let Some(error) = file.errors.first() else { return Ok(()) };
    let more = match file.errors.len() {
        1 => String::new(),
        count => format!(" (and {} more: `headpond check-config` lists them)", count - 1),
    };
    match command {
        // It says all of it.
        Command::CheckConfig(_) => return Ok(()),
        Command::Create(_) | Command::Serve(_) | Command::Import(_) => {
            return Err(Failure::usage(format!("{error}{more}")));
        }
        _ => {}
    }
    eprintln!("headpond: note: {}", plain(&format!("{error}{more}")));
    Ok(())
}

/// Prints the error with its causes, for a daemon in its log, and finds the exit code.
fn report(error: &anyhow::Error) -> Exit {
    let exit = Failure::exit_of(error);
    let word = if exit == Exit::Refused { "refused" } else { "error" };
    let text = format!("{word}: {}", plain(&told(error)));
    if !log::take_error(&text) {
        eprintln!("headpond: {text}");
    }
    exit
}
