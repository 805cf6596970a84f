//! A slice on simulated devices: what it does while it serves, when a device fails, and what is
//! left after power cuts.

mod admission;
mod bench;
mod bypass;
mod checkpoints;
mod checksums;
mod classes;
mod cleaning;
mod copies;
mod core_flushes;
mod crash;
mod damage;
mod disowned;
mod eviction;
mod faults;
mod hunted;
mod lines;
mod lost;
mod machine;
mod ordered;
mod ordered_lives;
mod parts;
mod payload_free;
mod read_ahead;
mod recovery;
mod replayed;
mod samples;
mod scale;
mod scattered;
mod scrub;
mod semantics;
mod serving;
mod statistics;
#[path = "../../src/eviction/twins.rs"]
mod twins;
mod verify_contents;
mod wear;
