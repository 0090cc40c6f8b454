//! Messages of clients: printed messages parse to their input, and no bytes cause a panic.

use nbd::wire::Error;
use nbd::wire::handshake::{ClientFlags, OptionHeader};
use nbd::wire::option::{ClientOption, InfoRequest, MetaContextQuery};
use nbd::wire::request::Request;
use proptest::prelude::*;

use crate::client::text;

fn parse_all(bytes: &[u8]) {
    for code in 0..12 {
        let _ = ClientOption::parse(code, bytes);
    }
    if let Some(header) = bytes.first_chunk() {
        let _ = OptionHeader::parse(header);
    }
    if let Some(header) = bytes.first_chunk() {
        let _ = Request::parse(header);
    }
    if let Some(flags) = bytes.first_chunk() {
        let _ = ClientFlags::parse(*flags);
    }
}

proptest! {
    #[test]
    fn options_are_parsed_as_sent(
        export in ".{0,40}",
        kinds in proptest::collection::vec(any::<u16>(), 0..9),
        queries in proptest::collection::vec(".{0,40}", 0..9),
        cut in any::<proptest::sample::Index>(),
    ) {
        let count = u16::try_from(kinds.len()).unwrap().to_be_bytes().to_vec();
        let all: Vec<u8> = kinds.iter().flat_map(|kind| kind.to_be_bytes()).collect();
        let info = [text(&export), count, all].concat();
        let request = InfoRequest { export: export.clone(), kinds };
        assert_eq!(ClientOption::parse(7, &info), Ok(ClientOption::Go(request)));
        let short = &info[..cut.index(info.len())];
        assert!(ClientOption::parse(7, short).is_err());

        let count = u32::try_from(queries.len()).unwrap().to_be_bytes().to_vec();
        let all: Vec<u8> = queries.iter().flat_map(|query| text(query)).collect();
        let bytes = [text(&export), count, all].concat();
        let query = MetaContextQuery { export, queries };
        assert_eq!(ClientOption::parse(10, &bytes), Ok(ClientOption::SetMetaContext(query)));
        let long = [bytes, vec![0]].concat();
        assert_eq!(ClientOption::parse(10, &long), Err(Error::TrailingBytes));
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        parse_all(&bytes);
    }
}
