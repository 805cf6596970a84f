//! `headpond lab` on what is served: several volumes at once, exports, and what it leaves when it
//! is killed.

use crate::common;
use crate::common::{User, running_in};
use headpond_testkit::skip;
use serde_json::Value;
use std::time::Duration;

const MIB: u64 = 1 << 20;

fn write(user: &User, name: &str, text: &str) -> String {
    let path = user.path(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn environment(user: &User, out: &str) -> Value {
    let text = std::fs::read_to_string(user.path(out).join("environment.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A served volume of four members without a cache.
fn array(user: &User, name: &str) -> common::Daemon {
    let member = |number: usize| user.file(&format!("{name}-{number}.img"), 16 * MIB);
    let members: Vec<_> = (0..4).map(member).collect();
    let words = ["create", name, "--raid", "5"].map(str::to_owned);
    user.ok(&[&words[..], &members[..]].concat());
    user.serve(name)
}

#[test]
fn served_volumes_are_loaded_at_once_and_rated_against_what_such_arrays_are_expected_to_do() {
    let user = User::new();
    let daemons = ["one", "two", "three"].map(|name| array(&user, name));
    let mut loads = vec!["in-process"];
    match headpond_testkit::tool("fio") {
        Some(_) => loads.push("fio"),
        None => println!("without fio only by this program"),
    }
    for load in loads {
        let text = format!(
            "name = \"at once\"\n[[target]]\nname = \"r5\"\nvolume = \"one\"\nalike = [\"two\", \"three\"]\n\
             load = \"{load}\"\narray = {{ raid = 5, drives = 4, drive = \"hdd-7k2-14t\" }}\n\
             [matrix]\nrequests = [\"randread 4K 1x4/drive\", \"write 1M 1x4\"]\nsize = \"16M\"\n\
             settings = {{ arrays = [1, 2, 3] }}\n\
             [rounds]\nwarm_up = 0\ncount = 2\nseconds = 0.4\nwindows = 4\n[[answer]]\nkind = \"rating\"\n"
        );
        let plan = write(&user, &format!("{load}.toml"), &text);
        let out = format!("out-{load}");
        let run = ["lab", "run", &plan, "--out", &out, "--json"];
        let refused = user.run(&[&run[..], &["--overwrite", "one", "--overwrite", "two"]].concat());
        assert!(refused.code == 4 && refused.err.contains("--overwrite three"), "{}", refused.err);
        let allowed = ["one", "two", "three"].map(|name| ["--overwrite", name]).concat();
        let json = user.json(&[&run[..], &allowed].concat());
        let cells = json["cells"].as_array().unwrap();
        assert_eq!(cells.len(), 6, "{load}");
        for cell in cells {
            assert_eq!(cell["summary"]["errors"], 0, "{load}: {cell}");
        }
        let rated = json["answers"][0]["facts"]["cells"].as_array().unwrap();
        assert_eq!(rated.len(), 6, "{load}: {rated:?}");
        for cell in rated {
            let marks = ["++", "+", "+/-", "-", "--", "---"];
            assert!(marks.contains(&cell["mark"].as_str().unwrap()), "{load}: {cell}");
        }
        // What is measured is that of each of them.
        let of = |arrays: u64| {
            let is_it = |it: &&Value| it["arrays"] == arrays && it["unit"] == "IOPS";
            let rated = rated.iter().find(is_it).unwrap();
            let number = rated["cell"].as_u64().unwrap();
            let cell = cells.iter().find(|cell| cell["cell"] == number).unwrap();
            let all = cell["summary"]["iops"]["median"].as_f64().unwrap();
            all / rated["measured"].as_f64().unwrap()
        };
        assert_eq!([of(1), of(2), of(3)].map(|share| share.round()), [1.0, 2.0, 3.0], "{load}");
        let target = &environment(&user, &out)["targets"][0];
        let others = target["alike"].as_array().unwrap();
        assert_eq!(others.len(), 2, "{target}");
        assert!(others[1]["parts"][0]["place"].as_str().unwrap().contains("three-0.img"));
    }
    drop(daemons);
}

#[test]
fn targets_of_one_name_at_the_command_line_are_loaded_at_once() {
    let user = User::new();
    let files = ["a.img", "b.img"].map(|name| user.file(name, 8 * MIB));
    let targets = files.each_ref().map(|file| ["--target".to_owned(), format!("r={file}:8M")]);
    let words = ["lab", "check", "array", "--json"].map(str::to_owned);
    let array = ["--array", "{ raid = 0, drives = 2, drive = \"hdd-7k2-14t\" }"].map(str::to_owned);
    let json = user.json(&[&words[..], &targets.concat(), &array].concat());
    // Four requests, on one of them and on both.
    assert_eq!(json["cells"], 8, "{json}");
    assert_eq!(json["targets"][0]["alike"].as_array().unwrap().len(), 1, "{json}");
    assert_eq!(json["overwrites"].as_array().unwrap().len(), 2, "{json}");
    let sizes = [&words[..2], &["array".into(), "--target".into(), format!("r={}:8M", files[0])]];
    let other = ["--target".to_owned(), format!("r={}:4M", files[1])];
    let refused = user.run(&[&sizes.concat()[..], &other].concat());
    assert!(refused.code == 2 && refused.err.contains("of one kind"), "{}", refused.err);
}

#[test]
fn of_an_export_its_servers_word_is_kept_and_of_an_own_volume_its_settings_too() {
    let user = User::new();
    let daemon = array(&user, "own");
    let uri = user.uri("own");
    let text = format!(
        "name = \"export\"\n[[target]]\nname = \"it\"\nexport = \"{uri}\"\nload = \"in-process\"\n\
         [matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\n\
         [rounds]\nwarm_up = 0\ncount = 1\nseconds = 0.2\nwindows = 2\n"
    );
    let page = user.path("page.html").display().to_string();
    user.ok(&["lab", "run", &write(&user, "p.toml", &text), "--out", "out", "--html", &page]);
    let target = &environment(&user, "out")["targets"][0];
    let export = &target["export"];
    let size = user.status("own").size_bytes;
    assert!(size.is_some() && export["size_bytes"].as_u64() == size, "{export} and {size:?}");
    assert_eq!(export["volume"], "own", "{export}");
    let flags = export["flags"].as_array().unwrap();
    for flag in ["SEND_FLUSH", "SEND_FUA"] {
        assert!(flags.iter().any(|it| it == flag), "{flag}: {export}");
    }
    assert_eq!(target["parts"].as_array().unwrap().len(), 4, "{target}");
    assert!(!target["settings"].as_array().unwrap().is_empty(), "{target}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("the volume own of this machine"), "the page tells of it");
    drop(daemon);
}

#[test]
fn a_run_that_is_killed_takes_fio_with_it() {
    if headpond_testkit::tool("fio").is_none() {
        skip!("a_run_that_is_killed_takes_fio_with_it", "no fio");
    }
    let user = User::new();
    let text = "name = \"long\"\n[[target]]\nname = \"it\"\nfile = \"x.img\"\nsize = \"8M\"\n\
                load = \"fio\"\n[matrix]\nrw = [\"randread\"]\nbs = [\"4K\"]\njobs = [2]\n\
                [rounds]\nwarm_up = 0\ncount = 1\nseconds = 3600\n";
    let plan = write(&user, "plan.toml", text);
    let mut run = user.start(&["lab", "run", &plan, "--out", "out"]);
    let raw = std::fs::canonicalize(user.path("")).unwrap().join("out/raw");
    while running_in(&raw).is_empty() {
        assert!(run.try_wait().unwrap().is_none(), "it ended before it was to");
        std::thread::sleep(Duration::from_millis(20));
    }
    run.kill().unwrap();
    run.wait().unwrap();
    // They would go on for an hour.
    while !running_in(&raw).is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
}
