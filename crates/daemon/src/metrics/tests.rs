use super::*;
use std::collections::BTreeSet;
use std::path::Path;

const BEGIN: &str = "<!-- metrics: `UPDATE_METRICS=1 cargo test -p headpond-daemon --lib` -->\n\n";
const END: &str = "\n\n<!-- end of metrics -->";

/// `UPDATE_METRICS=1` writes it.
#[test]
fn the_document_lists_the_metrics() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).expect("a place for the tables");
    let (listed, after) = rest.split_once(END).expect("its end");
    if std::env::var_os("UPDATE_METRICS").is_some() {
        let text = format!("{before}{BEGIN}{}{END}{after}", document());
        return std::fs::write(&path, text).unwrap();
    }
    assert!(listed == document(), "a metric has changed: see docs/metrics.md");
}

#[test]
fn names_follow_the_conventions_and_are_there_once() {
    let families: Vec<&Family> = GROUPS.iter().flat_map(|it| it.families).copied().collect();
    let names: BTreeSet<&str> = families.iter().map(|it| it.name).collect();
    assert_eq!(names.len(), families.len());
    assert!(names.len() > 80, "{}", names.len());
    for Family { name, kind, labels, help } in families {
        assert!(name.starts_with("headpond_"), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        // What Prometheus or a scrape sets itself.
        let set = ["volume", "le", "job", "instance"];
        assert!(!labels.iter().any(|label| set.contains(label)), "{name}");
        assert!(help.ends_with('.') && !help.contains(['\n', '\\', '|']), "{name}: {help}");
    }
}
