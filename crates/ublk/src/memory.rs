//! Memory for the data of requests: as much for each tag as the longest request has.
//!
//! What a device still holds when it has answered, such as a cache that inserts what was read, is
//! set aside until the device lets go of it: the kernel must not copy the next request's data
//! there. Pages that no request has used are none.

use headpond_block::{Buffer, BufferPool, PoolConfig};
use std::cell::RefCell;

/// Memory of one queue.
pub(crate) struct Memory {
    io_bytes_max: usize,
    /// All of it is from the heap: a pool would touch what is never used.
    heap: BufferPool,
    set_aside: RefCell<Vec<Buffer>>,
}

impl Memory {
    pub fn new(io_bytes_max: u32) -> Self {
        let heap = BufferPool::new(&PoolConfig::none());
        Self { io_bytes_max: io_bytes_max as usize, heap, set_aside: RefCell::default() }
    }

    /// Memory that nobody else has.
    pub fn take(&self) -> Buffer {
        let mut set_aside = self.set_aside.borrow_mut();
        match set_aside.iter().position(Buffer::is_sole) {
            Some(at) => set_aside.swap_remove(at),
            None => self.heap.take(self.io_bytes_max),
        }
    }

    /// The same memory where nobody else has it any more; other memory with its first so many bytes
    /// otherwise.
    pub fn sole(&self, memory: Buffer, used_bytes: usize) -> Buffer {
        if memory.is_sole() {
            return memory;
        }
        let other = self.take();
        other.slice(0..used_bytes).copy_from_buffer(&memory.slice(0..used_bytes));
        self.set_aside.borrow_mut().push(memory);
        other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_still_held_is_set_aside_until_it_is_not() {
        let memory = Memory::new(4096);
        let first = memory.take();
        first.fill(7);
        let held = first.slice(0..512);
        let address = first.as_ptr();
        let second = memory.sole(first, 512);
        assert_ne!(second.as_ptr(), address);
        assert_eq!(second.slice(0..512).to_vec(), [7; 512]);
        assert_ne!(memory.take().as_ptr(), address);
        drop(held);
        assert_eq!(memory.take().as_ptr(), address);
        let sole = second.as_ptr();
        assert_eq!(memory.sole(second, 0).as_ptr(), sole);
    }
}
