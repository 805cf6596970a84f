//! How many different blocks, in little memory and nearly.
//!
//! **Invariants**: joining two gives what counting all their blocks in one would give.
//!
//! **Source**: Flajolet, Fusy, Gandouet and Meunier, *HyperLogLog*, AofA '07, with linear counting
//! for few blocks. 1,024 registers: a standard error of 3.3 %.

use serde::{Deserialize, Serialize};

use super::spatial_sample::BlockHash;

const INDEX_BITS: u32 = 10;
const REGISTERS: usize = 1 << INDEX_BITS;

/// Blocks between two looks at the lowest register.
const UNTIL_LOOK: u32 = 1024;

/// The lowest rank worth asking for: below it the answer is a toss-up, and guesses cost more.
const FLOOR_MIN: u8 = 2;

/// The registers; none before the first block.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<u8>", into = "Vec<u8>")]
pub(crate) struct Distinct {
    registers: Option<Box<Registers>>,
}

#[derive(Clone, Debug)]
struct Registers {
    ranks: [u8; REGISTERS],
    /// Blocks with higher bits behind the index change no register: most of them, once there are
    /// many.
    limit: u64,
    until_look: u32,
}

impl Distinct {
    /// Adds blocks.
    #[inline]
    pub(crate) fn add(&mut self, blocks: impl Iterator<Item = BlockHash>) {
        let registers = self.registers();
        for block in blocks {
            if block.0 << INDEX_BITS <= registers.limit {
                registers.raise(block);
            }
        }
    }

    /// Adds blocks here, and to `more`, which has all that are here.
    #[inline]
    pub(crate) fn add_to_both(&mut self, more: &mut Self, blocks: impl Iterator<Item = BlockHash>) {
        let (fewer, more) = (self.registers(), more.registers());
        for block in blocks {
            if block.0 << INDEX_BITS <= fewer.limit {
                fewer.raise(block);
                more.raise(block);
            }
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        let Some(others) = &other.registers else {
            return;
        };
        for (register, &rank) in self.registers().ranks.iter_mut().zip(&others.ranks) {
            *register = rank.max(*register);
        }
    }

    #[inline]
    fn registers(&mut self) -> &mut Registers {
        self.registers.get_or_insert_with(|| Box::new(Registers::of([0; REGISTERS])))
    }

    pub(crate) fn estimate(&self) -> f64 {
        let Some(registers) = &self.registers else {
            return 0.0;
        };
        let count = REGISTERS as f64;
        let ranks = &registers.ranks;
        let sum: f64 = ranks.iter().map(|&rank| (-f64::from(rank)).exp2()).sum();
        let estimate = 0.7213 / (1.0 + 1.079 / count) * count * count / sum;
        let empty = ranks.iter().filter(|&&rank| rank == 0).count() as f64;
        if estimate <= 2.5 * count && empty > 0.0 { count * (count / empty).ln() } else { estimate }
    }
}

impl Registers {
    fn of(ranks: [u8; REGISTERS]) -> Self {
        Self { ranks, limit: u64::MAX, until_look: UNTIL_LOOK }
    }

    /// A block that may be new. Whether it raises its register is no question worth a guess.
    #[inline]
    fn raise(&mut self, block: BlockHash) {
        let register = &mut self.ranks[(block.0 >> (64 - INDEX_BITS)) as usize];
        // The zeros in front of the bits that the register is not chosen by, and one more.
        let others = block.0 << INDEX_BITS | 1 << (INDEX_BITS - 1);
        let rank = others.leading_zeros() as u8 + 1;
        *register = rank.max(*register);
        self.until_look -= 1;
        if self.until_look == 0 {
            self.look();
        }
    }

    /// Finds the lowest register. As registers only rise, what was below it before stays so.
    #[cold]
    fn look(&mut self) {
        self.until_look = UNTIL_LOOK;
        let lowest = self.ranks.iter().fold(u8::MAX, |lowest, &rank| lowest.min(rank));
        if lowest >= FLOOR_MIN {
            // So many zeros at least are in front of what has a higher rank.
            self.limit = u64::MAX.unbounded_shr(u32::from(lowest));
        }
    }
}

/// By what was counted; the limit only saves work.
impl PartialEq for Registers {
    fn eq(&self, other: &Self) -> bool {
        self.ranks == other.ranks
    }
}

impl Eq for Registers {}

impl From<Vec<u8>> for Distinct {
    /// Registers of another number, as damage may bring them, are none.
    fn from(registers: Vec<u8>) -> Self {
        let ranks = <[u8; REGISTERS]>::try_from(registers);
        Self { registers: ranks.ok().map(|ranks| Box::new(Registers::of(ranks))) }
    }
}

impl From<Distinct> for Vec<u8> {
    fn from(distinct: Distinct) -> Self {
        distinct.registers.map_or(Self::new(), |registers| registers.ranks.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(blocks: impl IntoIterator<Item = u64>) -> Distinct {
        let mut distinct = Distinct::default();
        distinct.add(blocks.into_iter().map(|block| BlockHash::of(0, block)));
        distinct
    }

    #[test]
    fn few_and_many_blocks_are_counted_within_a_tenth() {
        for count in [1, 10, 500, 2_000, 5_000, 1_000_000] {
            let error = counted((0..count).chain(0..count)).estimate() / count as f64 - 1.0;
            assert!(error.abs() < 0.1, "{count}: {error}");
        }
        assert_eq!(counted([]).estimate(), 0.0);
    }

    #[test]
    fn joining_is_counting_all_in_one() {
        let mut joined = counted(0..3000);
        joined.merge(&counted(2000..5000));
        assert_eq!(joined, counted(0..5000));
        let (mut fewer, mut more) = (counted(0..10), counted(0..2000));
        fewer.add_to_both(&mut more, (2000..3000).map(|block| BlockHash::of(0, block)));
        assert_eq!((fewer, more), (counted((0..10).chain(2000..3000)), counted(0..3000)));
        let mut empty = Distinct::default();
        empty.merge(&joined);
        assert_eq!(empty, joined);
    }

    #[test]
    fn blocks_beyond_the_limit_would_have_changed_nothing() {
        let hashes = || (0..300_000).map(|block| BlockHash::of(0, block));
        let mut naive = [0u8; REGISTERS];
        for block in hashes() {
            let is_zero = |bit: &u32| block.0 >> (63 - INDEX_BITS - bit) & 1 == 0;
            let rank = (0..64 - INDEX_BITS).take_while(is_zero).count() as u8 + 1;
            let register = &mut naive[(block.0 >> (64 - INDEX_BITS)) as usize];
            *register = rank.max(*register);
        }
        let (mut fewer, mut more) = (Distinct::default(), Distinct::default());
        fewer.add_to_both(&mut more, hashes());
        for counted in [fewer, more, counted(0..300_000)] {
            let registers = counted.registers.unwrap();
            assert!(registers.ranks == naive, "as counted block by block");
            assert!(registers.limit < u64::MAX >> FLOOR_MIN, "most blocks are beyond it");
        }
    }
}
