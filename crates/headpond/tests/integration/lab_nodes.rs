//! `headpond lab` in a virtual machine of two NUMA nodes, with a disk on a bus of neither and one
//! on that of the second.

use crate::common::User;
use crate::common::machine::{Parts, Steps};
use headpond_testkit::skip;
use std::time::Duration;

const MIB: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(240);

/// Boots a machine of two nodes, a processor on each. The bus of the second disk is on node 1.
fn run(parts: &Parts) -> Steps {
    let user = User::new();
    parts.run(&user, "node_steps.sh", "1G", PATIENCE, |command| {
        command.args(["-smp", "2"]);
        for node in 0..2 {
            command.args(["-object", &format!("memory-backend-ram,id=m{node},size=512M")]);
            command.args(["-numa", &format!("node,cpus={node},memdev=m{node}")]);
            let file = user.file(&format!("{node}.img"), 16 * MIB);
            command.args(["-blockdev", &format!("driver=file,node-name=n{node},filename={file}")]);
        }
        command.args(["-device", "pxb,id=far,bus_nr=128,bus=pci.0,numa_node=1"]);
        command.args(["-device", "pci-bridge,id=bridge,bus=far,chassis_nr=1"]);
        command.args(["-device", "virtio-blk-pci,drive=n0,bus=pci.0"]);
        command.args(["-device", "virtio-blk-pci,drive=n1,bus=bridge,addr=1"]);
    })
}

/// The threads of a run: what each may run on, and where its memory comes from.
fn threads<'a>(steps: &'a Steps, step: &str) -> Vec<&'a str> {
    steps.ended(step, 0).lines().map(str::trim).filter(|line| !line.is_empty()).collect()
}

#[test]
fn load_runs_on_the_node_of_its_disk_with_memory_from_there_unless_the_plan_says_otherwise() {
    let name =
        "load_runs_on_the_node_of_its_disk_with_memory_from_there_unless_the_plan_says_otherwise";
    let parts = match Parts::of("drive-vm", &[]) {
        Ok(parts) => parts,
        Err(lacks) => skip!(name, "{lacks}"),
    };
    let steps = run(&parts);
    assert_eq!(steps.json("vdb shown")["kernel"]["numa_node"]["value"], 1);
    let bound = threads(&steps, "vdb bound");
    assert!(bound.contains(&"1 bind:1"), "the processor and the memory of node 1: {bound:?}");
    let target = &steps.json("vdb told")["targets"][0];
    assert_eq!((&target["node"], &target["cpus"]), (&1.into(), &"1".into()), "{target:#}");
    assert_eq!(target["memory_node"], 1, "{target:#}");
    // A disk of no node leaves the load where it is, and so does a plan that says so.
    for step in ["vda bound", "free bound"] {
        let free = threads(&steps, step);
        assert!(!free.is_empty() && free.iter().all(|it| *it == "0-1 default"), "{step}: {free:?}");
    }
    assert!(steps.json("vda told")["targets"][0]["cpus"].is_null());
    let said = threads(&steps, "said bound");
    assert!(said.contains(&"0 bind:0"), "as the plan says: {said:?}");
}
