//! The caching page (08h) in the answer to MODE SENSE.
//!
//! **Source**: SBC-4, caching mode page; SPC-5, mode parameter headers.

/// A drive's caching page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// WCE: writes are acknowledged from the cache.
    pub write_cache: bool,
    /// RCD: reads do not come from the cache.
    pub read_cache_disabled: bool,
    /// PS: the drive can save the page across power cycles.
    pub can_be_saved: bool,
}

/// Which of the two commands succeeded; their headers differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    Six,
    Ten,
}

const CACHING_PAGE: u8 = 0x08;

impl Caching {
    /// Finds the page after the header and the block descriptors; `None` where it is missing.
    pub fn parse(reply: &[u8], header: Header) -> Option<Self> {
        let page = reply.get(page_offset(reply, header)?..)?;
        let (&first, &flags) = (page.first()?, page.get(2)?);
        // Bit 6 marks a subpage, which has another shape.
        let is_ours = first & 0x7F == CACHING_PAGE && *page.get(1)? >= 1;
        is_ours.then_some(Self {
            write_cache: flags & 0x04 != 0,
            read_cache_disabled: flags & 0x01 != 0,
            can_be_saved: first & 0x80 != 0,
        })
    }
}

fn page_offset(reply: &[u8], header: Header) -> Option<usize> {
    Some(match header {
        Header::Six => 4 + usize::from(*reply.get(3)?),
        Header::Ten => 8 + usize::from(u16::from_be_bytes([*reply.get(6)?, *reply.get(7)?])),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(first: u8, flags: u8) -> Vec<u8> {
        let mut page = vec![first, 0x12, flags];
        page.resize(20, 0);
        page
    }

    #[test]
    fn the_page_is_found_behind_either_header_and_its_descriptors() {
        let expected =
            Caching { write_cache: true, read_cache_disabled: false, can_be_saved: true };
        let ten = [&[0, 34, 0, 0, 0, 0, 0, 8][..], &[0; 8], &page(0x88, 0x04)].concat();
        assert_eq!(Caching::parse(&ten, Header::Ten), Some(expected));
        let six = [&[23, 0, 0x10, 0][..], &page(0x88, 0x04)].concat();
        assert_eq!(Caching::parse(&six, Header::Six), Some(expected));
    }

    #[test]
    fn each_bit_says_its_own() {
        let parse = |first, flags| {
            let reply = [&[0; 8][..], &page(first, flags)].concat();
            Caching::parse(&reply, Header::Ten).unwrap()
        };
        assert!(!parse(0x08, 0x01).write_cache && parse(0x08, 0x01).read_cache_disabled);
        assert!(!parse(0x08, 0x04).can_be_saved);
    }

    #[test]
    fn another_page_or_a_cut_answer_is_no_answer() {
        let whole = [&[0; 8][..], &page(0x08, 0x04)].concat();
        for length in 0..=10 {
            assert_eq!(Caching::parse(&whole[..length], Header::Ten), None, "{length}");
        }
        let other = [&[0; 8][..], &page(0x0A, 0x04)].concat();
        assert_eq!(Caching::parse(&other, Header::Ten), None);
        let far = [&[0, 0, 0, 0, 0, 0, 0xFF, 0xFF][..], &page(0x08, 0x04)].concat();
        assert_eq!(Caching::parse(&far, Header::Ten), None);
    }
}
