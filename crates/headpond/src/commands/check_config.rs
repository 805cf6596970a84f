//! `headpond check-config`.

use crate::telling::{plain, print_json};
use anyhow::Result;
use clap::Args;
use headpond_api::answers::Versioned;
use headpond_api::config::{Config, ConfigError, ConfigFile, DEFAULTS, KEYS, Key};
use headpond_api::outcome::Exit;
use headpond_report::{Align, Table};
use serde::Serialize;
use std::ffi::OsString;
use std::path::PathBuf;

/// Check the configuration of the machine, and show each value and where it comes from.
#[derive(Args)]
#[command(after_help = "Examples:\n  headpond check-config\n  \
    headpond check-config new.toml && mv new.toml /etc/headpond/headpond.toml\n\n\
    Ends with code 2 where something is wrong; each error has its line and column. docs/config.md\n\
    lists the keys. Running daemons have what they were started with.")]
pub struct CheckConfigArgs {
    /// Check this file; default: the one that commands use.
    pub file: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    pub json: bool,
}

#[derive(Serialize)]
struct Checked {
    file: PathBuf,
    is_there: bool,
    /// Whether there is a group whose members may look.
    has_group: bool,
    keys: Vec<ShownKey>,
    errors: Vec<ShownError>,
}

#[derive(Serialize)]
struct ShownKey {
    key: String,
    value: String,
    from: Source,
    /// Of the environment, where it is from there.
    variable: Option<&'static str>,
    /// In the file.
    line: Option<usize>,
    default: Option<String>,
    takes: Option<&'static str>,
    what: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Source {
    Default,
    File,
    Environment,
}

#[derive(Serialize)]
struct ShownError {
    line: usize,
    column: usize,
    error: String,
}

/// Shows what counts, and what is wrong.
///
/// # Errors
/// Where the output fails.
pub fn run(found: &ConfigFile, args: &CheckConfigArgs) -> Result<Exit> {
    let named = args.file.as_deref().map(ConfigFile::read);
    let file = named.as_ref().unwrap_or(found);
    let errors: Vec<ConfigError> =
        file.errors.iter().cloned().chain(file.missing_group()).collect();
    let exit = if errors.is_empty() { Exit::Ok } else { Exit::Usage };
    let keys = shown(file, |variable| std::env::var_os(variable));
    if args.json {
        let error = |ConfigError { line, column, text, .. }: ConfigError| ShownError {
            line,
            column,
            error: text,
        };
        print_json(&Versioned::new(Checked {
            file: file.path.clone(),
            is_there: file.is_there,
            has_group: file.config.has_group(),
            keys,
            errors: errors.into_iter().map(error).collect(),
        }))?;
        return Ok(exit);
    }
    print(file, &keys);
    for error in &errors {
        eprintln!("headpond: error: {}", plain(&error.to_string()));
    }
    Ok(exit)
}

/// Every key, and the settings that the file gives.
fn shown(file: &ConfigFile, environment: impl Fn(&str) -> Option<OsString>) -> Vec<ShownKey> {
    let default = Config::default();
    let of_key = |key: &Key| {
        let line = file.line_of(key.name);
        let given = of_environment(key.name, &environment);
        let from = match (&given, line) {
            (Some(_), _) => Source::Environment,
            (None, Some(_)) => Source::File,
            (None, None) => Source::Default,
        };
        let (variable, value) = given.unzip();
        ShownKey {
            key: key.name.to_owned(),
            value: value.unwrap_or_else(|| key.value(&file.config)),
            from,
            variable,
            line,
            default: Some(key.value(&default)),
            takes: Some(key.takes),
            what: key.what,
        }
    };
    let is_setting = |key: &str| key.starts_with(&format!("{DEFAULTS}."));
    let settings = file.given.iter().filter(|given| is_setting(&given.key));
    let of_setting = settings.map(|given| ShownKey {
        key: given.key.clone(),
        value: given.value.clone(),
        from: Source::File,
        variable: None,
        line: Some(given.line),
        default: None,
        takes: None,
        what: "of a new volume, cache or tier, where no flag says otherwise",
    });
    KEYS.iter().map(of_key).chain(of_setting).collect()
}

/// The variable that counts more than the file, and the value it gives.
fn of_environment(
    key: &str,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Option<(&'static str, String)> {
    let folder = |variable| {
        let value = environment(variable)?;
        Some((variable, PathBuf::from(value)))
    };
    let (variable, folder) = match key {
        "state-folder" | "run-folder" => folder("HEADPOND_STATE"),
        "events-folder" => folder("HEADPOND_EVENTS").or_else(|| {
            let (variable, state) = folder("HEADPOND_STATE")?;
            Some((variable, state.join("events.d")))
        }),
        _ => None,
    }?;
    Some((variable, folder.display().to_string()))
}

fn print(file: &ConfigFile, keys: &[ShownKey]) {
    let path = file.path.display();
    match file.is_there {
        true => println!("{path}"),
        false => println!("{path} is not there: all keys have their defaults"),
    }
    let columns = ["key", "value", "from", "meaning"].map(|name| (name, Align::Left));
    let mut table = Table::new(columns);
    for key in keys {
        let from = match (key.variable, key.from, key.line) {
            (Some(variable), ..) => variable.to_owned(),
            (None, Source::File, Some(line)) => format!("line {line}"),
            _ => "default".to_owned(),
        };
        table.row([key.key.clone(), key.value.clone(), from, key.what.to_owned()]);
    }
    print!("{}", table.render());
    if !file.config.has_group() {
        println!("There is no group {}: only root may look.", file.config.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn a_value_says_where_it_comes_from() {
        let text =
            "wait-for-devices = 5\nrun-folder = '/run/hp'\n[defaults]\nmode = 'write-through'\n";
        let file = ConfigFile::parse(Path::new("f.toml"), text);
        assert_eq!(file.errors, []);
        let of = |state: Option<&str>, key: &str| {
            let environment =
                |variable: &str| state.filter(|_| variable == "HEADPOND_STATE").map(OsString::from);
            let keys = shown(&file, environment);
            let key = keys.into_iter().find(|it| it.key == key).unwrap();
            (key.value, key.from == Source::Default, key.from == Source::File, key.line)
        };
        assert_eq!(of(None, "wait-for-devices"), ("5".into(), false, true, Some(1)));
        assert_eq!(of(None, "run-folder"), ("/run/hp".into(), false, true, Some(2)));
        assert_eq!(of(None, "group"), ("headpond".into(), true, false, None));
        assert_eq!(of(None, "defaults.mode"), ("write-through".into(), false, true, Some(4)));
        let (value, is_default, is_file, _) = of(Some("/tmp/s"), "run-folder");
        assert_eq!((&*value, is_default, is_file), ("/tmp/s", false, false));
        assert_eq!(of(Some("/tmp/s"), "events-folder").0, "/tmp/s/events.d");
        let keys = shown(&file, |variable| (variable == "HEADPOND_EVENTS").then(|| "/e".into()));
        let events = keys.into_iter().find(|it| it.key == "events-folder").unwrap();
        assert_eq!((&*events.value, events.variable), ("/e", Some("HEADPOND_EVENTS")));
    }
}
