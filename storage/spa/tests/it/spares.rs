//! Spares of a pool: removed, put to use, and put back.

use std::path::Path;
use std::sync::Arc;

use device::{Device, File};
use ondisk::label::PoolState;
use spa::auxiliary::{AuxiliaryDevice, AuxiliaryRole};
use spa::vdev_layout::DeviceSpec;
use spa::{ActivePool, AttachMode, DeviceChangeError, NewChild, Reconstruction, ScanProgress};
use units::Guid;

use crate::create::{TestDir, create_mirror};

const SIZE: u64 = 128 << 20;

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

/// Adds a spare to a pool; returns its guid.
fn add_spare(folder: &TestDir, active: &ActivePool) -> Guid {
    let path = folder.path().join("spare.img");
    std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
    let spec = DeviceSpec { path: path.display().to_string(), size: SIZE, is_disk: false };
    let device: Arc<dyn Device> = Arc::new(File::open_exclusive(Path::new(&spec.path)).unwrap());
    active.add_auxiliary(&[AuxiliaryDevice { role: AuxiliaryRole::Spare, spec, device }]).unwrap();
    active.auxiliary()[0].0.guid
}

/// Puts an available spare beside a leaf.
fn attach_spare(
    active: &ActivePool,
    leaf: Guid,
    spare: Guid,
    new: &NewChild,
) -> Result<(), spa::Error> {
    let how = Reconstruction::Healing;
    active.attach_child(leaf, new.clone(), AttachMode::Spare(spare), how)
}

#[test]
fn older_decision_detaches_no_reused_spare() {
    let (folder, _, active) = create_mirror("spare-reused", 12);
    let spare = add_spare(&folder, &active);
    let device = active.auxiliary()[0].1.clone().unwrap();
    let path = device.name().to_owned();
    let new = NewChild { spec: DeviceSpec { path, size: SIZE, is_disk: false }, device };
    let [one, two] = [0, 1].map(|index| active.tree().leaves()[index].guid());
    attach_spare(&active, one, spare, &new).unwrap();
    active.detach(spare).unwrap();
    assert!(active.auxiliary()[0].1.is_some() && !active.is_returning(spare));
    attach_spare(&active, two, spare, &new).unwrap();
    // the scan thread found a moment ago that the spare of the first drive can go back
    assert!(!active.detach_completed(spare).unwrap());
    assert!(active.tree().leaf(spare).is_some(), "it stands in for the second drive");
    // the service of hot spares found a moment ago that it is available
    let twice = attach_spare(&active, one, spare, &new).unwrap_err();
    assert!(matches!(twice, spa::Error::DeviceChange(DeviceChangeError::SpareInUse)), "{twice}");
    assert!(active.resilver(&ScanProgress::new()).unwrap().is_complete);
    active.detach(spare).unwrap();
    assert!(active.tree().leaf(spare).is_none() && active.auxiliary()[0].1.is_some());
    active.export(PoolState::Exported).unwrap();
}
