//! What the parsers say beside what the file systems' own tools say.

use super::ranges::Ranges;
use super::*;
use headpond_testkit::{skip, tempdir, tool};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

const MIB: u64 = 1 << 20;

/// What a program prints.
fn output_of(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program:?} {args:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// An image that a program has made, in memory.
fn image(program: &Path, size_bytes: u64, args: &[&str]) -> (tempfile::TempDir, String, Vec<u8>) {
    let folder = tempdir();
    let path = folder.path().join("image").display().to_string();
    std::fs::File::create(&path).unwrap().set_len(size_bytes).unwrap();
    output_of(program, &[args, &[&path]].concat());
    let bytes = std::fs::read(&path).unwrap();
    (folder, path, bytes)
}

fn ext4_of(bytes: &[u8]) -> (ext4::Ext4, Ranges) {
    let place = ByteRange::at(0, bytes.len() as u64);
    let Some(FileSystem::Ext4(found)) = FileSystem::recognise(bytes, place) else {
        panic!("no ext4 was found");
    };
    let cut = |range: ByteRange| bytes[range.start() as usize..range.end() as usize].to_vec();
    let descriptors: Vec<u8> = found.descriptor_places().into_iter().flat_map(cut).collect();
    let ranges = Ranges::of(found.metadata(&descriptors));
    (found, ranges)
}

/// Every block that a line of dumpe2fs names behind "at".
fn blocks_named(text: &str) -> BTreeSet<u64> {
    blocks_behind(" at ", text)
}

/// The blocks of the journal, as debugfs tells.
fn blocks_of_journal(debugfs: &Path, path: &str) -> BTreeSet<u64> {
    let text = output_of(debugfs, &["-R", "stat <8>", path]);
    blocks_behind(":", text.split_once("EXTENTS:").map_or("", |(_, extents)| extents))
}

/// Single blocks and ranges, each directly behind such a mark.
fn blocks_behind(mark: &str, text: &str) -> BTreeSet<u64> {
    let mut blocks = BTreeSet::new();
    for place in text.split(mark).skip(1) {
        let word: String =
            place.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '-').collect();
        let (first, last) = word.split_once('-').unwrap_or((&word, &word));
        if let (Ok(first), Ok(last)) = (first.parse::<u64>(), last.parse::<u64>()) {
            blocks.extend(first..=last);
        }
    }
    blocks
}

fn compare_ext4(size_bytes: u64, block_bytes: u64, args: &[&str]) {
    let tools = (tool("mkfs.ext4"), tool("dumpe2fs"), tool("debugfs"));
    let (Some(mkfs), Some(dumpe2fs), Some(debugfs)) = tools else {
        skip!("ext4's metadata is what dumpe2fs says", "e2fsprogs is not installed");
    };
    let size = block_bytes.to_string();
    let (_folder, path, bytes) =
        image(&mkfs, size_bytes, &[&["-q", "-F", "-b", &size], args].concat());
    let (found, ranges) = ext4_of(&bytes);
    let mut expected = blocks_named(&output_of(&dumpe2fs, &[&path]));
    let journal = blocks_of_journal(&debugfs, &path);
    assert!(journal.len() as u64 * block_bytes >= MIB, "a journal: {journal:?}");
    expected.extend(journal);
    assert!(found.groups() > 3, "{args:?}: more than one group");
    for block in 0..size_bytes / block_bytes {
        let range = ByteRange::at(block * block_bytes, block_bytes);
        // The boot block is ours as well; nothing else is there.
        let is_expected = expected.contains(&block) || block * block_bytes < 2048;
        assert_eq!(ranges.contains(range), is_expected, "{args:?}: block {block}");
    }
}

#[test]
fn ext4s_metadata_is_what_dumpe2fs_says() {
    compare_ext4(640 * MIB, 4096, &[]);
    compare_ext4(64 * MIB, 1024, &["-O", "^flex_bg"]);
    compare_ext4(64 * MIB, 1024, &["-O", "^64bit,^sparse_super,^resize_inode"]);
    compare_ext4(64 * MIB, 1024, &["-O", "sparse_super2,^resize_inode"]);
    compare_ext4(160 * MIB, 1024, &["-O", "meta_bg,^resize_inode"]);
    compare_ext4(640 * MIB, 4096, &["-N", "500000", "-I", "512"]);
}

/// One number of `xfs_db`'s superblock.
fn xfs_number(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} = ")));
    line.unwrap_or_else(|| panic!("{name} in {text}")).trim().parse().unwrap()
}

fn compare_xfs(size_bytes: u64, args: &[&str]) {
    let (Some(mkfs), Some(xfs_db)) = (tool("mkfs.xfs"), tool("xfs_db")) else {
        skip!("XFS's metadata is what xfs_db says", "xfsprogs is not installed");
    };
    let (_folder, path, bytes) = image(&mkfs, size_bytes, &[&["-q", "-f"], args].concat());
    let Some(FileSystem::Xfs(xfs)) = FileSystem::recognise(&bytes, ByteRange::at(0, size_bytes))
    else {
        panic!("no XFS was found");
    };
    let superblock = output_of(&xfs_db, &["-r", "-c", "sb 0", "-c", "p", &path]);
    let number = |name: &str| xfs_number(&superblock, name);
    let journal_start: u64 = {
        let convert = format!("convert fsblock {} byte", number("logstart"));
        let text = output_of(&xfs_db, &["-r", "-c", &convert, &path]);
        let word = text.split(['(', ')', ' ', '\n']).find_map(|word| word.parse().ok());
        word.unwrap_or_else(|| panic!("a byte in {text}"))
    };
    let (block, sector) = (number("blocksize"), number("sectsize"));
    let mut expected: Vec<ByteRange> = (0..number("agcount"))
        .map(|group| ByteRange::at(group * number("agblocks") * block, 4 * sector))
        .collect();
    expected.push(ByteRange::at(journal_start, number("logblocks") * block));
    assert_eq!(Ranges::of(xfs.metadata()), Ranges::of(expected), "{superblock}");
    // What mkfs wrote outside of that is the root's inodes and the roots of trees.
    let fixed = Ranges::of(xfs.metadata());
    let mut seen = 0;
    for at in (0..size_bytes).step_by(block as usize) {
        let here = &bytes[at as usize..(at + block) as usize];
        if here.iter().any(|byte| *byte != 0) && !fixed.touches(ByteRange::at(at, block)) {
            assert!(xfs.is_metadata(at, here), "at {at}: {:?}", &here[..16]);
            seen += 1;
        }
    }
    assert!(seen > 8, "{seen} blocks");
    let data = vec![0x41; 4096];
    assert!(!xfs.is_metadata(64 * MIB, &data));
}

#[test]
fn xfss_metadata_is_what_xfs_db_says() {
    compare_xfs(320 * MIB, &[]);
    compare_xfs(320 * MIB, &["-m", "crc=0"]);
    compare_xfs(512 * MIB, &["-d", "agcount=7", "-s", "size=4096", "-b", "size=4096"]);
}

#[test]
fn a_file_system_within_a_partition_is_found() {
    let Some(mkfs) = tool("mkfs.ext4") else {
        skip!("a_file_system_within_a_partition_is_found", "mkfs.ext4 is not installed");
    };
    let (_folder, _, inner) = image(&mkfs, 16 * MIB, &["-q", "-F"]);
    let mut disk = vec![0; MIB as usize];
    disk.extend_from_slice(&inner);
    let table = |disk: &[u8]| partitions::partitions(&disk[..17_408], disk.len() as u64);
    assert_eq!(table(&disk), []);
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[446 + 4] = 0x83;
    disk[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    disk[446 + 12..446 + 16].copy_from_slice(&(16 * 2048u32).to_le_bytes());
    let place = ByteRange::at(MIB, 16 * MIB);
    assert_eq!(table(&disk), [place]);
    disk[446 + 4] = 0xee;
    disk[512..520].copy_from_slice(b"EFI PART");
    disk[512 + 72..512 + 80].copy_from_slice(&2u64.to_le_bytes());
    disk[512 + 80..512 + 84].copy_from_slice(&128u32.to_le_bytes());
    disk[512 + 84..512 + 88].copy_from_slice(&128u32.to_le_bytes());
    disk[1024..1040].fill(7);
    disk[1024 + 32..1024 + 40].copy_from_slice(&2048u64.to_le_bytes());
    disk[1024 + 40..1024 + 48].copy_from_slice(&(17 * 2048 - 1u64).to_le_bytes());
    assert_eq!(table(&disk), [place]);
    let Some(FileSystem::Ext4(found)) = FileSystem::recognise(&disk[MIB as usize..], place) else {
        panic!("no ext4 was found");
    };
    assert_eq!(found.place(), place);
    assert!(found.metadata(&[]).iter().all(|range| place.contains(*range)));
}

#[test]
fn a_recogniser_follows_a_volume_that_is_formatted() {
    use headpond_block::devices::RamDevice;
    use headpond_block::{BlockDevice, Buffer, Request};
    use std::rc::Rc;
    use std::time::Duration;
    let Some(mkfs) = tool("mkfs.ext4") else {
        skip!("a_recogniser_follows_a_volume_that_is_formatted", "mkfs.ext4 is not installed");
    };
    let (_folder, _, bytes) = image(&mkfs, 64 * MIB, &["-q", "-F"]);
    headpond_sim::run(1, |runtime, _| async move {
        let device: Rc<dyn BlockDevice> = Rc::new(RamDevice::new("volume", 64 * MIB));
        let recogniser = Recogniser::new(runtime.clone(), Rc::clone(&device));
        recogniser.look().await;
        assert_eq!(recogniser.found(), []);
        let superblock = Request::write(1024, Buffer::from_slice(&bytes[1024..2048]));
        assert!(!recogniser.is_metadata(&superblock) && recogniser.is_watched(superblock.range));
        device.write(0, Buffer::from_slice(&bytes)).await.unwrap();
        recogniser.look_again_later();
        runtime.sleep(Duration::from_secs(2)).await;
        let found = recogniser.found();
        assert_eq!((&*found[0].kind, found[0].size_bytes), ("ext4", 64 * MIB));
        assert!(found[0].metadata_bytes > MIB, "{found:?}");
        assert!(recogniser.is_metadata(&superblock));
        let data = Request::read(40 * MIB, Buffer::zeroed(4096));
        assert!(!recogniser.is_metadata(&data));
        runtime.sleep(Duration::from_secs(20)).await;
    })
    .expect("no deadlock");
}

#[test]
fn a_recogniser_that_rests_reads_nothing_and_goes_on_afterwards() {
    use headpond_block::decorators::{Limits, ProbeDevice, ThrottleDevice};
    use headpond_block::devices::RamDevice;
    use std::rc::Rc;
    use std::time::Duration;
    headpond_sim::run(1, |runtime, _| async move {
        let limits = Limits { latency: Duration::from_secs(1), ..Limits::default() };
        let slow = ThrottleDevice::new(Rc::new(RamDevice::new("v", MIB)), runtime.clone(), limits);
        let probe = Rc::new(ProbeDevice::new(Rc::new(slow), runtime.clone()));
        let recogniser = Recogniser::new(runtime.clone(), probe.clone());
        let reads = || probe.snapshot().reads.requests;
        recogniser.look_now();
        runtime.sleep(Duration::from_millis(500)).await;
        assert_eq!(reads(), 0, "the first is on its way");
        let rest = recogniser.rest().await;
        assert_eq!(reads(), 1);
        runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(reads(), 1);
        drop(rest);
        runtime.sleep(Duration::from_secs(5)).await;
        assert_eq!(reads(), 2, "the table, and the head of the only place");
    })
    .expect("no deadlock");
}

#[test]
fn a_request_to_an_inode_table_is_of_the_class_for_metadata() {
    use crate::assembly::slicing::Slicing;
    use crate::serving::dispatcher::RequestDispatcher;
    use crate::{CacheSettings, ClassSetting};
    use headpond_block::devices::RamDevice;
    use headpond_block::{BlockDevice, Buffer, Geometry, Request};
    use std::rc::Rc;
    let Some(mkfs) = tool("mkfs.ext4") else {
        skip!("a_request_to_an_inode_table_is_of_the_class_for_metadata", "no mkfs.ext4");
    };
    let (_folder, _, bytes) = image(&mkfs, 64 * MIB, &["-q", "-F"]);
    let (_, ranges) = ext4_of(&bytes);
    headpond_sim::run(1, |runtime, _| async move {
        let parts: Vec<Rc<dyn BlockDevice>> = (0..3)
            .map(|_| Rc::new(RamDevice::new("slice", 64 * MIB)) as Rc<dyn BlockDevice>)
            .collect();
        let (slicing, geometry) = (Slicing::new(3, 64 << 10), Geometry::of_size(64 * MIB));
        let dispatcher = RequestDispatcher::new("v".into(), geometry, slicing, parts);
        (&dispatcher as &dyn BlockDevice).write(0, Buffer::from_slice(&bytes)).await.unwrap();
        let classes = ClassSetting::Lustre;
        dispatcher.set(&CacheSettings { classes, ..CacheSettings::default() });
        let [recogniser] = &dispatcher.recognise(&runtime)[..] else { panic!("one core") };
        recogniser.look().await;
        assert!(dispatcher.recognise(&runtime).is_empty(), "one for each core");
        let class = |start: u64, len: u64| {
            dispatcher.class_of(Request::read(start, Buffer::zeroed(len as usize)))
        };
        let table = ranges.iter().max_by_key(|range| range.len()).unwrap();
        assert!(table.len() > 256 << 10, "{table:?}");
        assert_eq!(class(table.start(), table.len()), 1, "whatever its size");
        assert_eq!(class(table.start(), table.len() + 4096), 0, "and nothing that only touches it");
        assert_eq!(class(40 * MIB, 4096), 2);
    })
    .expect("no deadlock");
}

/// A superblock of XFS with the fields that count, version 5.
fn small_xfs() -> Vec<u8> {
    let mut head = vec![0; 4096];
    head[..4].copy_from_slice(b"XFSB");
    head[4..8].copy_from_slice(&4096u32.to_be_bytes());
    head[8..16].copy_from_slice(&1000u64.to_be_bytes());
    head[0x30..0x38].copy_from_slice(&(1u64 << 8 | 20).to_be_bytes());
    head[0x54..0x58].copy_from_slice(&250u32.to_be_bytes());
    head[0x58..0x5c].copy_from_slice(&4u32.to_be_bytes());
    head[0x60..0x64].copy_from_slice(&64u32.to_be_bytes());
    head[0x64..0x66].copy_from_slice(&0xb4a5u16.to_be_bytes());
    head[0x66..0x68].copy_from_slice(&512u16.to_be_bytes());
    head[0x7c] = 8;
    head
}

#[test]
fn xfss_groups_and_journal_follow_from_its_superblock() {
    let place = ByteRange::at(MIB, 1000 * 4096);
    let Some(FileSystem::Xfs(xfs)) = FileSystem::recognise(&small_xfs(), place) else {
        panic!("no XFS was found");
    };
    let mut expected: Vec<ByteRange> =
        (0..4).map(|group| ByteRange::at(MIB + group * 250 * 4096, 2048)).collect();
    expected.push(ByteRange::at(MIB + 270 * 4096, 64 * 4096));
    assert_eq!(Ranges::of(xfs.metadata()), Ranges::of(expected));
    let mut block = vec![0; 4096];
    block[..4].copy_from_slice(b"XDB3");
    assert!(!xfs.is_metadata(MIB + 8192, &block), "it says that it lies elsewhere");
    block[8..16].copy_from_slice(&16u64.to_be_bytes());
    assert!(xfs.is_metadata(MIB + 8192, &block));
}

proptest! {
    #[test]
    fn no_bytes_make_a_parser_panic_or_leave_the_partition(
        mut bytes in prop::collection::vec(any::<u8>(), 4096..5000),
        changes in prop::collection::vec((0usize..4096, any::<u8>()), 0..8),
        kind in 0u8..3,
    ) {
        match kind {
            0 => bytes[..4096].copy_from_slice(&small_xfs()),
            1 => {
                bytes[1024 + 0x38..1024 + 0x3a].copy_from_slice(&[0x53, 0xef]);
                bytes[1024 + 0x18..1024 + 0x1c].copy_from_slice(&2u32.to_le_bytes());
            }
            _ => bytes[510..512].copy_from_slice(&[0x55, 0xaa]),
        }
        changes.iter().for_each(|(at, byte)| bytes[*at] = *byte);
        let place = ByteRange::at(1 << 30, 1 << 44);
        match FileSystem::recognise(&bytes, place) {
            Some(FileSystem::Ext4(ext4)) => {
                let places = ext4.descriptor_places();
                prop_assert!(places.iter().all(|range| place.contains(*range)));
                if ext4.groups() < 10_000 {
                    let all = ext4.metadata(&bytes);
                    prop_assert!(all.iter().all(|range| range.is_empty() || place.contains(*range)));
                }
            }
            Some(FileSystem::Xfs(xfs)) => {
                prop_assert!(xfs.metadata().iter().all(|range| place.contains(*range)));
                let _ = xfs.is_metadata(place.start() + 4096, &bytes);
            }
            None => {}
        }
        let size = 1 << 40;
        let found = partitions::partitions(&bytes, size);
        prop_assert!(found.iter().all(|range| range.end() <= size));
    }
}
