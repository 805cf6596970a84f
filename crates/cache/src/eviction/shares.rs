//! Eviction across classes: priorities and shares.
//!
//! Classes of equal priority without a share of their own are one *group*, in which a policy evicts
//! as if there were no classes. An insertion takes its space
//!
//! 1. from its own group, where that holds its share;
//! 2. from free space, while there is some;
//! 3. from a group that holds more than its share;
//! 4. from the group of the lowest priority, if that is not above its own; of groups of one
//!    priority from the one that holds the most. Else it is not inserted.
//!
//! **Invariants**: no group holds more than its share, nor all together more than the capacity.
//!
//! **Not here**: which line of a group is evicted (the policies); the classes of blocks (the map).
//!
//! **Source**: Open CAS Linux, administrator's guide, "IO Classification": priorities 0 to 255, the
//! lowest evicted first, and an allocation as a fraction of the cache; that a class evicts none of
//! a higher priority follows its eviction (`ocf_lru.c`, by description). There, classes of one
//! priority are emptied one after the other.

use super::{Group, Policy, Residents};
use crate::classes::{CLASSES_MAX, ClassId, Classes, Priority};

/// What the map keeps of a line's class: 0 where it is not known, else the class and one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ClassKey(pub u8);

/// How many there are.
pub const KEYS: usize = CLASSES_MAX + 1;

impl ClassKey {
    /// Of what was there before there were classes.
    pub const UNKNOWN: Self = Self(0);

    pub fn of(class: ClassId) -> Self {
        Self(class.get() + 1)
    }

    /// That of a known class.
    pub fn class(self) -> Option<ClassId> {
        ClassId::new(self.0.checked_sub(1)?.into())
    }

    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Whether there can be such a one: as read from a device.
    pub fn is_possible(self) -> bool {
        self.index() < KEYS
    }
}

/// How a group stands among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standing {
    /// 0 is pinned; the highest leaves first.
    rank: u16,
    /// Residents at most.
    limit: u64,
}

const PINNED: u16 = 0;
/// After every class: its use is unknown.
const LAST: u16 = u8::MAX as u16 + 2;

/// Where room for one more comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Free,
    From(Group),
    Nowhere,
}

/// Priorities and shares of all classes, for a cache of so many residents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    capacity: u64,
    standings: Vec<Standing>,
    /// By key; `None` where there is no such class.
    group_of: [Option<Group>; KEYS],
}

impl Shares {
    /// `None` where all requests are of one class that may hold everything.
    pub fn new(classes: &Classes, capacity: u64) -> Option<Self> {
        if classes.is_trivial() {
            return None;
        }
        let unknown = Standing { rank: LAST, limit: capacity };
        let mut shares = Self { capacity, standings: vec![unknown], group_of: [None; KEYS] };
        shares.group_of[ClassKey::UNKNOWN.index()] = Some(Group::FIRST);
        for class in classes.iter() {
            let rank = match class.priority {
                Priority::Pinned => PINNED,
                Priority::Level(level) => u16::from(level) + 1,
            };
            let standing = Standing { rank, limit: class.occupancy.of(capacity) };
            let group = shares.group_for(standing);
            shares.group_of[ClassKey::of(class.id).index()] = Some(group);
        }
        Some(shares)
    }

    /// One that exists already, for those without limits; and for those that hold nothing.
    fn group_for(&mut self, standing: Standing) -> Group {
        let is_alike = standing.limit == self.capacity || standing.limit == 0;
        let known = self.standings.iter().position(|other| is_alike && *other == standing);
        let at = known.unwrap_or_else(|| {
            self.standings.push(standing);
            self.standings.len() - 1
        });
        Group(at as u8)
    }

    pub fn groups(&self) -> usize {
        self.standings.len()
    }

    pub fn group_of(&self, key: ClassKey) -> Option<Group> {
        self.group_of[key.index()]
    }

    pub fn group_table(&self) -> &[Option<Group>; KEYS] {
        &self.group_of
    }

    /// A request's; that of class 0 where the class was taken away meanwhile.
    pub fn key_of(&self, class: ClassId) -> ClassKey {
        let key = ClassKey::of(class);
        let is_known = self.group_of(key).is_some();
        if is_known { key } else { ClassKey::of(ClassId::UNCLASSIFIED) }
    }

    /// The share of a group, of something else.
    pub fn part_of(&self, group: Group, whole: u64) -> u64 {
        let limit = self.standings[group.index()].limit;
        (u128::from(whole) * u128::from(limit) / u128::from(self.capacity.max(1))) as u64
    }

    /// # Panics
    /// Where a group holds more than its share.
    pub fn self_check(&self, residents: &dyn Residents) {
        for (group, standing) in (0..).map(Group).zip(&self.standings) {
            let held = residents.held(group).all;
            assert!(held <= standing.limit, "{group:?} holds {held} of {}", standing.limit);
        }
    }

    /// Whether one more of a group may be there, whoever has to leave for it.
    pub fn has_place(&self, group: Group, residents: &dyn Residents) -> bool {
        self.room_for(group, residents) != Room::Nowhere
    }

    /// Makes room for one more of a group; `false`, and nobody has left, where there is none.
    #[must_use]
    pub fn make_room(
        &self,
        group: Group,
        policy: &mut dyn Policy,
        residents: &mut dyn Residents,
    ) -> bool {
        loop {
            match self.room_for(group, residents) {
                Room::Free => return true,
                Room::From(other) => policy.evict(other, residents),
                Room::Nowhere => return false,
            }
        }
    }

    pub(super) fn room_for(&self, group: Group, residents: &dyn Residents) -> Room {
        let Standing { rank, limit } = self.standings[group.index()];
        if limit == 0 {
            return Room::Nowhere;
        }
        if residents.held(group).all >= limit {
            return Room::From(group);
        }
        let groups = (0..).map(Group).zip(&self.standings);
        let held = groups.map(|(group, standing)| (group, standing, residents.held(group).all));
        let (mut all, mut loser) = (0, None);
        for (other, standing, held) in held {
            all += held;
            let is_over = held > standing.limit;
            let may_lose = is_over || standing.rank >= rank && standing.rank != PINNED;
            if held > 0 && (may_lose || other == group) {
                loser = loser.max(Some((is_over, standing.rank, held, other.0)));
            }
        }
        match loser {
            _ if all < self.capacity => Room::Free,
            Some((.., group)) => Room::From(Group(group)),
            None => Room::Nowhere,
        }
    }
}
