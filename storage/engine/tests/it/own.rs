//! What a pool says of itself: its own properties, its features, its name.

use engine::held::{self, Shape, TakeOver, Wishes};

use crate::held::{Folder, faults, new_pool, read_file, world, write_file};

fn words(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn value(held: &held::Held, name: &str) -> (String, String) {
    let all = held.pool_properties().unwrap();
    let found = all.into_iter().find(|property| property.name == name).unwrap();
    (found.value, found.source)
}

#[test]
fn pools_have_properties_of_their_own() {
    let folder = Folder::new("own", 2, 128 << 20);
    let wishes = words(&[
        ("failmode", "continue"),
        ("comment", "the box in the cellar"),
        ("feature@draid", "disabled"),
    ]);
    let new = new_pool(&folder, Shape::Mirror, 2);
    let held = held::create_with(&new, Wishes::of(&wishes, false).unwrap(), &world()).unwrap();
    held.set_pool_property("bootfs", "tank").unwrap();
    held.set_pool_property("listsnaps", "on").unwrap();
    assert!(held.set_pool_property("bootfs", "tank/none").is_err());
    let local = |value: &str| (value.to_owned(), "local".to_owned());
    let check = |held: &held::Held, name: &str| {
        assert_eq!(value(held, "failmode"), local("continue"));
        assert_eq!(value(held, "comment"), local("the box in the cellar"));
        assert_eq!(value(held, "bootfs"), local(name));
        assert_eq!(value(held, "listsnapshots"), local("on"));
        assert_eq!(value(held, "autotrim"), ("off".to_owned(), "default".to_owned()));
        assert_eq!(value(held, "feature@draid").0, "disabled");
        assert_eq!(value(held, "feature@lz4_compress").0, "active");
    };
    check(&held, "tank");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());

    let how = TakeOver { new_name: Some("vault".to_owned()), ..TakeOver::default() };
    let held = held::hold_as(&[folder.path().into()], "tank", &how, &world()).unwrap();
    check(&held, "vault");
    held.set_pool_property("feature@draid", "enabled").unwrap();
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "vault"), Vec::<String>::new(), "its labels have the new name");
}

#[test]
fn a_pool_with_no_features_but_two_is_written() {
    let folder = Folder::new("bare", 3, 128 << 20);
    let wishes =
        words(&[("feature@lz4_compress", "enabled"), ("feature@async_destroy", "enabled")]);
    let mut new = new_pool(&folder, Shape::Raidz(1), 3);
    new.properties = words(&[("compression", "lz4")]);
    let held = held::create_with(&new, Wishes::of(&wishes, true).unwrap(), &world()).unwrap();
    write_file(&held, "tank", "letter", &b"to be or not to be ".repeat(50_000));
    held.snapshot(&["tank@one".to_owned()]).unwrap();
    write_file(&held, "tank", "other", b"that is the question");
    assert_eq!(value(&held, "feature@extensible_dataset").0, "disabled");
    held.export().unwrap();
    drop(held);
    assert_eq!(faults(&folder, "tank"), Vec::<String>::new());
}

#[test]
fn a_destroyed_pool_comes_back_if_that_is_asked_for() {
    let folder = Folder::new("destroyed", 1, 128 << 20);
    let held = held::create(&new_pool(&folder, Shape::Single, 1), &world()).unwrap();
    write_file(&held, "tank", "letter", b"not meant to go");
    held.destroy_pool().unwrap();
    drop(held);
    let here = [folder.path().into()];
    assert!(held::hold(&here, "tank", true, &world()).is_err(), "nobody asked for it");
    let how = TakeOver { destroyed: true, ..TakeOver::default() };
    let held = held::hold_as(&here, "tank", &how, &world()).unwrap();
    assert_eq!(read_file(&held, "tank", "letter"), b"not meant to go");
    held.export().unwrap();
}
