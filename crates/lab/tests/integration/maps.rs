//! What a map of several arrays looks like.

use crate::carried_out::carried_out_plan;
use headpond_lab::Plan;

#[test]
fn a_map_of_several_arrays_is_a_sheet_for_each_of_them_by_name() {
    let plan = r#"
        name = "two arrays"
        [[target]]
        name = "slow"
        [target.machine]
        core = { raid = 0, drives = 1, drive = "hdd-7k2-4t" }
        cache = { size = "64M", mode = "pass-through" }
        [[target]]
        name = "fast"
        [target.machine]
        core = { raid = 0, drives = 1, drive = "nvme-dc-2t" }
        cache = { size = "64M", mode = "pass-through" }
        [matrix]
        rw = ["randwrite"]
        bs = ["4K"]
        depth = [1]
        settings = { "cache.mode" = ["pass-through", "write-back"] }
        [rounds_on_models]
        warm_up = 0
        count = 1
        seconds = 0.1
        [[answer]]
        kind = "map"
        axis = "cache.mode"
        without = "pass-through"
        with = "write-back"
    "#;
    let (_, answers) = carried_out_plan(Plan::parse(plan).unwrap());
    let titles: Vec<_> = answers[0].grids.iter().map(|(title, _)| title.as_str()).collect();
    assert_eq!(titles.len(), 2, "{titles:?}");
    assert!(titles[0].starts_with("slow, randwrite: "), "{titles:?}");
    assert!(titles[1].starts_with("fast, randwrite: "), "{titles:?}");
    let cells = answers[0].facts["cells"].as_array().unwrap();
    let gain = |of: &str| {
        let cell = cells.iter().find(|cell| cell["of"] == of).unwrap();
        cell["gain"].as_f64().unwrap()
    };
    // Both fill the cache's log in 7 ms. Then a disk lets nothing in any more, and flash two thirds
    // of what the cache would take.
    assert!(gain("slow") > 5.0 && gain("slow") > 2.0 * gain("fast"), "{cells:?}");
}
