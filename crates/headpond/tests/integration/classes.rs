//! I/O classes at the command line: checked, imported, tried on a trace.

use crate::common::User;

/// What Open CAS's guide shows, with a class by size.
const CSV: &str = "IO class id,IO class name,Eviction priority,Allocation\n\
                   0,unclassified,22,0.00\n\
                   1,metadata&done,0,1.00\n\
                   2,request_size:le:128000&done,9,0.50\n\
                   3,lba:ge:2048&io_direction:write,,1\n";

fn put(user: &User, name: &str, text: &str) -> String {
    let path = user.path(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// As `set` takes them.
fn classes_of(user: &User) -> String {
    user.status("v").cache.unwrap().settings.classes.into()
}

#[test]
fn an_imported_file_says_the_same_as_its_source() {
    let user = User::new();
    let source = put(&user, "ioclass.csv", CSV);
    let own = user.path("classes.toml").display().to_string();
    user.ok(&["class", "import", &source, "-o", &own]);
    let before = user.json(&["class", "check", &source, "--json"]);
    let after = user.json(&["class", "check", &own, "--json"]);
    assert_eq!(before, after);
    assert_eq!(after[0]["pass_through"], true);
    assert_eq!(after[2]["occupancy_percent"], 50);
    assert_eq!(after[3]["priority"], "pinned");
    let table = user.ok(&["class", "check", &own]);
    assert!(table.contains("request_size:le:128000&done") && table.contains("bypass"));
    let again = user.run(&["class", "import", &source, "-o", &own]);
    assert_eq!(again.code, 4, "an existing file is kept: {}", again.err);
}

/// As Open CAS's own configuration has them, beside rules that make sense here.
#[test]
fn rules_that_only_a_file_system_knows_are_named_and_never_hold() {
    let user = User::new();
    let text = CSV.replace("request_size:le:128000", "file_size:le:4096")
        + "22,direct&done,20,1.00\n23,directory:/var|metadata,20,1.00\n";
    let source = put(&user, "ioclass.csv", &text);
    let named = [
        "line 4: class 2, \"file_size:le:4096&done\", matches no request",
        "line 6: class 22, \"direct&done\", matches no request: a block device does not know direct",
        "line 7: class 23, \"directory:/var|metadata\", matches fewer requests than written",
    ];
    let log = "fio version 3 iolog\n0 /dev/a read 0 4096\n";
    let trace = put(&user, "trace.log", log);
    for command in [
        vec!["class", "import", &source],
        vec!["class", "check", &source],
        vec!["class", "test", &source, &trace],
    ] {
        let read = user.run(&command);
        assert_eq!(read.code, 0, "{command:?}: {}", read.err);
        assert!(named.iter().all(|line| read.err.contains(line)), "{command:?}: {}", read.err);
        let strict = user.run(&[&command[..], &["--strict"]].concat());
        assert_eq!((strict.code, &*strict.out), (1, ""), "{command:?}");
        for part in ["ioclass.csv", "line 4", "file_size", "--strict"] {
            assert!(strict.err.contains(part), "{part}: {}", strict.err);
        }
    }
    let imported = user.ok(&["class", "import", &source]);
    assert!(imported.contains("never&done") && imported.contains("never|metadata"), "{imported}");
    let own = put(&user, "classes.toml", &imported);
    assert!(user.ok(&["class", "check", &own]).contains("class 2 matches no request"));
}

#[test]
fn create_and_set_take_open_cass_file_and_name_the_rules_that_never_hold() {
    let user = User::new();
    let text = CSV.replace("request_size:le:128000", "file_size:le:4096");
    let source = put(&user, "ioclass.csv", &text);
    let setting = format!("classes={source}");
    let devices = ["cache", "0", "1"].map(|name| user.file(&format!("{name}.img"), 64 << 20));
    let [cache, first, second] = &devices;
    let create = ["create", "v", "--raid", "1", "--cache", cache, "--set", &setting, first, second];
    let created = user.run(&create);
    assert_eq!(created.code, 0, "{}", created.err);
    let daemon = user.serve("v");
    let set = user.run(&["set", "v", &setting]);
    assert_eq!(set.code, 0, "{}", set.err);
    for told in [created.err, set.err] {
        assert!(told.contains("ioclass.csv: line 4: class 2"), "{told}");
    }
    let classes = classes_of(&user);
    assert!(classes.contains("never&done") && classes.contains("lba:ge:2048"), "{classes}");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn a_trace_shows_which_rule_each_request_takes() {
    let user = User::new();
    let source = put(&user, "ioclass.csv", CSV);
    let log = "fio version 3 iolog\n0 /dev/a read 0 4096\n10 /dev/a write 1048576 131072\n\
               20 /dev/a write 0 128000\n30 /dev/a read 8388608 1048576\n40 /dev/a sync 0 0\n";
    let trace = put(&user, "trace.log", log);
    let answer = user.json(&["class", "test", &source, &trace, "--requests", "--json"]);
    let taken = |class: usize, what: &str| answer["classes"][class]["taken"][what].clone();
    assert_eq!(taken(0, "reads"), 1, "{answer}");
    assert_eq!((taken(2, "reads"), taken(2, "writes")), (1.into(), 1.into()));
    assert_eq!((taken(3, "writes"), taken(3, "write_bytes")), (1.into(), 131_072.into()));
    assert_eq!(answer["without_class"], 1);
    let classes = answer["requests"].as_array().unwrap().iter().map(|it| it["class"].as_u64());
    assert_eq!(classes.collect::<Vec<_>>(), [Some(2), Some(3), Some(2), Some(0), None]);
    let table = user.ok(&["class", "test", &source, &trace, "--requests"]);
    assert!(table.contains("class 3") && table.contains("1 flushes and discards"), "{table}");
}

#[test]
fn one_rule_needs_no_file() {
    let user = User::new();
    let past = "past:request_size:ge:131072&io_direction:read";
    let log = "fio version 3 iolog\n0 /dev/a read 0 4096\n10 /dev/a read 1048576 131072\n";
    let trace = put(&user, "trace.log", log);
    let answer = user.json(&["class", "test", past, &trace, "--json"]);
    assert_eq!(answer["classes"][1]["taken"]["read_bytes"], 131_072, "{answer}");
    assert!(user.ok(&["class", "check", past]).contains("bypass"));

    let devices = ["cache", "0", "1"].map(|name| user.file(&format!("{name}.img"), 64 << 20));
    let [cache, first, second] = &devices;
    user.ok(&["create", "v", "--raid", "1", "--cache", cache, first, second]);
    let daemon = user.serve("v");
    user.ok(&["set", "v", &format!("classes={past}")]);
    assert!(user.ok(&["status", "v"]).contains(&format!("classes={past}")));
    let wrong = user.run(&["set", "v", "classes=past:request_sise:ge:1"]);
    assert!(wrong.code == 2 && wrong.err.contains("request_sise"), "{} {}", wrong.code, wrong.err);
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
    let daemon = user.serve("v");
    assert_eq!(classes_of(&user), past, "it is kept");
    let log = (0..1500).map(|n| format!("{n} /dev/a write {} 4096\n", n % 40 * 40_960));
    let trace =
        put(&user, "writes.log", &format!("fio version 3 iolog\n{}", log.collect::<String>()));
    let advise = ["advise", &trace, "--volume", "v", "--effort", "quick"];
    assert!(user.ok(&advise).contains("The figures hold for"), "a rule that is set is no obstacle");
    user.ok(&["stop", "v"]);
    assert_eq!(daemon.wait(), 0);
}

#[test]
fn help_and_mistakes_of_usage() {
    let user = User::new();
    assert!(user.ok(&["class", "--help"]).contains("headpond class test"));
    assert_eq!(user.run(&["class", "import"]).code, 2);
    let unknown = user.run(&["class", "check", "hold:metadata"]);
    assert!(unknown.code == 1 && unknown.err.contains("keep:RULE"), "{}", unknown.err);
    let wrong = put(&user, "wrong.toml", "[[class]]\nid = 1\nwhen = \"colour:eq:red\"\n");
    let ended = user.run(&["class", "check", &wrong]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("line 3") && ended.err.contains("colour"), "{}", ended.err);
}
