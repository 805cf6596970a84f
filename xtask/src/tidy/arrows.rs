//! Which crate may depend on which: the arrows of ARCHITECTURE.md, which point down only.
//!
//! Normal dependencies only; tests may use the simulator and each other's crates.

use super::Offence;
use crate::metadata::{Metadata, Package};

/// What a crate of ours may use, and why not more.
struct Arrow {
    from: &'static str,
    to: &'static [&'static str],
    why: &'static str,
}

const fn arrow(from: &'static str, to: &'static [&'static str], why: &'static str) -> Arrow {
    Arrow { from, to, why }
}

const TABLE: [Arrow; 23] = [
    arrow("headpond-block", &[], "the one seam knows nobody above it"),
    arrow("headpond-uring", BLOCK, "a runtime serves whatever is built on the seam"),
    arrow(
        "headpond-drive",
        &["headpond-uring"],
        "it asks a drive what it is, by what the runtime reads of it already, and stores nothing",
    ),
    arrow("headpond-sim", BLOCK, "a runtime serves whatever is built on the seam"),
    arrow(
        "headpond-raid",
        BLOCK,
        "the array sees devices, not the cache above or the runtime below",
    ),
    arrow("headpond-cache", BLOCK, "the cache sees devices, not the array or the runtime below"),
    arrow("headpond-rbd", BLOCK, "images of Ceph are devices on any runtime"),
    arrow("headpond-nbd", BLOCK, "the protocol serves any device on any runtime"),
    arrow(
        "headpond-trace",
        BLOCK,
        "a capture is a decorator; the data path never calls the readers",
    ),
    arrow("headpond-witness", BLOCK, "an oracle does not share the code that it judges"),
    arrow(
        "headpond-ublk",
        &["headpond-block", "headpond-uring"],
        "the driver's queues are on the runtime's ring, and serve any device",
    ),
    arrow(
        "headpond-volume",
        &["headpond-block", "headpond-cache", "headpond-raid"],
        "a volume is assembled from devices it is given, on either runtime",
    ),
    arrow(
        "headpond-advise",
        &[
            "headpond-block",
            "headpond-volume",
            "headpond-cache",
            "headpond-sim",
            "headpond-whatif",
            "headpond-trace",
            "headpond-report",
        ],
        "advice comes from records and models, never from real devices or clients",
    ),
    arrow(
        "headpond-whatif",
        &[
            "headpond-block",
            "headpond-volume",
            "headpond-cache",
            "headpond-raid",
            "headpond-sim",
            "headpond-trace",
        ],
        "experiments run on volumes, whatever their devices are, and advise nobody",
    ),
    arrow("headpond-report", &[], "it shows what others found out, and finds out nothing"),
    arrow(
        "headpond-lab",
        &[
            "headpond-block",
            "headpond-drive",
            "headpond-raid",
            "headpond-report",
            "headpond-sim",
            "headpond-uring",
            "headpond-volume",
            "headpond-whatif",
        ],
        "it measures what is in front of it, and serves nothing",
    ),
    arrow(
        "headpond-swarm",
        &[
            "headpond-block",
            "headpond-volume",
            "headpond-cache",
            "headpond-raid",
            "headpond-sim",
            "headpond-witness",
        ],
        "the judge sees volumes on simulated disks, and nothing that serves or measures them",
    ),
    arrow(
        "headpond-api",
        &["headpond-block", "headpond-cache", "headpond-raid", "headpond-volume"],
        "who asks a daemon needs to know its words and nothing of how it serves",
    ),
    arrow(
        "headpond-daemon",
        &[
            "headpond-api",
            "headpond-block",
            "headpond-cache",
            "headpond-nbd",
            "headpond-raid",
            "headpond-rbd",
            "headpond-sim",
            "headpond-trace",
            "headpond-ublk",
            "headpond-uring",
            "headpond-volume",
            "headpond-whatif",
        ],
        "it serves one volume, whatever command line or unit started it, and advises nobody",
    ),
    arrow(
        "headpond",
        &[
            "headpond-api",
            "headpond-block",
            "headpond-daemon",
            "headpond-uring",
            "headpond-sim",
            "headpond-raid",
            "headpond-cache",
            "headpond-volume",
            "headpond-nbd",
            "headpond-trace",
            "headpond-ublk",
            "headpond-advise",
            "headpond-whatif",
            "headpond-witness",
            "headpond-report",
            "headpond-lab",
            "headpond-drive",
            "headpond-rbd",
        ],
        "the binary joins everything but the test tools",
    ),
    arrow(
        "headpond-fuzz",
        &[
            "headpond-block",
            "headpond-cache",
            "headpond-nbd",
            "headpond-raid",
            "headpond-sim",
            "headpond-trace",
            "headpond-witness",
        ],
        "hostile bytes go to what decodes, and to nothing above it",
    ),
    arrow("headpond-testkit", &[], "every crate's tests use it, so it uses none of them"),
    arrow("xtask", &[], "the chores build even when the product does not"),
];

const BLOCK: &[&str] = &["headpond-block"];

/// Crates that only one member may use, because below it they would break a promise.
const RESERVED: [(&str, &[&str], &str); 2] = [
    (
        "tokio",
        &["headpond", "headpond-api", "headpond-daemon"],
        "an executor of its own; the data path runs on ours",
    ),
    ("io-uring", &["headpond-uring"], "the kernel is reached through the uring runtime only"),
];

/// Every dependency between members that the table does not allow.
pub fn check(metadata: &Metadata) -> Vec<Offence> {
    let ours: Vec<&str> = metadata.members().map(|package| package.name.as_str()).collect();
    metadata.members().flat_map(|package| package_offences(package, &ours)).collect()
}

fn package_offences(package: &Package, ours: &[&str]) -> Vec<Offence> {
    let Some(arrow) = TABLE.iter().find(|arrow| arrow.from == package.name) else {
        return vec![Offence::new(&package.name, "is not in the table of arrows")];
    };
    let mut offences = Vec::new();
    for dependency in package.dependencies.iter().filter(|d| d.kind.is_none()) {
        let to = dependency.name.as_str();
        if ours.contains(&to) && !arrow.to.contains(&to) {
            offences.push(offence(&package.name, to, arrow.why));
        }
        for (_, users, why) in RESERVED.iter().filter(|(name, ..)| *name == to) {
            if !users.contains(&package.name.as_str()) {
                offences.push(offence(&package.name, to, why));
            }
        }
    }
    offences
}

fn offence(from: &str, to: &str, why: &str) -> Offence {
    Offence::new(from, format!("must not depend on {to}: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metadata::samples::workspace;

    #[test]
    fn arrows_that_point_down_are_allowed() {
        let metadata = workspace(&[
            ("headpond-block", &[]),
            ("headpond-raid", &["headpond-block", "thiserror"]),
            ("headpond", &["headpond-raid", "tokio"]),
        ]);
        assert_eq!(check(&metadata), []);
    }

    #[test]
    fn the_cache_cannot_see_the_array() {
        let metadata = workspace(&[("headpond-raid", &[]), ("headpond-cache", &["headpond-raid"])]);
        assert_eq!(check(&metadata).len(), 1);
    }

    #[test]
    fn a_crate_without_an_arrow_is_an_offence() {
        assert_eq!(check(&workspace(&[("headpond-novelty", &[])])).len(), 1);
    }

    #[test]
    fn a_foreign_executor_below_the_binary_is_an_offence() {
        assert_eq!(check(&workspace(&[("headpond-nbd", &["tokio"])])).len(), 1);
    }

    #[test]
    fn nobody_ships_the_testkit() {
        let metadata = workspace(&[("headpond-testkit", &[]), ("headpond", &["headpond-testkit"])]);
        assert_eq!(check(&metadata).len(), 1);
    }

    #[test]
    fn tests_may_use_more_than_the_crate() {
        let mut metadata =
            workspace(&[("headpond-sim", &[]), ("headpond-cache", &["headpond-sim"])]);
        metadata.packages[1].dependencies[0].kind = Some("dev".to_owned());
        assert_eq!(check(&metadata), []);
    }

    #[test]
    fn every_arrow_names_a_crate_of_the_table_and_none_points_back() {
        for arrow in &TABLE {
            for to in arrow.to {
                let target = TABLE.iter().find(|other| other.from == *to).unwrap();
                assert!(!target.to.contains(&arrow.from), "{} <-> {to}", arrow.from);
            }
        }
    }
}
