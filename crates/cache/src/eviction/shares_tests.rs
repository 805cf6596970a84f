//! That the classes of a naive twin lose the same blocks, and that no policy breaks what shares and
//! priorities promise.

use super::shares::Room;
use super::{ClassKey, EvictionPolicy, Group, Heat, Held, Hits, Policy, Residents, Shares};
use crate::classes::{ClassId, Classes};
use crate::types::CoreLine;
use headpond_testkit::{Break, assert_trips};
use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};

const CORE_LINES: u64 = 1 << 20;

/// Blocks and their marks, in groups.
#[derive(Default)]
struct Marks {
    heats: BTreeMap<u64, (Group, Heat)>,
}

impl Residents for Marks {
    fn heat(&self, block: CoreLine, group: Group) -> Heat {
        let found = self.heats.get(&block.0).filter(|(of, _)| *of == group);
        found.map_or(Heat::NONE, |(_, heat)| *heat)
    }

    fn change(&mut self, block: CoreLine, group: Group, change: fn(Heat) -> Heat) -> Heat {
        let before = self.heat(block, group);
        if before.is_resident() {
            self.set(block, group, change(before));
        }
        before
    }

    fn held(&self, group: Group) -> Held {
        let mut held = Held::default();
        let of_group = self.heats.values().filter(|(of, _)| *of == group);
        of_group.for_each(|(_, heat)| held.add(*heat));
        held
    }
}

impl Marks {
    fn set(&mut self, block: CoreLine, group: Group, heat: Heat) {
        match heat.is_resident() {
            true => self.heats.insert(block.0, (group, heat)),
            false => self.heats.remove(&block.0),
        };
    }

    fn group_of(&self, block: CoreLine) -> Option<Group> {
        self.heats.get(&block.0).map(|(group, _)| *group)
    }
}

/// The engine's steps, on marks without a log.
struct Ours {
    shares: Shares,
    policy: Box<dyn Policy>,
    marks: Marks,
}

impl Ours {
    fn new(policy: EvictionPolicy, classes: &Classes, capacity: u64) -> Self {
        let shares = Shares::new(classes, capacity).expect("more than one class");
        let policy = policy.make(capacity, CORE_LINES, shares.groups());
        Self { shares, policy, marks: Marks::default() }
    }

    fn group(&self, class: u64) -> Group {
        let key = self.shares.key_of(ClassId::new(class).expect("a class"));
        self.shares.group_of(key).expect("known")
    }

    fn access(&mut self, block: CoreLine, class: u64) {
        let wanted = self.group(class);
        let found = self.marks.group_of(block);
        if let Some(found) = found
            && (found == wanted || !self.shares.has_place(wanted, &self.marks))
        {
            return match self.policy.hits() {
                Hits::Ordered => self.policy.hit(block),
                Hits::Counted => {
                    let warmer = self.marks.heat(block, found).warmer();
                    self.marks.set(block, found, warmer);
                }
            };
        }
        self.remove(block);
        if self.shares.make_room(wanted, &mut *self.policy, &mut self.marks) {
            let heat = self.policy.insert(block, wanted, &mut self.marks);
            self.marks.set(block, wanted, heat);
        }
    }

    fn remove(&mut self, block: CoreLine) {
        self.marks.heats.remove(&block.0);
        self.policy.remove(block);
    }

    fn residents(&self) -> Vec<u64> {
        self.marks.heats.keys().copied().collect()
    }
}

/// A list for each class or set of classes that stand alike, searched; the oldest at the back.
struct Twin {
    capacity: usize,
    /// Priority, pinned as -1; most blocks.
    pools: Vec<(i32, usize)>,
    pool_of: BTreeMap<u64, usize>,
    lists: Vec<VecDeque<u64>>,
    renews: bool,
}

impl Twin {
    fn new(classes: &[(i32, usize)], capacity: usize, renews: bool) -> Self {
        let (mut pools, mut pool_of) = (Vec::new(), BTreeMap::new());
        for (class, &(priority, percent)) in classes.iter().enumerate() {
            let most = capacity * percent / 100;
            let known = pools.iter().position(|pool| *pool == (priority, most));
            let at = known.filter(|_| most == capacity || most == 0).unwrap_or_else(|| {
                pools.push((priority, most));
                pools.len() - 1
            });
            pool_of.insert(class as u64, at);
        }
        let lists = vec![VecDeque::new(); pools.len()];
        Self { capacity, pools, pool_of, lists, renews }
    }

    /// Whose oldest leaves for one more of a pool: nobody's, a pool's, or there is no place.
    fn loser(&self, pool: usize) -> Result<Option<usize>, ()> {
        let (priority, most) = self.pools[pool];
        if most == 0 {
            return Err(());
        }
        if self.lists[pool].len() >= most {
            return Ok(Some(pool));
        }
        if self.lists.iter().map(VecDeque::len).sum::<usize>() < self.capacity {
            return Ok(None);
        }
        let may_lose = |other: &usize| {
            let theirs = self.pools[*other].0;
            let is_lower = theirs >= priority && theirs >= 0;
            !self.lists[*other].is_empty() && (is_lower || *other == pool)
        };
        let others = (0..self.pools.len()).filter(may_lose);
        let worst = others.max_by_key(|other| (self.pools[*other].0, self.lists[*other].len()));
        worst.map(Some).ok_or(())
    }

    fn access(&mut self, block: u64, class: u64) {
        let wanted = self.pool_of[&class];
        let found = self.lists.iter().position(|list| list.contains(&block));
        if let Some(found) = found
            && (found == wanted || self.loser(wanted).is_err())
        {
            if self.renews {
                self.lists[found].retain(|other| *other != block);
                self.lists[found].push_front(block);
            }
            return;
        }
        self.remove(block);
        while let Ok(Some(loser)) = self.loser(wanted) {
            self.lists[loser].pop_back();
        }
        if self.loser(wanted).is_ok() {
            self.lists[wanted].push_front(block);
        }
    }

    fn remove(&mut self, block: u64) {
        self.lists.iter_mut().for_each(|list| list.retain(|other| *other != block));
    }

    fn residents(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.lists.iter().flatten().copied().collect();
        all.sort_unstable();
        all
    }
}

/// Some classes by priority (-1: pinned) and percentage.
fn classes_of(classes: &[(i32, usize)]) -> Classes {
    let mut text = String::new();
    for (id, (priority, percent)) in classes.iter().enumerate() {
        let priority = if *priority < 0 { "\"pinned\"".into() } else { priority.to_string() };
        let rule = if id > 0 { "when = \"request_size:ge:0\"\n" } else { "" };
        let share = *percent as f64 / 100.0;
        text += &format!("[[class]]\nid = {id}\n{rule}");
        text += &format!("priority = {priority}\noccupancy = {share:.2}\n\n");
    }
    Classes::parse(&text).expect("a sound file")
}

fn some_classes() -> impl Strategy<Value = Vec<(i32, usize)>> {
    let priority = prop::sample::select(vec![-1, 0, 1, 1, 7, 255]);
    let percent = prop::sample::select(vec![100, 100, 100, 60, 30, 10, 0]);
    prop::collection::vec((priority, percent), 2..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn the_blocks_that_leave_are_those_of_the_twin(
        classes in some_classes(),
        is_lru in any::<bool>(),
        capacity in 5usize..30,
        steps in prop::collection::vec((0u64..48, 0u64..6, 0u32..20), 1..600),
    ) {
        let policy = if is_lru { EvictionPolicy::Lru } else { EvictionPolicy::Fifo };
        let mut ours = Ours::new(policy, &classes_of(&classes), capacity as u64);
        let mut twin = Twin::new(&classes, capacity, is_lru);
        for (index, &(block, class, kind)) in steps.iter().enumerate() {
            // A queue keeps the entry of a block that ends or changes its class, as is documented.
            let class = if is_lru { class } else { block } % classes.len() as u64;
            if kind == 0 && is_lru {
                ours.remove(CoreLine(block));
                twin.remove(block);
            } else {
                ours.access(CoreLine(block), class);
                twin.access(block, class);
            }
            prop_assert_eq!(ours.residents(), twin.residents(), "step {}", index);
        }
    }

    #[test]
    fn whoever_evicts_shares_and_priorities_hold(
        policy in prop::sample::select(EvictionPolicy::PLAIN.to_vec()),
        classes in some_classes(),
        capacity in 5u64..40,
        steps in prop::collection::vec((0u64..80, 0u64..6, 0u32..20), 1..600),
    ) {
        let mut ours = Ours::new(policy, &classes_of(&classes), capacity);
        let (memory, is_exact) = (ours.policy.memory(), ours.policy.hits() == Hits::Ordered);
        for &(block, class, kind) in &steps {
            // A queue keeps the entry of a block that ends or changes its class, as is documented.
            let class = if is_exact { class } else { block } % classes.len() as u64;
            let before: BTreeMap<u64, (Group, Heat)> = ours.marks.heats.clone();
            let room = ours.shares.room_for(ours.group(class), &ours.marks);
            if kind == 0 && is_exact {
                ours.remove(CoreLine(block));
                continue;
            }
            ours.access(CoreLine(block), class);
            ours.shares.self_check(&ours.marks);
            ours.policy.self_check(&ours.marks);
            prop_assert!(ours.marks.heats.len() as u64 <= capacity);
            let is_gone = |(other, _): &(&u64, _)| {
                **other != block && !ours.marks.heats.contains_key(*other)
            };
            let gone: Vec<_> = before.iter().filter(is_gone).collect();
            let was_in = before.get(&block).map(|(group, _)| *group);
            let joins = was_in != Some(ours.group(class)) && room != Room::Nowhere;
            for (_, (group, _)) in &gone {
                prop_assert!(joins, "nobody came");
                // With its own block out of the way there may be room in another place.
                prop_assert!(was_in.is_some() || room == Room::From(*group));
            }
            // S3-FIFO evicts from its main queue for what goes on from the small one.
            prop_assert!(gone.len() <= 1 || policy == EvictionPolicy::S3Fifo);
            let now = ours.marks.group_of(CoreLine(block));
            let expected = if room == Room::Nowhere { was_in } else { Some(ours.group(class)) };
            prop_assert_eq!(now, expected, "taken in where there is a place");
        }
        prop_assert_eq!(ours.policy.memory(), memory, "bounded");
    }
}

#[test]
fn check_notices_a_group_that_holds_more_than_its_share() {
    let make = || {
        let classes = classes_of(&[(1, 50), (2, 30)]);
        let mut ours = Ours::new(EvictionPolicy::Fifo, &classes, 10);
        (0..5).for_each(|block| ours.access(CoreLine(block), 0));
        (5..8).for_each(|block| ours.access(CoreLine(block), 1));
        ours
    };
    let breaks: [Break<Ours>; 3] = [
        ("holds 6 of 5", |it| it.marks.set(CoreLine(9), it.group(0), Heat::SMALL)),
        ("holds 4 of 3", |it| it.marks.set(CoreLine(0), it.group(1), Heat::SMALL)),
        ("holds 5 of 1", |it| {
            it.shares = Shares::new(&classes_of(&[(1, 10), (2, 30)]), 10).unwrap()
        }),
    ];
    assert_trips(make, |ours| ours.shares.self_check(&ours.marks), &breaks);
}

#[test]
fn one_class_that_may_hold_everything_needs_no_shares() {
    assert_eq!(Shares::new(&Classes::default(), 100), None);
    let alike = Shares::new(&classes_of(&[(255, 100), (255, 100), (3, 100)]), 100).unwrap();
    let group = |class| alike.group_of(ClassKey::of(ClassId::new(class).unwrap()));
    assert_eq!(group(0), group(1), "one queue, as without classes");
    assert_ne!(group(0), group(2));
    assert_eq!(alike.groups(), 3, "with those whose class is not known");
}
