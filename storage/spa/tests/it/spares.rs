//! Spares that a pool lets go.

use ondisk::feature::FEATURES;
use ondisk::label::PoolState;
use spa::design::{Purpose, Shape, top};
use spa::{NewPool, create};
use units::Ashift;

use crate::made::{Folder, world};
use crate::scan::devices;

#[test]
fn what_stands_in_for_a_drive_is_not_let_go_as_a_spare() {
    let folder = Folder::new("spares");
    let drives = folder.drives(2, 128 << 20);
    let new = NewPool {
        name: "made".to_owned(),
        tops: vec![top(Shape::Mirror, &drives, Ashift::new(12).unwrap(), Purpose::Data).unwrap()],
        devices: devices(&drives),
        features: FEATURES.iter().collect(),
        host: (0x1234, "here".to_owned()),
        key: None,
        auxiliary: Vec::new(),
    };
    let owned = create(new, world(), &mut |_, _, _| Ok(())).unwrap().owned;
    // a spare that is in use has the same identity among the vdevs
    let in_use = owned.tree().leaves()[1].guid();
    let synced = owned.groups().synced();
    assert!(owned.remove_auxiliary(in_use).is_err());
    assert_eq!(owned.groups().synced(), synced, "nothing was changed for it");
    owned.leave(PoolState::Exported).unwrap();
}
