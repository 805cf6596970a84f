//! Whether a file system is served by a process or another host, which may hang.

use std::os::fd::AsFd;

/// The magic numbers of such file systems in statfs(2).
///
/// Source: linux/magic.h, and the systems that coreutils' `stat.c` calls remote.
const SERVED: [u64; 22] = [
    0x6573_5546, // FUSE, with virtiofs and fuseblk
    0x6969,      // NFS
    0x517b,      // SMB
    0xff53_4d42, // CIFS
    0xfe53_4d42, // SMB2
    0x0102_1997, // 9p
    0x00c3_6400, // Ceph
    0x5346_414f, // OpenAFS
    0x6b41_4653, // AFS of the kernel
    0x7375_7245, // Coda
    0x564c,      // NCP
    0x2003_0528, // OrangeFS
    0x0bd0_0bd0, // Lustre
    0x4750_4653, // GPFS
    0x1983_0326, // BeeGFS
    0xaad7_aaea, // PanFS
    0x0116_1970, // GFS2
    0x7461_636f, // OCFS2
    0x6163_6673, // ACFS
    0x786f_4256, // shared folders of VirtualBox
    0xbacb_acbc, // of VMware
    0x7c7c_6673, // of Parallels
];

/// A file system that statfs(2) fails on counts as one.
pub(super) fn is_served(file: impl AsFd) -> bool {
    rustix::fs::fstatfs(file).map_or(true, |system| is_served_kind(system.f_type as u64))
}

fn is_served_kind(kind: u64) -> bool {
    SERVED.contains(&(kind & 0xffff_ffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_has_itself_is_not_served_by_others() {
        assert!(!is_served(std::fs::File::open("/proc/self/stat").unwrap()));
    }

    #[test]
    fn what_processes_and_hosts_serve_is_told_by_its_kind() {
        assert!(is_served_kind(0x6573_5546) && is_served_kind(0x6969));
        // Where the kind is a signed 32-bit number.
        assert!(is_served_kind(0xff53_4d42_u32 as i32 as u64));
        let local = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0x2fc1_2fc1];
        assert!(!local.into_iter().any(is_served_kind));
    }
}
