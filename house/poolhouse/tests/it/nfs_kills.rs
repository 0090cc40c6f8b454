//! An NFS client writes while the daemon is killed again and again: what was acknowledged as stable is there at the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use crate::shares::free_port;
use crate::test_nas::{TestNas, kill_daemon};

const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const FILE_SYNC: u32 = 2;
/// The status that asks the client to try again later.
const JUKEBOX: u32 = 10_008;

/// Numbers as XDR has them.
fn numbers(all: &[u32]) -> Vec<u8> {
    all.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// Bytes with their length, padded.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    let length = numbers(&[u32::try_from(bytes.len()).unwrap()]);
    [&length[..], bytes, &[0; 3][..bytes.len().wrapping_neg() % 4]].concat()
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// A client of NFSv3 that connects again whenever its connection breaks.
struct Client {
    port: u16,
    stream: Option<TcpStream>,
    xid: u32,
}

impl Client {
    /// Calls a procedure until it has an answer. Returns its results.
    fn call(&mut self, program: u32, procedure: u32, arguments: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let last = Instant::now() + Duration::from_mins(1);
        loop {
            if let Ok(results) = self.try_call(program, procedure, arguments)
                && (program == MOUNT || number_at(&results, 0) != JUKEBOX)
            {
                return results;
            }
            assert!(Instant::now() < last, "the server does not come back");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn try_call(
        &mut self,
        program: u32,
        procedure: u32,
        arguments: &[u8],
    ) -> std::io::Result<Vec<u8>> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => TcpStream::connect(("127.0.0.1", self.port))?,
        };
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        // AUTH_SYS: stamp, no name, root, no groups
        let header = [self.xid, 0, 2, program, 3, procedure, 1, 20, 0, 0, 0, 0, 0, 0, 0];
        let message = [numbers(&header), arguments.to_vec()].concat();
        let mark = numbers(&[1 << 31 | u32::try_from(message.len()).unwrap()]);
        stream.write_all(&[mark, message].concat())?;
        let mut mark = [0; 4];
        stream.read_exact(&mut mark)?;
        let length = u32::from_be_bytes(mark) & 0x7fff_ffff;
        let mut reply = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut reply)?;
        assert_eq!(number_at(&reply, 0), self.xid);
        self.stream = Some(stream);
        Ok(reply[24..].to_vec())
    }

    /// The handle of a new file in an export.
    fn create(&mut self, path: &str, name: &str) -> Vec<u8> {
        let mounted = self.call(MOUNT, 1, &opaque(path.as_bytes()));
        assert_eq!(number_at(&mounted, 0), 0);
        let root = mounted[8..][..number_at(&mounted, 4) as usize].to_vec();
        // UNCHECKED, without attributes
        let how = numbers(&[0; 7]);
        let made = self.call(NFS, 8, &[opaque(&root), opaque(name.as_bytes()), how].concat());
        assert_eq!((number_at(&made, 0), number_at(&made, 4)), (0, 1));
        made[12..][..number_at(&made, 8) as usize].to_vec()
    }

    /// Writes the number of a record in its place, and waits until it is stable.
    fn write_record(&mut self, file: &[u8], record: u32) {
        let place = numbers(&[0, record * 4, 4, FILE_SYNC]);
        let written =
            self.call(NFS, 7, &[opaque(file), place, opaque(&numbers(&[record]))].concat());
        assert_eq!(number_at(&written, 0), 0);
    }

    fn read_record(&mut self, file: &[u8], record: u32) -> u32 {
        let read = self.call(NFS, 6, &[opaque(file), numbers(&[0, record * 4, 4])].concat());
        // status, attributes (a 1 and 84 bytes), count, end, length, the bytes
        assert_eq!((number_at(&read, 0), number_at(&read, 4)), (0, 1));
        number_at(&read, 104)
    }
}

/// Kills the daemon this many times, at times that follow from a seed.
fn write_through_kills(name: &str, kills: u32) {
    let nas = TestNas::new(name, 1);
    nas.create_pool("-m none tank", 1);
    let port = free_port();
    nas.run_ok("share add nfs tank -o path=/tank -o squash=none");
    nas.run_ok(&format!("config set nfs.listen {port}"));
    let mut client = Client { port, stream: None, xid: 0 };
    let file = client.create("/tank", "records");
    let is_over = AtomicBool::new(false);
    let written = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut record = 0;
            while !is_over.load(SeqCst) {
                client.write_record(&file, record);
                record += 1;
            }
            record
        });
        let mut random = 0x9e37_79b9_u32;
        for _ in 0..kills {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            std::thread::sleep(Duration::from_millis(u64::from(random >> 26)));
            kill_daemon(&nas.state_dir());
            nas.run_ok("share status");
        }
        is_over.store(true, SeqCst);
        writer.join().unwrap()
    });
    assert!(written >= kills, "{written} records in {kills} lives of the daemon");
    kill_daemon(&nas.state_dir());
    nas.run_ok("share status");
    for record in 0..written {
        assert_eq!(client.read_record(&file, record), record, "of {written}");
    }
}

#[test]
fn stable_writes_outlast_killed_daemon() {
    write_through_kills("nfs-kills", 3);
}

#[test]
#[ignore = "takes minutes: `make test-long`"]
fn stable_writes_outlast_two_hundred_kills() {
    write_through_kills("nfs-kills-200", 200);
}
