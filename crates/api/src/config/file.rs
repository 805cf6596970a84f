//! Reading the file: each key by its row, each mistake with its line and column.

use super::{CONFIG_FILE, Config, DEFAULTS, KEYS};
use headpond_volume::{SettingChange, nearest};
use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// What was found in the file, and what is wrong with it.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    pub path: PathBuf,
    /// Without one, everything has its default.
    pub is_there: bool,
    pub config: Config,
    /// What the file gives, in its order; that counts.
    pub given: Vec<Given>,
    pub errors: Vec<ConfigError>,
}

/// A key that has its value from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// Of a setting with the table, such as `defaults.mode`.
    pub key: String,
    pub value: String,
    pub line: usize,
}

/// A mistake in the file; line and column count from 1, and are 0 for the file as a whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    pub path: PathBuf,
    pub line: usize,
    pub column: usize,
    pub text: String,
}

impl ConfigFile {
    /// The file that `HEADPOND_CONFIG` names, which has to be there, or the system's.
    pub fn find() -> Self {
        match std::env::var_os("HEADPOND_CONFIG") {
            Some(path) => Self::read(Path::new(&path)),
            None => match Self::read(Path::new(CONFIG_FILE)) {
                file if !file.is_there => Self { errors: Vec::new(), ..file },
                file => file,
            },
        }
    }

    /// Reads a file; one that cannot be read is an error of it.
    pub fn read(path: &Path) -> Self {
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(path, &text),
            Err(error) => {
                let is_there = error.kind() != ErrorKind::NotFound;
                let text = format!("cannot be read: {error}");
                let error = ConfigError { path: path.to_owned(), line: 0, column: 0, text };
                Self { is_there, errors: vec![error], ..Self::empty(path) }
            }
        }
    }

    /// Reads the text of a file.
    pub fn parse(path: &Path, text: &str) -> Self {
        let mut reader = Reader { text, file: Self::empty(path) };
        match DeTable::parse(text) {
            Ok(table) => reader.take(table.get_ref()),
            Err(error) => {
                let span = error.span().unwrap_or_default();
                reader.refuse(&span, error.message().trim().replace('\n', "; "));
            }
        }
        reader.file
    }

    fn empty(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            is_there: true,
            config: Config::default(),
            given: Vec::new(),
            errors: Vec::new(),
        }
    }

    /// Where the file gives this key, the line.
    pub fn line_of(&self, key: &str) -> Option<usize> {
        self.given.iter().rfind(|given| given.key == key).map(|given| given.line)
    }

    /// What is to be known where root serves a volume, and the group is given but not there.
    pub fn missing_group(&self) -> Option<ConfigError> {
        let line = self.line_of("group").filter(|_| !self.config.has_group())?;
        let group = &self.config.group;
        let text = format!("there is no group {group} in /etc/group: only root may look");
        Some(ConfigError { path: self.path.clone(), line, column: 1, text })
    }
}

struct Reader<'a> {
    text: &'a str,
    file: ConfigFile,
}

impl Reader<'_> {
    fn take(&mut self, table: &DeTable<'_>) {
        for (key, value) in in_order(table) {
            let name: &str = key.get_ref();
            match KEYS.iter().find(|known| known.name == name) {
                Some(known) => self.take_value(value, name, |config, text| {
                    let refused = |reason| format!("{name}: {reason}; it is {}", known.takes);
                    (known.read)(config, text).map_err(refused)
                }),
                None if name == DEFAULTS => match value.get_ref() {
                    DeValue::Table(settings) => self.take_settings(settings, ""),
                    _ => self.refuse(&value.span(), format!("{name} is a table: [{name}]")),
                },
                None => self.refuse(&key.span(), unknown(name)),
            }
        }
    }

    /// Settings, whose keys have dots, or are in tables.
    fn take_settings(&mut self, table: &DeTable<'_>, prefix: &str) {
        for (key, value) in in_order(table) {
            let name = format!("{prefix}{}", key.get_ref());
            if let DeValue::Table(inner) = value.get_ref() {
                self.take_settings(inner, &format!("{name}."));
                continue;
            }
            let shown = format!("{DEFAULTS}.{name}");
            self.take_value(value, &shown, |config, text| {
                let change: Result<SettingChange, _> = format!("{name}={text}").parse();
                let set = change.and_then(|change| config.defaults.set(change));
                set.map_err(|error| error.to_string())
            });
        }
    }

    fn take_value(
        &mut self,
        value: &Spanned<DeValue<'_>>,
        key: &str,
        read: impl FnOnce(&mut Config, &str) -> Result<(), String>,
    ) {
        let span = value.span();
        let text = match value.get_ref() {
            DeValue::String(text) => text.to_string(),
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(truth) => truth.to_string(),
            other => {
                let what = other.type_str();
                return self.refuse(&span, format!("{key} is a text or a number, not a {what}"));
            }
        };
        match read(&mut self.file.config, &text) {
            Ok(()) => {
                let (line, _) = position(self.text, span.start);
                self.file.given.push(Given { key: key.to_owned(), value: text, line });
            }
            Err(reason) => self.refuse(&span, reason),
        }
    }

    fn refuse(&mut self, span: &Range<usize>, text: String) {
        let (line, column) = position(self.text, span.start);
        self.file.errors.push(ConfigError { path: self.file.path.clone(), line, column, text });
    }
}

/// As they stand in the file: a preset and what differs from it have an order.
fn in_order<'a, 'i>(
    table: &'a DeTable<'i>,
) -> Vec<(&'a Spanned<std::borrow::Cow<'i, str>>, &'a Spanned<DeValue<'i>>)> {
    let mut all: Vec<_> = table.iter().collect();
    all.sort_by_key(|(key, _)| key.span().start);
    all
}

fn unknown(name: &str) -> String {
    let known = || KEYS.iter().map(|key| key.name).chain([DEFAULTS]);
    let near = nearest(name, known().map(str::to_owned));
    let near =
        if near.is_empty() { near.concat() } else { format!("; nearest: {}", near.join(", ")) };
    let known: Vec<&str> = known().collect();
    format!("there is no key {name:?}; there are: {}{near}", known.join(", "))
}

/// Line and column of an offset in bytes, both from 1; the column in characters.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (1 + before.matches('\n').count(), 1 + line.chars().count())
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, column, text } = self;
        match line {
            0 => write!(f, "{} {text}", path.display()),
            _ => write!(f, "{}:{line}:{column}: {text}", path.display()),
        }
    }
}
