use super::*;
use crate::format::record::{Header, Promises};
use proptest::prelude::*;
use std::collections::BTreeMap;
use uuid::Uuid;

const EPOCH: Epoch = Epoch(3);

/// A log in memory: each record with the facts that matter to replay.
#[derive(Default)]
struct Log {
    records: Vec<Record>,
    tail: u64,
    flush_mark: u64,
    promises: Promises,
    is_behind_an_end: bool,
    order: Option<Position>,
}

impl Log {
    fn append(&mut self, entries: &[(u64, EntryKind)]) -> usize {
        let entries: Vec<Entry> = entries.iter().map(|&(block, kind)| entry(block, kind)).collect();
        self.append_entries(entries)
    }

    fn append_entries(&mut self, entries: Vec<Entry>) -> usize {
        let sequence = 10 + self.records.len() as u64;
        let data = entries.iter().filter(|entry| entry.kind.carries_data()).count();
        let predecessor = self.records.last().map(|last| Predecessor {
            entries: last.entries.iter().map(|entry| Entry { birth: None, ..*entry }).collect(),
            reinserted: last.entries.iter().map(|entry| entry.birth.is_some()).collect(),
        });
        let header = Header {
            cache: Uuid::nil(),
            slice: 0,
            epoch: EPOCH,
            sequence: Sequence(sequence),
            tail: Sequence(self.tail),
            flush_mark: Sequence(self.flush_mark),
            position: Position(sequence * 10),
            promises: self.promises,
            is_behind_an_end: self.is_behind_an_end,
            order: self.order,
        };
        let checksums = vec![sequence as u32; data];
        self.records.push(Record { header, entries, checksums, predecessor, descriptor_bytes: 0 });
        self.records.len() - 1
    }

    fn replay(&self, missing: &[usize], torn: &[usize]) -> Replayed {
        let mut replay = Replay::new(EPOCH, Sequence(10), Sequence(0));
        for (index, record) in self.records.iter().enumerate() {
            if !missing.contains(&index) {
                let whole = vec![!torn.contains(&index); record.checksums.len()];
                replay.add_record(record, &whole, Position(record.header.position.0 + 1), 1);
            }
        }
        replay.finish()
    }
}

fn entry(block: u64, kind: EntryKind) -> Entry {
    Entry { first: CoreBlock(block), count: 1, kind, birth: None, class: ClassKey::UNKNOWN }
}

/// Block to the sequence that wrote it, as told by the checksum.
fn live(replayed: &Replayed) -> BTreeMap<u64, u64> {
    replayed.live.iter().map(|live| (live.block.0, u64::from(live.checksum))).collect()
}

fn lost(replayed: &Replayed) -> Vec<u64> {
    replayed.lost.iter().map(|block| block.0).collect()
}

/// Its write was answered with an error and reached the device all the same.
#[test]
fn a_record_in_whose_place_an_empty_one_was_put_does_not_count() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty), (2, EntryKind::Dirty)]);
    let failed = log.append(&[(1, EntryKind::Dirty), (2, EntryKind::Tombstone)]);
    log.append(&[(3, EntryKind::Dirty)]);
    let mut void = log.records[failed].clone();
    (void.entries, void.checksums, void.predecessor) = (Vec::new(), Vec::new(), None);
    log.flush_mark = 12;
    for void_comes_first in [false, true] {
        let mut records = log.records.clone();
        let place = if void_comes_first { failed } else { records.len() };
        records.insert(place, void.clone());
        let take = |mut replay: Replay| {
            for record in &records {
                let whole = vec![true; record.checksums.len()];
                replay.add_record(record, &whole, Position(record.header.position.0 + 1), 1);
            }
            replay
        };
        let new = || Replay::new(EPOCH, Sequence(10), Sequence(0));
        let contradicted = take(new()).contradicted();
        assert_eq!(contradicted.iter().collect::<Vec<_>>(), [&Sequence(11)]);
        let again = take(new().without(contradicted));
        assert!(again.contradicted().is_empty());
        assert_eq!(live(&again.finish()), BTreeMap::from([(1, 10), (2, 10), (3, 12)]));
    }
}

#[test]
fn records_of_a_later_epoch_are_noticed_and_not_replayed() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    let mut replay = Replay::new(EPOCH, Sequence(10), Sequence(0));
    for (epoch, later) in [(2, None), (3, None), (7, Some(Epoch(7))), (4, Some(Epoch(7)))] {
        let mut record = log.records[0].clone();
        record.header.epoch = Epoch(epoch);
        replay.note_epoch(&record);
        assert_eq!(replay.later_epoch(), later);
        assert_eq!(replay.concerns(&record), epoch == EPOCH.0);
    }
}

#[test]
fn replay_skips_a_hole_that_nothing_promised() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    let hole = log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(2, EntryKind::Dirty)]);
    let replayed = log.replay(&[hole], &[]);
    assert_eq!(live(&replayed), BTreeMap::from([(1, 10), (2, 12)]));
    assert_eq!(replayed.never_happened, 1);
}

#[test]
fn torn_block_gives_way_to_the_older_version_only_where_nothing_was_promised() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    let torn = log.append(&[(1, EntryKind::Dirty)]);
    assert_eq!(live(&log.replay(&[], &[torn])), BTreeMap::from([(1, 10)]));
    log.flush_mark = 11;
    log.append(&[]);
    let replayed = log.replay(&[], &[torn]);
    assert_eq!((live(&replayed), lost(&replayed)), (BTreeMap::new(), vec![1]));
}

#[test]
fn acknowledged_fua_record_promises_itself_and_nothing_else() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(2, EntryKind::Dirty)]);
    log.promises.add(Sequence(11));
    log.append(&[]);
    let replayed = log.replay(&[], &[0, 1]);
    assert_eq!((lost(&replayed), replayed.never_happened), (vec![2], 1));
    assert_eq!(lost(&log.replay(&[0, 1], &[])), [2]);
}

#[test]
fn lost_descriptor_still_names_its_promised_blocks() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty), (2, EntryKind::Dirty)]);
    let missing = log.append(&[(1, EntryKind::Dirty), (3, EntryKind::Tombstone)]);
    log.flush_mark = 11;
    log.append(&[]);
    let replayed = log.replay(&[missing], &[]);
    assert_eq!((live(&replayed), lost(&replayed)), (BTreeMap::from([(2, 10)]), vec![1]));
    assert!(replayed.unnamed.is_empty());
}

#[test]
fn overwritten_damage_is_no_damage() {
    let mut log = Log::default();
    let torn = log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(1, EntryKind::Dirty)]);
    log.flush_mark = 11;
    log.append(&[]);
    let replayed = log.replay(&[], &[torn]);
    assert_eq!((live(&replayed), lost(&replayed)), (BTreeMap::from([(1, 11)]), vec![]));
}

#[test]
fn promised_record_that_nobody_describes_is_reported() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(2, EntryKind::Dirty)]);
    log.flush_mark = 11;
    log.append(&[]);
    assert_eq!(log.replay(&[0, 1], &[]).unnamed, [Sequence(10)]);
}

#[test]
fn tombstone_ends_all_older_versions() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(1, EntryKind::Tombstone)]);
    assert!(log.replay(&[], &[]).live.is_empty());
}

#[test]
fn nothing_below_the_tail_comes_back() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(2, EntryKind::Dirty)]);
    log.tail = 11;
    log.append(&[]);
    assert_eq!(live(&log.replay(&[], &[])), BTreeMap::from([(2, 11)]));
}

#[test]
fn reinserted_copy_does_not_win_over_a_newer_birth() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(1, EntryKind::Dirty)]);
    log.append_entries(vec![Entry { birth: Some(Sequence(10)), ..entry(1, EntryKind::Dirty) }]);
    assert_eq!(live(&log.replay(&[], &[])), BTreeMap::from([(1, 11)]));
}

#[test]
fn damaged_copy_is_stood_in_for_by_its_original() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    let copy =
        log.append_entries(vec![Entry { birth: Some(Sequence(10)), ..entry(1, EntryKind::Dirty) }]);
    log.flush_mark = 11;
    log.append(&[]);
    for replayed in [log.replay(&[], &[copy]), log.replay(&[copy], &[])] {
        assert_eq!((live(&replayed), lost(&replayed)), (BTreeMap::from([(1, 10)]), vec![]));
    }
}

#[test]
fn written_through_data_counts_only_for_parity() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    log.append(&[(1, EntryKind::WrittenThrough), (2, EntryKind::ReadInsert)]);
    let replayed = log.replay(&[], &[]);
    assert!(replayed.live.is_empty());
    assert_eq!(replayed.parity_suspects, [BlockRun { first: CoreBlock(1), count: 1 }]);
}

fn part(bits: u8) -> EntryKind {
    EntryKind::Part(Sectors::new(bits).unwrap())
}

/// Of each live block, what of it came back: all where it is none.
fn sectors(replayed: &Replayed) -> BTreeMap<u64, u8> {
    let bits = |live: &LiveBlock| live.sectors.map_or(0, Sectors::bits);
    replayed.live.iter().map(|live| (live.block.0, bits(live))).collect()
}

#[test]
fn a_part_comes_back_until_something_newer_does() {
    let mut log = Log::default();
    log.append(&[(1, part(1)), (2, part(1)), (3, part(1)), (4, part(1)), (5, part(1))]);
    let newer = log.append(&[
        (2, EntryKind::Dirty),
        (3, EntryKind::Tombstone),
        (4, EntryKind::WrittenThrough),
        (5, part(3)),
    ]);
    assert_eq!(sectors(&log.replay(&[], &[])), BTreeMap::from([(1, 1), (2, 0), (5, 3)]));
    // Torn, and not promised: the parts came before. What the core has as well ends them.
    let torn = log.replay(&[], &[newer]);
    assert_eq!(sectors(&torn), BTreeMap::from([(1, 1), (2, 1), (5, 1)]));
    assert!(torn.lost.is_empty());
}

#[test]
fn a_promised_part_that_is_damaged_or_missing_is_lost() {
    let mut log = Log::default();
    log.append(&[(1, part(1))]);
    let newer = log.append(&[(1, part(3)), (2, part(4))]);
    log.append(&[(3, EntryKind::Dirty)]);
    log.flush_mark = 11;
    log.append(&[]);
    for replayed in [log.replay(&[], &[newer]), log.replay(&[newer], &[])] {
        assert_eq!((live(&replayed), lost(&replayed)), (BTreeMap::from([(3, 12)]), vec![1, 2]));
    }
}

#[test]
fn a_copy_of_a_part_is_as_old_as_the_part() {
    let mut log = Log::default();
    log.append(&[(1, part(1))]);
    log.append(&[(1, EntryKind::Dirty)]);
    log.append_entries(vec![Entry { birth: Some(Sequence(10)), ..entry(1, part(1)) }]);
    let replayed = log.replay(&[], &[]);
    assert_eq!(
        (live(&replayed), sectors(&replayed)),
        (BTreeMap::from([(1, 11)]), BTreeMap::from([(1, 0)]))
    );
}

#[test]
fn a_part_in_a_checkpoint_counts_until_a_record_says_otherwise() {
    let mut log = Log::default();
    log.append(&[(1, EntryKind::Dirty)]);
    let torn = log.append(&[(2, EntryKind::Dirty)]);
    let mut replayed = log.replay(&[], &[torn]);
    let kind = CheckpointKind::Part(Sectors::new(6).unwrap());
    let kept = [1, 2, 3].map(|block| replayed.keeps(CoreBlock(block), kind, Sequence(1)));
    assert_eq!(kept, [false, true, true]);
}

proptest! {
    /// Any order of records, any set of unpromised holes: what is promised is there, and each block
    /// is its newest readable version.
    #[test]
    fn newest_readable_version_wins_in_any_order(
        writes in prop::collection::vec((0u64..8, prop::bool::weighted(0.8)), 1..40),
        promised in 0usize..40, holes in prop::collection::vec(any::<bool>(), 40), seed: u64,
    ) {
        let mut log = Log::default();
        for &(block, is_data) in &writes {
            let kind = if is_data { EntryKind::Dirty } else { EntryKind::Tombstone };
            log.append(&[(block, kind)]);
        }
        let promised = promised.min(writes.len());
        log.flush_mark = 9 + promised as u64;
        log.append(&[]);
        let there = |index: usize| index < promised || !holes[index % 40];
        let mut order: Vec<usize> = (0..log.records.len()).collect();
        order.sort_by_key(|index| (*index as u64 + 1).wrapping_mul(seed | 1));
        let mut replay = Replay::new(EPOCH, Sequence(10), Sequence(0));
        for index in order.into_iter().filter(|index| there(*index) || *index == writes.len()) {
            let record = &log.records[index];
            let data = Position(record.header.position.0 + 1);
            replay.add_record(record, &vec![true; record.checksums.len()], data, 1);
        }
        let mut twin = BTreeMap::new();
        for (index, &(block, is_data)) in writes.iter().enumerate().filter(|(i, _)| there(*i)) {
            twin.remove(&block);
            if is_data {
                twin.insert(block, 10 + index as u64);
            }
        }
        let replayed = replay.finish();
        prop_assert_eq!(live(&replayed), twin);
        prop_assert!(replayed.lost.is_empty() && replayed.unnamed.is_empty());
    }
}
