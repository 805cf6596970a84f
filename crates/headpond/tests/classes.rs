//! I/O classes at the command line: checked, imported, tried on a trace.

mod common;

use common::User;

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
    assert!(table.contains("request_size:le:128000&done") && table.contains("past the cache"));
    let again = user.run(&["class", "import", &source, "-o", &own]);
    assert_eq!(again.code, 4, "an existing file is kept: {}", again.err);
}

#[test]
fn what_only_a_file_system_knows_ends_the_import_or_never_holds() {
    let user = User::new();
    let text = CSV.replace("request_size:le:128000", "file_size:le:4096");
    let source = put(&user, "ioclass.csv", &text);
    let ended = user.run(&["class", "import", &source]);
    assert_eq!(ended.code, 1);
    for part in ["ioclass.csv", "line 4", "file_size", "--lenient"] {
        assert!(ended.err.contains(part), "{part}: {}", ended.err);
    }
    let lenient = user.run(&["class", "import", &source, "--lenient"]);
    assert_eq!(lenient.code, 0);
    assert!(lenient.out.contains("never&done"), "{}", lenient.out);
    assert!(lenient.err.contains("1 rules") && lenient.err.contains("lines 4"), "{}", lenient.err);
    let own = put(&user, "classes.toml", &lenient.out);
    assert!(user.ok(&["class", "check", &own]).contains("class 2 takes no request"));
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
fn help_and_mistakes_of_usage() {
    let user = User::new();
    assert!(user.ok(&["class", "--help"]).contains("headpond class test"));
    assert_eq!(user.run(&["class", "import"]).code, 2);
    let wrong = put(&user, "wrong.toml", "[[class]]\nid = 1\nwhen = \"colour:eq:red\"\n");
    let ended = user.run(&["class", "check", &wrong]);
    assert_eq!(ended.code, 1);
    assert!(ended.err.contains("line 3") && ended.err.contains("colour"), "{}", ended.err);
}
