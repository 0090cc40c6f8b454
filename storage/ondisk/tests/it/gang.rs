//! A gang header of fixture `gang`: of the first block of object 6 in objset 54, which `zdb -bbbbb`
//! shows at 0:13000 with 20000 (hexadecimal) bytes. Its pieces are gangs again.

use ondisk::gang::GangHeader;
use ondisk::{Blkptr, Order};

#[test]
fn golden_gang_header() {
    let bytes = include_bytes!("../golden/gang-header.bin");
    let header = GangHeader::parse(bytes, Order::Little).expect("a header");
    let pieces: Vec<_> = header
        .present_pieces()
        .map(|piece| {
            let Blkptr::Regular(piece) = piece else { panic!("a piece is a block") };
            assert!(piece.is_gang());
            (piece.dvas[0].expect("a place").to_string(), piece.psize)
        })
        .collect();
    let places = ["0:1b000:b400 gang", "0:1b200:b200 gang", "0:1b400:b200 gang"];
    assert_eq!(pieces.iter().map(|piece| piece.0.as_str()).collect::<Vec<_>>(), places);
    assert_eq!(pieces.iter().map(|piece| piece.1).sum::<u32>(), 0x20000);
}
