//! Where a cache lies on a disk, and pages of it that may be damaged.

use crate::faults::Damage;
use crate::topology::MEMBER_HEAD_BYTES;
use headpond_block::ByteRange;
use headpond_sim::{Medium, Picture, Random};

const PAGE_BYTES: usize = 4096;

/// A cache as it lies on one disk; addresses count from where it begins.
#[derive(Clone, Copy)]
pub(crate) struct Face<'a> {
    medium: &'a Medium,
    start: u64,
}

impl<'a> Face<'a> {
    pub fn of_disk(medium: &'a Medium) -> Self {
        Self { medium, start: 0 }
    }

    /// Behind what one of several copies says of itself.
    pub fn of_copy(medium: &'a Medium) -> Self {
        Self { medium, start: MEMBER_HEAD_BYTES }
    }

    pub fn peek(&self, address: u64, len: usize) -> Vec<u8> {
        self.medium.peek(self.start + address, len)
    }

    fn poke(&self, address: u64, bytes: &[u8]) {
        self.medium.poke(self.start + address, bytes);
    }

    /// What the whole disk shows.
    pub fn picture(&self) -> Picture {
        self.medium.picture()
    }

    fn read_of(&self, picture: &Picture, address: u64, len: usize) -> Vec<u8> {
        picture.read(self.start + address, len)
    }

    fn latest_writes(&self) -> impl Iterator<Item = ByteRange> {
        let all = self.medium.latest_writes().into_iter();
        let within = all.filter(|range| range.start() >= self.start);
        within.map(|range| ByteRange::at(range.start() - self.start, range.len()))
    }
}

/// Some pages of a device, as they were.
pub(crate) struct Pages(Vec<(u64, Vec<u8>)>);

impl Pages {
    /// Those that were written last, in some order: a log has most use for them.
    pub fn latest(face: &Face<'_>, count: usize, random: &mut Random) -> Self {
        let writes = face.latest_writes();
        let pages = writes.flat_map(|range| range.split_at_multiples(PAGE_BYTES as u64));
        let mut addresses: Vec<u64> =
            pages.map(|page| page.start() - page.start() % PAGE_BYTES as u64).collect();
        addresses.sort_unstable();
        addresses.dedup();
        random.shuffle(&mut addresses);
        addresses.truncate(count);
        Self::at(face, addresses)
    }

    /// Those at some addresses.
    pub fn at(face: &Face<'_>, addresses: impl IntoIterator<Item = u64>) -> Self {
        let page = |address| (address, face.peek(address, PAGE_BYTES));
        Self(addresses.into_iter().map(page).collect())
    }

    /// Keeps those that are still as they were.
    pub fn retain_unchanged(&mut self, face: &Face<'_>) {
        self.0.retain(|(address, bytes)| face.peek(*address, PAGE_BYTES) == *bytes);
    }

    /// Changes one page that has been as it is for some time, and tells which; `None` where there
    /// is none for it.
    pub fn damage(
        &self,
        face: &Face<'_>,
        damage: Damage,
        before: Option<&Picture>,
        random: &mut Random,
    ) -> Option<u64> {
        let pick = |pages: &[(u64, Vec<u8>)], random: &mut Random| {
            (!pages.is_empty()).then(|| random.pick(pages).clone())
        };
        let (address, bytes) = match damage {
            Damage::Flip => {
                let (address, mut bytes) = pick(&self.0, random)?;
                let at = random.below(PAGE_BYTES as u64) as usize;
                bytes[at] ^= 1 << random.below(8);
                (address, bytes)
            }
            Damage::Revert => {
                let before = before?;
                let old = |address: u64| face.read_of(before, address, PAGE_BYTES);
                let changed = self.0.iter().filter(|(address, now)| old(*address) != *now);
                let changed: Vec<u64> = changed.map(|(address, _)| *address).collect();
                let address = *changed.get(random.below(changed.len().max(1) as u64) as usize)?;
                (address, old(address))
            }
            Damage::Misplace => {
                let (address, _) = pick(&self.0, random)?;
                let (from, bytes) = pick(&self.0, random)?;
                if from == address {
                    return None;
                }
                (address, bytes)
            }
        };
        face.poke(address, &bytes);
        Some(address)
    }
}
