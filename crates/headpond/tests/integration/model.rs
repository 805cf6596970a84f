//! Drive models at the command line: the catalogue, and models against measured drives.

use crate::common::User;
use headpond_sim::demerit::{MeasuredRequest, Operation, replay};
use headpond_sim::disksim::{Import, import};
use headpond_testkit::skip;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// A drive that we made up, in DiskSim's format.
fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../sim/src/disksim/fixtures")
}

/// Puts the made-up drive, with something replaced, into the user's folder.
fn put_drive(user: &User, from: &str, to: &str) {
    for name in ["small.diskspecs", "small.model", "small.parv", "small.seek"] {
        let text = std::fs::read_to_string(fixtures().join(name)).unwrap();
        std::fs::write(user.path(name), text.replace(from, to)).unwrap();
    }
}

/// What the made-up drive takes for some requests, as a trace.
fn trace_of_the_small_drive() -> String {
    let mut read = |name: &str| std::fs::read_to_string(fixtures().join(name));
    let drive = Import { file: "small.parv", disk: None };
    let model = Rc::new(import(drive, &mut read).unwrap().model);
    let request = |index: u64| MeasuredRequest {
        operation: if index.is_multiple_of(3) { Operation::Write } else { Operation::Read },
        first_sector: index * 7919 % 16_000,
        sectors: 1 + index % 20,
        pause: Duration::from_micros(500 + index * 977 % 40_000),
    };
    let requests: Vec<MeasuredRequest> = (0..600).map(request).collect();
    let service_ms = replay(&model, requests.iter().copied()).unwrap();
    let mut text = String::new();
    for (request, ms) in requests.iter().zip(service_ms) {
        let operation = if request.operation == Operation::Read { "R" } else { "W" };
        let MeasuredRequest { first_sector, sectors, pause, .. } = request;
        let (service, pause) = (ms * 1e3, pause.as_nanos() as f64 / 1e3);
        writeln!(text, "{operation} Hit {first_sector} {sectors} {service:.3} {pause:.3}").unwrap();
    }
    text
}

#[test]
fn a_drive_that_is_the_model_has_no_demerit_and_another_one_has() {
    let user = User::new();
    put_drive(&user, "", "");
    std::fs::write(user.path("small.trace"), trace_of_the_small_drive()).unwrap();
    let demerit = |drive: &str| {
        let (drive, trace) = (user.path(drive), user.path("small.trace"));
        let (drive, trace) = (drive.display().to_string(), trace.display().to_string());
        let args = ["model", "demerit", "--drive", &drive, "--trace", &trace, "--json"];
        let report = user.json(&args);
        assert_eq!(report["all"]["requests"], 600);
        assert_eq!(report["writes"]["requests"], 200);
        report["all"]["demerit_ms"].as_f64().unwrap()
    };
    // Any of the files leads to the others.
    for file in ["small.diskspecs", "small.model", "small.parv"] {
        assert!(demerit(file) < 1e-5, "{file}: {}", demerit(file));
    }
    put_drive(&user, "Rotation speed (in rpms) = 6000", "Rotation speed (in rpms) = 5400");
    assert!(demerit("small.diskspecs") > 0.3, "{}", demerit("small.diskspecs"));
}

#[test]
fn a_rejected_file_is_reported_by_line_and_field() {
    let user = User::new();
    put_drive(&user, "dm_layout_g1 {", "dm_layout_g4 {");
    std::fs::write(user.path("small.trace"), "R Hit 0 1 100.0 100.0\nR Hit 0 one 1.0 1.0\n")
        .unwrap();
    let demerit = |drive: &str| {
        let (drive, trace) = (user.path(drive), user.path("small.trace"));
        let (drive, trace) = (drive.display().to_string(), trace.display().to_string());
        user.run(&["model", "demerit", "--drive", &drive, "--trace", &trace])
    };
    let refused = demerit("small.diskspecs");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("small.model:5: Layout Model: dm_layout_g4"), "{}", refused.err);
    put_drive(&user, "", "");
    let refused = demerit("small.parv");
    assert_eq!(refused.code, 1);
    assert!(refused.err.contains("small.trace:2: count one"), "{}", refused.err);
    assert!(demerit("none.parv").err.contains("none.parv"));
}

#[test]
fn the_catalogue_lists_models_and_shows_their_sources() {
    let user = User::new();
    assert!(user.ok(&["model", "list"]).contains("hdd-7k2-4t"));
    let models = user.json(&["model", "list", "--json"]);
    let names: Vec<&str> =
        models.as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap()).collect();
    for name in names {
        let text = user.ok(&["model", "show", name]);
        assert!(text.contains(&format!("name = {name:?}")), "{text}");
        assert!(text.contains("[G]"), "sources are named");
    }
    let unknown = user.run(&["model", "show", "nothing"]);
    assert_eq!(unknown.code, 2);
    assert!(unknown.err.contains("hdd-7k2-4t"), "{}", unknown.err);
}

#[test]
fn a_file_of_the_users_is_taken_where_a_model_is_named() {
    let user = User::new();
    let file = user.path("mine.toml");
    let text = user.ok(&["model", "show", "hdd-7k2-4t"]);
    std::fs::write(&file, text.replace("rpm = 7200 ", "rpm = 5400 ")).unwrap();
    let file = file.to_str().unwrap();
    assert!(user.ok(&["model", "show", file]).contains("rpm = 5400"));
    let stack = user.path("stack.toml");
    let machine = format!("name = \"own\"\n[core]\nraid = 0\ndrive = {file:?}\ndrives = 2\n");
    std::fs::write(&stack, machine).unwrap();
    let load = ["--rw", "randread", "--runtime", "5", "--json"];
    let outcome = user.json(&[&["simulate", stack.to_str().unwrap()], &load[..]].concat());
    assert!(outcome[0]["jobs"][0]["measured"]["read"]["iops"].as_f64().unwrap() > 10.0);
    std::fs::write(file, text.replace("rpm = 7200 ", "rpm = 7 ")).unwrap();
    let wrong = user.run(&["model", "show", file]);
    assert_eq!(wrong.code, 2);
    let line = 1 + text.lines().position(|line| line.starts_with("rpm")).unwrap();
    let says = format!("mine.toml: line {line}: geometry.rpm = 7 is not between 100 and 100,000");
    assert!(wrong.err.contains(&says), "{}", wrong.err);
    let missing = user.run(&["model", "show", "./nowhere.toml"]);
    assert!(missing.err.contains("nowhere.toml"), "{}", missing.err);
}

#[test]
fn a_model_is_fitted_to_a_device_and_taken_where_models_are_named() {
    let user = User::new();
    let (device, model) = (user.path("device.img"), user.path("fitted.toml"));
    std::fs::write(&device, vec![0x5a; 96 << 20]).unwrap();
    let (device, model) = (device.to_str().unwrap(), model.to_str().unwrap());
    let fit = ["model", "fit", "--device", device, "--kind", "ssd", "-o", model];
    let report = user.json(&[&fit[..], &["--json"]].concat());
    assert_eq!(report["measured"]["size_bytes"], 96 << 20);
    assert!(report["measured"]["read_s"].as_f64().unwrap() > 0.0);
    assert!(std::fs::read(device).unwrap().iter().all(|byte| *byte == 0x5a), "only read");
    let stack = user.path("stack.toml");
    let machine = format!("name = \"own\"\n[core]\nraid = 0\ndrive = {model:?}\ndrives = 2\n");
    std::fs::write(&stack, machine).unwrap();
    let load = ["--rw", "randread", "--runtime", "1", "--json"];
    let outcome = user.json(&[&["simulate", stack.to_str().unwrap()], &load[..]].concat());
    let iops = outcome[0]["jobs"][0]["measured"]["read"]["iops"].as_f64().unwrap();
    let measured = 1.0 / report["measured"]["read_s"].as_f64().unwrap();
    assert!((0.5..2.0).contains(&(iops / measured)), "{iops} {measured}");
}

#[test]
fn a_device_with_contents_is_not_measured_destructively() {
    let user = User::new();
    let device = user.path("swap.img");
    let mut contents = vec![0u8; 64 << 20];
    contents[4086..4096].copy_from_slice(b"SWAPSPACE2");
    std::fs::write(&device, &contents).unwrap();
    let fit = ["model", "fit", "--device", device.to_str().unwrap(), "--kind", "ssd"];
    let refused = user.run(&[&fit[..], &["--destructive"]].concat());
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("swap"), "{}", refused.err);
    assert!(std::fs::read(&device).unwrap() == contents, "untouched");
    let forced = user.json(&[&fit[..], &["--destructive", "--force", "--json"]].concat());
    assert!(forced["measured"]["writes"]["sustained_mb_per_s"].as_f64().unwrap() > 0.0);
}

/// The drives of DiskSim's validation, and its own demerit in microseconds. The collection lacks
/// their measured seek curves, so this also depends on how missing curves are made up for.
const MEASURED: [(&str, u32); 4] =
    [("atlas_III", 378), ("cheetah4LP", 318), ("ibm18es", 135), ("hp_c2490a", 254)];

#[test]
fn measured_drives_are_met_within_twice_the_demerit_of_disksim() {
    let user = User::new();
    for (name, disksim_us) in MEASURED {
        let disksim_ms = f64::from(disksim_us) / 1e3;
        let folder = "traces/disksim-valid";
        let drive = headpond_testkit::shared(format!("{folder}/{name}.diskspecs"));
        let trace = headpond_testkit::shared(format!("{folder}/{name}.trace.zst"));
        let (Some(drive), Some(trace)) = (drive, trace) else {
            skip!("drives of DiskSim's validation", "{folder}/{name} is not in the collection");
        };
        let (drive, trace) = (drive.display().to_string(), trace.display().to_string());
        let args = ["model", "demerit", "--drive", &drive, "--trace", &trace, "--json"];
        let report = user.json(&args);
        assert!(report["all"]["requests"].as_u64().unwrap() > 9000);
        let demerit_ms = report["all"]["demerit_ms"].as_f64().unwrap();
        println!("{name}: {demerit_ms:.3} ms, DiskSim {disksim_ms} ms");
        assert!(demerit_ms <= 2.0 * disksim_ms, "{name}: {demerit_ms:.3} ms");
    }
}
