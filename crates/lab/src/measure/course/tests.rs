use super::*;
mod arrays;
mod exports;
mod hooks;
mod left;

use crate::results::Results;
use headpond_testkit::skip;

struct Nobody;

impl Surroundings for Nobody {
    fn export_of(&self, volume: &str) -> Result<String, String> {
        Err(format!("{volume} is not served"))
    }

    fn setting_of(&self, volume: &str, _: &str) -> Result<String, String> {
        Err(format!("{volume} is not served"))
    }

    fn set(&self, volume: &str, _: &str, _: &str) -> Result<(), String> {
        Err(format!("{volume} is not served"))
    }
}

/// Counts what it sees.
#[derive(Default)]
struct Count {
    begun: usize,
    rounds: usize,
    left_out: usize,
}

impl Watcher for Count {
    fn begins(&mut self, _: &Cell) {
        self.begun += 1;
    }

    fn round(&mut self, _: &Cell, _: u32, _: &Round) {
        self.rounds += 1;
    }

    fn ends(&mut self, _: &Cell, ending: &Ending) {
        self.left_out += usize::from(!ending.has_figures());
    }

    fn prepares(&mut self, _: &str) {}
}

fn plan(target: &str, rest: &str) -> Plan {
    let text = format!("name = \"t\"\n[[target]]\nname = \"it\"\n{target}\n{rest}");
    Plan::parse(&text).unwrap()
}

const FLASH: &str = "machine = { core = { raid = 0, drives = 1, drive = \"ssd-dc-960g\" } }";
const MATRIX: &str = "[matrix]\nrw = [\"randread\", \"randwrite\"]\nbs = [\"4K\"]\ndepth = [1, 4]\n\
                      [rounds]\nwarm_up = 1\ncount = 2\nseconds = 0.05\nwindows = 5\n";

#[test]
fn a_plan_on_a_model_is_measured_stored_and_read_back() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(FLASH, MATRIX);
    let mut course = Course::create(&plan, folder.path(), &Nobody).unwrap();
    let mut count = Count::default();
    course.run(&mut count).unwrap();
    assert_eq!((count.begun, count.rounds), (4, 12));
    let results = Results::read(folder.path()).unwrap();
    for (cell, summary) in results.measured() {
        assert_eq!((cell.rounds.len(), summary.rounds, summary.errors), (3, 2, 0));
        assert_eq!(cell.ending, Some(Ending::Complete));
        let side = if cell.cell.load.writes() { summary.write } else { summary.read };
        assert!((side.iops / summary.iops.median - 1.0).abs() < 1e-9);
        assert!(side.mean > 0.0 && side.p50 <= side.p99 && side.p99 <= side.p99_99 * 1.1);
    }
    assert_eq!(results.measured().count(), 4);
}

#[test]
fn what_was_interrupted_is_measured_anew_and_what_was_done_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let plan = plan(FLASH, MATRIX);
    Course::create(&plan, folder.path(), &Nobody).unwrap().run(&mut Count::default()).unwrap();
    let whole = Results::read(folder.path()).unwrap();
    // The last cell that was measured loses its end.
    let file = folder.path().join("rounds.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let last: usize = lines.iter().rposition(|line| line.contains("\"done\"")).unwrap();
    std::fs::write(&file, lines[..last].join("\n")).unwrap();
    let cut = Results::read(folder.path()).unwrap();
    assert_eq!(cut.measured().count(), 3);
    let mut count = Count::default();
    let mut course = Course::resume(&plan, folder.path(), &Nobody).unwrap();
    assert_eq!(course.left().count(), 1);
    course.run(&mut count).unwrap();
    assert_eq!((count.begun, count.rounds), (1, 3));
    // A model gives the same figures again.
    let again = Results::read(folder.path()).unwrap();
    let iops =
        |results: &Results| results.measured().map(|(_, it)| it.iops.median).collect::<Vec<_>>();
    assert_eq!(iops(&again), iops(&whole));
}

#[test]
fn rounds_go_on_until_the_state_is_steady_and_no_longer() {
    let folder = tempfile::tempdir().unwrap();
    let steady = MATRIX.replace("count = 2", "steady = { rounds = 4, most = 12 }");
    let plan = plan(FLASH, &steady);
    Course::create(&plan, folder.path(), &Nobody).unwrap().run(&mut Count::default()).unwrap();
    let results = Results::read(folder.path()).unwrap();
    for (cell, summary) in results.measured() {
        let Some(Ending::Steady { drift }) = &cell.ending else { panic!("{:?}", cell.ending) };
        assert!(drift.range <= 0.2 && drift.slope <= 0.1, "{drift:?}");
        assert_eq!(summary.rounds, 4);
        assert!(cell.rounds.len() <= 13);
    }
}

const SWEEP: &str = "order = \"as-written\"\n[matrix]\nrw = [\"randrw\"]\nmix = [100, 0]\nbs = [\"4K\"]\n\
                     [sweep]\ntracked = [\"randrw 0/100 4K\"]\n\
                     [rounds]\nwarm_up = 1\nseconds = 0.2\nwindows = 4\n";

/// The order of the lines of a folder: cells that begin, their rounds, and cells that end.
fn order(folder: &Path) -> Vec<(&'static str, usize)> {
    let lines = Folder::lines(folder).unwrap();
    let words = lines.iter().map(|line| match line {
        Line::Begun { cell, .. } => ("begun", *cell),
        Line::Round { cell, .. } => ("round", *cell),
        Line::Done { cell, .. } => ("done", *cell),
    });
    words.collect()
}

#[test]
fn a_sweep_is_the_whole_matrix_in_each_round_until_what_is_tracked_is_steady() {
    let folder = tempfile::tempdir().unwrap();
    let steady = format!("{SWEEP}steady = {{ rounds = 3, most = 9 }}\n");
    let text = format!("name = \"t\"\n{steady}[[target]]\nname = \"it\"\n{FLASH}\n");
    let plan = Plan::parse(&text).unwrap();
    let mut count = Count::default();
    Course::create(&plan, folder.path(), &Nobody).unwrap().run(&mut count).unwrap();
    assert_eq!(count.begun, 2);
    let order = order(folder.path());
    let rounds = &order[2..order.len() - 2];
    assert_eq!((&order[..2], rounds.len() % 2), (&[("begun", 0), ("begun", 1)][..], 0));
    assert!(rounds.chunks(2).all(|both| both == [("round", 0), ("round", 1)]), "{order:?}");
    let results = Results::read(folder.path()).unwrap();
    for (cell, summary) in results.measured() {
        assert!(matches!(cell.ending, Some(Ending::Steady { .. })), "{:?}", cell.ending);
        assert_eq!((summary.rounds, cell.rounds.len()), (3, rounds.len() / 2));
        assert_eq!(summary.pattern, None, "rounds of a sweep do not follow each other");
    }
    assert_eq!(results.measured().count(), 2);
}

#[test]
fn a_sweep_that_was_interrupted_is_measured_anew_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("name = \"t\"\n{SWEEP}count = 2\n[[target]]\nname = \"it\"\n{FLASH}\n");
    let plan = Plan::parse(&text).unwrap();
    Course::create(&plan, folder.path(), &Nobody).unwrap().run(&mut Count::default()).unwrap();
    let file = folder.path().join("rounds.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<_> = text.lines().collect();
    std::fs::write(&file, lines[..lines.len() - 1].join("\n")).unwrap();
    let mut course = Course::resume(&plan, folder.path(), &Nobody).unwrap();
    assert_eq!(
        course.left().count(),
        2,
        "one of the two cells is not done, and they belong together"
    );
    let mut count = Count::default();
    course.run(&mut count).unwrap();
    assert_eq!((count.begun, count.rounds), (2, 6));
    let results = Results::read(folder.path()).unwrap();
    assert!(results.cells.iter().all(|cell| cell.rounds.len() == 3));
}

#[test]
fn a_real_file_is_swept_by_fio_and_by_this_program_alike() {
    if headpond_testkit::tool("fio").is_none() {
        skip!("a_real_file_is_swept_by_fio_and_by_this_program_alike", "no fio");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    for load in ["fio", "in-process"] {
        let file = format!("file = \"{}\"\nsize = \"16M\"\nload = \"{load}\"", image.display());
        let text = format!("name = \"t\"\n{SWEEP}count = 1\n[[target]]\nname = \"it\"\n{file}\n");
        let plan = Plan::parse(&text).unwrap();
        let out = folder.path().join(load);
        Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
        let rounds = [("round", 0), ("round", 1)];
        assert_eq!(order(&out)[2..6], [rounds, rounds].concat(), "{load}");
        let results = Results::read(&out).unwrap();
        let summaries: Vec<_> = results.measured().map(|(_, summary)| summary).collect();
        assert!(summaries[0].read.requests > 0 && summaries[0].write.requests == 0, "{load}");
        assert!(summaries[1].write.requests > 0 && summaries[1].read.requests == 0, "{load}");
    }
}

#[test]
fn a_real_file_is_measured_by_fio_and_by_this_program_alike() {
    if headpond_testkit::tool("fio").is_none() {
        skip!("a_real_file_is_measured_by_fio_and_by_this_program_alike", "no fio");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    for load in ["fio", "in-process"] {
        let target = format!("file = \"{}\"\nsize = \"16M\"\nload = \"{load}\"", image.display());
        std::fs::write(&image, vec![0; 16 << 20]).unwrap();
        let rest = MATRIX.replace("0.05", "0.3");
        let plan = plan(&target, &format!("{rest}[limits]\nmean_ms = 1e6\n"));
        let out = folder.path().join(load);
        Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
        let results = Results::read(&out).unwrap();
        assert_eq!(results.measured().count(), 4);
        for (cell, summary) in results.measured() {
            assert!(summary.iops.median > 0.0 && summary.errors == 0, "{load} {summary:?}");
            assert!(summary.all.mean > 0.0 && summary.all.p99 >= summary.all.p50, "{load}");
            assert!(!cell.rounds[0].round.windows.is_empty(), "{load}");
        }
    }
}

/// Three depths of one request with limits, on a file and on a model.
fn limited(limits: &str, folder: &Path) -> Vec<(String, Plan)> {
    let image = folder.join("x.img");
    std::fs::write(&image, vec![0; 4 << 20]).unwrap();
    let file = format!("file = \"{}\"\nsize = \"4M\"\nload = \"in-process\"", image.display());
    let matrix = "[matrix]\nrw = [\"randwrite\"]\nbs = [\"4K\"]\ndepth = [4, 1, 2]\n\
                  [rounds]\nwarm_up = 1\ncount = 5\nseconds = 0.5\nwindows = 2\n";
    // In shorter rounds of a busy machine there may be no request at all.
    let plan = |(name, target): (&str, &str)| {
        let text = format!(
            "name = \"t\"\n{matrix}[limits]\n{limits}\n[[target]]\nname = \"it\"\n{target}\n"
        );
        (name.to_owned(), Plan::parse(&text).unwrap())
    };
    [("file", file.as_str()), ("model", FLASH)].map(plan).into()
}

#[test]
fn a_cell_that_waits_too_long_is_cut_short_and_deeper_ones_are_left_out_on_models_too() {
    let folder = tempfile::tempdir().unwrap();
    for (name, plan) in limited("mean_ms = 1e-9", folder.path()) {
        let mut count = Count::default();
        let out = folder.path().join(&name);
        Course::create(&plan, &out, &Nobody).unwrap().run(&mut count).unwrap();
        // A round that does not count, and the first that does; the shallowest cell comes first.
        assert_eq!((count.begun, count.rounds, count.left_out), (1, 2, 2), "{name}");
        let results = Results::read(&out).unwrap();
        let cell = results.cells.iter().find(|cell| cell.cell.load.depth == 1).unwrap();
        let Some(Ending::Cut { why }) = &cell.ending else { panic!("{name}: {:?}", cell.ending) };
        assert!(why.contains("the limit is 0.000000001 ms"), "{name}: {why}");
        assert_eq!(cell.summary(&results.plan).unwrap().rounds, 1, "{name}");
        assert!(crate::report::text(&results).contains("cut short: requests waited"), "{name}");
    }
}

#[test]
fn a_cell_ends_where_another_round_would_write_more_than_is_allowed_and_so_does_the_plan() {
    let folder = tempfile::tempdir().unwrap();
    for (name, plan) in limited("written = \"4K\"", folder.path()) {
        let mut count = Count::default();
        let out = folder.path().join(&name);
        Course::create(&plan, &out, &Nobody).unwrap().run(&mut count).unwrap();
        // In a round of a busy machine there may be no write.
        let results = Results::read(&out).unwrap();
        let rounds = results.cells.iter().flat_map(|cell| &cell.rounds);
        let wrote = rounds.filter(|it| it.round.jobs[0].measured.write.requests > 0).count();
        assert_eq!((count.begun, wrote, count.left_out), (1, 1, 2), "{name}");
        // What was written before an interruption was written.
        let file = out.join("rounds.jsonl");
        let text = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        std::fs::write(&file, lines[..1 + count.rounds].join("\n")).unwrap();
        let mut again = Count::default();
        Course::resume(&plan, &out, &Nobody).unwrap().run(&mut again).unwrap();
        assert_eq!((again.begun, again.rounds, again.left_out), (0, 0, 3), "{name}");
    }
}

#[test]
fn limits_that_are_not_reached_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, plan) in limited("mean_ms = 1e6\nwritten = \"1T\"", folder.path()) {
        let mut count = Count::default();
        let out = folder.path().join(&name);
        Course::create(&plan, &out, &Nobody).unwrap().run(&mut count).unwrap();
        assert_eq!((count.begun, count.rounds, count.left_out), (3, 18, 0), "{name}");
    }
}

#[test]
fn sequential_rounds_of_fio_go_on_where_the_last_one_ended() {
    if headpond_testkit::tool("fio").is_none() {
        skip!("sequential_rounds_of_fio_go_on_where_the_last_one_ended", "no fio");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    // 200 requests a second of 64 KiB for half a second are some 6 MiB of 64.
    let matrix = "[matrix]\nrw = [\"write\"]\nbs = [\"64K\"]\nrate = [200]\n[[beside]]\nname = \"b\"\n\
                  rw = \"randread\"\nbs = \"4K\"\n[rounds]\nwarm_up = 0\ncount = 3\nseconds = 0.5\nwindows = 5\n";
    let target = format!("file = \"{}\"\nsize = \"64M\"\nload = \"fio\"", image.display());
    let plan = plan(&target, matrix);
    let out = folder.path().join("out");
    Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
    let results = Results::read(&out).unwrap();
    let requests = |round: usize| {
        let round = &results.cells[0].rounds[round].round;
        round.jobs.iter().find(|job| job.name == "own-0").unwrap().measured.write.requests
    };
    let job = |round: usize| {
        let name = format!("raw/cell-0000-round-{round:03}.fio");
        std::fs::read_to_string(out.join(name)).unwrap()
    };
    assert!(!job(0).contains("offset="), "{}", job(0));
    let mut at = 0;
    for round in 1..3 {
        at += requests(round - 1) << 16;
        let (offset, size) = (format!("offset={at}\n"), format!("size={}\n", (64 << 20) - at));
        let text = job(round);
        assert!(at > 0 && text.contains(&offset) && text.contains(&size), "{at}: {text}");
        assert_eq!(text.matches("offset=").count(), 1, "what is random begins anywhere: {text}");
    }
}

#[test]
fn flushes_in_turn_are_those_of_fios_libaio() {
    if headpond_testkit::tool("fio").is_none() {
        skip!("flushes_in_turn_are_those_of_fios_libaio", "no fio");
    }
    let folder = tempfile::tempdir().unwrap();
    let target = format!("file = \"{}\"\nsize = \"8M\"", folder.path().join("x.img").display());
    let matrix = "[matrix]\nrw = [\"randwrite\"]\nbs = [\"4K\"]\ndepth = [4]\nsync = [\"none\", \
                  \"fdatasync\"]\nflushes = \"in-turn\"\n[rounds]\nwarm_up = 0\ncount = 1\nseconds = 0.3\n";
    let plan = plan(&target, matrix);
    let out = folder.path().join("out");
    Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
    assert_eq!(Results::read(&out).unwrap().measured().count(), 2);
    for cell in 0..2 {
        let job = out.join(format!("raw/cell-{cell:04}-round-000.fio"));
        let job = std::fs::read_to_string(job).unwrap();
        assert!(job.contains("ioengine=libaio\n"), "also without a flush, to compare: {job}");
    }
}

#[test]
fn a_run_that_is_to_end_stores_no_more_and_leaves_its_cell_open() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    let file = format!("file = \"{}\"\nsize = \"4M\"\nload = \"in-process\"", image.display());
    struct Asks(Stop);
    impl Watcher for Asks {
        fn begins(&mut self, _: &Cell) {}
        fn round(&mut self, _: &Cell, _: u32, _: &Round) {
            self.0.ask();
        }
        fn ends(&mut self, cell: &Cell, _: &Ending) {
            panic!("{cell:?} has ended");
        }
        fn prepares(&mut self, _: &str) {}
    }
    for (name, target) in [("file", file.as_str()), ("model", FLASH)] {
        let plan = plan(target, &MATRIX.replace("count = 2", "count = 5"));
        let out = folder.path().join(name);
        let mut course = Course::create(&plan, &out, &Nobody).unwrap();
        let stop = course.stop();
        let error = course.run(&mut Asks(stop)).unwrap_err();
        assert!(matches!(error, CourseError::Stopped), "{name}: {error}");
        let stored = order(&out).into_iter().filter(|line| line.0 == "round").count();
        assert_eq!(stored, 1, "{name}");
        drop(course);
        assert_eq!(Course::resume(&plan, &out, &Nobody).unwrap().left().count(), 4, "{name}");
    }
}

#[test]
fn a_file_that_is_too_short_is_refused_and_keeps_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("precious.txt");
    std::fs::write(&file, b"three letters").unwrap();
    let reads = MATRIX.replace("[\"randread\", \"randwrite\"]", "[\"randread\"]");
    let plan = plan(&format!("file = \"{}\"\nsize = \"8M\"", file.display()), &reads);
    let error = Course::create(&plan, &folder.path().join("out"), &Nobody).err().unwrap();
    assert!(error.to_string().contains("would be made longer"), "{error}");
    assert_eq!(std::fs::read(&file).unwrap(), b"three letters");
}

#[test]
fn what_is_no_block_device_is_not_taken_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x.img");
    for (is_there, says) in [(false, "No such file"), (true, "is no block device")] {
        if is_there {
            std::fs::write(&file, [0; 4096]).unwrap();
        }
        let plan = plan(&format!("device = \"{}\"", file.display()), MATRIX);
        let error = Course::create(&plan, &folder.path().join("out"), &Nobody).err().unwrap();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn jobs_beside_count_for_themselves_and_every_round_of_fio_has_addresses_of_its_own() {
    if headpond_testkit::tool("fio").is_none() {
        skip!(
            "jobs_beside_count_for_themselves_and_every_round_of_fio_has_addresses_of_its_own",
            "no fio"
        );
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    let matrix = "[matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\n[[beside]]\nname = \"global\"\n\
                  rw = \"write\"\nbs = \"64K\"\n[[beside]]\nname = \"global2\"\nrw = \"read\"\nbs = \"64K\"\n\
                  [rounds]\nwarm_up = 1\ncount = 2\nseconds = 0.3\nwindows = 3\n";
    let plan = plan(&format!("file = \"{}\"\nsize = \"16M\"", image.display()), matrix);
    let out = folder.path().join("out");
    Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
    let results = Results::read(&out).unwrap();
    let (cell, own) = results.measured().next().unwrap();
    assert!(own.read.requests > 0 && own.write.requests == 0, "{own:?}");
    let beside = cell.beside(&plan);
    assert_eq!(
        beside.iter().map(|figures| figures.job.as_str()).collect::<Vec<_>>(),
        ["global", "global2"]
    );
    let [writer, reader] = [0, 1].map(|number: usize| &beside[number].summary);
    assert!(writer.write.requests > 0 && writer.read.requests == 0);
    assert!(reader.read.requests > 0 && reader.write.requests == 0);
    assert!(beside.iter().all(|figures| figures.merits.len() == 2), "one for each round");
    let seeds = std::fs::read_dir(out.join("raw")).unwrap().filter_map(|entry| {
        let text = std::fs::read_to_string(entry.unwrap().path()).ok()?;
        text.lines().find(|line| line.starts_with("randseed=")).map(str::to_owned)
    });
    assert_eq!(seeds.collect::<std::collections::BTreeSet<_>>().len(), 3);
}

#[test]
fn a_cell_that_fails_does_not_keep_the_others_from_being_measured() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    if headpond_testkit::tool("fio").is_none() {
        skip!("a_cell_that_fails_does_not_keep_the_others_from_being_measured", "no fio");
    }
    // Direct I/O of 512 bytes at odd places works nowhere as one of 4 KiB does: a request that is
    // larger than the file fails everywhere.
    let matrix = "order = \"as-written\"\n[matrix]\nrequests = [\"randread 1M\", \"randread 4K\"]\n\
                  [rounds]\nwarm_up = 0\ncount = 1\nseconds = 0.2\nwindows = 2\n";
    let text = format!(
        "name = \"t\"\n{matrix}[[target]]\nname = \"it\"\nfile = \"{}\"\nsize = \"512K\"\n",
        image.display()
    );
    let plan = Plan::parse(&text).unwrap();
    let out = folder.path().join("out");
    Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
    let results = Results::read(&out).unwrap();
    let endings: Vec<_> = results.cells.iter().map(|cell| cell.ending.clone().unwrap()).collect();
    assert!(matches!(endings[0], Ending::Failed { .. }), "{endings:?}");
    assert_eq!(endings[1], Ending::Complete);
    let again = Course::resume(&plan, &out, &Nobody).unwrap();
    assert_eq!(again.left().count(), 1, "what failed is tried again");
}

#[test]
fn a_folder_belongs_to_one_plan_and_one_run() {
    let folder = tempfile::tempdir().unwrap();
    let first = plan(FLASH, MATRIX);
    let out = folder.path().join("out");
    let mut course = Course::create(&first, &out, &Nobody).unwrap();
    course.run(&mut Count::default()).unwrap();
    assert!(matches!(
        Course::resume(&first, &out, &Nobody).err().unwrap(),
        CourseError::Folder(FolderError::Busy { .. })
    ));
    drop(course);
    let edited = plan(
        FLASH,
        &MATRIX.replace("[\"randread\", \"randwrite\"]", "[\"randwrite\", \"randread\"]"),
    );
    std::fs::write(out.join("plan.toml"), toml::to_string(&edited).unwrap()).unwrap();
    let error = Results::read(&out).err().unwrap().to_string();
    assert!(error.contains("is not the one that was measured"), "{error}");
}
