//! The reshape of an array to more members, while it serves.
//!
//! Two arrays are on the same members: the *former* one of fewer members, which the first half of
//! each member's metadata describes, and this one, which the second half does (`second_half`). Each
//! has its own locks, marks and record of members in use, independent of the other's. Data before
//! the *position* belongs to this one, data behind it to the former one.
//!
//! 1. `begin_reshape` writes the second halves, and makes them valid in the first ones; 2. the
//!    array is assembled again; 3. step by step ([`crate::reshape`]): requests to the moving range
//!    are held, it is read from the former array, written as whole rows of this one and flushed,
//!    and an event of this one records the position; a step that would overwrite data that has not
//!    moved is staged, and that recorded, before it is written to its place; 4. rows behind the end
//!    of the former array are zeroed, so that all parity is consistent; 5. the second halves move
//!    over the first, and an event ends the reshape; the array has its new size at once.
//!
//! **Invariants**
//! - A row is written by this array only when the former one needs nothing of it, or it is staged,
//!   stably.
//! - Data that the former array cannot rely on any more is not used: a member that fails there is
//!   excluded from this one before the next step, since writes sent to it may still reach its
//!   medium.
//! - The writes of a step need no intent mark: after a cut they are repeated.

use std::cell::Cell;
use std::ops::RangeInclusive;
use std::rc::Rc;

use headpond_block::sync::{Access, RangeLocks, join_all};
use headpond_block::{
    BlockDevice, Buffer, ByteRange, Cause, ChangingGeometry, DeviceError, Geometry, Outcome,
    Request, RequestKind, Submission,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::second_half::SecondHalf;
use super::{Array, Member};
use crate::layout::Stripe;
use crate::reshape::{Step, Way};
use crate::superblock::{ArrayRecord, RecordedReshape};

/// How a reshape ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grown {
    /// Everything has moved, and the array has its new size.
    Whole,
    /// It was asked to stop, and continues when it is called again.
    Paused,
}

/// Progress of a reshape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReshapeStatus {
    pub members_before: usize,
    /// Rows of strips of the new shape that are done.
    pub rows_done: u64,
    pub rows: u64,
    /// Size of the array after the reshape.
    pub size_bytes_after: u64,
}

/// The state of an array during a reshape.
pub(crate) struct Reshape {
    /// `None` if everything had moved when the array was assembled.
    former: Option<Former>,
    halves: Vec<Rc<SecondHalf>>,
    data_offset: u64,
    strip_bytes: u64,
    moved_rows: Cell<u64>,
    staged_rows: Cell<u64>,
    /// Stripes that a step is writing.
    stepping: Cell<Option<(u64, u64)>>,
    /// Held by requests, and by the step that moves what they ask for. The byte behind the end
    /// stands for flushes.
    locks: RangeLocks,
    is_done: Cell<bool>,
}

struct Former {
    array: Box<Array>,
    way: Way,
}

impl Reshape {
    /// Members in their second halves, and from where they move.
    pub(crate) fn new(former: Option<Array>, next: &Array, halves: Vec<Rc<SecondHalf>>) -> Reshape {
        let record = next.recorder.record();
        let (moved_rows, staged_rows) = match record.reshape {
            Some(RecordedReshape::Next { moved_rows, staged_rows }) => (moved_rows, staged_rows),
            _ => (next.layout.rows(), 0),
        };
        let way = |former: &Array| Way::new(&former.layout, &next.layout);
        let reshape = Reshape {
            former: former.map(|array| Former { way: way(&array), array: Box::new(array) }),
            halves,
            data_offset: record.data_offset,
            strip_bytes: next.layout.strip_bytes().into(),
            moved_rows: Cell::new(moved_rows),
            staged_rows: Cell::new(staged_rows),
            stepping: Cell::new(None),
            locks: RangeLocks::new(),
            is_done: Cell::new(false),
        };
        reshape.stage(staged_rows);
        reshape
    }

    /// The array that still has part of the data.
    fn former(&self) -> Option<&Former> {
        self.former.as_ref().filter(|_| !self.is_done.get())
    }

    /// Checks the position against what the members say, where that is settled; for tests and
    /// simulation.
    ///
    /// # Panics
    /// Where an invariant does not hold.
    pub(super) fn self_check(&self, array: &Array) {
        let (moved, staged) = (self.moved_rows.get(), self.staged_rows.get());
        assert!(staged <= moved && moved <= array.layout.rows(), "what is staged has moved");
        let (recorded, is_done) = (array.recorder.recorded(), self.is_done.get());
        let reshape = recorded.map(|issued| issued.reshape);
        assert!(!is_done || reshape.is_none_or(|it| it.is_none()), "an array grows no more");
        if let Some(Some(RecordedReshape::Next { moved_rows, .. })) = reshape {
            assert!(moved <= moved_rows, "nothing is served from where a cut would not find it");
        }
    }

    /// Stages the last so many rows up to the position, or up to the end of a step.
    fn stage(&self, rows: u64) {
        self.stage_rows(self.moved_rows.get() - rows, rows);
    }

    fn stage_rows(&self, first: u64, rows: u64) {
        let start = self.data_offset + first * self.strip_bytes;
        let part = match rows {
            0 => ByteRange::EMPTY,
            rows => ByteRange::at(start, rows * self.strip_bytes),
        };
        self.halves.iter().for_each(|half| half.set_staged(part));
    }
}

impl Array {
    /// An array with a part of its data in a former one.
    pub(crate) fn growing_by(mut self, reshape: Reshape) -> Array {
        if let Some(former) = &reshape.former {
            let size_bytes = former.array.geometry().size_bytes;
            self.geometry =
                ChangingGeometry::new(Geometry { size_bytes, ..self.geometry().clone() });
        }
        self.reshape = Some(reshape);
        self
    }

    /// Whether the array is on its way to more members, or is to be once it is assembled again.
    pub fn is_growing(&self) -> bool {
        self.recorder.record().reshape.is_some()
    }

    /// How far that is.
    pub fn reshape_status(&self) -> Option<ReshapeStatus> {
        let reshape = self.growing()?;
        let former = reshape.former()?;
        Some(ReshapeStatus {
            members_before: former.array.layout.members(),
            rows_done: reshape.moved_rows.get(),
            rows: former.way.rows(),
            size_bytes_after: self.layout.array_bytes(),
        })
    }

    /// The devices that are in use: members, and spares.
    pub fn devices(&self) -> Vec<Rc<dyn BlockDevice>> {
        let device = |member: &Rc<Member>| {
            let halves = self.reshape.iter().flat_map(|reshape| &reshape.halves);
            let half = halves.into_iter().find(|half| half.uuid() == member.uuid);
            half.map_or_else(|| Rc::clone(&member.device), |half| half.device())
        };
        self.members.present().iter().map(device).collect()
    }

    /// Refuses to record what the array of more members would not have: it is described on the
    /// members, and not put together yet.
    pub(super) fn check_halves_agree(&self, operation: &'static str) -> Outcome {
        match self.is_growing() && self.growing().is_none() {
            true => Err(DeviceError::new(&self.name, Cause::Unsupported { operation })),
            false => Ok(()),
        }
    }

    /// Changes what both halves of the members say of the array, where it grows: what the one of
    /// fewer members has of a cache still counts for its part of the data.
    pub(super) async fn change_both_records(&self, change: impl Fn(&mut ArrayRecord)) -> Outcome {
        if let Some(reshape) = self.growing() {
            // With the end of the growth there are no first halves to write to.
            let flushes = ByteRange::at(self.geometry().size_bytes, 1);
            let _held = reshape.locks.lock(flushes, Access::Shared).await;
            if let Some(former) = reshape.former() {
                former.array.change_record(&change).await?;
            }
        }
        self.change_record(change).await
    }

    pub(super) fn growing(&self) -> Option<&Reshape> {
        self.reshape.as_ref().filter(|reshape| !reshape.is_done.get())
    }

    /// The array that still has part of the data.
    pub(crate) fn former(&self) -> Option<&Array> {
        Some(&self.growing()?.former()?.array)
    }

    /// Refuses operations on all rows of the members.
    pub(super) fn check_shape_stays(&self, operation: &'static str) -> Outcome {
        match self.is_growing() {
            true => Err(DeviceError::new(&self.name, Cause::Unsupported { operation })),
            false => Ok(()),
        }
    }

    /// Whether what is written to some stripes is written again after a cut, by the step that
    /// writes it now.
    pub(super) fn is_stepping_on(&self, stripes: &RangeInclusive<Stripe>) -> bool {
        let stepping = self.growing().and_then(|reshape| reshape.stepping.get());
        stepping.is_some_and(|(start, end)| start <= stripes.start().0 && stripes.end().0 < end)
    }

    /// Executes a request on the array that has the data, or on both.
    pub(super) async fn serve_divided(&self, reshape: &Reshape, request: Request) -> Outcome {
        let Some(former) = reshape.former() else { return self.serve(request).await };
        if request.kind == RequestKind::Flush {
            return self.flush_both(reshape, request).await;
        }
        request.check(&self.name, self.geometry())?;
        let range = request.range;
        let _held = reshape.locks.lock(range, Access::Shared).await;
        let moved = former.way.moved_bytes(reshape.moved_rows.get());
        let here = ByteRange::between(range.start(), moved.clamp(range.start(), range.end()));
        let there = ByteRange::between(here.end(), range.end());
        let part = |part: ByteRange| request.part(part, part.start());
        let mut parts = Vec::with_capacity(2);
        if !here.is_empty() {
            parts.push(self.serve(part(here)));
        }
        if !there.is_empty() {
            parts.push(former.array.serve(part(there)));
        }
        join_all(parts).await.into_iter().collect()
    }

    async fn flush_both(&self, reshape: &Reshape, request: Request) -> Outcome {
        let flushes = ByteRange::at(self.geometry().size_bytes, 1);
        let _held = reshape.locks.lock(flushes, Access::Shared).await;
        let Some(former) = reshape.former() else { return self.serve(request).await };
        let both = vec![self.serve(request.clone()), former.array.serve(request)];
        join_all(both).await.into_iter().collect()
    }

    /// Moves the data to the shape of more members, from where it was left. Requests are served
    /// meanwhile, but for those to what is being moved, which wait; between the steps `go_on` may
    /// wait, to leave them room, and ends the work with `false`.
    ///
    /// # Errors
    /// What could not be read or written. What has moved stays moved, and the array serves as
    /// before; the next call tries again.
    pub async fn grow(&self, mut go_on: impl AsyncFnMut() -> bool) -> Result<Grown, DeviceError> {
        let Some(reshape) = self.growing() else { return Ok(Grown::Whole) };
        while let Some(former) = reshape.former() {
            self.unstage(reshape, former).await?;
            let Some(step) = former.way.step(reshape.moved_rows.get()) else { break };
            self.take(reshape, former, step).await?;
            if !go_on().await {
                return Ok(Grown::Paused);
            }
        }
        self.finish_reshape(reshape).await?;
        Ok(Grown::Whole)
    }

    /// Makes good what a cut has left of a step, or of the end, before anything is served.
    ///
    /// # Errors
    /// Where the array has lost too many members.
    pub(crate) async fn resume_reshape(&self) -> Outcome {
        let Some(reshape) = self.growing() else { return Ok(()) };
        match reshape.former() {
            // What is staged is served from there, and the next step tries again.
            Some(former) => match self.unstage(reshape, former).await {
                Err(_) if !former.array.members.is_broken() => self.check_intact(),
                outcome => outcome,
            },
            None => self.finish_reshape(reshape).await,
        }
    }

    async fn take(&self, reshape: &Reshape, former: &Former, step: Step) -> Outcome {
        let bytes = former.way.bytes_of(&step.rows);
        let _held = reshape.locks.lock(bytes, Access::Exclusive).await;
        self.follow_failures(&former.array).await?;
        let content = Buffer::zeroed(bytes.len() as usize);
        let old = bytes.intersect(ByteRange::at(0, former.array.geometry().size_bytes));
        if !old.is_empty() {
            let part = content.slice(0..old.len() as usize);
            former.array.serve(Request::read(old.start(), &part)).await?;
        }
        // A member that could not write a repair there gets no more writes here.
        self.follow_failures(&former.array).await?;
        let rows = step.rows.end - step.rows.start;
        if !step.is_staged {
            self.write_step(reshape, bytes, &content).await?;
            return self.record_reshape(reshape, step.rows.end, 0).await;
        }
        reshape.stage_rows(step.rows.start, rows);
        if let Err(error) = self.write_step(reshape, bytes, &content).await {
            reshape.stage(0);
            return Err(error);
        }
        self.record_reshape(reshape, step.rows.end, rows).await?;
        self.put_in_place(reshape, bytes, &content).await
    }

    /// Writes rows to their place that are staged since an earlier attempt.
    async fn unstage(&self, reshape: &Reshape, former: &Former) -> Outcome {
        let rows = reshape.staged_rows.get();
        if rows == 0 {
            return Ok(());
        }
        let end = reshape.moved_rows.get();
        let bytes = former.way.bytes_of(&(end - rows..end));
        let _held = reshape.locks.lock(bytes, Access::Exclusive).await;
        self.follow_failures(&former.array).await?;
        let content = Buffer::zeroed(bytes.len() as usize);
        self.read(Request::read(bytes.start(), &content)).await?;
        self.put_in_place(reshape, bytes, &content).await
    }

    async fn put_in_place(&self, reshape: &Reshape, bytes: ByteRange, content: &Buffer) -> Outcome {
        let (moved, staged) = (reshape.moved_rows.get(), reshape.staged_rows.get());
        reshape.stage(0);
        if let Err(error) = self.write_step(reshape, bytes, content).await {
            reshape.stage(staged);
            return Err(error);
        }
        self.record_reshape(reshape, moved, 0).await
    }

    /// Writes whole rows, stably.
    async fn write_step(&self, reshape: &Reshape, bytes: ByteRange, content: &Buffer) -> Outcome {
        let stripe = |byte: u64| byte / self.layout.stripe_bytes();
        reshape.stepping.set(Some((stripe(bytes.start()), stripe(bytes.end()))));
        let written = self.write(Request::write(bytes.start(), content)).await;
        reshape.stepping.set(None);
        written?;
        self.flush_members().await
    }

    async fn record_reshape(
        &self,
        reshape: &Reshape,
        moved_rows: u64,
        staged_rows: u64,
    ) -> Outcome {
        let recorded = RecordedReshape::Next { moved_rows, staged_rows };
        self.record_progress(|record| record.reshape = Some(recorded)).await?;
        reshape.moved_rows.set(moved_rows);
        reshape.staged_rows.set(staged_rows);
        if let Some(former) = reshape.former() {
            former.array.clear_suspect_parity_before(former.way.moved_bytes(moved_rows));
        }
        Ok(())
    }

    /// Fails members that have failed in the former array.
    async fn follow_failures(&self, former: &Array) -> Outcome {
        let present = former.members.present();
        for member in self.members.present() {
            if present.iter().any(|other| other.uuid == member.uuid) {
                continue;
            }
            if !self.members.can_lose(&member) {
                return Err(self.gone());
            }
            self.fail_member(&member).await;
        }
        self.check_intact()
    }

    /// Moves the second halves over the first: from then on the members are those of an array as
    /// any other, and the array has its new size.
    async fn finish_reshape(&self, reshape: &Reshape) -> Outcome {
        let everything = ByteRange::at(0, self.geometry().size_bytes + 1);
        let _held = reshape.locks.lock(everything, Access::Exclusive).await;
        if let Some(former) = reshape.former() {
            self.follow_failures(&former.array).await?;
        }
        let present = self.members.present().into_iter();
        let to_move: Vec<(Rc<Member>, Rc<SecondHalf>)> = present
            .filter_map(|member| {
                let half = reshape.halves.iter().find(|half| half.uuid() == member.uuid);
                let half = Rc::clone(half.expect("every member has a second half"));
                (!half.is_moved()).then_some((member, half))
            })
            .collect();
        let start = |(member, half): &(Rc<Member>, Rc<SecondHalf>)| {
            let half = Rc::clone(half);
            let moves = Submission::pending(async move { half.move_over_first().await });
            self.watched(member, moves, RequestKind::Write)
        };
        let outcomes = join_all(to_move.iter().map(start).collect()).await;
        for ((member, half), outcome) in to_move.iter().zip(outcomes) {
            match outcome {
                Ok(()) => member.go_on_from(half.first_sequence()),
                Err(_) => self.drop_member(member),
            }
        }
        self.change_record(|record| record.reshape = None).await?;
        reshape.is_done.set(true);
        let size_bytes = self.layout.array_bytes();
        self.geometry.change(Geometry { size_bytes, ..self.geometry().clone() });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use headpond_testkit::{Break, assert_trips};

    use super::*;
    use crate::array::self_check::tests::*;

    #[test]
    fn check_notices_a_position_that_a_cut_would_not_find() {
        fn of(array: &Array) -> &Reshape {
            array.reshape.as_ref().expect("it grows")
        }
        let breaks: [Break<Array>; 4] = [
            ("from where a cut would not find it", |it| {
                of(it).moved_rows.set(of(it).moved_rows.get() + 1);
            }),
            ("what is staged has moved", |it| of(it).staged_rows.set(1 << 40)),
            ("what is staged has moved", |it| of(it).moved_rows.set(1 << 40)),
            ("an array grows no more", |it| of(it).is_done.set(true)),
        ];
        assert_trips(growing, |it| of(it).self_check(it), &breaks);
    }
}
