//! `headpond label show`.

use super::ShowArgs;
use crate::commands::probe::describe;
use crate::device::labels::{self, Found, Label};
use crate::telling::{print_json, word};
use anyhow::Result;
use headpond_api::answers::Versioned;
use headpond_api::outcome::Exit;
use headpond_api::place::Places;
use headpond_cache::Superblock as CacheSuperblock;
use headpond_raid::superblock::Superblock;
use headpond_report::size;
use headpond_volume::RecordedOwner;
use serde_json::{Value, json};
use std::path::Path;

/// # Errors
/// Where the device cannot be read.
pub fn run(places: &Places, args: &ShowArgs) -> Result<Exit> {
    let Found { label, owners } = labels::read(Path::new(&args.device))?;
    let volume = label.as_ref().and_then(|label| label.volume(places));
    if args.json {
        let document = json!({
            "device": args.device,
            "label": label.as_ref().map(document),
            "volume": volume,
            "owners": owners,
        });
        print_json(&Versioned::new(document))?;
        return Ok(Exit::Ok);
    }
    let Some(label) = label else {
        println!("{}: no label of Headpond", args.device);
        return Ok(Exit::Ok);
    };
    println!("{}: {}", args.device, describe(&label, volume.as_deref()));
    match &label {
        Label::Member(superblock) => print_member(superblock),
        Label::CacheCopy(superblock, cache) => {
            print_member(superblock);
            print_cache(cache);
        }
        Label::Cache(cache) => print_cache(cache),
        Label::Journal { .. } | Label::Unusable { .. } => {}
    }
    owners.iter().for_each(print_owner);
    Ok(Exit::Ok)
}

fn print_member(superblock: &Superblock) {
    let array = &superblock.array;
    println!("  device    {}, superblock written {} times", superblock.member_uuid, {
        superblock.sequence
    });
    println!(
        "  array     {}, {} members, strips of {}, data from byte {}",
        array.level,
        array.roles.len(),
        size(array.strip_bytes.into()),
        array.data_offset
    );
    for (role, record) in array.roles.iter().enumerate() {
        println!("  role {role:<4} {} {}", record.member_uuid, word(record.state));
    }
    array.spares.iter().for_each(|spare| println!("  spare     {}", spare.member_uuid));
    if let Some(owner) = array.owner {
        println!("  cache     {owner}, generation {}", array.owner_generation);
    }
    if let Some(journal) = &array.journal {
        println!("  journal   {}", journal.uuid);
    }
}

fn print_cache(cache: &CacheSuperblock) {
    println!("  cache     {}, generation {}", cache.cache, cache.generation);
    println!(
        "            {} in {} slices, lines of {}, for {} of core {}",
        size(cache.device_bytes),
        cache.slices.len(),
        size(cache.line_bytes.into()),
        size(cache.core_bytes),
        cache.core
    );
}

fn print_owner(owner: &RecordedOwner) {
    let state = if owner.is_held { "not stopped there" } else { "stopped" };
    println!("  owner     {} of volume {}: {state}", owner.host, owner.volume);
}

fn document(label: &Label) -> Value {
    let mut document = match label {
        Label::Member(superblock) => json!({ "member": member(superblock) }),
        Label::CacheCopy(superblock, found) => {
            json!({ "member": member(superblock), "cache": cache(found) })
        }
        Label::Cache(found) => json!({ "cache": cache(found) }),
        Label::Journal { array } => json!({ "journal": { "array": array } }),
        Label::Unusable { cause, .. } => json!({ "unusable": cause }),
    };
    document["type"] = label.kind().type_name().into();
    document
}

fn member(superblock: &Superblock) -> Value {
    let array = &superblock.array;
    let roles: Vec<Value> = array
        .roles
        .iter()
        .map(|role| json!({ "uuid": role.member_uuid, "state": role.state }))
        .collect();
    let spares: Vec<_> = array.spares.iter().map(|spare| spare.member_uuid).collect();
    json!({
        "uuid": superblock.member_uuid,
        "role": superblock.role.map(|role| role.0),
        "sequence": superblock.sequence,
        "array": {
            "uuid": array.uuid,
            "name": array.name,
            "level": array.level,
            "event_count": array.event_count,
            "strip_bytes": array.strip_bytes,
            "data_offset": array.data_offset,
            "roles": roles,
            "spares": spares,
            "cache": array.owner,
            "cache_generation": array.owner_generation,
            "journal": array.journal.as_ref().map(|journal| journal.uuid),
        },
    })
}

fn cache(cache: &CacheSuperblock) -> Value {
    json!({
        "uuid": cache.cache,
        "volume": cache.volume,
        "core": cache.core,
        "generation": cache.generation,
        "device_bytes": cache.device_bytes,
        "core_bytes": cache.core_bytes,
        "line_bytes": cache.line_bytes,
        "slices": cache.slices.len(),
    })
}
