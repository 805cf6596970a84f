//! Lost strips from what is left of their stripe.
//!
//! The caller first adds every strip that it still has to P and Q. What is then left in P and Q is
//! the sum and the weighted sum of the lost data strips alone, and of those two equations the
//! strips are solved. Lost parity needs no solving: it is recomputed from the data.

use super::field::{inverse, multiply, power_of_two};
use super::{active, coefficient};

/// The lost data strips of a stripe, and which remainders are there to solve them from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Data strip `0`, P at hand.
    OneFromP(u16),
    /// Data strip `0`, Q at hand.
    OneFromQ(u16),
    /// Data strips `0` < `1`, P and Q at hand.
    Two(u16, u16),
}

/// Turns the remainders into the lost strips, in place: one strip ends where its remainder was; of
/// two, the first ends in `q`, the second in `p`.
///
/// # Panics
/// Where a remainder that is needed is missing, or the two strips are not in order.
pub fn recover(lost: Lost, p: Option<&mut [u8]>, q: Option<&mut [u8]>) {
    match lost {
        Lost::OneFromP(_) => assert!(p.is_some(), "the remainder in P is the strip"),
        Lost::OneFromQ(k) => {
            active().scale(q.expect("Q is at hand"), inverse(coefficient(k)));
        }
        Lost::Two(first, second) => {
            two(first, second, p.expect("P is at hand"), q.expect("Q is at hand"));
        }
    }
}

/// With `p = x + y` and `q = 2^a x + 2^b y`: `x = A p + B q`, where `A = 2^(b-a) / (2^(b-a) + 1)`
/// and `B = 2^-a / (2^(b-a) + 1)`; then `y = p + x`.
fn two(first: u16, second: u16, p: &mut [u8], q: &mut [u8]) {
    assert!(first < second, "the lost strips are in order");
    assert_eq!(p.len(), q.len());
    let apart = power_of_two(u32::from(second - first));
    let divisor = inverse(apart ^ 1);
    let of_p = multiply(apart, divisor);
    let of_q = multiply(inverse(coefficient(first)), divisor);
    active().solve_two(p, q, of_p, of_q);
}

#[cfg(test)]
mod tests {
    use super::super::{add, add_pq, pq};
    use super::*;
    use proptest::prelude::*;

    fn stripes() -> impl Strategy<Value = Vec<Vec<u8>>> {
        (2_usize..20, 1_usize..300).prop_flat_map(|(data, len)| {
            prop::collection::vec(prop::collection::vec(any::<u8>(), len), data)
        })
    }

    fn without<'a>(data: &'a [Vec<u8>], lost: &[usize]) -> Vec<Option<&'a [u8]>> {
        let keep = |(k, strip): (usize, &'a Vec<u8>)| (!lost.contains(&k)).then_some(&strip[..]);
        data.iter().enumerate().map(keep).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn every_lost_strip_comes_back(data in stripes(), a in 0_usize..20, b in 0_usize..20) {
            let (a, b) = (a % data.len(), b % data.len());
            let (mut p, mut q) = (vec![0; data[0].len()], vec![0; data[0].len()]);
            pq(&mut p, &mut q, &without(&data, &[]));

            let mut from_p = p.clone();
            add(&mut from_p, &without(&data, &[a]).into_iter().flatten().collect::<Vec<_>>());
            recover(Lost::OneFromP(a as u16), Some(&mut from_p), None);
            prop_assert_eq!(&from_p, &data[a]);

            let (mut unused, mut from_q) = (p.clone(), q.clone());
            add_pq(&mut unused, &mut from_q, &without(&data, &[a]));
            recover(Lost::OneFromQ(a as u16), None, Some(&mut from_q));
            prop_assert_eq!(&from_q, &data[a]);

            let (first, second) = (a.min(b), a.max(b));
            if first < second {
                add_pq(&mut p, &mut q, &without(&data, &[first, second]));
                let lost = Lost::Two(first as u16, second as u16);
                recover(lost, Some(&mut p), Some(&mut q));
                prop_assert_eq!(&q, &data[first]);
                prop_assert_eq!(&p, &data[second]);
            }
        }
    }
}
