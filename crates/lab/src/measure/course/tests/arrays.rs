//! Several real arrays at once.

use super::*;

/// A plan of reads and writes on up to three files at once.
fn three(folder: &Path, load: &str, rest: &str) -> Plan {
    let path = |name: &str| folder.join(name).display().to_string();
    let text = format!(
        "name = \"t\"\n[[target]]\nname = \"it\"\nfile = \"{}\"\nsize = \"8M\"\nload = \"{load}\"\n\
         alike = [\"{}\", \"{}\"]\n{rest}",
        path("a.img"),
        path("b.img"),
        path("c.img")
    );
    Plan::parse(&text).unwrap()
}

const LOADS: &str = "array = { raid = 0, drives = 4, drive = \"hdd-7k2-14t\" }\n\
    [matrix]\nrequests = [\"randread 4K 2x2\", \"write 64K 1x4\"]\nsettings = { arrays = [1, 3] }\n\
    [rounds]\nwarm_up = 1\ncount = 2\nseconds = 0.4\nwindows = 4\n\
    [[answer]]\nkind = \"rating\"\n";

#[test]
fn each_of_several_arrays_takes_the_whole_load_and_the_figures_are_of_all_together() {
    let mut loads = vec!["in-process"];
    match headpond_testkit::tool("fio") {
        Some(_) => loads.push("fio"),
        None => println!("without fio only by this program"),
    }
    for load in loads {
        let folder = tempfile::tempdir().unwrap();
        let plan = three(folder.path(), load, LOADS);
        let out = folder.path().join("out");
        Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
        let results = Results::read(&out).unwrap();
        assert_eq!(results.measured().count(), 4, "{load}");
        let mut shares = Vec::new();
        for (cell, summary) in results.measured() {
            assert_eq!(summary.errors, 0, "{load}");
            let round = &cell.rounds[1].round;
            let names: Vec<_> = round.jobs.iter().map(|job| job.name.as_str()).collect();
            assert_eq!(names, ["own-0"], "{load}: all of them are one job");
            // The windows are of all of them too.
            let windows = round.windows.iter().map(|it| it.read_iops + it.write_iops);
            let mean = windows.sum::<f64>() / round.windows.len() as f64;
            if cell.cell.settings["arrays"].as_integer() == Some(3) {
                shares.push(mean / crate::results::iops(round));
            }
        }
        // On a busy machine a window may fall short. Those of one array of three always would.
        assert!(shares.iter().any(|share| (0.7..1.4).contains(share)), "{load}: {shares:?}");
        let environment = &results.environment.targets[0];
        let others: Vec<_> = environment.alike.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(others, plan.targets[0].alike, "{load}");
        let answers = serde_json::to_string(&crate::report::json(&results)).unwrap();
        assert!(answers.contains("\"arrays\":3") && answers.contains("\"mark\""), "{answers}");
        let text = crate::report::text(&results);
        assert!(
            text.contains("arrays at once") || text.contains("of what it does alone"),
            "{text}"
        );
    }
}

#[test]
fn fio_has_a_job_for_each_array_in_one_group_and_goes_on_on_each_where_it_was() {
    if headpond_testkit::tool("fio").is_none() {
        skip!(
            "fio_has_a_job_for_each_array_in_one_group_and_goes_on_on_each_where_it_was",
            "no fio"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    // 100 requests a second on each of three for half a second.
    let rest = "[matrix]\nrw = [\"write\"]\nbs = [\"4K\"]\nrate = [100]\n\
                [rounds]\nwarm_up = 0\ncount = 2\nseconds = 0.5\nwindows = 5\n";
    let plan = three(folder.path(), "fio", rest);
    let out = folder.path().join("out");
    Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
    let results = Results::read(&out).unwrap();
    let round = &results.cells[0].rounds[0].round;
    let requests = round.jobs[0].measured.write.requests;
    // Without the setting all of them are loaded: at most at that rate, and as far as the machine
    // keeps up.
    assert!((30..=165).contains(&requests), "{requests}");
    let text = std::fs::read_to_string(out.join("raw/cell-0000-round-001.fio")).unwrap();
    assert_eq!(text.matches("new_group").count(), 1, "{text}");
    for file in ["a.img", "b.img", "c.img"] {
        assert_eq!(text.matches(&format!("/{file}\n")).count(), 1, "{text}");
    }
    let offsets = text.lines().filter_map(|line| line.strip_prefix("offset="));
    let offsets: Vec<u64> = offsets.map(|it| it.parse().unwrap()).collect();
    // Of each, the last one may end behind what was logged.
    let behind = requests.checked_sub(offsets.iter().sum::<u64>() / 4096);
    assert!(
        offsets.len() == 3 && behind.is_some_and(|it| it <= 3),
        "{behind:?} of {requests}: {text}"
    );
}

#[test]
fn what_one_array_of_several_cannot_be_keeps_all_from_being_measured() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c.img"), b"precious").unwrap();
    let plan = three(folder.path(), "in-process", LOADS);
    let error = Course::create(&plan, &folder.path().join("out"), &Nobody).err().unwrap();
    assert!(error.to_string().contains("c.img has 8 bytes"), "{error}");
    let wrong = |from: &str, to: &str| {
        let text = toml::to_string(&plan).unwrap();
        assert!(text.contains(from), "{text}");
        Plan::parse(&text.replace(from, to)).unwrap_err().to_string()
    };
    let error = wrong("arrays = [1, 3]", "arrays = [1, 4]");
    assert!(error.contains("4 at once, and there are 3"), "{error}");
    assert!(wrong("b.img", "c.img").contains("is there twice"));
}
