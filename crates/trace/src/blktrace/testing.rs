//! Writes blktrace records for tests.

/// How the tracing machine stores its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ByteOrder {
    Little,
    Big,
}

/// The fields of one record before encoding.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw<'a> {
    pub time_ns: u64,
    pub sector: u64,
    pub bytes: u32,
    pub action: u16,
    pub category: u32,
    pub pid: u32,
    pub error: u16,
    pub payload: &'a [u8],
}

pub(crate) const WRITE: u32 = 1 << 1;
pub(crate) const NOTIFY: u32 = 1 << 10;

impl Raw<'_> {
    pub(crate) fn queue_write() -> Raw<'static> {
        Raw {
            time_ns: 0,
            sector: 0,
            bytes: 4096,
            action: 1,
            category: WRITE,
            pid: 1,
            error: 0,
            payload: &[],
        }
    }
}

pub(crate) fn encode(raw: &Raw<'_>, version: u8, order: ByteOrder) -> Vec<u8> {
    let mut out = Vec::new();
    let action = (u64::from(raw.category) << 16) | u64::from(raw.action);
    put(&mut out, u64::from(super::MAGIC) | u64::from(version), 4, order);
    put(&mut out, 1, 4, order);
    put(&mut out, raw.time_ns, 8, order);
    put(&mut out, raw.sector, 8, order);
    put(&mut out, u64::from(raw.bytes), 4, order);
    if version == 7 {
        put(&mut out, action, 4, order);
        put(&mut out, u64::from(raw.pid), 4, order);
    } else {
        put(&mut out, u64::from(raw.pid), 4, order);
        put(&mut out, action, 8, order);
    }
    put(&mut out, 254 << 20, 4, order);
    put(&mut out, 0, 4, order);
    put(&mut out, u64::from(raw.error), 2, order);
    put(&mut out, raw.payload.len() as u64, 2, order);
    if version == 8 {
        out.extend([0; 12]);
    }
    out.extend(raw.payload);
    out
}

fn put(out: &mut Vec<u8>, value: u64, bytes: usize, order: ByteOrder) {
    let mut word = value.to_le_bytes()[..bytes].to_vec();
    if order == ByteOrder::Big {
        word.reverse();
    }
    out.extend(word);
}
