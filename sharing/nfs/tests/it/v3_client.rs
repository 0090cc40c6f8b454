//! A client of NFSv3 and MOUNT.

use std::net::SocketAddr;

use nfs::wire::mount;
use nfs::wire::status::Status;
use nfs::wire::v3::{Attributes, SetAttributes};
use nfs::wire::xdr::{Reader, Writer};

use crate::client::RpcClient;

pub(crate) const UNSTABLE: u32 = 0;
pub(crate) const FILE_SYNC: u32 = 2;

/// A client, and the root that it has mounted.
pub(crate) struct V3Client {
    pub(crate) rpc: RpcClient,
    pub(crate) root: Vec<u8>,
}

pub(crate) type Outcome<T> = Result<T, Status>;

/// The arguments of a procedure that begin with a handle.
fn arguments(handle: &[u8], write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.opaque(handle);
    write(&mut writer);
    writer.into_bytes()
}

/// A written range: stability and verifier of the answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WriteAnswer {
    pub(crate) count: u32,
    pub(crate) stable: u32,
    pub(crate) verifier: [u8; 8],
}

fn optional_attributes(reader: &mut Reader<'_>) -> Option<Attributes> {
    reader.optional(Attributes::parse).unwrap()
}

fn change(reader: &mut Reader<'_>) -> Option<Attributes> {
    reader.optional(|r| Ok((r.u64()?, r.u64()?, r.u64()?))).unwrap();
    optional_attributes(reader)
}

impl V3Client {
    /// Connects and mounts a path.
    pub(crate) fn mount(address: SocketAddr, path: &str) -> Outcome<Self> {
        let mut rpc = RpcClient::connect(address);
        let mut writer = Writer::default();
        writer.opaque(path.as_bytes());
        let result = rpc.call((100_005, 3, 1), writer.as_bytes());
        let mounted = mount::parse_mounted(&mut Reader::new(&result)).unwrap();
        let root = mounted.map_err(Status::from_number)?;
        Ok(Self { rpc, root })
    }

    /// Calls a procedure. Returns the body after the status.
    pub(crate) fn call(&mut self, procedure: u32, arguments: &[u8]) -> Outcome<Vec<u8>> {
        let result = self.rpc.call((100_003, 3, procedure), arguments);
        split_status(&result)
    }

    pub(crate) fn attributes(&mut self, handle: &[u8]) -> Outcome<Attributes> {
        let result = self.call(1, &arguments(handle, |_| {}))?;
        Ok(Attributes::parse(&mut Reader::new(&result)).unwrap())
    }

    pub(crate) fn set_attributes(&mut self, handle: &[u8], set: &SetAttributes) -> Outcome<()> {
        let set = arguments(handle, |w| {
            set.write(w);
            w.bool(false);
        });
        self.call(2, &set).map(drop)
    }

    pub(crate) fn lookup(&mut self, dir: &[u8], name: &str) -> Outcome<Vec<u8>> {
        let result = self.call(3, &arguments(dir, |w| w.opaque(name.as_bytes())))?;
        Ok(Reader::new(&result).opaque(64).unwrap().to_vec())
    }

    pub(crate) fn access(&mut self, handle: &[u8], wanted: u32) -> Outcome<u32> {
        let result = self.call(4, &arguments(handle, |w| w.u32(wanted)))?;
        let mut reader = Reader::new(&result);
        optional_attributes(&mut reader);
        Ok(reader.u32().unwrap())
    }

    /// Sends a read, and does not wait for the reply.
    pub(crate) fn send_read(&mut self, handle: &[u8], offset: u64, count: u32) {
        let arguments = arguments(handle, |w| {
            w.u64(offset);
            w.u32(count);
        });
        self.send(6, &arguments);
    }

    /// Sends a write, and does not wait for the reply.
    pub(crate) fn send_write(&mut self, handle: &[u8], offset: u64, bytes: &[u8]) {
        let arguments = arguments(handle, |w| {
            w.u64(offset);
            w.count(bytes.len());
            w.u32(0);
            w.opaque(bytes);
        });
        self.send(7, &arguments);
    }

    fn send(&mut self, procedure: u32, arguments: &[u8]) {
        self.rpc.xid += 1;
        let message = self.rpc.message((100_003, 3, procedure), arguments);
        self.rpc.send(&message);
    }

    /// The next reply.
    pub(crate) fn receive(&mut self) -> Vec<u8> {
        self.rpc.receive()
    }

    /// Reads. Returns the bytes, and whether the file ends there.
    pub(crate) fn read(
        &mut self,
        handle: &[u8],
        offset: u64,
        count: u32,
    ) -> Outcome<(Vec<u8>, bool)> {
        let result = self.call(
            6,
            &arguments(handle, |w| {
                w.u64(offset);
                w.u32(count);
            }),
        )?;
        let mut reader = Reader::new(&result);
        optional_attributes(&mut reader);
        let (count, is_end) = (reader.u32().unwrap(), reader.bool().unwrap());
        let bytes = reader.opaque(1 << 24).unwrap().to_vec();
        assert_eq!(bytes.len(), usize::try_from(count).unwrap());
        Ok((bytes, is_end))
    }

    pub(crate) fn write(
        &mut self,
        handle: &[u8],
        offset: u64,
        stable: u32,
        bytes: &[u8],
    ) -> Outcome<WriteAnswer> {
        let result = self.call(
            7,
            &arguments(handle, |w| {
                w.u64(offset);
                w.count(bytes.len());
                w.u32(stable);
                w.opaque(bytes);
            }),
        )?;
        let mut reader = Reader::new(&result);
        change(&mut reader);
        let (count, stable) = (reader.u32().unwrap(), reader.u32().unwrap());
        Ok(WriteAnswer { count, stable, verifier: reader.fixed().unwrap() })
    }

    pub(crate) fn commit(&mut self, handle: &[u8]) -> Outcome<[u8; 8]> {
        let result = self.call(
            21,
            &arguments(handle, |w| {
                w.u64(0);
                w.u32(0);
            }),
        )?;
        let mut reader = Reader::new(&result);
        change(&mut reader);
        Ok(reader.fixed().unwrap())
    }

    pub(crate) fn create(&mut self, dir: &[u8], name: &str, mode: u32) -> Outcome<Vec<u8>> {
        let arguments = create_arguments(dir, name, |w| {
            w.u32(1);
            SetAttributes { mode: Some(mode), ..SetAttributes::default() }.write(w);
        });
        self.call(8, &arguments).map(|result| created(&result))
    }

    pub(crate) fn create_exclusive(
        &mut self,
        dir: &[u8],
        name: &str,
        verifier: [u8; 8],
    ) -> Outcome<Vec<u8>> {
        let arguments = create_arguments(dir, name, |w| {
            w.u32(2);
            w.fixed(&verifier);
        });
        self.call(8, &arguments).map(|result| created(&result))
    }

    pub(crate) fn make_dir(&mut self, dir: &[u8], name: &str, mode: u32) -> Outcome<Vec<u8>> {
        let set = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        let arguments = create_arguments(dir, name, |w| set.write(w));
        self.call(9, &arguments).map(|result| created(&result))
    }

    pub(crate) fn symlink(&mut self, dir: &[u8], name: &str, target: &str) -> Outcome<Vec<u8>> {
        let arguments = create_arguments(dir, name, |w| {
            SetAttributes::default().write(w);
            w.opaque(target.as_bytes());
        });
        self.call(10, &arguments).map(|result| created(&result))
    }

    pub(crate) fn read_link(&mut self, handle: &[u8]) -> Outcome<Vec<u8>> {
        let result = self.call(5, &arguments(handle, |_| {}))?;
        let mut reader = Reader::new(&result);
        optional_attributes(&mut reader);
        Ok(reader.opaque(4096).unwrap().to_vec())
    }

    /// Removes a name: of a file (12) or of a directory (13).
    pub(crate) fn remove(&mut self, procedure: u32, dir: &[u8], name: &str) -> Outcome<()> {
        self.call(procedure, &remove_arguments(dir, name)).map(drop)
    }

    pub(crate) fn rename(&mut self, from: (&[u8], &str), to: (&[u8], &str)) -> Outcome<()> {
        let mut writer = Writer::default();
        for (dir, name) in [from, to] {
            writer.opaque(dir);
            writer.opaque(name.as_bytes());
        }
        self.call(14, writer.as_bytes()).map(drop)
    }

    pub(crate) fn link(&mut self, file: &[u8], dir: &[u8], name: &str) -> Outcome<()> {
        let arguments = arguments(file, |w| {
            w.opaque(dir);
            w.opaque(name.as_bytes());
        });
        self.call(15, &arguments).map(drop)
    }

    /// A part of a listing from a cookie on: names with their cookies, and whether it is the end. With
    /// READDIRPLUS each name has a handle.
    pub(crate) fn list_part(
        &mut self,
        dir: &[u8],
        cookie: u64,
        (is_plus, bytes): (bool, u32),
    ) -> Outcome<(Vec<(String, u64)>, bool)> {
        let arguments = arguments(dir, |w| {
            w.u64(cookie);
            w.u64(0);
            if is_plus {
                w.u32(bytes);
            }
            w.u32(bytes);
        });
        let result = self.call(if is_plus { 17 } else { 16 }, &arguments)?;
        assert!(result.len() <= usize::try_from(bytes).unwrap(), "{} bytes", result.len());
        let mut reader = Reader::new(&result);
        optional_attributes(&mut reader);
        reader.u64().unwrap();
        let mut names = Vec::new();
        while reader.bool().unwrap() {
            reader.u64().unwrap();
            let name = String::from_utf8(reader.opaque(255).unwrap().to_vec()).unwrap();
            names.push((name, reader.u64().unwrap()));
            if is_plus {
                assert!(optional_attributes(&mut reader).is_some());
                assert!(reader.optional(|r| r.opaque(64)).unwrap().is_some());
            }
        }
        let is_end = reader.bool().unwrap();
        reader.finish().unwrap();
        Ok((names, is_end))
    }

    /// All names of a directory, without `.` and `..`.
    pub(crate) fn list(&mut self, dir: &[u8], how: (bool, u32)) -> Vec<String> {
        let (mut all, mut cookie) = (Vec::new(), 0);
        loop {
            let (part, is_end) = self.list_part(dir, cookie, how).unwrap();
            cookie = part.last().map_or(cookie, |(_, cookie)| *cookie);
            all.extend(part.into_iter().map(|(name, _)| name));
            if is_end {
                all.retain(|name| name != "." && name != "..");
                return all;
            }
        }
    }
}

pub(crate) fn split_status(result: &[u8]) -> Outcome<Vec<u8>> {
    let mut reader = Reader::new(result);
    match reader.u32().unwrap() {
        0 => Ok(reader.rest().to_vec()),
        status => Err(Status::from_number(status)),
    }
}

pub(crate) fn remove_arguments(dir: &[u8], name: &str) -> Vec<u8> {
    arguments(dir, |w| w.opaque(name.as_bytes()))
}

fn create_arguments(dir: &[u8], name: &str, rest: impl FnOnce(&mut Writer)) -> Vec<u8> {
    arguments(dir, |w| {
        w.opaque(name.as_bytes());
        rest(w);
    })
}

/// The handle of a new file.
fn created(result: &[u8]) -> Vec<u8> {
    let mut reader = Reader::new(result);
    let handle = reader.optional(|reader| reader.opaque(64)).unwrap().unwrap().to_vec();
    optional_attributes(&mut reader).unwrap();
    change(&mut reader).unwrap();
    reader.finish().unwrap();
    handle
}
