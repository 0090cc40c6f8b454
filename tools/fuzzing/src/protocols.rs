//! Targets that read what clients send over the network.

use iscsi::wire::header::Header;
use iscsi::wire::request::Request as IscsiRequest;
use iscsi::wire::text::Text;
use nbd::wire::handshake::{ClientFlags, OptionHeader};
use nbd::wire::option::ClientOption;
use nbd::wire::request::Request;
use nfs::wire::rpc::{Call, reply_xid};
use nfs::wire::v3::Procedure;
use nfs::wire::v4::{CachedAttributes, CallbackAnswer, Compound, Operation, parse_v40_results};
use nfs::wire::{mount, nlm, nsm, portmap, xdr};
use nvmet::wire::command::Command;
use nvmet::wire::connect::{Connect, Property};
use nvmet::wire::pdu::{Digests, Header as PduHeader, HostData, InitializeRequest};

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
///
/// # Panics
/// If a text that was parsed and encoded is parsed as another.
pub fn iscsi(data: &[u8]) {
    if let Some((header, rest)) = data.split_first_chunk() {
        let header = Header(*header);
        let _ = (header.data_length(), header.ahs_length(), IscsiRequest::parse(&header));
        if let Ok(text) = Text::parse(rest) {
            // a parsed value is printed and parsed again
            assert_eq!(Text::parse(&text.encode()), Ok(text));
        }
    }
}

/// Headers of NVMe/TCP, and commands of fabrics.
pub fn nvme(data: &[u8]) {
    for (header, data_digest) in [(false, false), (true, true)] {
        let digests = Digests { header, data: data_digest };
        if let Some(common) = data.first_chunk()
            && let Ok(header) = PduHeader::parse(*common)
        {
            let _ = (header.is_last(), header.layout(digests, MAX_CAPSULE));
        }
    }
    if let Some(whole) = data.first_chunk() {
        let _ = InitializeRequest::parse(whole);
    }
    let _ = HostData::parse(data);
    if let Some((entry, rest)) = data.split_first_chunk() {
        let command = Command(*entry);
        let _ = (command.direction(), command.data_place(), command.fuse());
        let _ = (Property::parse(&command), Connect::parse(&command, rest));
    }
}

/// Bytes of data in a capsule.
const MAX_CAPSULE: usize = 16 << 10;

/// Bytes of data that a request of NFS may have here.
const MAX_NFS_DATA: usize = 1 << 20;

/// Calls of ONC RPC, MOUNT, NFSv3, the lock manager, the status monitor and the portmapper, the operations of NFSv4, and the
/// replies of clients to calls of the server.
pub fn nfs(data: &[u8]) {
    if let Ok((call, _)) = Call::parse(data) {
        nfs_arguments(call.arguments);
    }
    if reply_xid(data).is_some()
        && let Ok(Some(CallbackAnswer { result: Some((_, mut rest)), .. })) =
            CallbackAnswer::parse(data)
    {
        let _ = CachedAttributes::parse(&mut rest);
    }
    if let Ok((_, mut rest)) = parse_v40_results(&mut xdr::Reader::new(data)) {
        let _ = CachedAttributes::parse(&mut rest);
    }
    let _ = portmap::parse_universal_address(data);
    nfs_arguments(data);
}

fn nfs_arguments(data: &[u8]) {
    for number in 0..22 {
        let _ = Procedure::parse(number, data, MAX_NFS_DATA);
        let _ = mount::Procedure::parse(number, data);
    }
    for number in 0..26 {
        if let Ok(Some(nlm::Procedure::Operation {
            operation: nlm::Operation::Lock { lock, .. },
            ..
        })) = nlm::Procedure::parse(number, data)
        {
            let _ = lock.range();
        }
        let _ = nsm::Procedure::parse(number, data);
        for version in 2..=4 {
            let _ = portmap::Procedure::parse(version, number, data);
        }
    }
    let _ = nlm::parse_result(&mut xdr::Reader::new(data));
    let _ = portmap::parse_port(&mut xdr::Reader::new(data));
    let mut reader = xdr::Reader::new(data);
    let Ok(header) = Compound::parse(&mut reader) else { return };
    for _ in 0..header.count {
        let parsed = Operation::parse(&mut reader, header.minor_version, MAX_NFS_DATA);
        if !matches!(parsed, Ok((_, Ok(_)))) {
            break;
        }
    }
}
