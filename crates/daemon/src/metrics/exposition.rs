//! Writes the metrics of one volume as text.

use super::family::{Family, Kind};
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Longest value of a label: names of devices are bounded by the system, those of classes are not.
const LABEL_CHARS_MAX: usize = 200;

/// The samples of one volume, by name.
pub struct Exposition {
    volume: String,
    families: BTreeMap<&'static str, Samples>,
}

struct Samples {
    family: &'static Family,
    /// Labels and value, in the order in which they came.
    lines: Vec<(String, f64)>,
    seen: HashMap<String, usize>,
}

/// A number as a sample has it.
pub trait Value {
    fn value(self) -> f64;
}

macro_rules! values {
    ($($number:ty),+) => {
        $(impl Value for $number {
            fn value(self) -> f64 {
                self as f64
            }
        })+
    };
}

values!(f64, u64, u32, u16, usize);

impl Value for bool {
    fn value(self) -> f64 {
        f64::from(u8::from(self))
    }
}

impl Exposition {
    pub fn new(volume: &str) -> Self {
        Self { volume: volume.to_owned(), families: BTreeMap::new() }
    }

    /// Adds a sample, with a value for each label of the family.
    ///
    /// Two with the same labels would make the whole text invalid. They come to their sum.
    pub fn add(&mut self, family: &'static Family, labels: &[&str], value: impl Value) {
        assert_ne!(family.kind, Kind::Histogram, "{} has buckets", family.name);
        let labels = labels_of(&self.volume, family, labels);
        self.put(family, labels, value.value());
    }

    /// Adds a sample where there is a value.
    pub fn add_known(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        value: Option<impl Value>,
    ) {
        value.into_iter().for_each(|value| self.add(family, labels, value));
    }

    /// Adds 1 for the present state and 0 for the others; the state is the last label.
    pub fn add_state(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        states: &[&str],
        present: &str,
    ) {
        assert!(states.contains(&present), "{}: {present} is not listed", family.name);
        for state in states {
            self.add(family, &[labels, &[*state]].concat(), *state == present);
        }
    }

    /// Adds a histogram, with the number of requests that took at most so many seconds.
    pub fn add_histogram(
        &mut self,
        family: &'static Family,
        labels: &[&str],
        at_most: impl Iterator<Item = (f64, u64)>,
        (sum, count): (f64, u64),
    ) {
        assert_eq!(family.kind, Kind::Histogram, "{} has no buckets", family.name);
        let labels = labels_of(&self.volume, family, labels);
        for (bound, requests) in at_most {
            self.put(family, format!("_bucket{{{labels},le=\"{bound}\"}}"), requests as f64);
        }
        self.put(family, format!("_bucket{{{labels},le=\"+Inf\"}}"), count as f64);
        self.put(family, format!("_sum{{{labels}}}"), sum);
        self.put(family, format!("_count{{{labels}}}"), count as f64);
    }

    fn put(&mut self, family: &'static Family, labels: String, value: f64) {
        let empty = || Samples { family, lines: Vec::new(), seen: HashMap::new() };
        let samples = self.families.entry(family.name).or_insert_with(empty);
        match samples.seen.get(&labels) {
            Some(at) => samples.lines[*at].1 += value,
            None => {
                samples.seen.insert(labels.clone(), samples.lines.len());
                samples.lines.push((labels, value));
            }
        }
    }

    pub fn finish(self) -> String {
        let mut text = String::new();
        for (name, Samples { family, lines, .. }) in self.families {
            // A string takes everything.
            let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {}", family.help, family.kind);
            for (labels, value) in lines {
                let _ = match family.kind {
                    Kind::Histogram => writeln!(text, "{name}{labels} {value}"),
                    Kind::Gauge | Kind::Counter => writeln!(text, "{name}{{{labels}}} {value}"),
                };
            }
        }
        text
    }
}

fn labels_of(volume: &str, family: &Family, values: &[&str]) -> String {
    assert_eq!(family.labels.len(), values.len(), "{} has these labels", family.name);
    let mut text = format!("volume=\"{}\"", escaped(volume));
    for (label, value) in family.labels.iter().zip(values) {
        let _ = write!(text, ",{label}=\"{}\"", escaped(value));
    }
    text
}

/// A value of a label between quotes. Control characters, which the format takes and a terminal
/// obeys, are replaced.
fn escaped(value: &str) -> String {
    let mut text = String::with_capacity(value.len());
    for letter in value.chars().take(LABEL_CHARS_MAX) {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter if letter.is_control() => text.push(char::REPLACEMENT_CHARACTER),
            letter => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    static DEPTH: Family = Family {
        name: "depth",
        kind: Kind::Gauge,
        labels: &["device", "state"],
        help: "How deep.",
    };
    static TIMES: Family =
        Family { name: "times", kind: Kind::Histogram, labels: &["way"], help: "How long." };

    #[test]
    fn a_hostile_name_stays_in_its_label() {
        let mut out = Exposition::new("v\"} 1\nevil 2");
        out.add(&DEPTH, &["a\\\"\n# TYPE x counter", "\u{1b}[2J\r"], 7_u64);
        let text = out.finish();
        let lines: Vec<&str> = text.split('\n').collect();
        assert_eq!(lines[..2], ["# HELP depth How deep.", "# TYPE depth gauge"]);
        let sample = "depth{volume=\"v\\\"} 1\\nevil 2\",device=\"a\\\\\\\"\\n# TYPE x counter\",\
                      state=\"\u{fffd}[2J\u{fffd}\"} 7";
        assert_eq!(lines[2..], [sample, ""]);
        let long = escaped(&"\"".repeat(5000));
        assert_eq!(long.len(), 2 * LABEL_CHARS_MAX);
    }

    #[test]
    fn samples_with_the_same_labels_are_one() {
        let mut out = Exposition::new("v");
        out.add(&DEPTH, &["a", ""], 1_u64);
        out.add(&DEPTH, &["b", ""], 1_u64);
        out.add(&DEPTH, &["a", ""], 0.5);
        let text = out.finish();
        assert_eq!(text.matches("depth{").count(), 2, "{text}");
        assert!(text.contains("depth{volume=\"v\",device=\"a\",state=\"\"} 1.5\n"), "{text}");
    }

    #[test]
    fn one_state_is_the_present_one() {
        let mut out = Exposition::new("v");
        out.add_state(&DEPTH, &["a"], &["on", "off"], "off");
        let text = out.finish();
        assert!(
            text.contains("state=\"on\"} 0\n") && text.contains("state=\"off\"} 1\n"),
            "{text}"
        );
    }

    #[test]
    fn buckets_end_with_all_requests() {
        let mut out = Exposition::new("v");
        let buckets = [(0.00001, 1), (0.5, 3)].into_iter();
        out.add_histogram(&TIMES, &["flush"], buckets, (7.5, 4));
        let expected = "# HELP times How long.\n# TYPE times histogram\n\
             times_bucket{volume=\"v\",way=\"flush\",le=\"0.00001\"} 1\n\
             times_bucket{volume=\"v\",way=\"flush\",le=\"0.5\"} 3\n\
             times_bucket{volume=\"v\",way=\"flush\",le=\"+Inf\"} 4\n\
             times_sum{volume=\"v\",way=\"flush\"} 7.5\n\
             times_count{volume=\"v\",way=\"flush\"} 4\n";
        assert_eq!(out.finish(), expected);
    }
}
