//! LVM's caches: dm-cache where reads are to be answered, dm-writecache where writes alone matter.

use super::Cache;
use super::dm_writecache::{self, Writeback};
use super::fit::Fit;
use super::script::Script;
use super::wanted::{Named, Wanted};
use headpond_cache::{CleaningPolicy, CutoffPolicy, Mode};
use headpond_volume::Size;

pub(super) struct Lvmcache;

const CHUNK_STEP_BYTES: u64 = 32 << 10;
const CHUNK_BYTES_MAX: u64 = 1 << 30;
/// As lvm.conf has it: allocation/cache_pool_max_chunks.
const CHUNKS_MAX: u64 = 1_000_000;
/// A cache that answers fewer of all requests, as reads, is for its writes.
const READS_MIN: f64 = 0.1;

impl Cache for Lvmcache {
    fn name(&self) -> &'static str {
        "lvmcache"
    }

    fn fit(&self, setting: &Named, wanted: &Wanted) -> Option<Fit> {
        match is_for_writes(wanted) {
            true if setting.key == "line" => dm_writecache::DmWritecache.fit(setting, wanted),
            true => dm_writecache::fit(setting, wanted),
            false => dm_cache_fit(setting, wanted),
        }
    }

    fn write(&self, wanted: &Wanted, script: &mut Script) {
        if !wanted.has_cache {
            return;
        }
        script.needs_cache_device(wanted);
        script.needs("VOLUME_GROUP", "the volume group of the slow logical volume");
        script.needs("LOGICAL_VOLUME", "the slow logical volume, with its data");
        script.run("pvcreate \"$CACHE_DEVICE\"");
        script.run("vgextend \"$VOLUME_GROUP\" \"$CACHE_DEVICE\"");
        let size = lvm_size(wanted.cache_bytes);
        script.note(
            "As much as the figures are of; on a device of just this size a little less fits.",
        );
        script.run(format!(
            "lvcreate --name \"${{LOGICAL_VOLUME}}_fast\" --size {size} \"$VOLUME_GROUP\" \
             \"$CACHE_DEVICE\""
        ));
        let how = match is_for_writes(wanted) {
            true => writecache(wanted),
            false => dm_cache(wanted, script),
        };
        script.run(format!(
            "lvconvert {how} --cachevol \"${{LOGICAL_VOLUME}}_fast\" \
             \"$VOLUME_GROUP/$LOGICAL_VOLUME\""
        ));
    }
}

/// Whether dm-writecache comes nearer: dm-cache takes in what was asked for often, be it read or
/// written, and leaves other writes to the slow device.
fn is_for_writes(wanted: &Wanted) -> bool {
    let mode = wanted.mode();
    mode == Mode::WriteOnly || (mode == Mode::WriteBack && wanted.reads_answered < READS_MIN)
}

fn writecache(wanted: &Wanted) -> String {
    let settings = Writeback::of(&wanted.cache.cleaning).parameters("=");
    format!("--type writecache --cachesettings 'block_size=4096 {settings}'")
}

fn dm_cache(wanted: &Wanted, script: &mut Script) -> String {
    let mode = if wanted.mode().is_write_back() { "writeback" } else { "writethrough" };
    let chunk = chunk_bytes(wanted);
    if chunk > wanted.line.bytes() {
        script.note(&format!(
            "Chunks are multiples of 32 KiB, and {CHUNKS_MAX} at most, unless lvm.conf says otherwise."
        ));
    }
    let kib = chunk >> 10;
    format!("--type cache --cachemode {mode} --cachepolicy smq --chunksize {kib}k")
}

fn chunk_bytes(wanted: &Wanted) -> u64 {
    let least = wanted.cache_bytes.div_ceil(CHUNKS_MAX);
    let bytes = wanted.line.bytes().max(least).next_multiple_of(CHUNK_STEP_BYTES);
    bytes.min(CHUNK_BYTES_MAX)
}

/// LVM's small letters are powers of 1024.
fn lvm_size(bytes: u64) -> String {
    let size = Size(bytes).to_string().to_ascii_lowercase();
    match size.ends_with(|unit: char| unit.is_ascii_digit()) {
        true => size + "b",
        false => size,
    }
}

fn dm_cache_fit(setting: &Named, wanted: &Wanted) -> Option<Fit> {
    let cutoff = wanted.cache.seq_cutoff.policy;
    match (setting.key.as_str(), setting.root()) {
        ("mode", _) => mode_fit(wanted.mode()),
        ("cleaning" | "preset", _) => match wanted.cache.cleaning.policy {
            CleaningPolicy::Nop => Fit::not("smq writes back what is dirty when there is time"),
            _ => Fit::nearly("smq writes back what is dirty when there is time; nothing is set"),
        },
        ("line", _) if chunk_bytes(wanted) == wanted.line.bytes() => Fit::same("as --chunksize"),
        ("line", _) => Fit::nearly("--chunksize; longer than the line"),
        ("promotion", _) if setting.value == "always" => {
            Fit::not("smq takes in what it finds busy, in its own time")
        }
        ("promotion", _) => Fit::nearly("smq takes in what it finds busy; nothing is set"),
        ("eviction", _) => Fit::not("smq alone"),
        ("seq-cutoff", _) if cutoff == CutoffPolicy::Never => Fit::same("smq looks at no streams"),
        ("seq-cutoff", _) => Fit::not("smq looks at no streams"),
        _ => None,
    }
}

fn mode_fit(mode: Mode) -> Option<Fit> {
    match mode {
        Mode::WriteBack => Fit::nearly("writeback: a write whose chunk is not cached goes past it"),
        Mode::WriteThrough => {
            Fit::nearly("writethrough: a write whose chunk is not cached goes past the cache")
        }
        Mode::WriteAround => Fit::nearly("writethrough: what is written often is taken in, too"),
        Mode::WriteInvalidate => {
            Fit::nearly("writethrough: what is cached and written is kept up to date, and stays")
        }
        Mode::WriteOnly => Fit::same("as --type writecache"),
        Mode::PassThrough => Fit::same("no cache is attached"),
    }
}
