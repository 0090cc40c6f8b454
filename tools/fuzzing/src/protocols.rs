//! Targets that read what clients send over the network.

use iscsi::wire::header::Header;
use iscsi::wire::request::Request as IscsiRequest;
use iscsi::wire::text::Text;
use nbd::wire::handshake::{ClientFlags, OptionHeader};
use nbd::wire::option::ClientOption;
use nbd::wire::request::Request;

/// Options and requests of NBD.
pub fn nbd(data: &[u8]) {
    if let Some(flags) = data.first_chunk() {
        let _ = ClientFlags::parse(*flags);
    }
    if let Some(header) = data.first_chunk() {
        let _ = OptionHeader::parse(header);
    }
    if let Some(request) = data.first_chunk()
        && let Ok(request) = Request::parse(request)
    {
        let _ = (request.has_valid_flags(), request.end(), request.payload_length());
    }
    for code in 0..12 {
        let _ = ClientOption::parse(code, data);
    }
}

/// Headers and texts of iSCSI.
pub fn iscsi(data: &[u8]) {
    if let Some((header, rest)) = data.split_first_chunk() {
        let header = Header(*header);
        let _ = (header.data_length(), header.ahs_length(), IscsiRequest::parse(&header));
        if let Ok(text) = Text::parse(rest) {
            // what was parsed is printed and parsed again
            assert_eq!(Text::parse(&text.encode()), Ok(text));
        }
    }
}
