use super::*;

const PLAN: &str = r#"
name = "mine"
[[target]]
name = "a disk"
machine = { core = { raid = 0, drives = 1, drive = "hdd-7k2-4t" } }
[[target]]
name = "a file"
file = "/tmp/x.img"
size = "1G"
[matrix]
rw = ["randread", "randrw"]
mix = [70, 30]
bs = ["4K", "64K"]
jobs = [1, 2]
depth = [8]
sync = ["none", "fdatasync"]
"#;

#[test]
fn a_list_counts_only_where_it_means_something() {
    let plan = Plan::parse(PLAN).unwrap();
    // Reads have neither mix nor flushes: 2 sizes x 2 jobs; both: x 2 mixes x 2 flushes.
    assert_eq!(plan.cells().len(), 2 * (2 * 2 + 2 * 2 * 2 * 2));
    let reads = plan.cells().into_iter().filter(|cell| cell.load.rw == "randread");
    assert!(reads.into_iter().all(|cell| cell.load.mix.is_none() && cell.load.sync == Sync::None));
}

#[test]
fn a_depth_of_a_drive_grows_with_the_drives_of_a_target() {
    let array = "machine = { core = { raid = 5, drives = 4, drive = \"hdd-7k2-4t\" } }";
    let file = "array = { raid = 1, drives = 2, drive = \"hdd-7k2-4t\" }\nfile =";
    let requests = "requests = [\"randread 4K 2x8/drive\", \"read 1M 1x32\"]";
    let plan = PLAN
        .replace("machine = { core = { raid = 0, drives = 1, drive = \"hdd-7k2-4t\" } }", array)
        .replace("file =", file)
        .replace("rw = [\"randread\", \"randrw\"]", requests)
        .replace("bs = [\"4K\", \"64K\"]\n", "");
    let depths = |plan: &str| {
        let cells = Plan::parse(plan).unwrap().cells();
        cells.iter().map(|cell| cell.load.parallel()).collect::<Vec<_>>()
    };
    assert_eq!(depths(&plan), ["2x32", "1x32", "2x16", "1x32"]);
    // What says nothing of its drives is one.
    assert_eq!(depths(&plan.replace(file, "file =")), ["2x32", "1x32", "2x8", "1x32"]);
    let error = Plan::parse(&plan.replace("2x8/drive", "2x16000/drive")).unwrap_err().to_string();
    assert!(error.contains("2 jobs of depth 64000"), "{error}");
}

#[test]
fn a_plan_survives_being_stored() {
    for text in crate::builtin::ALL.iter().map(|plan| plan.text).chain([PLAN]) {
        let plan = Plan::parse(text).unwrap();
        let stored = toml::to_string_pretty(&plan).unwrap();
        assert_eq!(Plan::parse(&stored).unwrap(), plan);
    }
}

#[test]
fn settings_reach_the_machine_and_a_wrong_one_is_named() {
    let with = "[matrix.settings]\n\"core.strip\" = [\"64K\", \"1M\"]\n";
    let text =
        PLAN.replace("[[target]]\nname = \"a file\"\nfile = \"/tmp/x.img\"\nsize = \"1G\"\n", "");
    let plan = Plan::parse(&format!("{text}{with}")).unwrap();
    let strips = plan
        .cells()
        .into_iter()
        .map(|cell| plan.targets[0].stack(&cell.settings).unwrap().core.strip.to_string());
    let strips: std::collections::BTreeSet<_> = strips.collect();
    assert_eq!(strips.into_iter().collect::<Vec<_>>(), ["1M", "64K"]);
    let wrong = format!("{text}{}", with.replace("core.strip", "cache.mode"));
    let error = Plan::parse(&wrong).unwrap_err().to_string();
    assert!(error.contains("cache.mode is no field of the machine"), "{error}");
}

#[test]
fn mistakes_name_the_field_and_the_way_out() {
    for (from, to, says) in [
        ("\"randread\", \"randrw\"", "\"verify\"", "none of read, write"),
        ("70, 30", "170", "over 100"),
        ("\"4K\", \"64K\"", "\"100\"", "multiple of 512"),
        ("jobs = [1, 2]", "jobs = [0]", "0 jobs"),
        ("jobs = [1, 2]", "jobs_x_depth = [\"many\"]", "write 4x32"),
        ("file = \"/tmp/x.img\"", "file = \"/tmp/x.img\"\ndevice = \"/dev/sdb\"", "says 2 of them"),
        ("size = \"1G\"", "", "a file needs one"),
        ("name = \"a file\"", "name = \"a disk\"", "there twice"),
        ("drive = \"hdd-7k2-4t\"", "drive = \"floppy\"", "no model named floppy"),
        ("depth = [8]", "rate = [0]", "is no rate"),
        ("depth = [8]", "settings = { x = [1] }", "unknown field `x`"),
        ("rw = [\"randread\", \"randrw\"]", "requests = [\"randread\"]", "bs is there too"),
        ("[matrix]", "[rounds]\nsteady = { rounds = 1 }\n[matrix]", "3 or more"),
        (
            "[matrix]",
            "[[answer]]\nkind = \"map\"\naxis = \"target\"\nwithout = \"x\"\nwith = \"y\"\n[matrix]",
            "no cell has target x",
        ),
        ("depth = [8]", "depth = [8, 9]\nrate = [5]", "one value for jobs and depth"),
        ("name = \"a file\"", "name = \"a\\nb\"", "control character"),
        ("size = \"1G\"", "size = \"0\"", "it is 0"),
        ("size = \"1G\"", "size = \"1G\"\ncpus = \"first\"", "names no processors"),
        ("depth = [8]", "depht = [8]", "unknown field `depht`"),
    ] {
        assert!(PLAN.contains(from), "{from}");
        let error = Plan::parse(&PLAN.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(says), "{to}: {error}");
    }
}

#[test]
fn requests_may_say_how_much_at_once() {
    let lists = "rw = [\"randread\", \"randrw\"]\nmix = [70, 30]\nbs = [\"4K\", \"64K\"]\n";
    let pairs = "requests = [\"randread 4K 4x32\", \"write 1M\"]\n";
    let plan = Plan::parse(&PLAN.replace(lists, pairs)).unwrap();
    let loads: Vec<_> = plan.cells().iter().map(|cell| cell.load.to_string()).collect();
    let wanted = ["randread 4K 4x32", "write 1M 1x8", "write 1M 2x8", "write 1M fdatasync 1x8"];
    assert_eq!(loads[..4], wanted);
}

#[test]
fn what_a_sweep_tracks_is_in_the_matrix_and_no_cell_of_it_is_left_out() {
    let plan = |sweep: &str| Plan::parse(&format!("{PLAN}[sweep]\n{sweep}\n"));
    let tracked = plan("tracked = [\"randrw 70/30 4K fdatasync\"]").unwrap();
    let sweep = tracked.sweep.as_ref().unwrap();
    let cells = tracked.cells();
    let names = cells.iter().filter(|cell| sweep.tracks(&cell.load)).map(|cell| &cell.load);
    let names: Vec<_> = names.map(CellLoad::to_string).collect();
    let expected = ["randrw 70/30 4K fdatasync 1x8", "randrw 70/30 4K fdatasync 2x8"];
    assert_eq!(names, [expected, expected].concat());
    let error = plan("tracked = [\"randwrite 4K\"]").unwrap_err().to_string();
    assert!(error.contains("name one of randread 4K, "), "{error}");
    let error = plan("[limits]\nmean_ms = 5").unwrap_err().to_string();
    assert!(error.contains("limits.mean_ms: in a sweep"), "{error}");
}

/// A built-in plan on targets of the user's, of which a volume has these settings.
fn on(
    plan: &str,
    targets: &[&str],
    settings: &[(&str, &str)],
) -> Result<(Plan, Vec<String>), PlanError> {
    let plan = Plan::parse(crate::builtin::text(plan).unwrap()).unwrap();
    let target = |name: &&str| Target {
        name: (*name).to_owned(),
        volume: Some((*name).to_owned()),
        ..Target::default()
    };
    let setting_of = |_: &Target, name: &str| {
        let found = settings.iter().find(|(it, _)| *it == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    plan.with_targets(targets.iter().map(target).collect(), &setting_of)
}

#[test]
fn what_a_volume_cannot_be_set_to_is_left_as_it_is_and_said() {
    let cached = [("cache.mode", "write-back")];
    let (plan, left_out) = on("cache-limits", &["v"], &cached).unwrap();
    assert_eq!((left_out, plan.matrix.settings.len()), (vec!["cache.line".to_owned()], 0));
    let (plan, left_out) = on("array", &["v"], &cached).unwrap();
    assert_eq!((left_out, plan.matrix.settings.len()), (vec!["arrays".to_owned()], 0));
    let (plan, left_out) = on("mixed", &["v"], &cached).unwrap();
    assert_eq!((left_out.len(), plan.matrix.settings["cache.mode"].len()), (0, 3));
    let error = on("mixed", &["v"], &[]).unwrap_err().to_string();
    assert!(error.contains("no cell has cache.mode pass-through"), "{error}");
}

#[test]
fn one_volume_is_compared_with_itself_by_its_mode_and_what_has_no_answer_is_refused() {
    let modes = |plan: &str, mode: &str| {
        let (plan, _) = on(plan, &["v"], &[("cache.mode", mode)]).unwrap();
        let modes = plan.matrix.settings["cache.mode"].iter().map(plain).collect::<Vec<_>>();
        assert!(matches!(
            &plan.questions[0],
            Question::Map { axis, without: one, with: other }
            | Question::Versus { axis, first: one, second: other, .. }
                if axis == "cache.mode" && modes == [one.clone(), other.clone()]
        ));
        modes.join(" ")
    };
    assert_eq!(modes("sequential-map", "write-only"), "pass-through write-only");
    assert_eq!(modes("sequential-map", "pass-through"), "pass-through write-back");
    assert_eq!(modes("write-policy", "write-around"), "write-back write-through");
    let error = on("sequential-map", &["v"], &[]).unwrap_err().to_string();
    assert!(error.contains("compares array alone with with the cache; name two"), "{error}");
    on("sequential-map", &["v", "w"], &[]).unwrap();
    let three = on("sequential-map", &["u", "v", "w"], &[]).unwrap_err().to_string();
    assert!(three.contains("name two targets"), "{three}");
}

#[test]
fn a_real_target_has_as_many_arrays_at_once_as_it_names_and_a_plan_takes_no_more() {
    let text = PLAN.replace("depth = [8]", "depth = [8]\nsettings = { arrays = [1, 2] }");
    let error = Plan::parse(&text).unwrap_err().to_string();
    assert!(error.contains("arrays: 2 at once, and there are 1; name the others"), "{error}");
    let both = text.replace("size = \"1G\"", "size = \"1G\"\nalike = [\"/tmp/other\"]");
    let plan = Plan::parse(&both).unwrap();
    let counts = plan.cells().into_iter().map(|cell| plan.targets[1].arrays(&cell.settings));
    assert_eq!(counts.collect::<std::collections::BTreeSet<_>>(), [1, 2].into());
    let both = Target {
        name: "v".into(),
        volume: Some("v".into()),
        alike: vec!["w".into()],
        ..Target::default()
    };
    let array = Plan::parse(crate::builtin::text("array").unwrap()).unwrap();
    let (plan, left_out) = array.with_targets(vec![both], &|_, _| None).unwrap();
    assert_eq!((left_out.len(), plan.matrix.settings["arrays"].len()), (0, 2));
}

#[test]
fn writes_with_flushes_among_reads_are_made_by_this_program_and_of_fio_its_flushes_are_told() {
    let plan = Plan::parse(PLAN).unwrap();
    assert!(plan.targets[1].is_in_process(&plan.matrix) && plan.caveats().is_empty());
    let fio = PLAN.replace("size = \"1G\"", "size = \"1G\"\nload = \"fio\"");
    let error = Plan::parse(&fio).unwrap_err().to_string();
    assert!(error.contains("fio flushes after each read too; leave load out"), "{error}");
    let writes = Plan::parse(&fio.replace("\"randrw\"", "\"randwrite\"")).unwrap();
    assert!(writes.caveats()[0].contains("never both together"), "{:?}", writes.caveats());
    let loose = PLAN.replace("\"none\", \"fdatasync\"", "\"none\"");
    let loose = Plan::parse(&loose).unwrap();
    assert!(loose.caveats().is_empty() && !loose.targets[1].is_in_process(&loose.matrix));
}

#[test]
fn flushes_in_turn_are_made_by_this_program_where_fio_would_go_on_beside_them() {
    let writes = PLAN.replace("\"randrw\"", "\"randwrite\"");
    let writes = writes.replace("depth = [8]", "depth = [8]\nflushes = \"in-turn\"");
    let plan = Plan::parse(&writes).unwrap();
    assert!(!plan.targets[1].is_in_process(&plan.matrix), "a file is fio's, by libaio");
    let again = Plan::parse(&toml::to_string(&plan).unwrap()).unwrap();
    assert_eq!(again.matrix.flushes, Flushes::InTurn);
    let export = Target { name: "e".into(), export: Some("nbd://h/x".into()), ..Target::default() };
    assert!(export.is_in_process(&plan.matrix));
    let by_fio = Target { load: Loader::Fio, ..export.clone() };
    let error = by_fio.check(&plan.matrix).unwrap_err().to_string();
    assert!(error.contains("goes on beside its flushes; leave load out"), "{error}");
    let loose = Plan::parse(&writes.replace("\"none\", \"fdatasync\"", "\"none\"")).unwrap();
    assert!(!export.is_in_process(&loose.matrix), "where nothing is flushed it says nothing");
}

#[test]
fn what_is_to_be_rated_and_says_no_array_is_told_of_before_it_runs() {
    let text = format!("{PLAN}[[answer]]\nkind = \"rating\"\n");
    let plan = Plan::parse(&text).unwrap();
    let told: Vec<_> = plan.caveats();
    assert!(told.len() == 1 && told[0].starts_with("a file: it is not rated"), "{told:?}");
    let array = "size = \"1G\"\narray = { raid = 0, drives = 1, drive = \"hdd-7k2-4t\" }";
    let plan = Plan::parse(&text.replace("size = \"1G\"", array)).unwrap();
    assert!(plan.caveats().is_empty(), "{:?}", plan.caveats());
}
