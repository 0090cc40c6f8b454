//! The rules of the house, as tests.

use xtask::{Violation, floors, picture, report, root, tidy};

fn assert_kept(result: Result<(), Vec<Violation>>) {
    if let Err(violations) = result {
        panic!("{} rule(s) of the house not kept:\n{}", violations.len(), report(&violations));
    }
}

#[test]
fn every_import_points_to_a_lower_floor() {
    assert_kept(floors::check(&root()));
}

#[test]
fn the_picture_of_the_floors_is_current() {
    assert_kept(picture::check(&root()));
}

#[test]
fn the_house_is_tidy() {
    assert_kept(tidy::check(&root()));
}
