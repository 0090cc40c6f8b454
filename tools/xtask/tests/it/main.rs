//! The rules of the repository, as tests.

use xtask::{Violation, floors, format_book, format_violations, picture, root, tidy};

fn assert_no_violations(result: Result<(), Vec<Violation>>) {
    if let Err(violations) = result {
        panic!("{} broken rule(s):\n{}", violations.len(), format_violations(&violations));
    }
}

#[test]
fn every_import_points_to_a_lower_floor() {
    assert_no_violations(floors::check(&root()));
}

#[test]
fn floor_picture_is_current() {
    assert_no_violations(picture::check(&root()));
}

#[test]
fn format_book_shows_the_drawings() {
    assert_no_violations(format_book::check(&root()));
}

#[test]
fn workspace_is_tidy() {
    assert_no_violations(tidy::check(&root()));
}
