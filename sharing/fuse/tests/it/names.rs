//! Names that change while somebody looks: what is told of them is true when it is told. It takes
//! /dev/fuse.

use std::fs;

use crate::mounted::can_mount;
use crate::place::Place;

#[test]
fn a_listing_that_goes_on_tells_of_no_name_that_is_gone() {
    if !can_mount() {
        return;
    }
    let place = Place::make("listing");
    let dir = place.dir().join("many");
    fs::create_dir(&dir).unwrap();
    for number in 0..1000 {
        fs::write(dir.join(format!("file-of-many-{number}")), b"precious").unwrap();
    }
    let names = || fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name());
    let order: Vec<_> = names().collect();
    let mut goes_on = names();
    goes_on.next().unwrap();
    // beyond what was told at once, and within what was read
    let (old, new) = (dir.join(&order[450]), dir.join("new"));
    fs::rename(&old, &new).unwrap();
    // who looks at one is told of the others along with their names
    fs::metadata(dir.join(&order[0])).unwrap();
    assert!(goes_on.by_ref().count() >= 998);
    fs::write(&old, b"").unwrap();
    assert_eq!(fs::read(&new).unwrap(), b"precious");
    drop(goes_on);
    place.end();
}
