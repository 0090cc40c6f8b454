//! Where the parts of a label are, and its boot settings.

use super::{BootEnv, offset, offsets, slot_count, slot_size};

#[test]
fn copies_lie_at_both_ends() {
    let device = (64 << 20) + 1000;
    assert_eq!(offsets(device).collect::<Vec<_>>(), [0, 262144, 66584576, 66846720]);
    assert_eq!(offset(4, device), None);
    assert_eq!(offsets(1 << 20).count(), 0);
}

#[test]
fn slots_follow_the_sector() {
    assert_eq!([9, 10, 11, 12, 13, 16].map(slot_size), [1024, 1024, 2048, 4096, 8192, 8192]);
    assert_eq!([9, 12, 16].map(slot_count), [128, 32, 16]);
}

#[test]
fn boot_environment_is_empty_raw_or_list() {
    let mut field = vec![0; 8192];
    assert_eq!(BootEnv::parse(&field), Ok(BootEnv::Empty));
    field[8..12].copy_from_slice(b"once");
    assert_eq!(BootEnv::parse(&field), Ok(BootEnv::Raw(b"once".to_vec())));
    field[7] = 1;
    assert!(BootEnv::parse(&field).is_err());
    field[7] = 2;
    assert!(BootEnv::parse(&field).is_err());
    assert!(BootEnv::parse(&[]).is_err());
}
