//! The command line: all commands.

use crate::args::{
    AdviseArgs, AnalyzeArgs, AttachArgs, ClearArgs, CreateArgs, DescribeArgs, DestroyArgs,
    DetachArgs, EventsArgs, FlushArgs, ImportArgs, MergeArgs, MetricsArgs, ProbeArgs, ScanArgs,
    ServeArgs, SetArgs, SimulateArgs, StatsArgs, StatusArgs, StopArgs,
};
use crate::commands::array::ArrayCommand;
use crate::commands::cache::CacheCommand;
use crate::commands::check_config::CheckConfigArgs;
use crate::commands::class::ClassCommand;
use crate::commands::core::CoreCommand;
use crate::commands::drive::DriveCommand;
use crate::commands::export::ExportCommand;
use crate::commands::generate::GenerateCommand;
use crate::commands::lab::LabCommand;
use crate::commands::label::LabelCommand;
use crate::commands::model::ModelCommand;
use crate::commands::trace::TraceCommand;
use crate::commands::version::VersionArgs;
use crate::commands::witness::WitnessArgs;
use crate::demo::DemoArgs;
use clap::{Parser, Subcommand};
use headpond_api::config::CONFIG_FILE;
use headpond_api::outcome::Exit;

/// A small fast crash-safe cache in front of a large slow array, served over NBD.
#[derive(Parser)]
#[command(
    version,
    arg_required_else_help = true,
    after_help = after_help()
)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

fn after_help() -> String {
    let code = |(exit, meaning): (Exit, &str)| format!("  {:>3}  {meaning}\n", exit as u8);
    let codes: String = Exit::ALL.into_iter().map(code).collect();
    format!(
        "Exit codes:\n{codes}\n\
         Volumes are described in /var/lib/headpond (root) or ~/.local/state/headpond;\n\
         HEADPOND_STATE names another folder. The configuration of the machine is in\n\
         {CONFIG_FILE} (`headpond check-config`); HEADPOND_CONFIG names another file."
    )
}

#[derive(Subcommand)]
pub enum Command {
    Try(DemoArgs),
    Create(CreateArgs),
    Serve(ServeArgs),
    Scan(ScanArgs),
    Import(ImportArgs),
    Describe(DescribeArgs),
    CheckConfig(CheckConfigArgs),
    Status(StatusArgs),
    Probe(ProbeArgs),
    #[command(subcommand)]
    Label(LabelCommand),
    Stats(StatsArgs),
    Metrics(MetricsArgs),
    Events(EventsArgs),
    Clear(ClearArgs),
    Set(SetArgs),
    #[command(subcommand)]
    Cache(CacheCommand),
    #[command(subcommand)]
    Core(CoreCommand),
    #[command(subcommand)]
    Export(ExportCommand),
    Flush(FlushArgs),
    Stop(StopArgs),
    Attach(AttachArgs),
    Detach(DetachArgs),
    Destroy(DestroyArgs),
    #[command(subcommand)]
    Trace(TraceCommand),
    Analyze(AnalyzeArgs),
    Merge(MergeArgs),
    Advise(AdviseArgs),
    Simulate(SimulateArgs),
    #[command(subcommand)]
    Array(ArrayCommand),
    #[command(subcommand)]
    Drive(DriveCommand),
    #[command(subcommand)]
    Lab(LabCommand),
    #[command(subcommand)]
    Model(ModelCommand),
    #[command(subcommand)]
    Class(ClassCommand),
    Witness(WitnessArgs),
    Version(VersionArgs),
    #[command(subcommand, hide = true)]
    Generate(GenerateCommand),
}

#[cfg(test)]
mod tests {
    use super::Cli;
    use clap::{Command, CommandFactory};

    /// All leaf commands, with the words that call them.
    fn leaves(command: &Command, words: &str) -> Vec<(String, String)> {
        let words = format!("{words}{} ", command.get_name());
        match command.get_subcommands().next() {
            None => vec![(words, command.clone().render_long_help().to_string())],
            Some(_) => command.get_subcommands().flat_map(|it| leaves(it, &words)).collect(),
        }
    }

    /// Options without a word of help, with the commands that take them.
    fn untold(command: &Command, words: &str) -> Vec<String> {
        let words = format!("{words}{} ", command.get_name());
        let bare =
            command.get_arguments().filter(|it| !it.is_positional() && it.get_help().is_none());
        let bare = bare.map(|it| format!("{words}--{}", it.get_id()));
        bare.chain(command.get_subcommands().flat_map(|it| untold(it, &words))).collect()
    }

    #[test]
    fn every_option_says_what_it_does() {
        assert_eq!(untold(&Cli::command(), ""), Vec::<String>::new());
    }

    #[test]
    fn every_help_has_an_example_that_calls_the_command() {
        let all = leaves(&Cli::command(), "");
        assert!(all.len() > 25, "{}", all.len());
        for (words, help) in all {
            let example = help.split("Example").nth(1).unwrap_or_default();
            assert!(example.contains(words.trim_end()), "{words}has no example");
        }
    }
}
