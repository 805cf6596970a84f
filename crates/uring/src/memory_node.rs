//! The NUMA node of a thread's memory.
//!
//! **Source**: set_mempolicy(2) of the Linux man-pages.

use std::io;
use std::marker::PhantomData;

/// Nodes in a mask; Linux has at most 1024.
const NODES_MAX: u32 = 1024;
const WORD_BITS: u32 = usize::BITS;

/// New memory of this thread comes from one node; dropped, it comes from the node where the thread
/// runs, the default.
#[derive(Debug)]
pub struct MemoryNode {
    /// The policy is that of the thread that made it.
    _of_this_thread: PhantomData<*const ()>,
}

impl MemoryNode {
    /// Binds memory that this thread touches first from now on.
    ///
    /// # Errors
    /// Where there is no such node, or no NUMA support; nothing is bound.
    pub fn bind(node: u32) -> io::Result<Self> {
        if node >= NODES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut mask = [0_usize; (NODES_MAX / WORD_BITS) as usize];
        mask[(node / WORD_BITS) as usize] = 1 << (node % WORD_BITS);
        set(libc::MPOL_BIND, &mask)?;
        Ok(Self { _of_this_thread: PhantomData })
    }
}

impl Drop for MemoryNode {
    fn drop(&mut self) {
        // What was allowed to be set can be set back.
        let _ = set(libc::MPOL_DEFAULT, &[]);
    }
}

fn set(policy: i32, mask: &[usize]) -> io::Result<()> {
    let (at, bits) = match mask.is_empty() {
        true => (std::ptr::null(), 0),
        // The kernel takes one less than it is told.
        false => (mask.as_ptr(), mask.len() * WORD_BITS as usize + 1),
    };
    // SAFETY: the kernel reads as many bits as the mask has, and keeps nothing of it.
    let outcome = unsafe { libc::syscall(libc::SYS_set_mempolicy, policy, at, bits) };
    if outcome == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How memory of this thread is placed that has no rule of its own.
    fn policies() -> Option<String> {
        let maps = std::fs::read_to_string("/proc/thread-self/numa_maps").ok()?;
        let words = maps.lines().filter_map(|line| line.split_whitespace().nth(1));
        Some(words.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn what_a_thread_allocates_comes_from_the_node_while_it_is_bound_and_from_any_after() {
        let name =
            "what_a_thread_allocates_comes_from_the_node_while_it_is_bound_and_from_any_after";
        let Some(before) = policies() else { headpond_testkit::skip!(name, "no numa_maps") };
        let Ok(bound) = MemoryNode::bind(0) else { headpond_testkit::skip!(name, "no policies") };
        assert!(policies().unwrap().contains("bind:0"));
        drop(bound);
        assert!(!policies().unwrap().contains("bind:0") && !before.contains("bind:0"));
    }

    #[test]
    fn a_node_that_is_not_there_is_refused_and_nothing_is_bound() {
        for node in [NODES_MAX - 1, NODES_MAX, u32::MAX] {
            assert!(MemoryNode::bind(node).is_err(), "{node}");
        }
        assert!(!policies().unwrap_or_default().contains("bind"));
    }
}
