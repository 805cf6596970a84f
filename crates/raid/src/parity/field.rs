//! The field GF(2^8) with the polynomial x^8 + x^4 + x^3 + x^2 + 1 (0x11d) and the generator 2.

const LOW_BITS: u8 = 0x1d;

/// `2^exponent`.
pub(super) fn power_of_two(exponent: u32) -> u8 {
    POWERS[(exponent % 255) as usize]
}

/// `a x b` by shift and add: the definition itself.
pub(super) const fn multiply(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    sum
}

/// The element that gives 1 when multiplied by `a`.
///
/// # Panics
/// For zero, which has none.
pub(super) fn inverse(a: u8) -> u8 {
    assert_ne!(a, 0, "zero has no inverse");
    power_of_two(255 - u32::from(LOGARITHMS[usize::from(a)]))
}

/// The exponent to which 2 gives `a`.
///
/// # Panics
/// For zero, which no exponent gives.
pub(super) fn logarithm(a: u8) -> u16 {
    assert_ne!(a, 0, "zero has no logarithm");
    LOGARITHMS[usize::from(a)].into()
}

const fn double(a: u8) -> u8 {
    (a << 1) ^ if a & 0x80 != 0 { LOW_BITS } else { 0 }
}

const POWERS: [u8; 255] = powers();
const LOGARITHMS: [u8; 256] = logarithms();

const fn powers() -> [u8; 255] {
    let mut table = [1; 255];
    let mut exponent = 1;
    while exponent < 255 {
        table[exponent] = double(table[exponent - 1]);
        exponent += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut exponent = 0;
    while exponent < 255 {
        table[POWERS[exponent] as usize] = exponent as u8;
        exponent += 1;
    }
    table
}

/// The products of `factor` with 0 ... 15 and with 0x00, 0x10 ... 0xf0: a byte's product is the sum
/// of two.
pub(super) fn nibble_products(factor: u8) -> ([u8; 16], [u8; 16]) {
    let low = std::array::from_fn(|nibble| multiply(factor, nibble as u8));
    let high = std::array::from_fn(|nibble| multiply(factor, (nibble as u8) << 4));
    (low, high)
}

/// The 8 x 8 bit matrix that multiplies by `factor`, in the order of the GFNI affine instructions:
/// byte `7 - i` is the row of result bit `i`, and its bit `j` says whether input bit `j` counts.
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) const fn bit_matrix(factor: u8) -> u64 {
    let mut matrix = 0_u64;
    let mut input = 0;
    while input < 8 {
        let column = multiply(factor, 1 << input);
        let mut output = 0;
        while output < 8 {
            if column & (1 << output) != 0 {
                matrix |= 1 << ((7 - output) * 8 + input);
            }
            output += 1;
        }
        input += 1;
    }
    matrix
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_those_of_the_polynomial() {
        assert_eq!(POWERS[..10], [1, 2, 4, 8, 16, 32, 64, 128, 0x1d, 0x3a]);
        assert_eq!(double(POWERS[254]), 1);
    }

    #[test]
    fn every_element_but_zero_has_its_inverse() {
        for a in 1..=255 {
            assert_eq!(multiply(a, inverse(a)), 1);
        }
    }

    #[test]
    fn nibble_products_and_matrix_multiply() {
        for factor in 0..=255_u8 {
            let (low, high) = nibble_products(factor);
            for byte in 0..=255_u8 {
                let product = multiply(factor, byte);
                assert_eq!(low[usize::from(byte & 15)] ^ high[usize::from(byte >> 4)], product);
                assert_eq!(apply(bit_matrix(factor), byte), product);
            }
        }
    }

    fn apply(matrix: u64, byte: u8) -> u8 {
        (0..8).fold(0, |result, bit| {
            let row = (matrix >> ((7 - bit) * 8)) as u8;
            result | (((row & byte).count_ones() as u8 & 1) << bit)
        })
    }
}
