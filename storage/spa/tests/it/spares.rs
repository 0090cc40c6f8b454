//! Removing spares from a pool.

use ondisk::label::PoolState;

use crate::create::create_mirror;

#[test]
fn spare_in_use_cannot_be_removed() {
    let (_folder, _, active) = create_mirror("spares", 12);
    // a spare that is in use has the same identity among the vdevs
    let in_use = active.tree().leaves()[1].guid();
    let synced = active.txgs().synced_txg();
    assert!(active.remove_auxiliary(in_use).is_err());
    assert_eq!(active.txgs().synced_txg(), synced, "nothing was changed for it");
    active.export(PoolState::Exported).unwrap();
}
