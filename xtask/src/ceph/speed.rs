//! 4 KiB random writes: to a volume whose cache has room, to one whose cache is full, and to a bare
//! image; where librbd has Ceph's own persistent write-back cache, to an image with that as well.
//!
//! They take turns, and each figure is the median of [`ROUNDS`].

use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};

use super::cluster::{Cluster, POOL};
use super::fio;
use super::host::Host;
use super::scenarios::Stage;

const ROUNDS: usize = 3;
const DEPTHS: [u32; 2] = [1, 32];
const IMAGE_MIB: u64 = 1024;
/// Of the burst: more than is written in one.
const CACHE_ROOM: u64 = 3 << 29;
/// Of the full one.
const CACHE_FULL: u64 = 64 << 20;
/// What a burst has to come to, over the bare image.
const BURST_MIN: f64 = 5.0;
/// Writes go where the burst's cache has room for all.
const REGION_MIB: u64 = 896;
/// Ceph's own cache is a plugin.
const PLUGIN: &str = "libceph_librbd_pwl_cache.so";
const PLUGIN_FOLDERS: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/ceph/librbd",
    "/usr/lib/aarch64-linux-gnu/ceph/librbd",
    "/usr/lib/ceph/librbd",
    "/usr/lib64/ceph/librbd",
    "/usr/local/lib/ceph/librbd",
];

/// What is measured, in the order of the table.
const WAYS: [&str; 4] = ["bare image", "cache with room", "cache full", "Ceph's own cache"];

struct Field {
    roomy: Host,
    full: Host,
    has_plugin: bool,
}

/// # Errors
/// What did not run, or is slower than it has to be.
pub fn measure(stage: &mut Stage) -> Result<Vec<String>> {
    let field = prepare(stage)?;
    let mut lines = Vec::new();
    let mut slow = Vec::new();
    for depth in DEPTHS {
        let mut rounds = vec![Vec::new(); WAYS.len()];
        for _ in 0..ROUNDS {
            for (way, figures) in rounds.iter_mut().enumerate() {
                figures.extend(run(stage, &field, way, depth)?);
            }
        }
        let medians: Vec<Option<f64>> = rounds.into_iter().map(median).collect();
        let bare = medians[0].unwrap_or(f64::INFINITY);
        for (way, figure) in WAYS.iter().zip(&medians) {
            let Some(figure) = figure else { continue };
            let ratio = figure / bare;
            lines.push(format!("{depth:>5}  {way:<18} {figure:>9.0} {ratio:>7.2}"));
        }
        let [burst, full, own] = [1, 2, 3].map(|way| medians[way]);
        let limits = [
            ("burst", burst, BURST_MIN * bare),
            ("cache full", full, bare),
            ("burst, beside Ceph's own cache", burst, own.unwrap_or(0.0)),
        ];
        slow.extend(limits.into_iter().filter_map(|(what, figure, least)| {
            let figure = figure.unwrap_or(0.0);
            let is_slow = figure < least;
            is_slow.then(|| format!("{what} at depth {depth}: {figure:.0} of {least:.0}"))
        }));
    }
    println!("depth  4 KiB random write      IOPS  over bare\n{}", lines.join("\n"));
    ensure!(slow.is_empty(), "slower than it has to be: {}", slow.join("; "));
    let lacks = format!("speed of Ceph's own cache: this librbd has no {PLUGIN}");
    Ok(if field.has_plugin { Vec::new() } else { vec![lacks] })
}

fn prepare(stage: &Stage) -> Result<Field> {
    for image in ["bare", "roomy", "full", "own"] {
        stage.cluster.create_image(image, IMAGE_MIB)?;
        // Objects that are there already: of a new image, first writes cost more.
        let total = format!("{IMAGE_MIB}M");
        let fill = ["bench", image, "--io-type", "write", "--io-size", "4M", "--io-total", &total];
        stage.cluster.run("rbd", &fill)?;
    }
    let host = |image: &str, cache_bytes| -> Result<Host> {
        let (program, folder) = (&stage.program, stage.folder.join(image));
        let conf = stage.cluster.conf();
        let mut host = Host::with_cache(program, &folder, &conf, image, cache_bytes)?;
        host.serve()?;
        Ok(host)
    };
    let (roomy, full) = (host("roomy", CACHE_ROOM)?, host("full", CACHE_FULL)?);
    let is_there = |folder: &&str| Path::new(folder).join(PLUGIN).is_file();
    let has_plugin = PLUGIN_FOLDERS.iter().any(is_there);
    // Until writes wait for the image.
    fio::iops(&mut to_volume(&full, 32), 2 * stage.seconds)?;
    Ok(Field { roomy, full, has_plugin })
}

/// One measurement; none where there is nothing to measure.
fn run(stage: &Stage, field: &Field, way: usize, depth: u32) -> Result<Option<f64>> {
    let mut load = match way {
        0 => to_image(&stage.cluster, "bare", depth),
        1 => to_volume(&field.roomy, depth),
        2 => to_volume(&field.full, depth),
        _ if !field.has_plugin => return Ok(None),
        _ => {
            let mut load = to_image(&stage.cluster, "own", depth);
            let folder = stage.folder.display();
            load.env(
                "CEPH_ARGS",
                format!(
                    "--rbd_plugins=pwl_cache --rbd_persistent_cache_mode=ssd \
                     --rbd_persistent_cache_path={folder} --rbd_persistent_cache_size=4294967296"
                ),
            );
            load
        }
    };
    // What a burst writes is cleaned before the next measurement, which takes many times as long.
    let seconds = if way == 1 { stage.seconds.div_ceil(2) } else { stage.seconds };
    let iops = fio::iops(&mut load, seconds)?;
    if way == 1 {
        // The next burst finds the cache without dirty data.
        super::host::said(&field.roomy.command(&["flush", "v"]).output()?)?;
    }
    Ok(Some(iops))
}

fn to_image(cluster: &Cluster, image: &str, depth: u32) -> Command {
    let mut load = writes(depth);
    load.args(["--ioengine=rbd", "--clientname=admin", &format!("--pool={POOL}")]);
    load.arg(format!("--rbdname={image}")).env("CEPH_CONF", cluster.conf());
    load.env("CEPH_ARGS", "--rbd_cache=false");
    load
}

fn to_volume(host: &Host, depth: u32) -> Command {
    let mut load = writes(depth);
    load.arg("--ioengine=nbd").arg(format!("--uri={}", host.export()));
    load
}

fn writes(depth: u32) -> Command {
    let mut load = Command::new("fio");
    load.args(["--rw=randwrite", "--bs=4k", &format!("--size={REGION_MIB}M")]);
    load.arg(format!("--iodepth={depth}"));
    load
}

fn median(mut figures: Vec<f64>) -> Option<f64> {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied()
}
