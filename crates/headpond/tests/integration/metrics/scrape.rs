//! Reads the text format, strictly: what is no sample of its family fails the test.

use std::collections::{BTreeMap, BTreeSet};

const BUCKETS_MAX: usize = 15;

/// The samples of a text.
pub struct Scrape {
    /// Of each name.
    pub kinds: BTreeMap<String, String>,
    samples: Vec<Sample>,
}

struct Sample {
    name: String,
    labels: BTreeMap<String, String>,
    value: f64,
}

impl Scrape {
    pub fn of(text: &str) -> Self {
        assert!(text.ends_with('\n'), "{text:?}");
        let mut scrape = Self { kinds: BTreeMap::new(), samples: Vec::new() };
        let (mut family, mut seen) = (String::new(), BTreeSet::new());
        let mut lines = text.trim_end_matches('\n').split('\n');
        while let Some(line) = lines.next() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                family = help.split(' ').next().unwrap().to_owned();
                let kind =
                    lines.next().and_then(|it| it.strip_prefix(&format!("# TYPE {family} ")));
                let kind = kind.unwrap_or_else(|| panic!("{family} has no type"));
                let before = scrape.kinds.insert(family.clone(), kind.to_owned());
                assert_eq!(before, None, "{family} is in two places");
                continue;
            }
            assert!(seen.insert(line.rsplit_once(' ').unwrap().0), "twice: {line}");
            let sample = Sample::of(line);
            let is_its = match scrape.kinds[&family].as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|suffix| sample.name == format!("{family}{suffix}")),
                _ => sample.name == family,
            };
            assert!(is_its, "in {family}: {line:?}");
            scrape.samples.push(sample);
        }
        scrape
    }

    /// The sum of the samples with these labels.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let found: Vec<f64> = self.with(name, labels).map(|sample| sample.value).collect();
        assert!(!found.is_empty(), "no {name} with {labels:?}");
        found.iter().sum()
    }

    fn with<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&str, &str)],
    ) -> impl Iterator<Item = &'a Sample> {
        let has = |sample: &Sample, (label, value): &(&str, &str)| {
            sample.labels.get(*label).is_some_and(|it| it == value)
        };
        let named = self.samples.iter().filter(move |sample| sample.name == name);
        named.filter(move |sample| labels.iter().all(|label| has(sample, label)))
    }

    /// Buckets rise, and the last one has all.
    pub fn check_histograms(&self) {
        let histograms = self.kinds.iter().filter(|(_, kind)| *kind == "histogram");
        let mut checked = 0;
        for name in histograms.map(|(name, _)| name) {
            let counts = format!("{name}_count");
            for count in self.with(&counts, &[]) {
                let way = [("way", count.labels["way"].as_str())];
                let buckets = format!("{name}_bucket");
                let buckets: Vec<&Sample> = self.with(&buckets, &way).collect();
                assert!(buckets.len() <= BUCKETS_MAX, "{}", buckets.len());
                assert!(buckets.is_sorted_by(|a, b| a.value <= b.value && a.bound() < b.bound()));
                let last = buckets.last().unwrap();
                assert_eq!((last.bound(), last.value), (f64::INFINITY, count.value));
                checked += 1;
            }
        }
        assert!(checked > 0, "no histogram");
    }
}

impl Sample {
    fn of(line: &str) -> Self {
        let (name, rest) = line.split_once('{').unwrap_or_else(|| panic!("no labels: {line:?}"));
        let (mut labels, mut rest) = (BTreeMap::new(), rest);
        while let Some((label, after)) = rest.split_once("=\"") {
            let (value, after) = unquoted(after);
            assert!(labels.insert(label.to_owned(), value).is_none(), "{label} twice: {line:?}");
            rest = after.strip_prefix(',').unwrap_or(after);
        }
        let value = rest.strip_prefix("} ").unwrap_or_else(|| panic!("no value: {line:?}"));
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line:?}"));
        Self { name: name.to_owned(), labels, value }
    }

    fn bound(&self) -> f64 {
        match self.labels["le"].as_str() {
            "+Inf" => f64::INFINITY,
            bound => bound.parse().unwrap(),
        }
    }
}

/// The text up to the closing quote, and what is behind it.
fn unquoted(text: &str) -> (String, &str) {
    let (mut value, mut letters) = (String::new(), text.char_indices());
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &text[at + 1..]),
            '\\' => value.push(match letters.next().unwrap().1 {
                'n' => '\n',
                other => other,
            }),
            letter => value.push(letter),
        }
    }
    panic!("not closed: {text:?}")
}
