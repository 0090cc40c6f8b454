//! Ranges laid over content are as if each had been written, one after the other.

use proptest::prelude::*;
use zil::extents::{ExtentContent, LogExtents, copy_padded};

const SIZE: usize = 64;

fn render(extents: &LogExtents) -> Vec<u8> {
    let mut out = vec![b'-'; SIZE];
    let (mut at, end) = (0, SIZE as u64);
    while at < end {
        let piece = extents.slice_at(at, end);
        assert!(piece.start == at && piece.end > at && piece.end <= end);
        let place = usize::try_from(at).unwrap()..usize::try_from(piece.end).unwrap();
        match piece.content {
            Some(ExtentContent::Bytes { data: all, .. }) => {
                copy_padded(all, extents.skip_at(at), &mut out[place]);
            }
            Some(_) => out[place].fill(0),
            None => {}
        }
        at = piece.end;
    }
    out
}

proptest! {
    #[test]
    fn the_last_write_shows(
        writes in prop::collection::vec((0..SIZE, 0..SIZE, any::<bool>()), 0..40),
    ) {
        let mut extents = LogExtents::default();
        let mut model = vec![b'-'; SIZE];
        for (number, (a, b, zeros)) in (b'A'..).zip(writes) {
            let (start, end) = (a.min(b), a.max(b));
            let bytes = (0_u8..).map(|at| number.wrapping_add(at % 7)).take(end - start);
            let bytes: Vec<u8> = bytes.collect();
            let content = if zeros {
                model[start..end].fill(0);
                ExtentContent::Zeros
            } else {
                model[start..end].copy_from_slice(&bytes);
                ExtentContent::Bytes { data: bytes.into(), skip: 0 }
            };
            extents.insert(start as u64, end as u64, content);
        }
        prop_assert_eq!(render(&extents), model);
    }
}
