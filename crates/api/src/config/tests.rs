use super::*;
use headpond_cache::{CleaningPolicy, Mode};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn parse(text: &str) -> ConfigFile {
    ConfigFile::parse(Path::new("/etc/h.toml"), text)
}

fn errors(text: &str) -> Vec<String> {
    parse(text).errors.iter().map(ToString::to_string).collect()
}

#[test]
fn each_key_is_read_and_shown_as_it_stands_in_the_file() {
    for (key, value) in [
        ("state-folder", "/srv/state"),
        ("run-folder", "/srv/run"),
        ("group", "storage"),
        ("wait-for-devices", "0"),
        ("threads", "0"),
        ("log-format", "json"),
        ("log-level", "debug"),
        ("events-folder", "/srv/events.d"),
        ("metrics-address", "[::1]:9949"),
        ("metrics-token-file", "/srv/token"),
        ("metrics-host", "storage1.example.org"),
    ] {
        let file = parse(&format!("# mine\n{key} = {value:?}\n"));
        assert_eq!(file.errors, [], "{key}");
        let known = KEYS.iter().find(|known| known.name == key).unwrap();
        assert_eq!(known.value(&file.config), value);
        assert_ne!(known.value(&Config::default()), value, "{key}: nothing is shown by it");
        assert_eq!(file.line_of(key), Some(2));
    }
    assert_eq!(KEYS.len(), 11, "a key is missing above");
    assert_eq!(parse("group = 998\nwait-for-devices = 5").config.group, "998");
    assert_eq!(parse("").config, Config::default());
}

#[test]
fn a_mistake_is_told_with_line_and_column() {
    for (text, at, part) in [
        ("\nstat-folder = '/x'", "2:1", "there is no key \"stat-folder\""),
        ("\nstat-folder = '/x'", "2:1", "there are: state-folder, run-folder, group, wait"),
        ("\nstat-folder = '/x'", "2:1", "nearest: state-folder"),
        ("[volumes]\nx = 1", "1:2", "there is no key \"volumes\""),
        ("group = ''", "1:9", "cannot be the name of a group"),
        ("group = ['a']", "1:9", "group is a text or a number, not a array"),
        ("run-folder = 'hp'", "1:14", "no absolute path"),
        ("wait-for-devices =  'long'", "1:21", "from 0 to 86400"),
        ("wait-for-devices = -1", "1:20", "from 0 to 86400"),
        ("threads = 'many'", "1:11", "from 0 to 16, or auto"),
        ("group = 'a'\ngroup = 'b'", "2:1", "duplicate key"),
        ("metrics-address = 'here'", "1:19", "no address with a port"),
        ("metrics-address = ':80'", "1:19", "no address with a port"),
        ("metrics-host = 'a:1'", "1:16", "no name of a host"),
        ("metrics-token-file = 'token'", "1:22", "no absolute path"),
        ("group = 'a\n", "1:", "string"),
        ("defaults = 7", "1:12", "defaults is a table"),
        ("[defaults]\n seq-cutof = '1M'", "2:14", "nearest: seq-cutoff"),
        ("[defaults]\nmode = 'fast'", "2:8", "it is write-back, write-through"),
        ("[defaults]\nclient-memory = '1K'", "2:17", "a size from 64M"),
        ("[defaults.tier]\nseq-cutoff = '1M'", "2:14", "tier.seq-cutoff"),
    ] {
        let told = errors(text).concat();
        assert!(told.starts_with(&format!("/etc/h.toml:{at}")), "{text:?}: {told}");
        assert!(told.contains(part), "{text:?}: {told}");
    }
}

#[test]
fn a_mistake_hides_no_other_key() {
    let file =
        parse("run-folder = '/r'\ngruop = 'x'\n[defaults]\nmode = 'no'\nbypass = 'adaptive'");
    assert_eq!(file.errors.len(), 2, "{:?}", file.errors);
    assert_eq!(file.config.run_folder, Path::new("/r"));
    let given: Vec<&str> = file.given.iter().map(|given| &*given.key).collect();
    assert_eq!(given, ["run-folder", "defaults.bypass"]);
}

#[test]
fn defaults_are_settings_of_caches_tiers_and_arrays_in_the_order_of_the_file() {
    let file = parse(
        "[defaults]\nmode = 'write-through'\npreset = 'acp-very-aggressive'\n\
         cleaning.acp.wake-up-ms = 77\n'tier.mode' = 'pass-through'\nmerge-max = '1M'\n\
         discard = true\n[defaults.promotion]\npolicy = 'nhit'\ninsertion_threshold = 3\n",
    );
    assert_eq!(file.errors, []);
    let SettingDefaults { cache, tier, array } = &file.config.defaults;
    assert_eq!((cache.mode, tier.mode), (Mode::WriteThrough, Mode::PassThrough));
    assert_eq!(cache.cleaning.policy, CleaningPolicy::Acp, "of the preset");
    assert_eq!(cache.cleaning.acp.wake_up_ms, 77, "after the preset");
    assert_eq!(array.merge_max.bytes(), 1 << 20);
    assert!(cache.discard);
    assert_eq!(cache.promotion.insertion_threshold, 3);
    let given = &file.given.last().unwrap().key;
    assert_eq!(given, "defaults.promotion.insertion_threshold");
}

#[test]
fn a_file_that_is_not_there_is_none_and_one_that_cannot_be_read_is_an_error() {
    let folder = headpond_testkit::tempdir();
    let missing = ConfigFile::read(&folder.path().join("no.toml"));
    assert!(!missing.is_there && missing.errors.len() == 1, "{missing:?}");
    let unreadable = ConfigFile::read(folder.path());
    assert!(unreadable.is_there, "{unreadable:?}");
    assert!(unreadable.errors[0].to_string().contains("cannot be read: "), "{unreadable:?}");
}

#[test]
fn a_group_that_is_named_and_missing_is_told_and_the_usual_one_is_not() {
    assert_eq!(parse("").missing_group(), None);
    assert_eq!(parse("group = 'root'").missing_group(), None);
    let missing = parse("\ngroup = 'no-such-group'").missing_group().unwrap().to_string();
    assert!(missing.starts_with("/etc/h.toml:2:1: there is no group no-such-group"), "{missing}");
}

#[test]
fn the_document_lists_the_keys_as_they_are() {
    let document = include_str!("../../../../docs/config.md");
    let default = Config::default();
    let rows: BTreeSet<String> = KEYS
        .iter()
        .map(|key| {
            let Key { name, takes, what, .. } = key;
            format!("| `{name}` | {takes} | `{}` | {what} |", key.value(&default))
        })
        .collect();
    let documented = document.lines().filter(|line| line.starts_with("| `"));
    assert_eq!(documented.map(str::to_owned).collect::<BTreeSet<_>>(), rows);
    let example = document.split("```toml\n").nth(1).and_then(|it| it.split("```").next());
    let file = parse(example.expect("an example"));
    assert_eq!(file.errors, [], "the example of the document");
    assert!(file.given.len() > 4, "{:?}", file.given);
}

proptest! {
    #[test]
    fn any_text_is_keys_or_mistakes_in_it(text in "(group|defaults|mode|[a-z=.'\"\\[\\]\n# 0-9é]){0,60}") {
        let file = parse(&text);
        let lines = 1 + text.matches('\n').count();
        for line in file.errors.iter().map(|it| it.line).chain(file.given.iter().map(|it| it.line)) {
            prop_assert!((1..=lines).contains(&line), "{file:?}");
        }
    }
}
