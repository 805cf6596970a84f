//! The model files that come with the program.

macro_rules! models {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_str!(concat!("../../models/", $name, ".toml")))),+]
    };
}

/// Names and texts, in the order in which they are listed.
pub(super) const BUILTIN: &[(&str, &str)] = models![
    "hdd-7k2-4t",
    "hdd-7k2-14t",
    "ssd-dc-s3500-80g",
    "ssd-x25m-g2-160g",
    "ssd-dc-960g",
    "ssd-consumer-250g",
    "nvme-dc-2t",
    "nvme-consumer-1t",
    "nvme-optane-375g",
    "raid-cache-1g",
    "raid-cache-512m",
    "raid-through",
    "chipset-dmi3",
    "net-10g",
    "net-1g-stalls",
    "rbd",
];
