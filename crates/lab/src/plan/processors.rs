//! Lists of processors, as the kernel and `taskset` write them.

use rustix::thread::CpuSet;

/// The processors of a list like `0-3,8`; nothing where it is none.
pub(crate) fn processors(list: &str) -> Option<CpuSet> {
    let mut set = CpuSet::new();
    for part in list.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last >= CpuSet::MAX_CPU {
            return None;
        }
        (first..=last).for_each(|processor| set.set(processor));
    }
    Some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_ranges_and_single_ones_and_is_nothing_else() {
        let set = processors("0-3,8\n").unwrap();
        let all: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&it| set.is_set(it)).collect();
        assert_eq!(all, [0, 1, 2, 3, 8]);
        for wrong in ["", "a", "3-1", "1,,2", "1-", "99999", "0-3:2"] {
            assert!(processors(wrong).is_none(), "{wrong}");
        }
    }
}
