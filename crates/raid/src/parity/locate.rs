//! Which strip of a stripe is wrong, from what is left of P and Q once everything is added to them.
//!
//! With one strip wrong by `e` in some byte, the remainders are: `e` and 0 where it is P, 0 and `e`
//! where it is Q, `e` and `2^k e` where it is data strip `k`. So the quotient of the remainders
//! names the strip. That more than one is wrong shows where bytes of one sector name different
//! strips, or a strip that is not there; by chance it may not show.
//!
//! Source: H. P. Anvin, "The mathematics of RAID-6", section 4.

use super::field::logarithm;

/// What one sector says of its stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Culprit {
    /// Everything matches.
    Nobody,
    P,
    Q,
    /// The data strip with this number.
    Data(u16),
    /// More than one strip, or one equation alone, which locates none.
    Unknown,
}

/// The wrong strip of a sector with these remainders of P and Q, of a stripe with so many data
/// strips. Without Q none can be located.
pub fn locate(p: &[u8], q: Option<&[u8]>, data_strips: usize) -> Culprit {
    let Some(q) = q else {
        return if p.iter().all(|byte| *byte == 0) { Culprit::Nobody } else { Culprit::Unknown };
    };
    assert_eq!(p.len(), q.len(), "both remainders are of one sector");
    let mut culprit = Culprit::Nobody;
    for (p, q) in p.iter().zip(q) {
        let named = match (*p, *q) {
            (0, 0) => continue,
            (_, 0) => Culprit::P,
            (0, _) => Culprit::Q,
            (p, q) => Culprit::Data((255 + logarithm(q) - logarithm(p)) % 255),
        };
        match culprit {
            Culprit::Nobody => culprit = named,
            known if known == named => {}
            _ => return Culprit::Unknown,
        }
    }
    match culprit {
        Culprit::Data(k) if usize::from(k) >= data_strips => Culprit::Unknown,
        culprit => culprit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parity::add_pq;
    use proptest::prelude::*;

    const STRIPS: usize = 9;
    const SECTOR: usize = 512;

    /// The remainders of a stripe whose strip `wrong` has been changed by `error`.
    fn remainders(strips: &[Vec<u8>], wrong: usize, error: &[u8]) -> (Vec<u8>, Vec<u8>) {
        let (mut p, mut q) = (vec![0; SECTOR], vec![0; SECTOR]);
        let whole: Vec<Option<&[u8]>> = strips.iter().map(|strip| Some(&strip[..])).collect();
        add_pq(&mut p, &mut q, &whole);
        let mut changed = strips.to_vec();
        let target = match wrong {
            k if k < strips.len() => &mut changed[k],
            k if k == strips.len() => &mut p,
            _ => &mut q,
        };
        target.iter_mut().zip(error).for_each(|(byte, error)| *byte ^= error);
        let read: Vec<Option<&[u8]>> = changed.iter().map(|strip| Some(&strip[..])).collect();
        add_pq(&mut p, &mut q, &read);
        (p, q)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn whichever_strip_is_wrong_is_named(
            strips in prop::collection::vec(prop::collection::vec(any::<u8>(), SECTOR), STRIPS),
            wrong in 0..STRIPS + 2,
            at in 0..SECTOR, error in prop::collection::vec(any::<u8>(), 1..40),
        ) {
            let mut damage = vec![0; SECTOR];
            damage.iter_mut().skip(at).zip(&error).for_each(|(byte, error)| *byte = *error);
            let (p, q) = remainders(&strips, wrong, &damage);
            let expected = match wrong {
                _ if damage.iter().all(|byte| *byte == 0) => Culprit::Nobody,
                STRIPS => Culprit::P,
                k if k == STRIPS + 1 => Culprit::Q,
                k => Culprit::Data(k as u16),
            };
            prop_assert_eq!(locate(&p, Some(&q), STRIPS), expected);
            let without_q = locate(&p, None, STRIPS);
            let is_named = !matches!(without_q, Culprit::Nobody | Culprit::Unknown);
            prop_assert!(!is_named, "one equation names {:?}", without_q);
        }
    }

    #[test]
    fn two_wrong_strips_are_not_taken_for_one() {
        let mut damage = vec![0; SECTOR];
        (damage[3], damage[9]) = (7, 7);
        let (mut p, mut q) = (damage.clone(), vec![0; SECTOR]);
        q[3] = 7;
        p[9] = 0;
        q[9] = 7;
        assert_eq!(locate(&p, Some(&q), STRIPS), Culprit::Unknown);
    }
}
