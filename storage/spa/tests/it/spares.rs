//! Spares that a pool lets go.

use ondisk::label::PoolState;
use spa::create;
use spa::design::Shape;

use crate::made::{Folder, devices, new_pool, world};

#[test]
fn what_stands_in_for_a_drive_is_not_let_go_as_a_spare() {
    let folder = Folder::new("spares");
    let drives = folder.drives(2, 128 << 20);
    let new = new_pool((Shape::Mirror, 12), &drives, devices(&drives));
    let owned = create(new, world(), &mut |_, _, _| Ok(())).unwrap().owned;
    // a spare that is in use has the same identity among the vdevs
    let in_use = owned.tree().leaves()[1].guid();
    let synced = owned.groups().synced();
    assert!(owned.remove_auxiliary(in_use).is_err());
    assert_eq!(owned.groups().synced(), synced, "nothing was changed for it");
    owned.leave(PoolState::Exported).unwrap();
}
