//! Sending and receiving against reading and writing the same files in the engine, and increments by their size.
//!
//! A round writes large files, reads them, sends them to nothing, and receives them into a second pool, in turns with each
//! other. Files are read past the cache, and every write ends with its txg. Increments change one block of a hundred of
//! files of growing size: their time grows with the change, and not with the file.

use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use engine::files::Time;
use engine::pool::{NewDataset, Pool, ReceiveRequest, SendRequest};
use posix::{Capability, ChangeContext, Credentials, NewInode, WriteOffset};
use units::ObjectId;

use crate::bench_pool;
use crate::comparison::{measure_in_turns, print_comparison};

const CHUNK_SIZE: usize = 1 << 20;
const FILES: u64 = 4;
/// Bytes of a block of the file whose increments are measured.
const SMALL_BLOCK: u64 = 4096;
/// Blocks of that file, and how many of them one is changed of.
const BLOCK_COUNTS: [u64; 3] = [10_000, 100_000, 1_000_000];
const CHANGED_OF: u64 = 100;

/// Measures and prints.
pub(crate) fn measure(words: &[String]) -> Result<(), String> {
    let [folder, rest @ ..] = words else {
        return Err("usage: bench streams FOLDER [ROUNDS [MIB [BLOCKS]]]".to_owned());
    };
    let number = |at: usize, usual: u64| rest.get(at).and_then(|w| w.parse().ok()).unwrap_or(usual);
    let (rounds, mib, blocks) = (number(0, 3), number(1, 4096), number(2, 1_000_000));
    let folder = Path::new(folder);
    let make = |name: &str, mib: u64| {
        let folder = folder.join(name);
        std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        bench_pool::create_pool(&folder, mib)
    };
    let (source, target) =
        (make("source", mib * 6 / 4 / 6 * 3 + 1536)?, make("target", mib + 512)?);
    let bench = StreamBench { source, target, mib, noise: noise()? };
    bench_pool::with_txg_sync(&bench.source, || {
        bench_pool::with_txg_sync(&bench.target, || {
            bench.run(units::to_usize(rounds))?;
            bench.measure_increments(blocks)
        })
    })?;
    for pool in [&bench.source, &bench.target] {
        pool.export().map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Bytes that cannot be compressed.
fn noise() -> Result<Vec<u8>, String> {
    let mut noise = vec![0; 65 * CHUNK_SIZE];
    let source = std::fs::File::open("/dev/urandom");
    source.and_then(|mut source| source.read_exact(&mut noise)).map_err(|e| e.to_string())?;
    Ok(noise)
}

struct StreamBench {
    source: Pool,
    target: Pool,
    mib: u64,
    noise: Vec<u8>,
}

fn text<E: std::fmt::Display>(error: E) -> String {
    error.to_string()
}

fn credentials() -> ChangeContext {
    let now = Time { seconds: 1_800_000_000, nanoseconds: 0 };
    let credentials = Credentials::new(0, 0).with_capability(Capability::FileSetId);
    ChangeContext { credentials, now }
}

/// A second pool's stream, made by a thread while it is received.
fn piped<T: Send>(
    write: impl FnOnce(&mut dyn Write) -> Result<(), String> + Send,
    read: impl FnOnce(&mut dyn Read) -> Result<T, String>,
) -> Result<T, String> {
    let (from, to) = std::io::pipe().map_err(text)?;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || {
            let mut out = std::io::BufWriter::with_capacity(CHUNK_SIZE, to);
            write(&mut out).and_then(|()| out.flush().map_err(text))
        });
        let done = read(&mut std::io::BufReader::with_capacity(CHUNK_SIZE, from));
        writer.join().map_err(|_| "the sender panicked".to_owned())??;
        done
    })
}

impl StreamBench {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    fn rate(&self, begun: Instant) -> f64 {
        (self.mib << 20) as f64 / begun.elapsed().as_secs_f64() / 1e9
    }

    fn run(&self, rounds: usize) -> Result<(), String> {
        self.write_files("tank/files")?;
        self.source.snapshots().create(&["tank/files@one".to_owned()]).map_err(text)?;
        let stream = self.recorded_stream()?;
        let name = |name: &str| name.to_owned();
        let sent = measure_in_turns(
            rounds,
            &mut [
                (name("send"), Box::new(|| self.measure_send())),
                (name("read"), Box::new(|| self.measure_read())),
            ],
        );
        print_comparison("large files sent, GB/s", "GB/s", &sent, &[("read", 0.8)]);
        let received = measure_in_turns(
            rounds,
            &mut [
                (name("receive"), Box::new(|| self.measure_receive(&stream))),
                (name("write"), Box::new(|| self.measure_write())),
            ],
        );
        print_comparison("large files received, GB/s", "GB/s", &received, &[("write", 0.8)]);
        if let Some((most, now)) = bench_pool::process_memory("self") {
            println!(
                "memory of this process, with the stream in it      peak {most} MiB, at the end {now} MiB"
            );
        }
        Ok(())
    }

    /// Creates a file system with large files. Returns when they are on the drives.
    fn write_files(&self, filesystem: &str) -> Result<(), String> {
        let properties = vec![("recordsize".to_owned(), "1M".to_owned())];
        let new = NewDataset { name: filesystem.to_owned(), properties };
        self.source.datasets().create_filesystem(&new).map_err(text)?;
        let files = self.source.datasets().filesystem(filesystem).map_err(text)?;
        let root = ObjectId::new(files.reader().root_object());
        for number in 0..FILES {
            let name = format!("file{number}");
            let new = NewInode::default();
            let made = files.create(&credentials(), root, name.as_bytes(), &new).map_err(text)?;
            let file = ObjectId::new(made.ino());
            for at in 0..self.mib / FILES {
                let offset = units::to_usize((at * 7 + number) % 64) * CHUNK_SIZE;
                let chunk = self.noise.get(offset..offset + CHUNK_SIZE).unwrap_or_default();
                files
                    .write(&credentials(), file, WriteOffset::At(at << 20), chunk)
                    .map_err(text)?;
            }
        }
        self.source.sync().map_err(text)
    }

    fn destroy(pool: &Pool, names: &[&str]) -> Result<(), String> {
        for name in names {
            pool.datasets().destroy(name).map_err(text)?;
        }
        // freed space can be allocated again when more txgs are on the drives
        (0..4).try_for_each(|_| pool.sync().map_err(text))
    }

    fn measure_write(&self) -> Result<f64, String> {
        let begun = Instant::now();
        self.write_files("tank/again")?;
        let rate = self.rate(begun);
        Self::destroy(&self.source, &["tank/again"])?;
        Ok(rate)
    }

    fn measure_read(&self) -> Result<f64, String> {
        let files = self.source.datasets().filesystem("tank/files").map_err(text)?;
        let mut buffer = vec![0; CHUNK_SIZE];
        let begun = Instant::now();
        for number in 0..FILES {
            let found = files.reader().find(format!("file{number}").as_bytes()).map_err(text)?;
            let content = found.ok_or("a file is missing")?.content();
            for at in 0..self.mib / FILES {
                content.read(at << 20, &mut buffer).map_err(text)?;
            }
        }
        Ok(self.rate(begun))
    }

    fn send(&self, request: &SendRequest, out: &mut dyn Write) -> Result<(), String> {
        self.source.streams().send(request, out).map(drop).map_err(text)
    }

    fn request(snapshot: &str) -> SendRequest {
        let snapshot = snapshot.to_owned();
        SendRequest { snapshot, large_blocks: true, compressed: true, ..SendRequest::default() }
    }

    fn recorded_stream(&self) -> Result<Vec<u8>, String> {
        let mut stream = Vec::new();
        self.send(&Self::request("tank/files@one"), &mut stream)?;
        Ok(stream)
    }

    fn measure_send(&self) -> Result<f64, String> {
        let begun = Instant::now();
        self.send(&Self::request("tank/files@one"), &mut std::io::sink())?;
        Ok(self.rate(begun))
    }

    fn measure_receive(&self, stream: &[u8]) -> Result<f64, String> {
        let target = "tank/copy".to_owned();
        let request = ReceiveRequest { target, ..ReceiveRequest::default() };
        let begun = Instant::now();
        self.target.streams().receive(&request, &mut &*stream).map_err(text)?;
        let rate = self.rate(begun);
        Self::destroy(&self.target, &["tank/copy@one", "tank/copy"])?;
        Ok(rate)
    }

    /// Sends increments of one block of a hundred, of files of growing size, straight into the second pool.
    fn measure_increments(&self, most: u64) -> Result<(), String> {
        for count in BLOCK_COUNTS.into_iter().filter(|count| *count <= most) {
            let name = format!("tank/blocks{count}");
            let properties = vec![("recordsize".to_owned(), SMALL_BLOCK.to_string())];
            let new = NewDataset { name: name.clone(), properties };
            self.source.datasets().create_filesystem(&new).map_err(text)?;
            let files = self.source.datasets().filesystem(&name).map_err(text)?;
            let root = ObjectId::new(files.reader().root_object());
            let made = files.create(&credentials(), root, b"file", &NewInode::default());
            let file = ObjectId::new(made.map_err(text)?.ino());
            let chunks = (count * SMALL_BLOCK).div_ceil(CHUNK_SIZE as u64);
            for at in 0..chunks {
                let offset = units::to_usize(at % 64) * CHUNK_SIZE;
                let chunk = self.noise.get(offset..offset + CHUNK_SIZE).unwrap_or_default();
                files
                    .write(&credentials(), file, WriteOffset::At(at << 20), chunk)
                    .map_err(text)?;
            }
            let [one, two] = ["one", "two"].map(|part| format!("{name}@{part}"));
            self.source.snapshots().create(std::slice::from_ref(&one)).map_err(text)?;
            for at in (0..count).step_by(units::to_usize(CHANGED_OF)) {
                let block = self.noise.get(17..17 + 4096).unwrap_or_default();
                let offset = WriteOffset::At(at * SMALL_BLOCK);
                files.write(&credentials(), file, offset, block).map_err(text)?;
            }
            self.source.snapshots().create(std::slice::from_ref(&two)).map_err(text)?;
            self.measure_increment(count, (&name, &one, &two))?;
        }
        Ok(())
    }

    fn measure_increment(
        &self,
        count: u64,
        (name, one, two): (&str, &str, &str),
    ) -> Result<(), String> {
        let receive = |request: SendRequest| {
            let target = ReceiveRequest { target: name.to_owned(), ..ReceiveRequest::default() };
            let begun = Instant::now();
            let received = piped(
                |out| self.send(&request, out),
                |input| self.target.streams().receive(&target, input).map_err(text),
            )?;
            Ok::<_, String>((begun.elapsed().as_secs_f64(), received.bytes))
        };
        let (whole, _) = receive(Self::request(one))?;
        let base = Some(one.to_owned());
        let (time, bytes) = receive(SendRequest { base, ..Self::request(two) })?;
        let begun = Instant::now();
        let base = Some(one.to_owned());
        let request = SendRequest { base, ..Self::request(two) };
        self.send(&request, &mut std::io::sink())?;
        let sent = begun.elapsed().as_secs_f64();
        println!(
            "{count} blocks, {} changed: whole {whole:.2} s; increment of {} KB sent and received {time:.3} s, sent {sent:.3} s",
            count / CHANGED_OF,
            bytes / 1000
        );
        Ok(())
    }
}
