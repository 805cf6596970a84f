//! Vital product data pages of SCSI drives.
//!
//! **Source**: SPC-5 (80h, 86h); SBC-4 (B1h).

/// The medium's rotation rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    None,
    PerMinute(u32),
}

/// Which kinds of cache a drive supports, by its extended inquiry page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKinds {
    pub volatile: bool,
    pub non_volatile: bool,
}

/// The unit serial number (80h).
pub fn serial(page: &[u8]) -> Option<String> {
    let body = body(page, 0x80)?;
    let text = String::from_utf8_lossy(body);
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\0');
    (!text.is_empty()).then(|| text.to_owned())
}

/// The medium's rotation rate (B1h); `None` where it is not reported.
pub fn rotation(page: &[u8]) -> Option<Rotation> {
    let body = body(page, 0xB1)?;
    match u16::from_be_bytes([*body.first()?, *body.get(1)?]) {
        1 => Some(Rotation::None),
        rate @ 0x0401..=0xFFFE => Some(Rotation::PerMinute(rate.into())),
        _ => None,
    }
}

/// V_SUP and NV_SUP (86h).
pub fn cache_kinds(page: &[u8]) -> Option<CacheKinds> {
    let flags = *body(page, 0x86)?.get(2)?;
    Some(CacheKinds { volatile: flags & 0x01 != 0, non_volatile: flags & 0x02 != 0 })
}

/// The payload after the header, up to the page's own length.
fn body(page: &[u8], code: u8) -> Option<&[u8]> {
    let header = page.get(..4)?;
    let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let body = &page[4..];
    (header[1] == code).then(|| &body[..length.min(body.len())])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(code: u8, body: &[u8]) -> Vec<u8> {
        [&[0, code, 0, u8::try_from(body.len()).unwrap()][..], body].concat()
    }

    #[test]
    fn a_serial_number_is_trimmed_and_ends_where_the_page_does() {
        assert_eq!(serial(&page(0x80, b"  WD-123 ")).as_deref(), Some("WD-123"));
        let mut longer = page(0x80, b"AB");
        longer.extend(b"garbage");
        assert_eq!(serial(&longer).as_deref(), Some("AB"));
        assert_eq!(serial(&page(0x80, b"   ")), None);
        assert_eq!(serial(&page(0x83, b"AB")), None);
    }

    #[test]
    fn rotation_is_none_for_flash_and_unknown_where_not_reported() {
        let of = |rate: u16| rotation(&page(0xB1, &rate.to_be_bytes()));
        assert_eq!(of(1), Some(Rotation::None));
        assert_eq!(of(15_000), Some(Rotation::PerMinute(15_000)));
        assert_eq!(of(0), None);
        assert_eq!(of(0xFFFF), None);
        assert_eq!(rotation(&page(0xB1, &[0x1C])), None);
    }

    #[test]
    fn volatile_and_non_volatile_caches_are_two_bits() {
        let of = |flags: u8| cache_kinds(&page(0x86, &[0, 0, flags, 0])).unwrap();
        assert_eq!(of(1), CacheKinds { volatile: true, non_volatile: false });
        assert_eq!(of(2), CacheKinds { volatile: false, non_volatile: true });
        assert_eq!(cache_kinds(&[0, 0x86, 0]), None);
    }
}
