//! PDUs of initiators, parsed: recorded bytes, and no bytes cause a panic.

use iscsi::wire::header::{HEADER_SIZE, Header};
use iscsi::wire::request::{Request, Stage};
use iscsi::wire::text::Text;
use proptest::prelude::*;

/// A login request of open-iscsi.
const LOGIN: [u8; 48] = [
    0x43, 0x87, 0, 0, 0, 0, 0x01, 0x9c, 0x00, 0x02, 0x3d, 0x00, 0x00, 0x00, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0x12, 0x34, 0x56, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
];

#[test]
fn recorded_login_is_parsed() {
    let header = Header(LOGIN);
    assert_eq!((header.data_length(), header.ahs_length()), (412, 0));
    let Ok(Request::Login(login)) = Request::parse(&header) else { panic!("a login") };
    assert_eq!((login.stage, login.next), (Stage::Operational, Some(Stage::FullFeature)));
    assert_eq!((login.isid, login.tsih, login.cmd_sn), ([0, 2, 0x3d, 0, 0, 0], 0, 0x1234_5678));
}

proptest! {
    #[test]
    fn texts_are_parsed_as_printed(
        keys in proptest::collection::btree_map("[A-Za-z]{1,63}", "[^\0]{0,50}", 0..9),
    ) {
        let mut text = Text::default();
        for (key, value) in &keys {
            text.push(key, value);
        }
        prop_assert_eq!(Text::parse(&text.encode()), Ok(text));
    }

    #[test]
    fn no_bytes_cause_a_panic(
        header in proptest::array::uniform32(any::<u8>()),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        let mut whole = [0; HEADER_SIZE];
        whole[..32].copy_from_slice(&header);
        let _ = Request::parse(&Header(whole));
        let _ = Text::parse(&bytes);
    }
}
