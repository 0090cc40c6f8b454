//! Requests read from /dev/fuse, one a read, and answered by one write each.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};

use rustix::io::Errno;

use crate::answer;
use crate::ask::{self, Head};
use crate::init::{Ability, LARGEST};

/// Bytes besides the data of the largest write.
const BESIDES: usize = 4096;

/// A message, taken apart.
pub(crate) struct Message<'a> {
    pub(crate) head: Head,
    pub(crate) body: &'a [u8],
    pub(crate) rest: &'a [u8],
}

/// The result of one read.
pub(crate) enum Received<'a> {
    Message(Message<'a>),
    /// No request waits; only a device that does not block says so.
    Nothing,
    /// The file system is unmounted, or its connection was aborted.
    Ended,
}

/// Memory for any message.
pub(crate) fn buffer() -> Vec<u8> {
    vec![0; usize::try_from(LARGEST).unwrap_or(0) + BESIDES]
}

/// Reads the next message of a kernel with which `agreed` was negotiated.
pub(crate) fn receive<'a>(
    mut device: &File,
    buffer: &'a mut [u8],
    agreed: Ability,
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
    let message = buffer.get(..length).and_then(|message| parts(message, agreed));
    let message = message.ok_or_else(|| io::Error::other("the kernel sent half a message"))?;
    Ok(Received::Message(message))
}

/// Takes a message apart.
fn parts(message: &[u8], agreed: Ability) -> Option<Message<'_>> {
    let head = Head::read(message)?;
    let after = message.get(ask::HEAD..usize::try_from(head.length).ok()?)?;
    let (body, rest) = after.split_at_checked(ask::body_size(head.code, agreed))?;
    Some(Message { head, body, rest })
}

/// Gives an answer. Nobody is told if nobody waits for it any more.
pub(crate) fn answer(mut device: &File, unique: u64, told: Result<&[u8], Errno>) {
    let (error, bytes) = match told {
        Ok(bytes) => (0, bytes),
        Err(why) => (-why.raw_os_error(), &[][..]),
    };
    let head = answer::head(unique, error, bytes.len());
    let _ = device.write_vectored(&[IoSlice::new(&head), IoSlice::new(bytes)]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop, proptest};

    use crate::ask::{Ask, Head, forgotten};
    use crate::init::Ability;

    fn parts(message: &[u8]) -> Option<super::Message<'_>> {
        super::parts(message, Ability::SETXATTR_EXT)
    }

    fn message(code: u32, after: &[u8]) -> Vec<u8> {
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
        let message = message(45, &after.concat());
        let found = parts(&message).unwrap();
        let head = Head { length: 64, code: 45, unique: 7, node: 9, uid: 1, gid: 2, pid: 3 };
        assert_eq!(found.head, head);
        let asked = Ask::read(45, found.body, found.rest).unwrap();
        assert_eq!(asked, Ask::Rename { name: b"old", dir: 5, new_name: b"new", flags: 2 });
    }

    #[test]
    fn a_write_has_its_bytes() {
        let fields = [[3_u64, 4096].map(u64::to_ne_bytes).concat(), vec![5, 0, 0, 0, 4, 0, 0, 0]];
        let rest = [vec![0; 8], 0o10001_u32.to_ne_bytes().to_vec(), vec![0; 4], b"bytes".to_vec()];
        let message = message(16, &[fields.concat(), rest.concat()].concat());
        let found = parts(&message).unwrap();
        let asked = Ask::read(16, found.body, found.rest).unwrap();
        let flags = 0o10001;
        assert_eq!(asked, Ask::Write { handle: 3, offset: 4096, data: b"bytes", how: 4, flags });
        let short = parts(message.get(..message.len()).unwrap()).unwrap();
        assert!(Ask::read(16, short.body, b"byte").is_none());
    }

    #[test]
    fn an_access_list_takes_set_group_away_where_the_kernel_says_so() {
        let asked = |fields: &[u32], agreed| {
            let fields = fields.iter().flat_map(|field| field.to_ne_bytes());
            let after: Vec<u8> = fields.chain(*b"system.x\0abc").collect();
            let message = message(21, &after);
            let found = super::parts(&message, agreed).unwrap();
            match Ask::read(21, found.body, found.rest).unwrap() {
                Ask::Setxattr { name: b"system.x", value: b"abc", drops_set_group, .. } => {
                    drops_set_group
                }
                other => panic!("{other:?}"),
            }
        };
        assert!(asked(&[3, 0, 1, 0], Ability::SETXATTR_EXT));
        assert!(!asked(&[3, 0, 0, 0], Ability::SETXATTR_EXT));
        assert!(!asked(&[3, 0], Ability::default()), "kernels that do not know of it");
    }

    #[test]
    fn what_the_kernel_forgets_it_tells_one_by_one_or_many_at_a_time() {
        let nodes = |message: &[u8]| {
            let found = parts(message).unwrap();
            forgotten(&found.head, found.rest).collect::<Vec<_>>()
        };
        assert_eq!(nodes(&message(2, &3_u64.to_ne_bytes())), [9]);
        let many = [3_u64, 5, 1, 6, 2].map(u64::to_ne_bytes).concat();
        assert_eq!(nodes(&message(42, &many)), [5, 6], "the third is not there");
        assert_eq!(nodes(&message(36, &many)), [0; 0], "a signal");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_question_or_none(
            code in 0_u32..60,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = parts(&bytes);
            if let Some(found) = parts(&message(code, &bytes)) {
                let _ = Ask::read(code, found.body, found.rest);
                assert!(forgotten(&found.head, found.rest).count() <= 1 + bytes.len() / 16);
            }
        }
    }
}
