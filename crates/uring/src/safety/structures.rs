//! Signatures that are more than a few bytes at a fixed place.
//!
//! Each function names one structure, its offset, and the fields that exclude chance.

use super::signatures::{Probe, Signature};
use std::io;

type Signatures = Vec<Signature>;

/// Adds what is found of the structures of this file.
///
/// # Errors
/// Where the device cannot be read.
pub(crate) fn find(probe: &Probe<'_>, found: &mut Signatures) -> io::Result<()> {
    ext(probe, found)?;
    master_boot_record(probe, found)?;
    swap(probe, found)?;
    lvm(probe, found)?;
    md_at_the_end(probe, found)?;
    zfs(probe, found)
}

/// ext2, ext3 and ext4 share a magic; the features tell them apart.
///
/// Source: kernel.org ext4 wiki, "The Super Block": at 1024, `s_magic` at +0x38, `s_feature_compat`
/// at +0x5c (0x4 has a journal), `s_feature_incompat` at +0x60 (0x8 is a journal, 0x2c0 only ext4).
fn ext(probe: &Probe<'_>, found: &mut Signatures) -> io::Result<()> {
    let Some(superblock) = probe.read::<0x68>(1024)? else { return Ok(()) };
    if superblock[0x38..0x3a] != [0x53, 0xef] {
        return Ok(());
    }
    let has_journal = word(&superblock, 0x5c) & 0x4 != 0;
    let incompatible = word(&superblock, 0x60);
    let name = match (incompatible, has_journal) {
        (features, _) if features & 0x8 != 0 => "external journal of ext4",
        (features, _) if features & 0x2c0 != 0 => "ext4",
        (_, true) => "ext3",
        (_, false) => "ext2",
    };
    found.push(Signature { name, offset: 1024 + 0x38 });
    Ok(())
}

/// A boot sector whose four partition entries are plausible and not all empty, or that carries a
/// disk identifier. FAT and NTFS have boot sectors too; their code makes the entries implausible.
///
/// Source: UEFI specification 5.2.1: entries of 16 bytes from 446, status 0x00 or 0x80 first, type
/// at +4; identifier at 440; 0x55 0xaa at 510.
fn master_boot_record(probe: &Probe<'_>, found: &mut Signatures) -> io::Result<()> {
    let Some(sector) = probe.read::<512>(0)? else { return Ok(()) };
    let (entries, _) = sector[446..510].as_chunks::<16>();
    let is_plausible = entries.iter().all(|entry| entry[0] & 0x7f == 0);
    let has_partition = entries.iter().any(|entry| entry[4] != 0);
    let is_named = word(&sector, 440) != 0;
    if sector[510..] == [0x55, 0xaa] && is_plausible && (has_partition || is_named) {
        found.push(Signature { name: "MBR partition table", offset: 510 });
    }
    Ok(())
}

/// Swap has its signature at the end of its first page, of any page size.
fn swap(probe: &Probe<'_>, found: &mut Signatures) -> io::Result<()> {
    for page_bytes in [4096, 8192, 16384, 32768, 65536] {
        let offset = page_bytes - 10;
        for (magic, name) in [
            (b"SWAPSPACE2", "swap space"),
            (b"SWAP-SPACE", "swap space"),
            (b"S1SUSPEND\0", "hibernation image"),
            (b"S2SUSPEND\0", "hibernation image"),
        ] {
            if probe.holds(offset, magic)? {
                found.push(Signature { name, offset });
            }
        }
    }
    Ok(())
}

/// An LVM2 label is in one of the first four sectors.
fn lvm(probe: &Probe<'_>, found: &mut Signatures) -> io::Result<()> {
    for offset in [0, 512, 1024, 1536] {
        if probe.holds(offset, b"LABELONE")? && probe.holds(offset + 24, b"LVM2 001")? {
            found.push(Signature { name: "LVM2 physical volume", offset });
        }
    }
    Ok(())
}

/// The md superblocks at the end: 0.90 in the last whole 64 KiB but one (either byte order), 1.0
/// between 8 and 12 KiB before the end.
///
/// Source: `drivers/md/md.c`, `calc_dev_sboffset` and `super_1_load`.
fn md_at_the_end(probe: &Probe<'_>, found: &mut Signatures) -> io::Result<()> {
    let sectors = probe.size_bytes / 512;
    if let Some(sector) = (sectors & !127).checked_sub(128) {
        let offset = sector * 512;
        let is_member = |little: &[u8], big: &[u8]| -> io::Result<bool> {
            Ok(probe.holds(offset, little)? || probe.holds(offset, big)?)
        };
        if is_member(b"\xfc\x4e\x2b\xa9\0\0\0\0", b"\xa9\x2b\x4e\xfc\0\0\0\0")? {
            found.push(Signature { name: "md RAID member (0.90)", offset });
        }
    }
    if let Some(sector) = sectors.checked_sub(16) {
        let offset = (sector & !7) * 512;
        if probe.holds(offset, b"\xfc\x4e\x2b\xa9\x01\0\0\0")? {
            found.push(Signature { name: "md RAID member (1.0)", offset });
        }
    }
    Ok(())
}

/// Four labels of 256 KiB, two at either end; in each, uberblocks from its middle on, at least 1
/// KiB apart, with a magic in the byte order of the machine that wrote them.
fn zfs(probe: &Probe<'_>, found: &mut Signatures) -> io::Result<()> {
    const LABEL_BYTES: u64 = 256 << 10;
    const UBERBLOCK: u64 = 0x00ba_b10c;
    let usable = probe.size_bytes - probe.size_bytes % LABEL_BYTES;
    let from_end = [2 * LABEL_BYTES, LABEL_BYTES].map(|distance| usable.checked_sub(distance));
    let mut ring = vec![0; 128 << 10];
    for label in [Some(0), Some(LABEL_BYTES)].into_iter().chain(from_end).flatten() {
        let offset = label + (128 << 10);
        if !probe.read_into(offset, &mut ring)? {
            continue;
        }
        let (uberblocks, _) = ring.as_chunks::<1024>();
        let magic = |block: &[u8; 1024]| u64::from_le_bytes(block[..8].try_into().expect("eight"));
        let is_uberblock =
            |block: &[u8; 1024]| [UBERBLOCK, UBERBLOCK.swap_bytes()].contains(&magic(block));
        if let Some(index) = uberblocks.iter().position(is_uberblock) {
            found.push(Signature { name: "ZFS member", offset: offset + 1024 * index as u64 });
        }
    }
    Ok(())
}

/// The little-endian word at `offset`.
fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::super::signatures;
    use std::os::unix::fs::FileExt;

    const SIZE: u64 = (3 << 20) + 4096 + 512;

    /// The names found in an image of `SIZE` zeros with `patches` applied.
    fn names(patches: &[(u64, &[u8])]) -> Vec<&'static str> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(SIZE).unwrap();
        for (offset, bytes) in patches {
            file.write_all_at(bytes, *offset).unwrap();
        }
        let read = |bytes: &mut [u8], offset| file.read_exact_at(bytes, offset);
        signatures::find(&read, SIZE).unwrap().into_iter().map(|found| found.name).collect()
    }

    #[test]
    fn ext_generations_are_told_apart_by_features() {
        let magic: (u64, &[u8]) = (1024 + 0x38, b"\x53\xef");
        assert_eq!(names(&[magic]), ["ext2"]);
        assert_eq!(names(&[magic, (1024 + 0x5c, b"\x04")]), ["ext3"]);
        assert_eq!(names(&[magic, (1024 + 0x5c, b"\x04"), (1024 + 0x60, b"\x40")]), ["ext4"]);
    }

    #[test]
    fn md_superblocks_at_the_end_are_found_where_the_kernel_puts_them() {
        let le: &[u8] = b"\xfc\x4e\x2b\xa9\0\0\0\0";
        let be: &[u8] = b"\xa9\x2b\x4e\xfc\0\0\0\0";
        let old = (3 << 20) - 65536;
        assert_eq!(names(&[(old, le)]), ["md RAID member (0.90)"]);
        assert_eq!(names(&[(old, be)]), ["md RAID member (0.90)"]);
        // 6153 sectors less 16, rounded down to 8.
        let new = 6136 * 512;
        assert_eq!(names(&[(new, b"\xfc\x4e\x2b\xa9\x01\0\0\0")]), ["md RAID member (1.0)"]);
    }

    #[test]
    fn zfs_is_found_in_any_of_its_four_labels_and_either_byte_order() {
        for label in [0, 256 << 10, (3 << 20) - (512 << 10), (3 << 20) - (256 << 10)] {
            let offset = label + (128 << 10) + 5 * 1024;
            assert_eq!(names(&[(offset, b"\x0c\xb1\xba\0\0\0\0\0")]), ["ZFS member"]);
            assert_eq!(names(&[(offset, b"\0\0\0\0\0\xba\xb1\x0c")]), ["ZFS member"]);
        }
    }

    #[test]
    fn boot_sector_counts_as_a_table_only_with_plausible_entries() {
        let end: (u64, &[u8]) = (510, b"\x55\xaa");
        assert_eq!(names(&[end]), [] as [&str; 0]);
        assert_eq!(names(&[end, (450, b"\x83")]), ["MBR partition table"]);
        assert_eq!(names(&[end, (450, b"\x83"), (446, b"\x80")]), ["MBR partition table"]);
        assert_eq!(names(&[end, (450, b"\x83"), (446, b"\x33")]), [] as [&str; 0]);
    }

    #[test]
    fn lvm_needs_both_marks() {
        assert_eq!(names(&[(512, b"LABELONE")]), [] as [&str; 0]);
        let patches: [(u64, &[u8]); 2] = [(512, b"LABELONE"), (536, b"LVM2 001")];
        assert_eq!(names(&patches), ["LVM2 physical volume"]);
    }

    #[test]
    fn swap_is_found_for_every_page_size() {
        for page in [4096, 16384, 65536] {
            assert_eq!(names(&[(page - 10, b"SWAPSPACE2")]), ["swap space"]);
        }
    }
}
