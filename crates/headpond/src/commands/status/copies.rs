//! The copies of a cache in `headpond status`.

use super::array::print_missing;
use super::text;
use headpond_report::size;
use serde_json::Value;

/// Which devices a cache lies on, where they are copies of each other, and what is not as it should
/// be.
pub fn print_copies(cache: &Value) {
    if let Some(line) = tell_copies(cache) {
        println!("            {line}");
        print_missing(&cache["mirror"]["array"]);
    }
}

fn tell_copies(cache: &Value) -> Option<String> {
    let mirror = &cache["mirror"];
    if let Some(others) = mirror["copies"].as_array() {
        let all = std::iter::once(&cache["device"]).chain(others).map(text);
        return Some(format!("copies: {}", all.collect::<Vec<_>>().join(", ")));
    }
    let members = mirror["array"]["members"].as_array()?;
    let active = members.iter().filter(|member| member["state"] == "active");
    let names: Vec<String> = active.map(|member| text(&member["device"])).collect();
    let risk = match mirror["at_risk_bytes"].as_u64() {
        Some(0) | None => "no single one of them holds what nobody else has".to_owned(),
        Some(bytes) => format!("{} that the array lacks would go with the last one", size(bytes)),
    };
    let (all, state) = (members.len(), text(&mirror["array"]["state"]));
    Some(format!("{} of {all} copies in use, {state}: {}; {risk}", names.len(), names.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn served(second: &str, at_risk: u64) -> String {
        let member = |device, state| json!({ "device": device, "state": state });
        let members = [member("/a", "active"), member("/b", second)];
        let array = json!({ "state": "healthy", "members": members });
        let mirror = json!({ "array": array, "at_risk_bytes": at_risk });
        tell_copies(&json!({ "mirror": mirror })).unwrap()
    }

    #[test]
    fn copies_say_which_are_in_use_and_what_would_go_with_the_last_one() {
        let told = served("active", 0);
        assert!(told.starts_with("2 of 2 copies in use, healthy: /a, /b; no single one"), "{told}");
        let told = served("failed", 1 << 20);
        assert!(told.ends_with(": /a; 1 MiB that the array lacks would go with the last one"));
    }

    #[test]
    fn copies_that_are_not_served_are_named_and_a_single_device_is_none() {
        let mirror = json!({ "uuid": "x", "copies": ["/b"] });
        let told = tell_copies(&json!({ "device": "/a", "mirror": mirror }));
        assert_eq!(told.as_deref(), Some("copies: /a, /b"));
        assert_eq!(tell_copies(&json!({ "device": "/a" })), None);
    }
}
