//! That the check notices what is wrong with extents.

use super::*;
use crate::line_map::check_tests::lived;
use headpond_testkit::{Break, assert_trips};

#[test]
fn check_notices_extents_that_are_not_found() {
    let breaks: [Break<Extents>; 5] = [
        ("an extent without a mapped place", |it| it.tags[20] = Tag::FREE),
        ("mapped without an extent", |it| it.tags[40] = it.tags[0]),
        ("linked extents are counted", |it| it.linked_len -= 1),
        ("free extents are counted", |it| it.free = NONE),
        ("what is in use is linked", |it| it.free_len -= 1),
    ];
    assert_trips(|| lived().extents, Extents::self_check, &breaks);
}
