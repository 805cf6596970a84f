//! Joins pieces of a request that follow each other on a member.

use headpond_block::{Buffers, ByteRange};
use smallvec::SmallVec;

use crate::balance::Planned;
use crate::layout::Role;
use crate::split::Piece;

/// One operation on the data area of one member.
pub(super) struct MemberOperation {
    pub(super) role: Role,
    pub(super) range: ByteRange,
    pub(super) buffers: Buffers,
    pub(super) pieces: SmallVec<[Piece; 1]>,
}

/// Operations in the making.
pub(super) struct Gather {
    pub(super) operations: Vec<MemberOperation>,
    /// The newest operation on each member.
    newest: SmallVec<[Option<u32>; 64]>,
    /// The bytes of all operations on each member.
    bytes: SmallVec<[u64; 64]>,
}

impl Gather {
    pub(super) fn new(members: usize) -> Gather {
        let (newest, bytes) = (SmallVec::from_elem(None, members), SmallVec::from_elem(0, members));
        Gather { operations: Vec::new(), newest, bytes }
    }

    /// What a piece at `offset` of a member would come behind.
    pub(super) fn planned(&self, role: Role, offset: u64) -> Planned {
        let newest = self.newest[role.index()].map(|index| self.operations[index as usize].range);
        let adjoining = newest.filter(|range| range.end() == offset);
        let adjoining_bytes = adjoining.map_or(0, |range| range.len());
        Planned { bytes: self.bytes[role.index()], adjoining_bytes }
    }

    /// Adds a piece at `offset` of a member, with its memory where the request has any.
    pub(super) fn add(&mut self, role: Role, offset: u64, piece: Piece, buffers: &Buffers) {
        let memory = if buffers.is_empty() { 0..0 } else { piece.memory() };
        let range = ByteRange::at(offset, piece.len_bytes() as u64);
        self.bytes[role.index()] += range.len();
        let newest = &mut self.newest[role.index()];
        if let Some(index) = *newest {
            let last = &mut self.operations[index as usize];
            if last.range.end() == offset {
                last.range = ByteRange::between(last.range.start(), range.end());
                last.buffers.extend(&buffers.slice(memory));
                last.pieces.push(piece);
                return;
            }
        }
        *newest = Some(self.operations.len() as u32);
        let (buffers, pieces) = (buffers.slice(memory), SmallVec::from_iter([piece]));
        self.operations.push(MemberOperation { role, range, buffers, pieces });
    }
}
