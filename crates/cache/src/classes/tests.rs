use super::*;
use proptest::prelude::*;

fn facts(size_bytes: u64, lba: u64) -> Facts {
    Facts { size_bytes, lba, is_write: false, is_metadata: false, core_id: 1 }
}

fn csv(lines: &[&str]) -> Result<Classes, ClassError> {
    let text = format!("{CSV_HEADER}\n0,unclassified,22,1\n{}\n", lines.join("\n"));
    Classes::from_csv(&text, Unknown::Refuse).map(|(classes, _)| classes)
}

fn class_of(classes: &Classes, facts: &Facts) -> u8 {
    classes.classify(facts).get()
}

#[test]
fn sizes_have_units_and_other_numbers_have_none() {
    let condition = |text: &str| Condition::parse(text).map(|it| it.to_string());
    assert_eq!(condition("request_size:ge:128K").unwrap(), "request_size:ge:131072");
    assert_eq!(condition("request_size:1.5M").unwrap(), "request_size:eq:1572864");
    for wrong in ["lba:ge:128K", "core_id:1K", "request_size:le:K", "request_size:le:-4K"] {
        let refused = condition(wrong).unwrap_err().to_string();
        assert!(refused.contains("requires a number"), "{wrong}: {refused}");
    }
}

#[test]
fn the_last_rule_that_holds_counts_and_done_ends_the_list() {
    let classes = csv(&[
        "1,metadata&done,0,1",
        "2,request_size:le:4096,9,1",
        "3,request_size:le:128000&done,10,1.00",
        "4,lba:ge:0,20,0.50",
    ]);
    let classes = classes.unwrap();
    assert_eq!(class_of(&classes, &facts(4096, 0)), 3, "a later rule overrides an earlier one");
    assert_eq!(class_of(&classes, &facts(128_000, 0)), 3);
    assert_eq!(class_of(&classes, &facts(128_001, 0)), 4, "done was not reached");
    let metadata = Facts { is_metadata: true, ..facts(1 << 20, 0) };
    assert_eq!(class_of(&classes, &metadata), 1);
}

#[test]
fn operators_are_taken_from_left_to_right_and_a_failed_and_ends_the_rule() {
    let holds = |rule: &str, facts: &Facts| {
        class_of(&csv(&[&format!("1,{rule},1,1")]).unwrap(), facts) == 1
    };
    let small = facts(512, 100);
    assert!(holds("request_size:eq:1|lba:eq:100", &small));
    assert!(!holds("request_size:eq:1&lba:eq:100", &small));
    assert!(!holds("request_size:eq:1&lba:eq:1|lba:eq:100", &small), "as Open CAS evaluates it");
    assert!(holds("lba:eq:100|request_size:eq:1&lba:lt:101", &small));
    assert!(holds("request_size:eq:1|done", &small), "done always holds");
}

#[test]
fn each_operator_and_condition_means_what_it_says() {
    let holds = |rule: &str, facts: &Facts| {
        class_of(&csv(&[&format!("1,{rule},1,1")]).unwrap(), facts) == 1
    };
    let table = [
        ("eq", [false, true, false]),
        ("ne", [true, false, true]),
        ("lt", [true, false, false]),
        ("gt", [false, false, true]),
        ("le", [true, true, false]),
        ("ge", [false, true, true]),
    ];
    for (operator, expected) in table {
        for (lba, expected) in [9, 10, 11].into_iter().zip(expected) {
            assert_eq!(
                holds(&format!("lba:{operator}:10"), &facts(1, lba)),
                expected,
                "{operator}"
            );
        }
    }
    let write = Facts { is_write: true, ..facts(1, 1) };
    assert!(holds("io_direction:write", &write) && !holds("io_direction:read", &write));
    assert!(holds("io_direction:eq:1", &write) && !holds("io_direction:eq:0", &write));
    assert!(holds("core_id:eq:1", &write) && !holds("core_id:2", &write));
    assert!(!holds("never", &write));
}

#[test]
fn a_rule_may_ask_for_the_class_found_so_far() {
    let classes = csv(&["1,request_size:gt:40960,2,0.5", "2,io_class:1&request_size:lt:81920,3,1"]);
    let classes = classes.unwrap();
    assert_eq!(class_of(&classes, &facts(50_000, 0)), 2);
    assert_eq!(class_of(&classes, &facts(90_000, 0)), 1);
    assert_eq!(class_of(&classes, &facts(512, 0)), 0);
}

#[test]
fn ids_decide_the_order_of_an_imported_file() {
    let classes = csv(&["9,lba:ge:0,1,1", "2,lba:ge:0&done,1,1"]).unwrap();
    assert_eq!(class_of(&classes, &facts(1, 1)), 2);
}

#[test]
fn old_and_new_allocations_are_read() {
    let shares = ["0", "1", "0.00", "1.00", "0.66", "0.5", "yes", "NO", "1.000", "0.999"];
    let read = |share: &str| {
        let classes = csv(&[&format!("1,metadata,7,{share}")]).unwrap();
        classes.get(ClassId(1)).unwrap().occupancy.get()
    };
    assert_eq!(shares.map(read), [0, 100, 0, 100, 66, 50, 100, 0, 100, 99]);
    for wrong in ["1.01", "2", "-1", "", "0,5", "1.001", ".5", "nan", "1e0"] {
        assert!(csv(&[&format!("1,metadata,7,\"{wrong}\"")]).is_err(), "{wrong}");
    }
}

#[test]
fn an_empty_priority_pins_and_a_share_is_of_all_blocks() {
    let classes = csv(&["1,metadata,,0.25"]).unwrap();
    let class = classes.get(ClassId(1)).unwrap();
    assert_eq!(class.priority, Priority::Pinned);
    assert_eq!(class.occupancy.of(1001), 250);
    assert_eq!(Occupancy::ALL.of(u64::MAX), u64::MAX);
    assert!(Priority::Pinned < Priority::Level(0));
}

#[test]
fn mistakes_are_told_by_line_and_word() {
    let cases = [
        ("33,lba:ge:0,1,1", "line 3: \"33\" is not a class id"),
        ("x,lba:ge:0,1,1", "0 to 32"),
        ("0,twice,1,1", "class 0 is defined twice"),
        ("1,metadata,256,1", "\"256\" is not an eviction priority"),
        ("1,metadata,1", "3 fields"),
        ("1,,1,1", "class 1 has no rule"),
        ("1,colour:eq:1,1,1", "\"colour\" is not a condition"),
        ("1,lba:about:1,1,1", "\"about\" is not an operator of lba"),
        ("1,lba:ge:+1,1,1", "lba requires a number"),
        ("1,lba,1,1", "lba requires a number"),
        ("1,metadata:1,1,1", "metadata takes no operand"),
        ("1,metadata&,1,1", "missing before or after '&'"),
        ("1,|metadata,1,1", "missing before or after '|'"),
        ("1,io_direction:up,1,1", "read or write"),
        (
            "1,metadata|file_size:le:4096,1,1",
            "line 3: file_size is known only inside a file system",
        ),
    ];
    for (line, part) in cases {
        let error = csv(&[line]).unwrap_err().to_string();
        assert!(error.contains(part), "{line}: {error}");
    }
    let error = Classes::from_csv("id,name\n", Unknown::Refuse).unwrap_err().to_string();
    assert!(error.contains("line 1") && error.contains(CSV_HEADER), "{error}");
    let none = format!("{CSV_HEADER}\n1,metadata,1,1\n");
    assert_eq!(Classes::from_csv(&none, Unknown::Refuse), Err(ClassError::NoUnclassified));
    assert!(Classes::from_csv("", Unknown::Refuse).is_err());
}

/// Open CAS's own example, with the classes that only a kernel can tell.
#[test]
fn what_a_block_device_cannot_know_never_holds_where_that_is_allowed() {
    let text = format!(
        "{CSV_HEADER}\n0,unclassified,22,1\n1,metadata&done,0,1\n11,file_size:le:4096&done,9,1\n\
         12,request_size:le:512|directory:/data/a&done,9,1\n22,direct&done,20,0.00\n"
    );
    let (classes, unknowable) = Classes::from_csv(&text, Unknown::NeverHolds).unwrap();
    let told = |rule: &UnknowableRule| (rule.place.line, rule.words.clone(), rule.can_hold);
    assert_eq!(
        unknowable.iter().map(told).collect::<Vec<_>>(),
        [(4, vec!["file_size"], false), (5, vec!["directory"], true), (6, vec!["direct"], false)]
    );
    assert_eq!(Classes::parse(&text).unwrap(), classes, "as whoever is not told takes it");
    assert_eq!(class_of(&classes, &facts(4096, 0)), 0);
    assert_eq!(class_of(&classes, &facts(512, 0)), 12, "the rest of a rule still works");
    let hopeless = |class: &&Class| class.rule.as_ref().is_some_and(|rule| !rule.can_hold());
    let hopeless: Vec<u8> = classes.iter().filter(hopeless).map(|class| class.id.get()).collect();
    assert_eq!(hopeless, [11, 22]);
    let own = Classes::from_toml(&classes.to_toml()).unwrap();
    assert_eq!(own, classes, "an imported file survives as our own");
}

#[test]
fn our_own_file_is_read_and_its_mistakes_are_told_by_line() {
    let text = "[[class]]\nid = 0\npass_through = true\n\n[[class]]\nid = 3\nname = \"small\"\n\
                when = \"request_size:le:128000&done\"\npriority = \"pinned\"\noccupancy = 0.29\n";
    let classes = Classes::parse(text).unwrap();
    let class = classes.get(ClassId(3)).unwrap();
    assert_eq!((class.priority, class.occupancy.get()), (Priority::Pinned, 29));
    assert!(classes.get(ClassId(0)).unwrap().is_pass_through() && !classes.is_trivial());
    assert!(Classes::from_toml("").unwrap().is_trivial());
    let cases = [
        ("id = 3", "id = 33", "line 6: \"33\" is not a class id"),
        ("id = 3", "id = 0", "line 8: class 0 is for"),
        ("request_size:le:128000&done", "extension:txt", "line 8: extension is known only inside"),
        ("\"pinned\"", "\"high\"", "line 9"),
        ("0.29", "1.29", "line 10: \"1.29\" is not a share"),
        ("occupancy = 0.29", "occupancy = 0.5\npass_through = true", "line 11"),
        ("occupancy", "share", "unknown field"),
        ("id = 0\npass_through = true", "id = 4\nwhen = \"done\"", "follows a higher id"),
    ];
    for (from, to, part) in cases {
        let error = Classes::parse(&text.replace(from, to)).unwrap_err().to_string();
        assert!(error.contains(part), "{to}: {error}");
    }
}

fn condition() -> impl Strategy<Value = String> {
    let number = prop_oneof![0u64..100_000, any::<u64>()];
    let operator = prop::sample::select(vec!["eq", "ne", "lt", "gt", "le", "ge"]);
    let word = prop::sample::select(vec!["request_size", "lba", "core_id", "io_class"]);
    prop_oneof![
        1 => Just("done".to_owned()),
        1 => Just("metadata".to_owned()),
        1 => Just("io_direction:write".to_owned()),
        4 => (word, operator, number).prop_map(|(w, o, n)| format!("{w}:{o}:{n}")),
    ]
}

fn rule() -> impl Strategy<Value = String> {
    let join = prop::sample::select(vec!['&', '|']);
    (condition(), prop::collection::vec((join, condition()), 0..4)).prop_map(|(first, rest)| {
        rest.into_iter().fold(first, |rule, (join, condition)| format!("{rule}{join}{condition}"))
    })
}

/// The textbook version: the text itself, taken from the left.
fn naive(rules: &[(u8, String)], facts: &Facts) -> u8 {
    let mut class = 0;
    for (id, rule) in rules {
        let (mut yes, mut rest, mut join, mut is_done) = (false, rule.as_str(), '|', false);
        while !rest.is_empty() && !is_done && (join == '|' || yes) {
            let at = rest.find(['&', '|']).unwrap_or(rest.len());
            let parts: Vec<&str> = rest[..at].split(':').collect();
            let value = match parts[0] {
                "done" => 1,
                "metadata" => facts.is_metadata.into(),
                "io_direction" => facts.is_write.into(),
                "request_size" => facts.size_bytes,
                "lba" => facts.lba,
                "core_id" => facts.core_id.into(),
                _ => class.into(),
            };
            let truth = match parts[..] {
                [_, operator, number] => {
                    let ordering = value.cmp(&number.parse().unwrap());
                    match operator {
                        "eq" => ordering.is_eq(),
                        "ne" => ordering.is_ne(),
                        "lt" => ordering.is_lt(),
                        "gt" => ordering.is_gt(),
                        "le" => ordering.is_le(),
                        _ => ordering.is_ge(),
                    }
                }
                _ => value == 1,
            };
            yes = truth || join == '|' && yes;
            is_done = parts[0] == "done";
            join = rest[at..].chars().next().unwrap_or('|');
            rest = rest.get(at + 1..).unwrap_or("");
        }
        if yes {
            class = *id;
        }
        if is_done {
            break;
        }
    }
    class
}

proptest! {
    #[test]
    fn rules_agree_with_a_naive_reading_of_their_text(
        rules in prop::collection::vec(rule(), 0..6),
        size_bytes in prop_oneof![0u64..100_000, any::<u64>()],
        lba in 0u64..100_000, is_write: bool, is_metadata: bool, core_id in 0u32..4,
    ) {
        let rules: Vec<(u8, String)> =
            rules.into_iter().enumerate().map(|(at, rule)| (at as u8 * 3 + 1, rule)).collect();
        let lines: Vec<String> = rules.iter().map(|(id, rule)| format!("{id},{rule},1,1")).collect();
        let classes = csv(&lines.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        let facts = Facts { size_bytes, lba, is_write, is_metadata, core_id };
        prop_assert_eq!(class_of(&classes, &facts), naive(&rules, &facts));
        let back = Classes::parse(&classes.to_csv()).unwrap();
        prop_assert_eq!(back.to_csv(), classes.to_csv());
        let own = Classes::parse(&classes.to_toml()).unwrap();
        prop_assert_eq!(&own, &classes);
    }

    #[test]
    fn no_text_makes_the_readers_panic(text in "\\PC*", tail in "[0-9a-z_:&|,.\n\"]{0,80}") {
        for text in [text.clone(), format!("{CSV_HEADER}\n{tail}"), tail, text] {
            let _ = Classes::parse(&text);
            let _ = Classes::from_csv(&text, Unknown::NeverHolds);
            let _ = Rule::parse(&text);
        }
    }
}
