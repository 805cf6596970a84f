//! The columns of one line, taken from left to right in one pass.
//!
//! **Invariants**: numbers do not wrap; a column of another form than requested does not parse.

/// The rest of a line whose columns are separated by `PARTING`; blanks around a column are ignored.
/// A blank stands for any number of blanks and tabs.
#[derive(Clone, Copy)]
pub(crate) struct Columns<'a, const PARTING: u8> {
    rest: &'a [u8],
    over: bool,
}

impl<'a, const PARTING: u8> Columns<'a, PARTING> {
    #[inline]
    pub(crate) fn of(line: &'a [u8]) -> Self {
        Self { rest: line, over: false }
    }

    /// True when no column is left.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.over || (PARTING == b' ' && skip_blanks(self.rest).is_empty())
    }

    /// The next column, unparsed.
    #[inline(always)]
    pub(crate) fn word(&mut self) -> Option<&'a [u8]> {
        let rest = self.start()?;
        let mut length = 0;
        while let Some(&byte) = rest.get(length)
            && !(if PARTING == b' ' { is_blank(byte) } else { byte == PARTING })
        {
            length += 1;
        }
        let word = rest[..length].trim_ascii_end();
        self.end(&rest[length..])?;
        Some(word)
    }

    /// The next two, with their separator.
    #[inline(always)]
    pub(crate) fn two_words(&mut self) -> Option<&'a [u8]> {
        let from = self.start()?;
        self.word()?;
        self.word()?;
        let taken = &from[..from.len() - self.rest.len()];
        Some(taken.strip_suffix(&[PARTING]).unwrap_or(taken))
    }

    /// Digits only.
    #[inline(always)]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let rest = self.start()?;
        let (value, rest) = leading_digits(rest)?;
        self.end(rest)?;
        Some(value)
    }

    /// `whole[.fraction]`, times ten to the power of `digits`; what is finer is cut off.
    #[inline]
    pub(crate) fn decimal(&mut self, digits: u32) -> Option<u64> {
        let (value, rest, _) = decimal(self.start()?, digits)?;
        self.end(rest)?;
        Some(value)
    }

    /// As [`Columns::decimal`], and only with a point.
    #[inline]
    pub(crate) fn pointed(&mut self, digits: u32) -> Option<u64> {
        let (value, rest, pointed) = decimal(self.start()?, digits)?;
        self.end(rest)?;
        pointed.then_some(value)
    }

    #[inline(always)]
    fn start(&self) -> Option<&'a [u8]> {
        let rest = skip_blanks(self.rest);
        (!self.over && (PARTING != b' ' || !rest.is_empty())).then_some(rest)
    }

    #[inline(always)]
    fn end(&mut self, rest: &'a [u8]) -> Option<()> {
        if PARTING == b' ' {
            self.rest = rest;
            return rest.first().is_none_or(|&byte| is_blank(byte)).then_some(());
        }
        let rest = skip_blanks(rest);
        match rest.split_first() {
            Some((&byte, rest)) if byte == PARTING => self.rest = rest,
            Some(_) => return None,
            None => (self.rest, self.over) = (rest, true),
        }
        Some(())
    }
}

/// Digits up to the first byte that is none; at least one.
#[inline(always)]
fn leading_digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    /// So many digits fit whatever they are.
    const SAFE_DIGITS: usize = 19;
    let (mut value, mut length) = (0u64, 0);
    let digit_at = |at: usize| {
        let digit = bytes.get(at)?.wrapping_sub(b'0');
        (digit <= 9).then(|| u64::from(digit))
    };
    while length < SAFE_DIGITS
        && let Some(digit) = digit_at(length)
    {
        value = value * 10 + digit;
        length += 1;
    }
    if length == SAFE_DIGITS {
        while let Some(digit) = digit_at(length) {
            value = value.checked_mul(10)?.checked_add(digit)?;
            length += 1;
        }
    }
    (length > 0).then(|| (value, &bytes[length..]))
}

/// The value, what follows, and whether there was a point.
#[inline]
fn decimal(bytes: &[u8], digits: u32) -> Option<(u64, &[u8], bool)> {
    let (whole, rest) = leading_digits(bytes)?;
    let scaled = whole.checked_mul(10u64.pow(digits))?;
    let Some(fraction) = rest.strip_prefix(b".") else {
        return Some((scaled, rest, false));
    };
    let (mut value, mut place, mut length) = (0, 10u64.pow(digits), 0);
    while let Some(digit) = fraction.get(length).map(|byte| byte.wrapping_sub(b'0'))
        && digit <= 9
    {
        place /= 10;
        value += u64::from(digit) * place;
        length += 1;
    }
    Some((scaled.checked_add(value)?, &fraction[length..], true))
}

#[inline(always)]
fn skip_blanks(mut bytes: &[u8]) -> &[u8] {
    while let Some((&byte, rest)) = bytes.split_first()
        && is_blank(byte)
    {
        bytes = rest;
    }
    bytes
}

#[inline]
fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_come_from_left_to_right_without_their_blanks() {
        let mut columns = Columns::<b','>::of(b"12, W ,3.5,,x");
        assert_eq!(columns.number(), Some(12));
        assert_eq!(columns.word(), Some(&b"W"[..]));
        assert_eq!(columns.decimal(3), Some(3500));
        assert_eq!(columns.word(), Some(&b""[..]));
        assert!(!columns.is_over());
        assert_eq!(columns.word(), Some(&b"x"[..]));
        assert!(columns.is_over());
        assert_eq!(columns.word(), None);
    }

    #[test]
    fn two_words_stand_side_by_side() {
        let mut columns = Columns::<b','>::of(b"1,hm,0,Read");
        columns.number().unwrap();
        assert_eq!(columns.two_words(), Some(&b"hm,0"[..]));
        assert_eq!(columns.word(), Some(&b"Read"[..]));
        assert_eq!(Columns::<b','>::of(b"hm,0").two_words(), Some(&b"hm,0"[..]));
        assert_eq!(Columns::<b','>::of(b"hm").two_words(), None);
    }

    #[test]
    fn blanks_part_columns_however_many_there_are() {
        let mut columns = Columns::<b' '>::of(b"  1.25\t 7   R ");
        assert_eq!(columns.pointed(6), Some(1_250_000));
        assert_eq!(columns.pointed(6), None, "seven has no point");
        let mut columns = Columns::<b' '>::of(b"7   R ");
        assert_eq!(columns.number(), Some(7));
        assert_eq!(columns.word(), Some(&b"R"[..]));
        assert!(columns.is_over());
        assert_eq!(columns.word(), None);
    }

    #[test]
    fn numbers_do_not_wrap_and_hold_only_digits() {
        let number = |text: &'static str| Columns::<b','>::of(text.as_bytes()).number();
        assert_eq!(number("18446744073709551615"), Some(u64::MAX));
        assert_eq!(number("18446744073709551616"), None);
        assert_eq!(number("99999999999999999999999"), None);
        assert_eq!(number("-1"), None);
        assert_eq!(number("1x"), None);
        assert_eq!(number(""), None);
        assert_eq!(Columns::<b','>::of(b"18446744073.709551616").decimal(9), None);
        assert_eq!(Columns::<b','>::of(b"1.0000000019").decimal(9), Some(1_000_000_001));
    }
}
