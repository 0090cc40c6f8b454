//! Leaves of real tables, and leaves made of anything.

use super::Leaf;
use crate::Order;

proptest::proptest! {
    #[test]
    fn any_bytes_are_a_leaf_or_an_error(mut bytes in proptest::collection::vec(0_u8.., 512), hash: u64) {
        bytes[..8].copy_from_slice(&super::LEAF.to_le_bytes());
        bytes[24..28].copy_from_slice(&Leaf::MAGIC.to_le_bytes());
        bytes[32..34].copy_from_slice(&[3, 0]);
        let leaf = Leaf::parse(&bytes, Order::Little).unwrap();
        for entry in leaf.entries().chain(leaf.chain(hash)).flatten() {
            let _ = (leaf.name(&entry), leaf.key(&entry), leaf.value(&entry));
        }
    }
}
