//! `headpond status`.

mod array;
mod clients;
mod copies;

use crate::args::StatusArgs;
use anyhow::Result;
pub use array::print_array;
use array::print_devices;
use array::print_missing;
use clients::print_clients;
pub use copies::print_copies;
use headpond_api::client::Client;
use headpond_api::outcome::{Exit, told};
use headpond_api::place::Places;
use headpond_block::BLOCK_BYTES;
use headpond_daemon::loading::{Told, look, parts};
use headpond_report::{Align, Table, count, size};
use headpond_volume::{CACHE_COPIES, CoreDescription, Description, Size};
use serde_json::{Value, json};

/// Shows one volume, or a line for each.
///
/// # Errors
/// Where the volume is not known, or its daemon does not answer.
pub fn run(places: &Places, args: &StatusArgs) -> Result<Exit> {
    match &args.name {
        Some(name) => one(places, name, args.json),
        None => all(places, args.json),
    }
}

fn one(places: &Places, name: &str, as_json: bool) -> Result<Exit> {
    let status = status_of(places, name)?;
    if as_json {
        println!("{}", serde_json::to_string_pretty(&status)?);
    } else {
        print(&status);
    }
    let is_healthy = |array: &Value| matches!(array["state"].as_str(), None | Some("healthy"));
    let cores = status["cores"].as_array().into_iter().flatten();
    let copies = &status["cache"]["mirror"]["array"];
    let is_whole = cores.map(|core| &core["array"]).chain([copies]).all(is_healthy);
    // A cache full of dirty data does what it is for.
    let alerts = status["alerts"].as_array().into_iter().flatten();
    let is_well = alerts.map(|alert| &alert["kind"]).all(|kind| kind == "cache-full");
    Ok(if is_whole && is_well { Exit::Ok } else { Exit::Degraded })
}

fn all(places: &Places, as_json: bool) -> Result<Exit> {
    // One that does not answer hides no other.
    let names = places.names();
    let status = |name: &String| {
        let unknown = |error| json!({ "name": name, "error": told(&error) });
        status_of(places, name).unwrap_or_else(unknown)
    };
    let statuses: Vec<Value> = names.iter().map(status).collect();
    let is_known = |status: &Value| status["error"].is_null();
    let exit = if statuses.iter().all(is_known) { Exit::Ok } else { Exit::Error };
    if as_json {
        println!("{}", serde_json::to_string_pretty(&statuses)?);
        return Ok(exit);
    }
    if statuses.is_empty() {
        println!("no volumes; make one with `headpond create`");
        return Ok(Exit::Ok);
    }
    let columns =
        ["volume", "served", "array", "state", "cache mode"].map(|name| (name, Align::Left));
    let mut table = Table::new(columns);
    for status in statuses.iter().filter(|status| is_known(status)) {
        let is_served = status["served"].as_bool() == Some(true);
        let served = match status["loading"].is_object() {
            true => "loading",
            false if is_served => "yes",
            false => "no",
        };
        table.row([
            text(&status["name"]),
            served.to_owned(),
            format!("RAID {}", status["array"]["level"]),
            text(&status["array"]["state"]),
            text(&status["cache"]["mode"]),
        ]);
    }
    print!("{}", table.render());
    for status in statuses.iter().filter(|status| !is_known(status)) {
        println!("{}: {}", text(&status["name"]), text(&status["error"]));
    }
    Ok(exit)
}

/// From the daemon, where it runs; else what the description says.
fn status_of(places: &Places, name: &str) -> Result<Value> {
    let description = places.load(name)?;
    let client = Client::of(places, name)?;
    if client.is_served() {
        return client.get("/v1/status");
    }
    let mut status = unserved(&description);
    match look(places, name) {
        Some(told) => status["loading"] = serde_json::to_value(told)?,
        None => {
            status["alerts"] = places.refusal(name).into_iter().collect();
            if !status["cache"].is_null() {
                let dirty = places.left_dirty_bytes(name);
                status["cache"]["dirty_bytes"] = dirty.into();
                status["warnings"] = warning_of_left(name, dirty).into_iter().collect();
            }
        }
    }
    Ok(status)
}

/// What whoever would take the cache device away has to know.
fn warning_of_left(name: &str, dirty: Option<u64>) -> Option<String> {
    let write_down = format!("`headpond serve {name}` and `headpond stop {name} --flush`");
    match dirty {
        Some(0) => None,
        Some(bytes) => Some(format!(
            "the cache holds {} that the array lacks: keep the device, or {write_down} first",
            size(bytes)
        )),
        None => Some(format!(
            "the cache may hold what the array lacks: no daemon has stopped the volume; keep the \
             device, or {write_down} first"
        )),
    }
}

fn unserved(description: &Description) -> Value {
    let plain = "a description is plain data";
    let tier = description.tier.as_ref().map(|tier| serde_json::to_value(tier).expect(plain));
    let cache = description.cache.as_ref().map(|cache| serde_json::to_value(cache).expect(plain));
    let array = |core: &CoreDescription| {
        let members: Vec<_> =
            core.members.iter().map(|device| json!({ "device": device })).collect();
        json!({ "level": core.raid, "strip_bytes": core.strip.0, "members": members })
    };
    let first = json!({ "id": 1, "name": description.name, "array": array(&description.core) });
    let further = description.further_cores.iter().map(
        |further| json!({ "id": further.id, "name": further.name, "array": array(&further.core) }),
    );
    json!({
        "name": description.name,
        "uuid": description.uuid,
        "served": false,
        "slices": description.slices,
        "array": array(&description.core),
        "cores": std::iter::once(first).chain(further).collect::<Vec<_>>(),
        "tier": tier,
        "cache": cache,
    })
}

fn print(status: &Value) {
    let name = text(&status["name"]);
    let array = &status["array"];
    let members = array["members"].as_array().map_or(0, Vec::len);
    if status["served"].as_bool() != Some(true) {
        match serde_json::from_value(status["loading"].clone()) {
            Ok(told) => println!("{name}: {}", tell_loading(&told)),
            Err(_) => println!("{name}: not served; start it with `headpond serve {name}`"),
        }
        println!("  array     RAID {} of {members} members", array["level"]);
        print_devices(array);
        print_cores(status);
        print_settings(status);
        print_alerts(status);
        print_warnings(status);
        return;
    }
    println!("{name}: {}", size(status["size_bytes"].as_u64().unwrap_or(0)));
    for export in status["exports"].as_array().into_iter().flatten() {
        println!("  export    {}", text(export));
    }
    print_clients(status);
    if let Some(owner) = owner_line(&status["owner"]) {
        println!("  owner     {owner}");
    }
    print_array(array);
    print_devices(array);
    if let Some(how) = status["cores"][0]["write_hole"].as_str() {
        println!("            write hole: {how}");
    }
    print_cores(status);
    print_settings(status);
    if let Some(output) = status["recording"].as_str() {
        println!("  recording to {output}");
    }
    print_acts(status);
    print_alerts(status);
    print_warnings(status);
}

/// Who has the devices, as these tell other hosts; `None` where they tell nothing.
fn owner_line(owner: &Value) -> Option<String> {
    let (host, state) = (owner["host"].as_str()?, owner["state"].as_str()?);
    Some(match state {
        "held" => format!("{host}; heartbeat {} ms", owner["heartbeat_ms"]),
        "late" => format!("{host}, late: requests wait until its devices have been looked at"),
        _ => format!("{}, which has taken over from {host}", text(&owner["to"])),
    })
}

fn print_warnings(status: &Value) {
    for warning in status["warnings"].as_array().into_iter().flatten() {
        println!("  warning   {}", text(warning));
    }
}

/// How far a volume is that will be served when it is loaded.
fn tell_loading(told: &Told) -> String {
    let progress = told.loading.progress;
    let left = told.seconds_left().map(|left| format!(", about {left:.0} s left"));
    format!(
        "not served yet: loading, {} of {}{}{}",
        size(progress.read_bytes),
        size(progress.bytes),
        parts(&told.loading),
        left.unwrap_or_default()
    )
}

/// The cores beside the first, each in one line.
pub fn print_cores(status: &Value) {
    for core in status["cores"].as_array().into_iter().flatten().skip(1) {
        let array = &core["array"];
        let members = array["members"].as_array().map_or(0, Vec::len);
        let state = array["state"].as_str().map(|state| format!(", {state}")).unwrap_or_default();
        let bytes = core["size_bytes"].as_u64().map(|bytes| format!("{}, ", size(bytes)));
        println!(
            "  core {:<4} {}: {}RAID {} of {members} members{state}",
            core["id"].to_string(),
            text(&core["name"]),
            bytes.unwrap_or_default(),
            array["level"],
        );
        print_devices(array);
        print_missing(array);
    }
}

pub fn print_acts(status: &Value) {
    for act in status["acts"].as_array().into_iter().flatten() {
        println!("  under way {}", tell_act(act));
    }
}

/// What goes on, in words.
pub fn name_of_act(act: &Value) -> String {
    if act["core"] == CACHE_COPIES {
        return "giving a copy of the cache what it lacks".into();
    }
    let name = match act["act"].as_str() {
        Some("cleaning") => "writing what is dirty to the array",
        Some("scrubbing") => "reading all that the cache holds",
        Some("rebuild") => "giving a spare what a member holds",
        Some("stand-in") => "giving distributed spare space what a lost member held",
        Some("growth") => "moving the array's data to more members",
        Some("array-scrub") => "looking at every stripe",
        _ => "initial sync of the parity",
    };
    let core = act["core"].as_str().map(|core| format!(" of core {core}"));
    format!("{name}{}", core.unwrap_or_default())
}

/// How far it is, and how long it will take.
fn tell_act(act: &Value) -> String {
    let (done, total) = (act["done_bytes"].as_u64(), act["total_bytes"].as_u64());
    let (done, total) = (done.unwrap_or(0), total.unwrap_or(0));
    let left = act["left_s"].as_f64().map(|left| format!(", about {left:.0} s left"));
    let percent = (done * 100).checked_div(total).unwrap_or(100);
    format!(
        "{}: {percent} %, {} of {}{}",
        name_of_act(act),
        size(done),
        size(total),
        left.unwrap_or_default()
    )
}

/// What happened, what is at risk, and what to do.
fn print_alerts(status: &Value) {
    for alert in status["alerts"].as_array().into_iter().flatten() {
        println!("  alert     {}: {}", text(&alert["kind"]), text(&alert["happened"]));
        println!("            at risk: {}", text(&alert["at_risk"]["what"]));
        println!("            to do: {}", text(&alert["to_do"]));
    }
}

/// The settings of the tier, where there is one, and of the cache, each in one line, and what they
/// hold.
pub fn print_settings(status: &Value) {
    if !status["tier"].is_null() {
        print_cache("tier", &status["tier"]);
    }
    match status["cache"].is_null() {
        true => println!("  cache     none"),
        false => print_cache("cache", &status["cache"]),
    }
}

fn print_cache(place: &str, cache: &Value) {
    let draining = if cache["draining"].as_bool() == Some(true) { " (draining)" } else { "" };
    println!(
        "  {place:<9} {}: mode={}{draining} cleaning={} seq-cutoff={} promotion={} eviction={} line={}{}",
        text(&cache["device"]),
        text(&cache["mode"]),
        text(&cache["cleaning"]["policy"]),
        text(&cache["seq_cutoff"]["policy"]),
        text(&cache["promotion"]["policy"]),
        text(&cache["eviction"]),
        line(cache),
        classes(cache),
    );
    print_copies(cache);
    usage(cache).iter().for_each(|line| println!("            {line}"));
}

fn classes(cache: &Value) -> String {
    match cache["classes"].as_str() {
        None | Some("none") => String::new(),
        Some(text) if text.contains('\n') => {
            format!(" classes={} tables", text.matches("[[class]]").count())
        }
        Some(name) => format!(" classes={name}"),
    }
}

/// The length of a line: a served cache tells in bytes; a description need not say.
fn line(cache: &Value) -> String {
    match (cache["line_bytes"].as_u64(), cache["line"].as_str()) {
        (Some(bytes), _) => Size(bytes).to_string(),
        (None, Some(described)) => described.to_owned(),
        (None, None) => Size(BLOCK_BYTES).to_string(),
    }
}

/// What the cache of a served volume holds.
fn usage(cache: &Value) -> Vec<String> {
    let Some(capacity) = cache["capacity_bytes"].as_u64() else {
        let is_clean = cache["dirty_bytes"] == 0;
        return is_clean
            .then(|| "nothing dirty: the array has everything".into())
            .into_iter()
            .collect();
    };
    let bytes = |field: &str| size(cache[field].as_u64().unwrap_or(0));
    let mut lines = vec![format!(
        "{}: {} dirty of at most {} ({:.0} %), {} clean",
        size(capacity),
        bytes("dirty_bytes"),
        bytes("dirty_bytes_max"),
        cache["dirty_ratio"].as_f64().unwrap_or(0.0) * 100.0,
        bytes("clean_bytes")
    )];
    if cache["unflushed_bytes"].as_u64() > Some(0) {
        lines
            .push(format!("{} written to the array and not yet flushed", bytes("unflushed_bytes")));
    }
    let replayed = cache["replayed_blocks"].as_u64().unwrap_or(0);
    if replayed > 0 {
        lines.push(format!("{} blocks replayed and not yet cleaned", count(replayed)));
    }
    lines.extend(order(&cache["order"]));
    let slices = cache["evictions"].as_array();
    lines.extend(slices.into_iter().flatten().filter_map(eviction));
    let slices = cache["bypasses"].as_array();
    lines.extend(slices.into_iter().flatten().filter_map(bypass));
    lines
}

/// What would be left if the cache were lost, with cleaning in the order of the flushes.
fn order(order: &Value) -> Option<String> {
    let number = |field: &str| count(order[field].as_u64().unwrap_or(0));
    let what = match order["is_consistent"].as_bool()? {
        true => "a consistent past",
        false => "a mixture until more is cleaned",
    };
    let (epochs, kept) = (number("epochs_waiting"), number("kept_blocks"));
    Some(format!(
        "the array is {what}: {epochs} flushes behind, {kept} superseded blocks kept for it"
    ))
}

/// What goes to the array because that answers sooner, and by which times.
fn bypass(slice: &Value) -> Option<String> {
    if slice["policy"] != "adaptive" {
        return None;
    }
    let side = |name: &str| {
        let side = &slice[name];
        let share = side["share"].as_f64().unwrap_or(0.0) * 100.0;
        let times = side["cache_us"].as_f64().zip(side["core_us"].as_f64());
        let times =
            times.map(|(cache, core)| format!(" (cache {cache:.0} us, array {core:.0} us)"));
        format!("{share:.0} % of {name}{}", times.unwrap_or_default())
    };
    Some(format!("past the cache, of what may go: {}, {}", side("reads"), side("writes")))
}

/// Which policy `adaptive` has chosen for a slice, and why.
fn eviction(slice: &Value) -> Option<String> {
    if slice["setting"] != "adaptive" {
        return None;
    }
    let ratio = |shadow: &Value| {
        let percent = shadow["miss_ratio"].as_f64().unwrap_or(0.0) * 100.0;
        format!("{} {percent:.1} %", text(&shadow["policy"]))
    };
    let sampled: Vec<String> = slice["sampled"].as_array()?.iter().map(ratio).collect();
    let why = match sampled.is_empty() {
        true => "nothing compared yet".to_owned(),
        false => format!("of a sample would miss: {}", sampled.join(", ")),
    };
    Some(format!("evicts by {}; {why}", text(&slice["policy"])))
}

fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_that_were_replayed_are_told_until_they_are_cleaned() {
        let mut cache = json!({ "capacity_bytes": 1 << 30, "replayed_blocks": 2601 });
        assert_eq!(usage(&cache)[1], "2,601 blocks replayed and not yet cleaned");
        cache["replayed_blocks"] = 0.into();
        assert_eq!(usage(&cache).len(), 1);
        assert!(usage(&Value::Null).is_empty());
        assert_eq!(usage(&json!({ "dirty_bytes": 0 })).len(), 1, "of one that is not served");
    }

    #[test]
    fn the_owner_is_the_host_that_has_the_devices() {
        let owner = json!({ "host": "anna", "heartbeat_ms": 250, "state": "held" });
        let line = "anna; heartbeat 250 ms";
        assert_eq!(owner_line(&owner).as_deref(), Some(line));
        let lost = json!({ "host": "anna", "heartbeat_ms": 250, "state": "lost", "to": "berta" });
        let line = "berta, which has taken over from anna";
        assert_eq!(owner_line(&lost).as_deref(), Some(line));
        assert_eq!(owner_line(&Value::Null), None);
    }

    #[test]
    fn act_says_how_far_it_is_and_how_long_it_will_take() {
        let act = |left_s: Value, core: Value| {
            tell_act(&json!({
                "act": "parity", "core": core, "done_bytes": 1u64 << 30, "total_bytes": 4u64 << 30,
                "elapsed_s": 10.0, "left_s": left_s,
            }))
        };
        let text = "initial sync of the parity: 25 %, 1 GiB of 4 GiB";
        assert_eq!(act(Value::Null, Value::Null), text);
        let of_core = text.replace("parity:", "parity of core logs:");
        assert_eq!(act(30.0.into(), "logs".into()), format!("{of_core}, about 30 s left"));
    }

    #[test]
    fn cleaning_in_order_says_what_the_array_holds() {
        let told = |order| usage(&json!({ "capacity_bytes": 1 << 30, "order": order })).remove(1);
        let order = json!({ "is_consistent": true, "epochs_waiting": 3, "kept_blocks": 1200 });
        let text =
            "the array is a consistent past: 3 flushes behind, 1,200 superseded blocks kept for it";
        assert_eq!(told(order), text);
        let order = json!({ "is_consistent": false, "epochs_waiting": 0, "kept_blocks": 0 });
        assert!(told(order).starts_with("the array is a mixture until more is cleaned"));
    }

    #[test]
    fn adaptive_bypass_says_its_shares_and_the_times_that_it_goes_by() {
        let reads = json!({ "share": 0.5, "cache_us": 700.0, "core_us": 651.2 });
        let writes = json!({ "share": 0.0, "cache_us": null, "core_us": null });
        let slice = |policy| json!({ "policy": policy, "reads": reads, "writes": writes });
        let line = |policy| {
            usage(&json!({ "capacity_bytes": 1 << 30, "bypasses": [slice(policy)] }))
                .get(1)
                .cloned()
        };
        let text = "past the cache, of what may go: 50 % of reads (cache 700 us, array 651 us), \
                    0 % of writes";
        assert_eq!(line("adaptive").as_deref(), Some(text));
        assert_eq!(line("off"), None);
    }

    #[test]
    fn adaptive_eviction_says_what_it_has_chosen_and_why() {
        let sampled = json!([
            { "policy": "s3-fifo", "miss_ratio": 0.25 },
            { "policy": "lru", "miss_ratio": 0.5 },
        ]);
        let slice = |setting: &str, sampled| {
            let slice = json!({ "setting": setting, "policy": "lru", "sampled": sampled });
            usage(&json!({ "capacity_bytes": 1 << 30, "evictions": [slice] })).get(1).cloned()
        };
        let why = "evicts by lru; of a sample would miss: s3-fifo 25.0 %, lru 50.0 %";
        assert_eq!(slice("adaptive", sampled.clone()).as_deref(), Some(why));
        let why = "evicts by lru; nothing compared yet";
        assert_eq!(slice("adaptive", json!([])).as_deref(), Some(why));
        assert_eq!(slice("lru", sampled), None);
    }
}
