//! Signatures of file systems, partition tables, arrays and caches.
//!
//! Most are a few bytes at a fixed distance from the start or the end, and are rows of a table;
//! those that need checks of the fields around them are in [`super::structures`].
//!
//! **Source**: the on-disk headers of Linux (`include/uapi/linux/{raid/md_p.h,bcache.h,magic.h}`,
//! `fs/*`), the UEFI specification (GPT), the LUKS1 and LUKS2 on-disk specifications, lvm2
//! `lib/label`, OpenZFS `vdev_impl.h`, OCF `metadata_superblock.h`, and libblkid's list of offsets
//! in util-linux `libblkid/src/superblocks`, which names the same places.

use super::structures;
use std::fmt;
use std::io;

/// Contents that may be needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// The name of the contents, as administrators know it.
    pub name: &'static str,
    /// Offset of its magic, in bytes from the start.
    pub offset: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (signature at byte {})", self.name, self.offset)
    }
}

/// Looks for every known signature.
///
/// # Errors
/// Where the device cannot be read; being too short for a signature is no error.
pub(crate) fn find(read: &ReadAt<'_>, size_bytes: u64) -> io::Result<Vec<Signature>> {
    let probe = Probe { read, size_bytes };
    let mut found = Vec::new();
    for magic in MAGICS {
        let Some(offset) = magic.place.offset(size_bytes) else { continue };
        if probe.holds(offset, magic.bytes)? {
            found.push(Signature { name: magic.name, offset });
        }
    }
    structures::find(&probe, &mut found)?;
    found.sort_by_key(|signature| (signature.offset, signature.name));
    found.dedup_by(|a, b| a.name == b.name);
    Ok(found)
}

/// Fills memory from an offset.
pub type ReadAt<'a> = dyn Fn(&mut [u8], u64) -> io::Result<()> + 'a;

/// Positioned reads within the size of the device or file.
pub(crate) struct Probe<'a> {
    read: &'a ReadAt<'a>,
    pub size_bytes: u64,
}

impl Probe<'_> {
    /// The bytes at `offset`, or `None` where the device ends before.
    pub fn read<const N: usize>(&self, offset: u64) -> io::Result<Option<[u8; N]>> {
        let mut bytes = [0; N];
        Ok(self.read_into(offset, &mut bytes)?.then_some(bytes))
    }

    /// Fills `bytes` from `offset`; false where the device ends before.
    pub fn read_into(&self, offset: u64, bytes: &mut [u8]) -> io::Result<bool> {
        let end = offset.checked_add(bytes.len() as u64);
        if end.is_none_or(|end| end > self.size_bytes) {
            return Ok(false);
        }
        (self.read)(bytes, offset)?;
        Ok(true)
    }

    pub fn holds(&self, offset: u64, expected: &[u8]) -> io::Result<bool> {
        let mut found = [0; MAGIC_BYTES_MAX];
        let found = &mut found[..expected.len()];
        Ok(self.read_into(offset, found)? && found == expected)
    }
}

const MAGIC_BYTES_MAX: usize = 32;

/// Offset of a magic, in bytes.
#[derive(Clone, Copy)]
enum SignatureOffset {
    Start(u64),
    /// Before the end.
    End(u64),
}

impl SignatureOffset {
    fn offset(self, size_bytes: u64) -> Option<u64> {
        match self {
            Self::Start(offset) => Some(offset),
            Self::End(distance) => size_bytes.checked_sub(distance),
        }
    }
}

struct Magic {
    name: &'static str,
    place: SignatureOffset,
    bytes: &'static [u8],
}

const fn start(name: &'static str, offset: u64, bytes: &'static [u8]) -> Magic {
    assert!(bytes.len() <= MAGIC_BYTES_MAX);
    Magic { name, place: SignatureOffset::Start(offset), bytes }
}

const fn end(name: &'static str, distance: u64, bytes: &'static [u8]) -> Magic {
    assert!(bytes.len() <= MAGIC_BYTES_MAX && bytes.len() as u64 <= distance);
    Magic { name, place: SignatureOffset::End(distance), bytes }
}

#[rustfmt::skip]
const MAGICS: &[Magic] = &[
    // Partition tables, at the second and the last logical block of 512 or 4096 bytes.
    start("GPT partition table", 512, b"EFI PART"),
    start("GPT partition table", 4096, b"EFI PART"),
    end("GPT partition table (backup)", 512, b"EFI PART"),
    end("GPT partition table (backup)", 4096, b"EFI PART"),
    // File systems of Linux.
    start("XFS", 0, b"XFSB"),
    start("XFS external log", 0, b"\xfe\xed\xba\xbe\0\0\0\x01"),
    start("Btrfs", 0x1_0040, b"_BHRfS_M"),
    start("Btrfs (second superblock)", 0x400_0040, b"_BHRfS_M"),
    start("Btrfs (third superblock)", 0x40_0000_0040, b"_BHRfS_M"),
    start("F2FS", 0x400, b"\x10\x20\xf5\xf2"),
    start("EROFS", 0x400, b"\xe2\xe1\xf5\xe0"),
    start("SquashFS", 0, b"hsqs"),
    start("ReiserFS", 0x1_0034, b"ReIsErFs"),
    start("ReiserFS", 0x1_0034, b"ReIsEr2Fs"),
    start("ReiserFS", 0x1_0034, b"ReIsEr3Fs"),
    start("JFS", 0x8000, b"JFS1"),
    start("NILFS2", 0x406, b"\x34\x34"),
    start("GFS2", 0x1_0000, b"\x01\x16\x19\x70"),
    start("OCFS2", 0x400, b"OCFSV2"),
    start("OCFS2", 0x800, b"OCFSV2"),
    start("OCFS2", 0x1000, b"OCFSV2"),
    // File systems of others.
    start("FAT", 0x36, b"FAT12   "),
    start("FAT", 0x36, b"FAT16   "),
    start("FAT", 0x36, b"FAT     "),
    start("FAT", 0x52, b"FAT32   "),
    start("exFAT", 3, b"EXFAT   "),
    start("NTFS", 3, b"NTFS    "),
    start("ReFS", 3, b"ReFS\0\0\0\0"),
    start("BitLocker", 3, b"-FVE-FS-"),
    start("HFS+", 0x400, b"H+\0\x04"),
    start("HFSX", 0x400, b"HX\0\x05"),
    start("APFS", 0x20, b"NXSB"),
    start("ISO 9660", 0x8001, b"CD001"),
    start("UDF", 0x8001, b"BEA01"),
    start("VMFS", 0x20_0000, b"\x5e\xf1\xab\x2f"),
    // Encryption.
    start("LUKS", 0, b"LUKS\xba\xbe"),
    start("LUKS2 (second header)", 0x4000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x8000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x1_0000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x2_0000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x4_0000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x8_0000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x10_0000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x20_0000, b"SKUL\xba\xbe"),
    start("LUKS2 (second header)", 0x40_0000, b"SKUL\xba\xbe"),
    // Arrays, caches and stores.
    start("md RAID member (1.1)", 0, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    start("md RAID member (1.2)", 0x1000, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
    start("bcache", 0x1018, b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81"),
    start("bcachefs", 0x1018, b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef"),
    start("dm-writecache", 0, b"\x21\x93\x48\x23"),
    start("Open CAS cache", 4, b"\xa6\x1c\x7e\x18"),
    start("VDO", 0, b"dmvdo001"),
    start("Ceph BlueStore", 0, b"bluestore block device\n"),
    end("Intel RAID member", 1024, b"Intel Raid ISM Cfg Sig. "),
    end("DDF RAID member", 512, b"\xde\x11\xde\x11"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Write;
    use std::os::unix::fs::FileExt;
    use std::process::{Command, Stdio};

    fn found_in(file: &File) -> Vec<Signature> {
        let read = |bytes: &mut [u8], offset| file.read_exact_at(bytes, offset);
        find(&read, file.metadata().unwrap().len()).unwrap()
    }

    fn names(file: &File) -> Vec<&'static str> {
        found_in(file).into_iter().map(|signature| signature.name).collect()
    }

    fn image(size_bytes: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(size_bytes).unwrap();
        file
    }

    #[test]
    fn every_row_is_found_where_it_says() {
        for magic in MAGICS {
            // Not below the third superblock of Btrfs; sparse, so it costs nothing.
            let size = (1 << 38) + (1 << 20);
            let file = image(size);
            let offset = magic.place.offset(size).unwrap();
            file.as_file().write_all_at(magic.bytes, offset).unwrap();
            let found = found_in(file.as_file());
            let expected = Signature { name: magic.name, offset };
            assert!(found.contains(&expected), "{expected}: {found:?}");
        }
    }

    #[test]
    fn tiny_and_blank_files_have_none() {
        for size in [0, 1, 511, 512, 4096, 70_000] {
            assert_eq!(names(image(size).as_file()), [] as [&str; 0], "{size} bytes");
        }
    }

    #[test]
    fn random_bytes_at_other_places_are_no_signature() {
        let file = image(1 << 20);
        file.as_file().write_all_at(b"XFSB", 512).unwrap();
        file.as_file().write_all_at(b"EFI PART", 8192).unwrap();
        assert_eq!(names(file.as_file()), [] as [&str; 0]);
    }

    /// Runs a tool of the machine over a fresh image; `None`, loudly, where it is not installed.
    fn made_by(test: &str, size: u64, tool: &str, arguments: &[&str]) -> Option<Vec<&'static str>> {
        let file = image(size);
        let mut command = Command::new(tool);
        command.args(arguments).arg(file.path()).stdin(Stdio::null());
        let path = std::env::var("PATH").unwrap_or_default();
        match command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output() {
            Err(_) => {
                eprintln!("skipped: {test}: no {tool}");
                None
            }
            Ok(output) => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.success(), "{tool}: {said}");
                Some(names(file.as_file()))
            }
        }
    }

    #[test]
    fn what_mkfs_and_its_kind_make_is_recognised() {
        let test = "what_mkfs_and_its_kind_make_is_recognised";
        let expect = |size_mib: u64, tool: &str, arguments: &[&str], name: &str| {
            if let Some(found) = made_by(test, size_mib << 20, tool, arguments) {
                assert!(found.contains(&name), "{tool}: {found:?}");
            }
        };
        expect(8, "mkfs.ext2", &["-q"], "ext2");
        expect(16, "mkfs.ext3", &["-q"], "ext3");
        expect(16, "mkfs.ext4", &["-q"], "ext4");
        expect(8, "mkswap", &["-q"], "swap space");
        expect(8, "mkfs.vfat", &[], "FAT");
        expect(320, "mkfs.xfs", &["-q"], "XFS");
        expect(128, "mkfs.btrfs", &["-q"], "Btrfs");
        expect(8, "mkfs.ntfs", &["-q", "-F"], "NTFS");
        expect(128, "mkfs.f2fs", &["-q"], "F2FS");
    }

    #[test]
    fn tables_of_sfdisk_are_recognised_at_both_ends() {
        for (label, expected) in [
            ("label: gpt\nsize=1MiB\n", "GPT partition table (backup)"),
            ("label: dos\nsize=1MiB, type=83\n", "MBR partition table"),
        ] {
            let file = image(8 << 20);
            let sfdisk = Command::new("/usr/sbin/sfdisk")
                .arg("-q")
                .arg(file.path())
                .stdin(Stdio::piped())
                .stderr(Stdio::null())
                .spawn();
            let Ok(mut child) = sfdisk else {
                eprintln!("skipped: tables_of_sfdisk_are_recognised_at_both_ends: no sfdisk");
                return;
            };
            child.stdin.take().unwrap().write_all(label.as_bytes()).unwrap();
            assert!(child.wait().unwrap().success());
            assert!(names(file.as_file()).contains(&expected), "{:?}", names(file.as_file()));
        }
    }
}
