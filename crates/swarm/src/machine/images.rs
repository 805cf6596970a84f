//! Images of disks, which are put back later.

use super::{Machine, is_memory};
use headpond_sim::Medium;
use std::fmt;
use std::rc::Rc;

/// What is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disks {
    Member(usize),
    /// All that the cache lies on.
    Cache,
    /// One of several that it lies on.
    CacheCopy(usize),
}

/// What disks held at some time.
pub(crate) struct Image {
    pub disks: Disks,
    /// The disks, and what was on them.
    of: Vec<Rc<Medium>>,
    then: Vec<Rc<Medium>>,
}

impl fmt::Display for Disks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member(member) => write!(f, "member {member}"),
            Self::Cache => f.write_str("the cache"),
            Self::CacheCopy(copy) => write!(f, "copy {copy} of the cache"),
        }
    }
}

impl Image {
    pub fn take(disks: Disks, of: Vec<Rc<Medium>>) -> Self {
        let then = of.iter().map(|medium| Rc::new(medium.image())).collect();
        Self { disks, of, then }
    }
}

impl Machine {
    /// The disks that are in use as this; none where there is no such thing, or not on disks.
    pub fn disks(&self, disks: Disks) -> Vec<Rc<Medium>> {
        let is_cached = self.names_cache.get();
        let copies = || self.belonging_copies().into_iter().filter(|_| is_cached);
        let found: Vec<_> = match disks {
            Disks::Member(member) => {
                let belongs = self.belonging_members().contains(&member);
                belongs.then(|| &self.members[member]).into_iter().collect()
            }
            Disks::CacheCopy(copy) => {
                copies().filter(|it| *it == copy).map(|it| &self.copies[it]).collect()
            }
            Disks::Cache => {
                let copies = copies().map(|it| &self.copies[it]);
                self.cache_disk().filter(|_| is_cached).into_iter().chain(copies).collect()
            }
        };
        found.into_iter().filter(|medium| !is_memory(medium)).cloned().collect()
    }

    /// The disks once more, with an image in the place of those that it was made of; `None` where
    /// others are in use meanwhile.
    pub fn with_image(&self, image: &Image) -> Option<Self> {
        let current = self.disks(image.disks);
        let is_same = current.len() == image.of.len()
            && current.iter().zip(&image.of).all(|(one, other)| Rc::ptr_eq(one, other));
        if !is_same {
            return None;
        }
        let mut copy = self.duplicate();
        for (of, then) in image.of.iter().zip(&image.then) {
            put(&self.members, &mut copy.members, of, then);
            put(&self.copies, &mut copy.copies, of, then);
            put(self.cache.as_slice(), copy.cache.as_mut_slice(), of, then);
            put(self.spare.as_slice(), copy.spare.as_mut_slice(), of, then);
        }
        Some(copy)
    }
}

/// Where the disk is one of these, the image takes its place among the copies of them.
fn put(disks: &[Rc<Medium>], copies: &mut [Rc<Medium>], of: &Rc<Medium>, then: &Rc<Medium>) {
    let found = disks.iter().zip(copies).find(|(disk, _)| Rc::ptr_eq(disk, of));
    if let Some((_, copy)) = found {
        *copy = Rc::clone(then);
    }
}
