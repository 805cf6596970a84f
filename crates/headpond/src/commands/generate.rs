//! `headpond generate`: what is made of the definitions of the commands, for packages.

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use clap_complete::Shell;
use clap_mangen::Man;
use headpond_api::outcome::Exit;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

/// Write man pages or completions of all commands.
#[derive(Subcommand)]
pub enum GenerateCommand {
    /// Write a man page for each command.
    #[command(after_help = "Example:\n  headpond generate man /usr/local/share/man/man1")]
    Man(FolderArgs),
    /// Write completions for bash (headpond.bash), zsh (_headpond) and fish (headpond.fish).
    #[command(after_help = "Example:\n  headpond generate completions .")]
    Completions(FolderArgs),
}

#[derive(Args)]
pub struct FolderArgs {
    /// It is made where it is missing.
    pub folder: PathBuf,
}

/// Writes the files, from the definitions of all commands.
///
/// # Errors
/// Where one cannot be written; those before it are there.
pub fn run(all: clap::Command, command: &GenerateCommand) -> Result<Exit> {
    let (GenerateCommand::Man(FolderArgs { folder })
    | GenerateCommand::Completions(FolderArgs { folder })) = command;
    let said = || format!("writing to {}", folder.display());
    fs::create_dir_all(folder).with_context(said)?;
    let written = match command {
        GenerateCommand::Man(_) => man_pages(all, folder),
        GenerateCommand::Completions(_) => completions(all, folder),
    };
    written.with_context(said)?.iter().for_each(|file| println!("{}", file.display()));
    Ok(Exit::Ok)
}

fn completions(mut all: clap::Command, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let write = |shell| clap_complete::generate_to(shell, &mut all, "headpond", folder);
    SHELLS.into_iter().map(write).collect()
}

fn man_pages(all: clap::Command, folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut command = all.disable_help_subcommand(true);
    command.build();
    let mut written = Vec::new();
    write_pages(&command, folder, &mut written)?;
    Ok(written)
}

/// Of a command and of all below it.
fn write_pages(
    command: &clap::Command,
    folder: &Path,
    written: &mut Vec<PathBuf>,
) -> io::Result<()> {
    let source = concat!("headpond ", env!("CARGO_PKG_VERSION"));
    let page = Man::new(command.clone()).manual("Headpond").source(source);
    let path = folder.join(page.get_filename());
    fs::write(&path, man_page(command, &page)?)?;
    written.push(path);
    let mut shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.try_for_each(|command| write_pages(command, folder, written))
}

/// As [`Man::render`] makes it, but for what follows the options: there the lines of examples stay
/// lines.
fn man_page(command: &clap::Command, page: &Man) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    page.render_title(&mut out)?;
    page.render_name_section(&mut out)?;
    page.render_synopsis_section(&mut out)?;
    page.render_description_section(&mut out)?;
    page.render_options_section(&mut out)?;
    if command.get_subcommands().any(|command| !command.is_hide_set()) {
        page.render_subcommands_section(&mut out)?;
    }
    let after = command.get_after_long_help().or(command.get_after_help());
    if let Some(after) = after.map(ToString::to_string) {
        write_sections(&after, &mut out)?;
    }
    Ok(out)
}

/// A line that ends with a colon before lines that are indented is a heading.
fn write_sections(text: &str, out: &mut Vec<u8>) -> io::Result<()> {
    let mut lines = text.lines().peekable();
    let mut has_heading = false;
    while let Some(line) = lines.next() {
        let is_before_block = lines.peek().is_some_and(|next| next.starts_with("  "));
        match line.strip_suffix(':').filter(|_| is_before_block && !line.starts_with(' ')) {
            Some(heading) => {
                let end = if has_heading { ".fi\n" } else { "" };
                writeln!(out, "{end}.SH \"{}\"\n.nf", escaped(&heading.to_uppercase()))?;
            }
            None if has_heading => writeln!(out, "{}", escaped(line))?,
            None => writeln!(out, ".SH NOTES\n.nf\n{}", escaped(line))?,
        }
        has_heading = true;
    }
    if has_heading {
        out.write_all(b".fi\n")?;
    }
    Ok(())
}

/// A line that troff prints as it is: a hyphen stays one that can be copied, and neither a point
/// nor an apostrophe at its begin makes a command of it.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use clap::CommandFactory;

    fn names(written: &[PathBuf]) -> Vec<String> {
        let name = |path: &PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
        written.iter().map(name).collect()
    }

    fn shown(command: &clap::Command) -> usize {
        let below =
            command.get_subcommands().filter(|it| !it.is_hide_set() && it.get_name() != "help");
        1 + below.map(shown).sum::<usize>()
    }

    #[test]
    fn each_command_that_is_shown_has_a_page_with_its_examples_as_they_are() {
        let folder = headpond_testkit::tempdir();
        let written = man_pages(Cli::command(), folder.path()).unwrap();
        let names = names(&written);
        assert_eq!(names.len(), shown(&Cli::command()), "{names:?}");
        assert!(names.contains(&"headpond-array-scrub.1".to_owned()), "{names:?}");
        assert!(!names.iter().any(|name| name.contains("generate")), "{names:?}");
        let page = fs::read_to_string(folder.path().join("headpond-stop.1")).unwrap();
        let examples = ".SH \"EXAMPLES\"\n.nf\n  headpond stop hv0 \\-\\-flush\n";
        assert!(page.contains(examples) && page.ends_with(".fi\n"), "{page}");
        let page = fs::read_to_string(folder.path().join("headpond.1")).unwrap();
        assert!(page.contains(".SH \"EXIT CODES\"\n.nf\n    0  "), "{page}");
    }

    #[test]
    fn text_after_the_help_is_printed_line_by_line_and_is_never_a_command_of_troff() {
        let mut out = Vec::new();
        write_sections("Examples:\n  a\\b -c\n\n.d\nthis: that\n", &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let expected = ".SH \"EXAMPLES\"\n.nf\n  a\\eb \\-c\n\n\\&.d\nthis: that\n.fi\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn three_shells_complete_the_commands_and_not_those_that_are_hidden() {
        let folder = headpond_testkit::tempdir();
        let written = completions(Cli::command(), folder.path()).unwrap();
        assert_eq!(names(&written), ["headpond.bash", "_headpond", "headpond.fish"]);
        for path in written {
            let text = fs::read_to_string(&path).unwrap();
            assert!(text.contains("check-config"), "{}", path.display());
        }
    }
}
