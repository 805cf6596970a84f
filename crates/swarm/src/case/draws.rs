//! What the lives of a case are like: workload, commands, faults, and where they are cut.

use super::{Case, is_all_logged};
use crate::faults::Ill;
use crate::life::{Cut, Order};
use crate::machine::Machine;
use crate::steps::{Exchange, Step};
use crate::topology::Topology;
use headpond_block::ByteRange;
use headpond_cache::{BypassPolicy, CutoffPolicy, PromotionPolicy};
use headpond_sim::Random;
use headpond_volume::ClassSetting;
use headpond_witness::Workload;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Case<'_> {
    pub(super) fn draw_life(&mut self, machine: &Machine, is_severe: bool) -> Order {
        let has_cache = machine.topology.cache.is_some();
        let workload = self.draw_workload(machine, is_severe);
        let is_logged = is_all_logged(self.seed);
        let random = &mut self.random;
        let mut steps: Vec<(Duration, Step)> = Vec::new();
        let when = |random: &mut Random| Duration::from_micros(1 << (8 + random.below(10)));
        let is_plain = workload.sector_percent > 0;
        for _ in 0..random.below(4) {
            let command = Step::draw_command(random);
            let may_bypass = matches!(
                command,
                Step::Set(_) | Step::SetAndClean(_) | Step::SwitchCache | Step::Exchange(_)
            );
            let bypasses = may_bypass && is_plain;
            if has_cache && !bypasses {
                steps.push((when(random), command));
            }
        }
        if has_cache && !is_plain && is_logged && random.one_in(2) {
            // Later parts of blocks are written whose rest only the array has.
            steps.push((when(random), Step::Exchange(Exchange::Purge)));
        }
        let topology = &machine.topology;
        // Blocks that cannot be read are on one member, or where the others replace all of them.
        let mut latent_on = None;
        let mut unreadable = Unreadable::new(topology, self.excuses.borrow().lost.len());
        // Drawn aside: a case is what it is with one member.
        let mut aside = random.clone().fork();
        let has_several = unreadable.most > 0 && aside.one_in(3);
        for _ in 0..random.below(4) {
            let mut ill = Ill::draw_mild(self.theme, topology, random);
            if let Ill::MemberLatent { member, block } = &mut ill {
                if has_several && !aside.one_in(4) {
                    // So that more than one member lacks something of a stripe.
                    *block = *unreadable.block.get_or_insert(*block);
                }
                let band = topology.band_of(block.start());
                if !has_several || !unreadable.admits(band, *member) {
                    *member = *latent_on.get_or_insert(*member);
                }
                if is_severe || has_several && !unreadable.note(band, *member) {
                    continue;
                }
            }
            steps.push((when(random), Step::Ill(ill)));
        }
        if is_severe {
            let ill = Ill::draw_severe(self.theme, topology, random);
            steps.push((when(random), Step::Ill(ill)));
        }
        steps.sort_by_key(|(at, _)| *at);
        let mut order = Order {
            seed: random.number(),
            settings: self.settings.clone(),
            absent: self.absent.clone(),
            workload: Some(workload),
            steps,
            rotted: 0,
            copied: None,
            cut: draw_cut(random),
        };
        self.draw_copies(machine, &mut order, is_severe);
        order
    }

    fn draw_workload(&mut self, machine: &Machine, is_severe: bool) -> Workload {
        let random = &mut self.random;
        let is_logged = machine.names_cache.get()
            && self.settings.mode.is_write_back()
            && self.settings.seq_cutoff.policy == CutoffPolicy::Never
            && self.settings.promotion.policy == PromotionPolicy::Always
            && self.settings.classes == ClassSetting::None
            && self.settings.bypass == BypassPolicy::Off
            && !is_severe;
        Workload {
            requests: 150 + random.below(350) as u32,
            depth: *random.pick(&[1, 2, 4, 8, 16]),
            blocks: machine.topology.window_bytes / 4096,
            blocks_max: *random.pick(&[1, 1, 2, 4, 8, 32]),
            read_percent: *random.pick(&[5, 20, 40, 60]),
            flush_percent: *random.pick(&[0, 2, 5, 15]),
            zeroes_percent: *random.pick(&[0, 0, 3]),
            discard_percent: *random.pick(&[0, 0, 3]),
            fua_percent: *random.pick(&[0, 0, 10, 40]),
            sector_percent: if is_logged { *random.pick(&[0, 0, 20]) } else { 0 },
            hot_percent: *random.pick(&[0, 50, 90]),
            sequential_percent: *random.pick(&[0, 0, 30, 80]),
        }
    }

    /// A member is lost, and stays away, as those that were lost before.
    pub(super) fn draw_loss(&mut self, machine: &Machine) {
        let topology = &machine.topology;
        let mut excuses = self.excuses.borrow_mut();
        if excuses.lost.len() < topology.redundancy() && self.random.one_in(2) {
            excuses.lost.insert(self.random.below(topology.members as u64) as usize);
        }
        if !excuses.is_beyond_redundancy(topology) {
            self.absent.members = excuses.lost.clone();
        }
        let is_away = self.random.one_in(12);
        self.absent.journal = is_away;
        excuses.journal_failed |= is_away;
    }

    /// The journal's device fails while it is used.
    pub(super) fn draw_journal_ill(&mut self, order: &mut Order) {
        let random = &mut self.random;
        if random.one_in(8) {
            let ill = *random.pick(&[Ill::JournalWrite, Ill::JournalGone]);
            let at = Duration::from_micros(1 << (8 + random.below(10)));
            order.steps.push((at, Step::Ill(ill)));
            order.steps.sort_by_key(|(at, _)| *at);
        }
    }

    /// The journal may be exchanged, before or after it fails.
    pub(super) fn draw_exchange_of_journal(&mut self, order: &mut Order) {
        // Drawn aside: the other steps are what they are without it.
        let mut aside = self.random.clone().fork().fork();
        if aside.one_in(3) {
            let at = Duration::from_micros(1 << (8 + aside.below(10)));
            order.steps.push((at, Step::ExchangeJournal));
            order.steps.sort_by_key(|(at, _)| *at);
        }
        if aside.one_in(4) {
            let at = Duration::from_micros(1 << (8 + aside.below(10)));
            order.steps.push((at, Step::DropJournal));
            order.steps.sort_by_key(|(at, _)| *at);
        }
    }

    /// Devices that were lost may come back, and the cache may stay away.
    pub(super) fn draw_returns(&mut self, machine: &Machine) {
        let lost = self.excuses.borrow().lost.clone();
        let stays_away = |random: &mut Random| random.one_in(2);
        self.absent.members = match lost.len() <= machine.topology.redundancy() {
            true => lost.into_iter().filter(|_| stays_away(&mut self.random)).collect(),
            false => Default::default(),
        };
        self.absent.cache = self.excuses.borrow().cache_failed && self.random.one_in(4);
    }
}

/// Members with blocks that cannot be read in one life, by the bands of rows that these lie in: no
/// stripe lies in two.
struct Unreadable {
    /// Members without which a band can be read.
    most: usize,
    /// The first of them.
    block: Option<ByteRange>,
    members: BTreeMap<u64, BTreeSet<usize>>,
}

impl Unreadable {
    fn new(topology: &Topology, lost: usize) -> Self {
        // Without a map of what was being written, a cut while several are made up for tears.
        let is_marked = topology.has_intent;
        let most = if is_marked { topology.redundancy().saturating_sub(lost) } else { 0 };
        Self { most, block: None, members: BTreeMap::new() }
    }

    /// Whether the others replace one more block of a band, on this member.
    fn admits(&self, band: u64, member: usize) -> bool {
        let among = self.members.get(&band);
        among.is_none_or(|among| among.contains(&member) || among.len() < self.most)
    }

    /// Takes note of a block, where it is admitted.
    fn note(&mut self, band: u64, member: usize) -> bool {
        let is_admitted = self.admits(band, member);
        if is_admitted {
            self.members.entry(band).or_default().insert(member);
        }
        is_admitted
    }
}

/// While the volume is opened or stopped, early, or in the thick of it; or not at all.
fn draw_cut(random: &mut Random) -> Cut {
    match random.below(8) {
        0 => Cut::Never,
        1 => Cut::InOpening(random.below(200)),
        2 => Cut::InStopping(random.below(40)),
        _ => {
            let most = 64 << random.below(7);
            Cut::InWork(random.below(most))
        }
    }
}
