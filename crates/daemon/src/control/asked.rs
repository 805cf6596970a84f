//! The events of commands: what was asked, by whom, and with what outcome.

use super::peer::Peer;
use headpond_api::Refusal;
use headpond_api::events::{Event, EventKind, Severity};
use headpond_api::operations as api;
use serde::Serialize;
use serde_json::Value;

/// Of what was asked, and of why it was not done: rules of classes may be long.
const TEXT_CHARS_MAX: usize = 500;

/// A command on its way.
pub struct Asked {
    kind: EventKind,
    changes_nothing: bool,
    what: String,
    body: Value,
    peer: Peer,
}

impl Asked {
    pub fn of(path: &str, body: &impl Serialize, peer: Peer) -> Self {
        let body = serde_json::to_value(body).unwrap_or_default();
        let mut what = path.trim_start_matches("/v1/").replace('/', " ");
        if let Value::Object(fields) = &body {
            fields.iter().filter_map(|(key, value)| told(key, value)).for_each(|it| what += &it);
        }
        let is_setting = [api::SET.path, api::SET_EXPORTS.path].contains(&path);
        let kind = if is_setting { EventKind::SettingsChanged } else { EventKind::Command };
        let changes_nothing = path == api::SAMPLE.path;
        Self { kind, changes_nothing, what: cut(&what), body, peer }
    }

    /// The event of its end.
    pub fn ended<A>(self, outcome: &Result<A, Refusal>) -> Option<Event> {
        if self.changes_nothing {
            return None;
        }
        let error = outcome.as_ref().err().map(|refusal| cut(&refusal.error));
        let kind = error.as_ref().map_or(self.kind, |_| EventKind::Command);
        let severity = if error.is_some() { Severity::Warning } else { Severity::Info };
        let refused = error.map(|error| format!(", not done: {error}"));
        Some(self.event(kind, severity, &refused.unwrap_or_default()))
    }

    /// The event of one that its daemon does not outlive.
    pub fn begun(self) -> Event {
        let kind = self.kind;
        self.event(kind, Severity::Info, "")
    }

    fn event(self, kind: EventKind, severity: Severity, outcome: &str) -> Event {
        let Peer { uid, gid, pid } = self.peer;
        let process = pid.map(|pid| format!(", process {pid}")).unwrap_or_default();
        let text = format!("{} by user {uid}{process}{outcome}", self.what);
        let event = Event::new(kind, severity, text);
        event.with("uid", uid).with("gid", gid).with("pid", pid).with("asked", self.body)
    }
}

fn cut(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// ` key=value`, but for what is not set.
fn told(key: &str, value: &Value) -> Option<String> {
    let word = |value: &Value| match value {
        Value::String(word) => word.clone(),
        other => other.to_string(),
    };
    match value {
        Value::Null | Value::Bool(false) => None,
        // Of flushes, unless otherwise said.
        Value::String(pace) if key == "pace" && pace == "readers" => None,
        Value::Array(values) if values.is_empty() => None,
        Value::Array(values) => {
            let words: Vec<String> = values.iter().map(word).collect();
            // Settings are keys and values themselves.
            Some(match key {
                "changes" => format!(" {}", words.join(" ")),
                _ => format!(" {key}={}", words.join(",")),
            })
        }
        Value::Bool(true) => Some(format!(" {key}")),
        value => Some(format!(" {key}={}", word(value))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headpond_api::requests::{MemberBody, SampleBody, SetBody};

    const PEER: Peer = Peer { uid: 1000, gid: 100, pid: Some(77) };

    #[test]
    fn who_set_what_is_told() {
        let changes = ["mode=write-through", "seq-cutoff=1M"].map(|it| it.parse().unwrap());
        let body = SetBody { changes: changes.into(), flush: true, ..SetBody::default() };
        let event = Asked::of(api::SET.path, &body, PEER).ended(&Ok(())).unwrap();
        assert_eq!(
            event.text,
            "settings mode=write-through seq-cutoff=1M flush by user 1000, process 77"
        );
        assert_eq!((event.event, event.severity), (EventKind::SettingsChanged, Severity::Info));
        assert_eq!((&event.details["uid"], &event.details["pid"]), (&1000.into(), &77.into()));
        assert_eq!(event.details["asked"]["changes"][0], "mode=write-through");
    }

    #[test]
    fn a_command_that_was_refused_is_told_with_the_reason() {
        let body = MemberBody { device: "/dev/a".into(), ..MemberBody::default() };
        let refusal = Refusal { error: "it is the last copy".into(), exit: 4 };
        let peer = Peer { pid: None, ..PEER };
        let event =
            Asked::of(api::FAIL.path, &body, peer).ended::<()>(&Err(refusal.clone())).unwrap();
        assert_eq!(
            event.text,
            "array fail device=/dev/a by user 1000, not done: it is the last copy"
        );
        assert_eq!((event.event, event.severity), (EventKind::Command, Severity::Warning));
        let event = Asked::of(api::SET.path, &body, PEER).ended::<()>(&Err(refusal)).unwrap();
        assert_eq!(event.event, EventKind::Command, "nothing was set");
    }

    #[test]
    fn a_sample_of_the_requests_is_no_event() {
        let body = SampleBody { output: "x".into(), requests_max: 1, milliseconds_max: 1 };
        assert!(Asked::of(api::SAMPLE.path, &body, PEER).ended(&Ok(())).is_none());
    }

    #[test]
    fn long_rules_are_cut_in_the_text() {
        let change = format!("classes=past:{}", "r".repeat(9000)).parse().unwrap();
        let body = SetBody { changes: vec![change], ..SetBody::default() };
        let event = Asked::of(api::SET.path, &body, PEER).begun();
        assert!(event.text.len() < TEXT_CHARS_MAX + 100, "{}", event.text.len());
    }
}
