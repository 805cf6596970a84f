//! Commands that change settings, and that set them back.

use super::*;

/// A plan of a file with two settings; `LOG` in its commands is a file beside it.
fn noted(folder: &Path, set: &str, restore: &str) -> Plan {
    let (image, log) = (folder.join("x.img"), folder.join("log").display().to_string());
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    let target = format!(
        "file = \"{}\"\nsize = \"4M\"\nload = \"in-process\"\nset = '{}'\nrestore = '{}'",
        image.display(),
        set.replace("LOG", &log),
        restore.replace("LOG", &log)
    );
    let settings = "[matrix.settings]\n\"a.b\" = [\"one\", \"two\"]\nc = [true]\n";
    let text = format!(
        "name = \"t\"\norder = \"as-written\"\n[[target]]\nname = \"it\"\n{target}\n{MATRIX}{settings}"
    );
    Plan::parse(&text).unwrap()
}

const NOTES: &str = "echo {name} {value} >> LOG";

/// What the commands have noted, and how the plan ended.
fn carried_out(folder: &Path, plan: &Plan) -> (Vec<String>, Result<(), CourseError>) {
    let mut course = Course::create(plan, &folder.join("out"), &Nobody).unwrap();
    let outcome = course.run(&mut Count::default());
    let log = std::fs::read_to_string(folder.join("log")).unwrap();
    (log.lines().map(str::to_owned).collect(), outcome)
}

#[test]
fn what_a_hook_has_changed_is_set_back_at_the_end_each_by_its_name_or_all_at_once() {
    for (restore, back) in [
        ("echo back {name} >> LOG", &["back a.b", "back c"][..]),
        ("echo all back >> LOG", &["all back"]),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let plan = noted(folder.path(), NOTES, restore);
        let (said, outcome) = carried_out(folder.path(), &plan);
        outcome.unwrap();
        assert_eq!(said[..3], ["a.b one", "c on", "a.b two"], "{restore}");
        assert_eq!(said[3..], *back, "{restore}");
    }
}

#[test]
fn what_cannot_be_set_back_is_told_and_the_rest_is_set_back_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let plan = noted(folder.path(), NOTES, "echo back {name} >> LOG; echo no >&2; false");
    let (said, outcome) = carried_out(folder.path(), &plan);
    assert_eq!(said[3..], ["back a.b", "back c"]);
    let error = outcome.unwrap_err().to_string();
    assert!(error.contains("it is not as it was") && error.contains("by hand"), "{error}");
}

#[test]
fn also_what_could_not_be_changed_is_set_back() {
    let folder = tempfile::tempdir().unwrap();
    let set = format!("{NOTES}; test {{value}} != two");
    let plan = noted(folder.path(), &set, "echo back {name} >> LOG");
    let (said, outcome) = carried_out(folder.path(), &plan);
    assert_eq!(said[2..], ["a.b two", "back a.b", "back c"]);
    assert!(matches!(outcome.unwrap_err(), CourseError::Set { .. }));
}

#[test]
fn a_hook_that_fails_names_setting_value_and_what_was_said() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    let target = format!(
        "file = \"{}\"\nsize = \"4M\"\nload = \"in-process\"\nset = \"echo no {{name}} >&2; false\"",
        image.display()
    );
    let plan = plan(&target, &format!("{MATRIX}[matrix.settings]\nmode = [\"fast\"]\n"));
    let mut course = Course::create(&plan, &folder.path().join("out"), &Nobody).unwrap();
    let error = course.run(&mut Count::default()).unwrap_err().to_string();
    assert!(error.contains("mode cannot be set to fast") && error.contains("no mode"), "{error}");
}

#[test]
fn a_hook_is_run_where_a_setting_changes_and_calls_switches_on_and_off() {
    let folder = tempfile::tempdir().unwrap();
    let (image, log) = (folder.path().join("x.img"), folder.path().join("log"));
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    let target = format!(
        "file = \"{}\"\nsize = \"4M\"\nload = \"in-process\"\nset = \"echo {{name}} {{value}} >> {}\"",
        image.display(),
        log.display()
    );
    let settings = "[matrix.settings]\n\"drive.write_cache\" = [true, false]\n";
    let text = format!(
        "name = \"t\"\norder = \"as-written\"\n[[target]]\nname = \"it\"\n{target}\n{MATRIX}{settings}"
    );
    let plan = Plan::parse(&text).unwrap();
    let mut course = Course::create(&plan, &folder.path().join("out"), &Nobody).unwrap();
    course.run(&mut Count::default()).unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    assert_eq!(said, "drive.write_cache on\ndrive.write_cache off\n");
}
