//! Exports, whose devices are made here: what a course asks of them, and what it makes of their
//! answers.

use super::*;
use crate::environment::Connected;
use headpond_block::sync::Semaphore;
use headpond_block::{
    BlockDevice, DeviceName, Geometry, LocalFuture, Request, RequestKind, Runtime, Submission,
};
use headpond_uring::{FileDevice, FileOptions, Ring};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

/// A server whose only export is a file.
struct Server {
    file: PathBuf,
    takes_discards: bool,
    /// By each request; they are answered one after the other.
    takes: Duration,
    /// What was asked of it: kind, and whether it was to be stable at once.
    asked: Arc<Mutex<Vec<(RequestKind, bool)>>>,
    /// Where whoever asked could run.
    asked_on: Arc<Mutex<BTreeSet<usize>>>,
}

impl Server {
    fn new(folder: &Path, bytes: usize) -> Self {
        let file = folder.join("export.img");
        std::fs::write(&file, vec![1; bytes]).unwrap();
        let (asked, asked_on) = (Arc::default(), Arc::default());
        Self { file, takes_discards: true, takes: Duration::ZERO, asked, asked_on }
    }

    fn count(&self, kind: RequestKind, is_fua: bool) -> usize {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|it| **it == (kind, is_fua)).count()
    }
}

impl Surroundings for Server {
    fn export_of(&self, volume: &str) -> Result<String, String> {
        Ok(format!("nbd://{volume}"))
    }

    fn connect<'a>(
        &'a self,
        export: &'a str,
        ring: &'a Ring,
        runtime: &'a Runtime,
    ) -> LocalFuture<'a, Result<Connected, String>> {
        Box::pin(async move {
            assert_eq!(export, "nbd://here");
            let file = FileDevice::open(ring, &FileOptions::new(&self.file)).unwrap();
            let (one, asked) = (Semaphore::new(1), Arc::clone(&self.asked));
            let (runtime, takes) = (runtime.clone(), self.takes);
            let asked_on = Arc::clone(&self.asked_on);
            let device = Rc::new(Told { file, runtime, one, takes, asked, asked_on });
            Ok(Connected { device, takes_discards: self.takes_discards })
        })
    }

    fn setting_of(&self, _: &str, name: &str) -> Result<String, String> {
        Err(format!("there is no {name}"))
    }

    fn set(&self, _: &str, name: &str, _: &str) -> Result<(), String> {
        Err(format!("there is no {name}"))
    }
}

/// Tells of each request, and answers one after the other.
struct Told {
    file: FileDevice,
    runtime: Runtime,
    one: Semaphore,
    takes: Duration,
    asked: Arc<Mutex<Vec<(RequestKind, bool)>>>,
    asked_on: Arc<Mutex<BTreeSet<usize>>>,
}

/// Where this thread may run.
fn processors() -> BTreeSet<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..rustix::thread::CpuSet::MAX_CPU).filter(|&it| set.is_set(it)).collect()
}

impl BlockDevice for Told {
    fn name(&self) -> &DeviceName {
        self.file.name()
    }

    fn geometry(&self) -> &Geometry {
        self.file.geometry()
    }

    fn submit(&self, request: Request) -> Submission<'_> {
        self.asked.lock().unwrap().push((request.kind, request.is_fua()));
        self.asked_on.lock().unwrap().extend(processors());
        Submission::pending(async move {
            let _turn = self.one.acquire(1).await;
            self.runtime.sleep(self.takes).await;
            self.file.submit(request).await
        })
    }
}

/// Carries a plan out on an export, or a volume, of a server.
fn measured(server: &Server, folder: &Path, target: &str, rest: &str) -> Results {
    let plan = plan(target, rest);
    let out = folder.join("out");
    Course::create(&plan, &out, server).unwrap().run(&mut Count::default()).unwrap();
    Results::read(&out).unwrap()
}

#[test]
fn exports_and_volumes_are_measured_in_process_where_the_plan_says_so() {
    for target in ["export = \"nbd://here\"", "volume = \"here\""] {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::new(folder.path(), 4 << 20);
        let target = format!("{target}\nload = \"in-process\"");
        let matrix = MATRIX.replace("depth", "sync = [\"fua\"]\ndepth");
        let results = measured(&server, folder.path(), &target, &matrix);
        assert_eq!(results.measured().count(), 4, "{target}");
        // On a busy machine a stable write may take longer than one of these rounds.
        let requests = results.measured().map(|(_, summary)| summary.all.requests);
        assert!(requests.sum::<u64>() > 0, "{target}");
        assert!(results.measured().all(|(_, summary)| summary.errors == 0), "{target}");
        let stable = server.count(RequestKind::Write, true);
        assert!(stable > 0 && server.count(RequestKind::Write, false) == 0, "{target}");
        let raw = folder.path().join("out/raw").read_dir().unwrap();
        assert_eq!(raw.count(), 0, "fio was not there");
    }
}

#[test]
fn load_of_our_own_is_bound_to_the_processors_that_the_plan_names_and_only_while_it_lasts() {
    let before = processors();
    let (Some(last), true) = (before.last(), before.len() > 1) else {
        skip!(
            "load_of_our_own_is_bound_to_the_processors_that_the_plan_names_and_only_while_it_lasts",
            "one processor"
        );
    };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::new(folder.path(), 4 << 20);
    let target = format!("export = \"nbd://here\"\nload = \"in-process\"\ncpus = \"{last}\"");
    let results = measured(&server, folder.path(), &target, MATRIX);
    assert_eq!(*server.asked_on.lock().unwrap(), BTreeSet::from([*last]));
    assert_eq!(results.environment.targets[0].cpus, Some(last.to_string()));
    assert_eq!(processors(), before);
    let nowhere = target.replace(&format!("cpus = \"{last}\""), "cpus = \"1023\"");
    let plan = plan(&nowhere, MATRIX);
    let mut course = Course::create(&plan, &folder.path().join("two"), &server).unwrap();
    let error = course.run(&mut Count::default()).unwrap_err().to_string();
    assert!(error.contains("cannot be bound to the processors 1023"), "{error}");
}

/// Requests that come faster than they are answered wait longer and longer. All that is compared
/// follows from that they are answered one after the other, however fast the machine is.
#[test]
fn at_a_rate_of_its_own_what_waits_before_it_is_answered_waits_in_the_latency() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::new(folder.path(), 4 << 20);
    server.takes = Duration::from_millis(5);
    let matrix = "arrivals = \"fixed\"\n[matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\n\
                  rate = [1000]\n[rounds]\nwarm_up = 0\ncount = 1\nseconds = 0.5\nwindows = 5\n";
    let text =
        format!("name = \"t\"\n{matrix}[[target]]\nname = \"it\"\nexport = \"nbd://here\"\n");
    let plan = Plan::parse(&text).unwrap();
    let out = folder.path().join("out");
    Course::create(&plan, &out, &server).unwrap().run(&mut Count::default()).unwrap();
    let results = Results::read(&out).unwrap();
    let (_, summary) = results.measured().next().unwrap();
    // The n-th was due after n milliseconds, and answered after 5 n or later.
    let answered = summary.read.requests as f64;
    assert!(answered > 0.0, "{:?}", summary.read);
    assert!(summary.read.max >= answered * 4.0, "{answered}: {:?}", summary.read);
    assert!(summary.read.mean >= answered * 2.0, "{answered}: {:?}", summary.read);
}

#[test]
fn a_rate_is_kept_by_this_program_unless_the_plan_wants_fio_for_it() {
    let rate = MATRIX.replace("depth = [1, 4]", "rate = [100]");
    for (load, is_own) in [("", true), ("load = \"in-process\"", true), ("load = \"fio\"", false)] {
        for place in ["device = \"/dev/x\"", "export = \"nbd://here\"", "volume = \"here\""] {
            let target = format!("{place}\n{load}");
            let with_rate = plan(&target, &rate);
            assert_eq!(with_rate.targets[0].is_in_process(&with_rate.matrix), is_own, "{target}");
            let without = plan(&target, MATRIX);
            let is_own = load.contains("in-process");
            assert_eq!(without.targets[0].is_in_process(&without.matrix), is_own, "{target}");
        }
    }
}

const PURGE: &str = "[precondition]\npurge = true\n";

#[test]
fn an_export_is_purged_where_its_server_takes_discards_and_refused_where_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Server::new(folder.path(), 4 << 20);
    let target = "export = \"nbd://here\"\nload = \"in-process\"";
    let reads = MATRIX.replace("[\"randread\", \"randwrite\"]", "[\"randread\"]");
    measured(&server, folder.path(), target, &format!("{reads}{PURGE}"));
    assert_eq!(server.count(RequestKind::Discard, false), 1);
    assert!(std::fs::read(&server.file).unwrap().iter().all(|&byte| byte == 0));
    server.takes_discards = false;
    let plan = plan(target, &format!("{reads}{PURGE}"));
    let mut course = Course::create(&plan, &folder.path().join("two"), &server).unwrap();
    let error = course.run(&mut Count::default()).unwrap_err().to_string();
    assert!(error.contains("takes no discards") && error.contains("leave `purge` out"), "{error}");
}

#[test]
fn a_purge_leaves_holes_in_a_file_and_fills_write_it_so_many_times() {
    use std::os::unix::fs::MetadataExt;
    if headpond_testkit::tool("fio").is_none() {
        skip!("a_purge_leaves_holes_in_a_file_and_fills_write_it_so_many_times", "no fio");
    }
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("x.img");
    std::fs::write(&image, vec![1; 8 << 20]).unwrap();
    let target = format!("file = \"{}\"\nsize = \"8M\"\nload = \"in-process\"", image.display());
    let reads = MATRIX.replace("[\"randread\", \"randwrite\"]", "[\"randread\"]");
    for (number, (precondition, has_data)) in
        [(PURGE.to_owned(), false), (format!("{PURGE}fills = 2\nfill_bs = \"64K\"\n"), true)]
            .into_iter()
            .enumerate()
    {
        let plan = plan(&target, &format!("{reads}{precondition}"));
        let out = folder.path().join(number.to_string());
        Course::create(&plan, &out, &Nobody).unwrap().run(&mut Count::default()).unwrap();
        let meta = image.metadata().unwrap();
        assert_eq!(meta.len(), 8 << 20);
        assert_eq!(meta.blocks() * 512 >= 8 << 20, has_data, "{} blocks", meta.blocks());
    }
    let said = std::fs::read_to_string(folder.path().join("1/raw/fill-it.json")).unwrap();
    let said: serde_json::Value = serde_json::from_str(&said[said.find('{').unwrap()..]).unwrap();
    let write = &said["jobs"][0]["write"];
    assert_eq!(
        (write["io_bytes"].as_u64(), write["total_ios"].as_u64()),
        (Some(16 << 20), Some(256))
    );
    let image = std::fs::read(&image).unwrap();
    let blocks: BTreeSet<_> = image.chunks(4096).collect();
    assert_eq!(blocks.len(), 2048, "what was written can neither be compressed nor shared");
}
