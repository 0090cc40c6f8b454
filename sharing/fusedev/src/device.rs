//! Requests read from /dev/fuse, one a read, and answered by one write each.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};

use rustix::io::Errno;

use crate::init::{InitFlags, MAX_REQUEST_BYTES};
use crate::reply;
use crate::request::{self, RequestHeader};

/// Bytes besides the data of the largest write.
const HEADER_ROOM: usize = 4096;

/// A message, taken apart.
pub(crate) struct RequestMessage<'a> {
    pub(crate) header: RequestHeader,
    pub(crate) body: &'a [u8],
    pub(crate) payload: &'a [u8],
}

/// The result of one read.
pub(crate) enum Received<'a> {
    Message(RequestMessage<'a>),
    /// No request is waiting; only a non-blocking device returns this.
    Nothing,
    /// The file system is unmounted, or its connection was aborted.
    Ended,
}

/// Memory for any message.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; usize::try_from(MAX_REQUEST_BYTES).unwrap_or(0) + HEADER_ROOM]
}

/// Reads the next message of a kernel with which `agreed` was negotiated.
pub(crate) fn receive<'a>(
    mut device: &File,
    buffer: &'a mut [u8],
    agreed: InitFlags,
) -> io::Result<Received<'a>> {
    let length = loop {
        match device.read(buffer) {
            Ok(length) => break length,
            Err(why) => match Errno::from_io_error(&why) {
                // the kernel withdrew the request, or a signal came
                Some(Errno::NOENT | Errno::INTR) => {}
                Some(Errno::AGAIN) => return Ok(Received::Nothing),
                Some(Errno::NODEV | Errno::CONNABORTED) => return Ok(Received::Ended),
                _ => return Err(why),
            },
        }
    };
    let message = buffer.get(..length).and_then(|message| split_message(message, agreed));
    let message = message.ok_or_else(|| io::Error::other("the kernel sent half a message"))?;
    Ok(Received::Message(message))
}

/// Takes a message apart.
fn split_message(message: &[u8], agreed: InitFlags) -> Option<RequestMessage<'_>> {
    let head = RequestHeader::parse(message)?;
    let after = message.get(request::HEADER_LEN..usize::try_from(head.length).ok()?)?;
    let (body, rest) = after.split_at_checked(request::body_size(head.opcode, agreed))?;
    Some(RequestMessage { header: head, body, payload: rest })
}

/// Sends a reply. A reply that no program waits for any more is dropped.
pub(crate) fn write_reply(mut device: &File, unique: u64, told: Result<&[u8], Errno>) {
    let (error, bytes) = match told {
        Ok(bytes) => (0, bytes),
        Err(why) => (-why.raw_os_error(), &[][..]),
    };
    let head = reply::encode_header(unique, error, bytes.len());
    let _ = device.write_vectored(&[IoSlice::new(&head), IoSlice::new(bytes)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use crate::init::InitFlags;
    use crate::request::{Request, RequestHeader, forgotten_nodes};

    fn split(message: &[u8]) -> Option<super::RequestMessage<'_>> {
        super::split_message(message, InitFlags::SETXATTR_EXT)
    }

    fn encode_message(code: u32, after: &[u8]) -> Vec<u8> {
        let length = u32::try_from(40 + after.len()).unwrap();
        let mut message = [length.to_ne_bytes(), code.to_ne_bytes()].concat();
        message.extend(7_u64.to_ne_bytes());
        message.extend(9_u64.to_ne_bytes());
        message.extend([1_u32, 2, 3, 0].map(u32::to_ne_bytes).concat());
        message.extend(after);
        message
    }

    #[test]
    fn a_rename_is_taken_apart() {
        let after = [&5_u64.to_ne_bytes()[..], &2_u32.to_ne_bytes(), &[0; 4], b"old\0new\0"];
        let message = encode_message(45, &after.concat());
        let found = split(&message).unwrap();
        let head =
            RequestHeader { length: 64, opcode: 45, unique: 7, nodeid: 9, uid: 1, gid: 2, pid: 3 };
        assert_eq!(found.header, head);
        let asked = Request::parse(45, found.body, found.payload).unwrap();
        assert_eq!(asked, Request::Rename { name: b"old", new_dir: 5, new_name: b"new", flags: 2 });
    }

    #[test]
    fn a_write_has_its_bytes() {
        let fields = [[3_u64, 4096].map(u64::to_ne_bytes).concat(), vec![5, 0, 0, 0, 4, 0, 0, 0]];
        let rest = [vec![0; 8], 0o10001_u32.to_ne_bytes().to_vec(), vec![0; 4], b"bytes".to_vec()];
        let message = encode_message(16, &[fields.concat(), rest.concat()].concat());
        let found = split(&message).unwrap();
        let asked = Request::parse(16, found.body, found.payload).unwrap();
        let open_flags = 0o10001;
        assert_eq!(
            asked,
            Request::Write { handle: 3, offset: 4096, data: b"bytes", write_flags: 4, open_flags }
        );
        let short = split(message.get(..message.len()).unwrap()).unwrap();
        assert!(Request::parse(16, short.body, b"byte").is_none());
    }

    #[test]
    fn acl_clears_set_group_id_if_flagged() {
        let asked = |fields: &[u32], agreed| {
            let fields = fields.iter().flat_map(|field| field.to_ne_bytes());
            let after: Vec<u8> = fields.chain(*b"system.x\0abc").collect();
            let message = encode_message(21, &after);
            let found = super::split_message(&message, agreed).unwrap();
            match Request::parse(21, found.body, found.payload).unwrap() {
                Request::Setxattr {
                    name: b"system.x",
                    value: b"abc",
                    kill_sgid: drops_set_group,
                    ..
                } => drops_set_group,
                other => panic!("{other:?}"),
            }
        };
        assert!(asked(&[3, 0, 1, 0], InitFlags::SETXATTR_EXT));
        assert!(!asked(&[3, 0, 0, 0], InitFlags::SETXATTR_EXT));
        assert!(!asked(&[3, 0], InitFlags::default()), "kernels that do not know of it");
    }

    #[test]
    fn single_and_batch_forgets_are_read() {
        let nodes = |message: &[u8]| {
            let found = split(message).unwrap();
            let nodes = forgotten_nodes(&found.header, found.payload);
            nodes.map(|node| (node.nodeid, node.lookups)).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&encode_message(2, &3_u64.to_ne_bytes())), [(9, 3)]);
        let many = [3_u64, 5, 1, 6, 2].map(u64::to_ne_bytes).concat();
        assert_eq!(nodes(&encode_message(42, &many)), [(5, 1), (6, 2)], "the third is not there");
        assert_eq!(nodes(&encode_message(36, &many)), [], "a signal");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_question_or_none(
            code in 0_u32..60,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = split(&bytes);
            if let Some(found) = split(&encode_message(code, &bytes)) {
                let _ = Request::parse(code, found.body, found.payload);
                assert!(forgotten_nodes(&found.header, found.payload).count() <= 1 + bytes.len() / 16);
            }
        }
    }
}
