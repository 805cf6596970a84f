//! A line of the log: its fields, and how they are written.

use headpond_api::config::LogFormat;
use serde_json::{Map, Value};
use std::fmt::{Debug, Write};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

#[derive(Clone, Copy)]
pub struct Style {
    pub format: LogFormat,
    /// It has its own times, and reads the priority from the beginning of the line.
    pub is_journal: bool,
}

/// What a line says.
#[derive(Default)]
pub struct Fields {
    pub volume: Option<&'static str>,
    text: String,
    further: Map<String, Value>,
}

impl Fields {
    pub fn of(text: String) -> Self {
        Self { text, ..Self::default() }
    }

    pub fn text(&self) -> &str {
        &self.text
    }
}

impl From<&Event<'_>> for Fields {
    fn from(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }
}

impl Visit for Fields {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.further.insert(field.name().into(), value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.further.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let value = format!("{value:?}");
        match field.name() {
            "message" => self.text = value,
            name => drop(self.further.insert(name.into(), value.into())),
        }
    }
}

impl Style {
    pub fn line(self, time: &str, level: Level, fields: &Fields) -> String {
        let mut line = String::new();
        if self.is_journal {
            line = format!("<{}>", priority(level));
        }
        match self.format {
            LogFormat::Json => line += &json(time, level, fields),
            LogFormat::Text => {
                if !self.is_journal {
                    line += &format!("{time} {level:<5} ");
                }
                line += &text(fields);
            }
        }
        line + "\n"
    }
}

/// Source: sd-daemon(3).
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

fn text(fields: &Fields) -> String {
    let mut line = escaped(&fields.text);
    let volume = fields.volume.map(|volume| ("volume", Value::from(volume)));
    let further = fields.further.iter().map(|(key, value)| (key.as_str(), value.clone()));
    for (key, value) in volume.into_iter().chain(further) {
        let value = match value {
            Value::String(text) if !text.is_empty() && text.chars().all(is_plain) => text,
            other => other.to_string(),
        };
        let _ = write!(line, " {key}={value}");
    }
    line
}

fn is_plain(c: char) -> bool {
    !c.is_whitespace() && !c.is_control() && c != '"' && c != '='
}

fn json(time: &str, level: Level, fields: &Fields) -> String {
    let mut line = Map::new();
    line.insert("time".into(), time.into());
    line.insert("level".into(), level.as_str().to_ascii_lowercase().into());
    line.insert("message".into(), fields.text.as_str().into());
    line.extend(fields.volume.map(|volume| ("volume".into(), volume.into())));
    line.extend(fields.further.iter().map(|(key, value)| (key.clone(), value.clone())));
    Value::Object(line).to_string()
}

/// Names of devices and hosts come from superblocks: none begins a line, or steers a terminal.
fn escaped(text: &str) -> String {
    let letter = |c: char| match c.is_control() {
        true => c.escape_default().to_string(),
        false => c.to_string(),
    };
    text.chars().map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: &str = "2026-11-30T07:52:44.123Z";

    fn fields() -> Fields {
        let mut fields = Fields { volume: Some("hv0"), ..Fields::of("it\nfailed".into()) };
        fields.further.insert("device".into(), "/dev/a b".into());
        fields.further.insert("member".into(), 2.into());
        fields.further.insert("event".into(), "member_state".into());
        fields
    }

    fn line(format: LogFormat, is_journal: bool) -> String {
        Style { format, is_journal }.line(TIME, Level::WARN, &fields())
    }

    #[test]
    fn text_has_time_level_and_fields_in_one_line() {
        assert_eq!(
            line(LogFormat::Text, false),
            "2026-11-30T07:52:44.123Z WARN  it\\nfailed volume=hv0 device=\"/dev/a b\" \
             event=member_state member=2\n"
        );
    }

    #[test]
    fn the_journal_gets_the_priority_instead_of_time_and_level() {
        let text = line(LogFormat::Text, true);
        assert!(text.starts_with("<4>it\\nfailed volume=hv0 "), "{text}");
        for (level, number) in [(Level::ERROR, 3), (Level::INFO, 6), (Level::DEBUG, 7)] {
            assert_eq!(priority(level), number);
        }
        let json = line(LogFormat::Json, true);
        assert!(json.starts_with("<4>{") && json.ends_with("}\n"), "{json}");
    }

    #[test]
    fn json_is_an_object_a_line() {
        let line = line(LogFormat::Json, false);
        let found: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(line.matches('\n').count(), 1);
        for (key, value) in [
            ("time", Value::from(TIME)),
            ("level", "warn".into()),
            ("message", "it\nfailed".into()),
            ("volume", "hv0".into()),
            ("device", "/dev/a b".into()),
            ("member", 2.into()),
        ] {
            assert_eq!(found[key], value, "{key}");
        }
    }
}
