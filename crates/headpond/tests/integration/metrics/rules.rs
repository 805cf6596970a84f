//! The rules of alerts, by their own cases.

use super::{documented, promtool, tree};
use headpond_testkit::{skip, tool};
use std::collections::BTreeSet;
use std::fs;

const RULES: &str = "monitoring/headpond.rules.yml";
const CASES: [&str; 2] = ["headpond.test.yml", "headpond-days.test.yml"];

fn alerts() -> Vec<String> {
    let text = fs::read_to_string(tree(RULES)).unwrap();
    let alerts = text.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let alerts: Vec<String> = alerts.map(str::to_owned).collect();
    assert!(alerts.len() > 20, "{alerts:?}");
    alerts
}

/// Words of a text that are names of metrics.
pub fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    text.split(|letter| !is_part(letter)).filter(|word| word.starts_with("headpond_")).collect()
}

/// Those that no scrape has.
pub fn unknown_in(text: &str) -> Vec<&str> {
    let known = documented();
    let is_known = |word: &str| {
        let of_histogram = ["_bucket", "_sum", "_count"].iter();
        let mut bare = of_histogram.filter_map(|suffix| word.strip_suffix(suffix));
        known.contains_key(word)
            || bare.any(|name| known.get(name).is_some_and(|it| it == "histogram"))
    };
    metrics_in(text).into_iter().filter(|word| !is_known(word)).collect()
}

#[test]
fn each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not() {
    let cases = CASES.map(|name| fs::read_to_string(tree("monitoring").join(name)).unwrap());
    let cases = cases.concat();
    let document = fs::read_to_string(tree("docs/metrics.md")).unwrap();
    for alert in alerts() {
        let fires = format!("      - alertname: {alert}\n");
        assert_eq!(cases.matches(&fires).count(), 1, "{alert} fires in no case");
        let rests = format!("      - {{ alertname: {alert}, eval_time: 1h, exp_alerts: [] }}\n");
        assert_eq!(cases.matches(&rests).count(), 1, "{alert} is not there in the volume in order");
        assert!(document.contains(&format!("\n| `{alert}` |")), "{alert} is not documented");
    }
    let rules = fs::read_to_string(tree(RULES)).unwrap();
    assert_eq!(unknown_in(&rules), Vec::<&str>::new());
    assert!(metrics_in(&rules).len() > 15);
}

#[test]
fn each_kind_of_alert_of_a_volume_is_in_a_rule() {
    let rules = fs::read_to_string(tree(RULES)).unwrap();
    for kind in headpond_volume::AlertKind::ALL {
        let word = headpond_api::word(kind);
        // Told by metrics of their own, or no reason to come.
        let is_told = ["cache_failed", "cache_fallback", "journal_lost", "scrub_findings"];
        let is_rule = rules.contains(&word) || is_told.contains(&&*word) || word == "cache_full";
        assert!(is_rule, "{word} makes nobody come");
    }
}

#[test]
fn the_rules_are_valid_and_their_cases_hold() {
    let name = "the_rules_are_valid_and_their_cases_hold";
    let Some(program) = tool("promtool") else { skip!(name, "no promtool") };
    promtool(&program, &["check", "rules", "headpond.rules.yml"], "").unwrap();
    for cases in CASES {
        promtool(&program, &["test", "rules", cases], "").unwrap();
    }
}
