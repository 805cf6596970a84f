//! The metrics of several volumes as one text: all samples of a name stand together.
//!
//! Texts and not numbers are put together, since a daemon goes on with the version that it was
//! started with.

use std::collections::BTreeMap;

const HELP: &str = "# HELP ";

/// One text of several; of a name that they define differently the first one counts.
pub fn merge<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let mut families: BTreeMap<&str, Part<'_>> = BTreeMap::new();
    for text in texts {
        for part in parts(text) {
            let family =
                families.entry(part.name).or_insert_with(|| Part { samples: vec![], ..part });
            if family.kind == part.kind {
                family.samples.extend(part.samples);
            }
        }
    }
    let mut text = String::new();
    for Part { help, kind, samples, .. } in families.into_values() {
        for line in [help, kind].into_iter().chain(samples) {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// The lines about one name.
struct Part<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    samples: Vec<&'a str>,
}

/// What is no such part is left out.
fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut lines = text.split('\n').peekable();
    while let Some(line) = lines.next() {
        let name = line.strip_prefix(HELP).and_then(|rest| rest.split(' ').next());
        match (name, parts.last_mut()) {
            (Some(name), _) => {
                let kind = lines.next_if(|line| line.starts_with("# TYPE ")).unwrap_or_default();
                parts.push(Part { name, help: line, kind, samples: Vec::new() });
            }
            (None, Some(part)) if line.starts_with(part.name) => part.samples.push(line),
            (None, _) => {}
        }
    }
    parts.retain(|part| !part.kind.is_empty());
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "# HELP b Bytes.\n# TYPE b gauge\nb{volume=\"v\"} 1\nb{volume=\"v2\"} 2\n\
                       # HELP a All.\n# TYPE a counter\na{volume=\"v\"} 3\n";
    const TWO: &str = "# HELP b Bytes of old.\n# TYPE b gauge\nb{volume=\"w\"} 4\n\
                       # HELP a Was a gauge.\n# TYPE a gauge\na{volume=\"w\"} 5\n\
                       # HELP c New.\n# TYPE c gauge\nc{volume=\"w\"} 6\n";

    #[test]
    fn samples_of_one_name_stand_together_and_kinds_do_not_mix() {
        let text = merge([ONE, TWO]);
        let expected = "# HELP a All.\n# TYPE a counter\na{volume=\"v\"} 3\n\
             # HELP b Bytes.\n# TYPE b gauge\nb{volume=\"v\"} 1\nb{volume=\"v2\"} 2\nb{volume=\"w\"} 4\n\
             # HELP c New.\n# TYPE c gauge\nc{volume=\"w\"} 6\n";
        assert_eq!(text, expected);
        assert_eq!(merge([text.as_str()]), text);
    }

    #[test]
    fn what_is_no_metric_is_left_out() {
        assert_eq!(merge(["<html>\n", "x 1\n# HELP y\ny 2\n", ""]), "");
    }
}
