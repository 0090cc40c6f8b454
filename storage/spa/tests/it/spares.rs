//! Spares that a pool lets go.

use ondisk::label::PoolState;

use crate::create::create_mirror;

#[test]
fn what_stands_in_for_a_drive_is_not_let_go_as_a_spare() {
    let (_folder, _, owned) = create_mirror("spares", 12);
    // a spare that is in use has the same identity among the vdevs
    let in_use = owned.tree().leaves()[1].guid();
    let synced = owned.txgs().synced_txg();
    assert!(owned.remove_auxiliary(in_use).is_err());
    assert_eq!(owned.txgs().synced_txg(), synced, "nothing was changed for it");
    owned.export(PoolState::Exported).unwrap();
}
