//! What was done to the pool is written down in it: a ring of records, the oldest of which go when
//! there is no room left; but those up to the command that made the pool stay for ever.
//!
//! Learnt from: `spa_history.c` of OpenZFS 2.3.2 and `zdb -h`. Proved by: `a_ring_of_records`,
//! and the engine's tests, which ask zdb.

use dmu::{NewObject, Object, Objset};
use dsl::write::SyncTaskContext;
use ondisk::history::{Entry, HistoryHeader};
use ondisk::{ObjectType, Reader, version};
use txg::Tx;
use units::MinusOrZero as _;

use super::ActivePool;
use crate::{Error, PoolDirectory};

/// The name of the object in the pool's directory.
const HISTORY_ENTRY: &str = "history";
/// Bytes of its blocks.
const BLOCK_SIZE: u32 = 128 << 10;
/// So much of the pool may be history.
const POOL_FRACTION: u64 = 1000;
/// But this much at least, and that much at most.
const MIN_SIZE: u64 = 128 << 10;
const MAX_SIZE: u64 = 1 << 30;
/// Bytes of a record's length.
const LENGTH_SIZE: u64 = 8;

impl ActivePool {
    /// Writes down what is done with the group that is written. It is no reason not to do it that
    /// this fails.
    pub fn log_history(&self, change: &SyncTaskContext<'_>, entry: &Entry<'_>) {
        let host = self.config.lock().current.host_name.clone().unwrap_or_default();
        let _ = append_entry(change, self.usable_space(), &host, entry);
    }

    /// Writes down with the next group that the pool was taken over.
    pub fn log_import(&self, how: &'static str) {
        self.queue_sync_task(move |active, change| {
            let (pool, own) = (change.version, env!("CARGO_PKG_VERSION"));
            let detail = format!("pool version {pool}; software version poolhouse {own}");
            active.log_history(change, &Entry::Event { name: how, detail: &detail, dataset: None });
        });
    }

    /// Writes a command down with the next group; nobody waits for that.
    pub fn log_command(&self, line: &str, user: u64) {
        let line = line.to_owned();
        self.queue_sync_task(move |active, change| {
            active.log_history(change, &Entry::Command { line: &line, user });
        });
    }
}

/// Writes something down in a pool with so much space.
pub(crate) fn append_entry(
    change: &SyncTaskContext<'_>,
    space: u64,
    host: &str,
    entry: &Entry<'_>,
) -> Result<(), Error> {
    if change.version < version::HISTORY {
        return Ok(());
    }
    let record = entry.record(change.tx.txg(), change.now.seconds, host);
    let is_command = matches!(entry, Entry::Command { .. });
    append_record(change.mos, change.tx, space, (&record, is_command))
}

/// Adds a record, with its length before it, to the history of a pool with so much usable space.
fn append_record(
    mos: &Objset,
    tx: &Tx,
    usable: u64,
    (record, is_command): (&[u8], bool),
) -> Result<(), Error> {
    let object = open_or_create(mos, tx, usable)?;
    let mut bonus = Reader::new("history header", object.bonus(), object.bonus_order());
    let mut header = HistoryHeader::read(&mut bonus)?;
    let length = units::to_u64(record.len());
    let ring = header.size - header.create_end;
    if length >= ring {
        return Ok(());
    }
    while ring.minus_or_zero(header.end - header.first) <= length {
        let mut oldest = [0; 8];
        transfer_ring(&header, header.first, &mut oldest, &mut |at, bytes| object.read(at, bytes))?;
        // a damaged length takes all records away
        let left = (header.end - header.first).minus_or_zero(LENGTH_SIZE);
        header.first = header.end - (left - u64::from_le_bytes(oldest).min(left));
        header.lost += 1;
    }
    let (mut bytes, at) = (record.to_vec(), header.end);
    transfer_ring(&header, at, &mut bytes, &mut |at, bytes| object.write(tx, at, bytes))?;
    header.end += length;
    // the first command is the one that made the pool
    if is_command && header.create_end == 0 {
        (header.create_end, header.first) = (header.end, header.end);
    }
    Ok(object.set_bonus(tx, ObjectType::SPA_HISTORY_OFFSETS, &header.encode())?)
}

/// The object of the history; it is made if there is none.
fn open_or_create(mos: &Objset, tx: &Tx, usable: u64) -> Result<Object, Error> {
    let directory = PoolDirectory::open(mos.clone())?;
    if let Some(object) = directory.object(HISTORY_ENTRY)? {
        return Ok(object);
    }
    let size = usable.checked_div(POOL_FRACTION).unwrap_or(0).clamp(MIN_SIZE, MAX_SIZE);
    let header = HistoryHeader { create_end: 0, size, first: 0, end: 0, lost: 0 };
    let new = NewObject::new(ObjectType::SPA_HISTORY, BLOCK_SIZE)
        .with_bonus(ObjectType::SPA_HISTORY_OFFSETS, header.encode().to_vec());
    let object = mos.create(tx, &new)?;
    directory.zap().insert_u64(tx, HISTORY_ENTRY.as_bytes(), object.id().get())?;
    Ok(object)
}

/// Reads or writes bytes from a logical offset on.
fn transfer_ring(
    header: &HistoryHeader,
    offset: u64,
    bytes: &mut [u8],
    work: &mut dyn FnMut(u64, &mut [u8]) -> dmu::Result<()>,
) -> Result<(), Error> {
    let mut rest = bytes;
    for range in header.object_ranges(offset, units::to_u64(rest.len())) {
        let count = units::to_usize(range.end - range.start);
        let (now, later) = std::mem::take(&mut rest).split_at_mut(count);
        if !now.is_empty() {
            work(range.start, now)?;
        }
        rest = later;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use dmu::memory;
    use ondisk::history::{Entry, HistoryHeader, Records};
    use ondisk::objset::Kind;
    use ondisk::{ObjectType, Reader};
    use txg::Tx;
    use units::Txg;
    use zap::{NewZap, Zap};

    use super::append_record;
    use crate::PoolDirectory;

    #[test]
    fn a_ring_of_records() {
        let (mos, _) = memory::empty_objset(Kind::Meta);
        let tx = Tx::syncing(Txg::new(4));
        Zap::create(&mos, &tx, ObjectType::OBJECT_DIRECTORY, &NewZap::default()).unwrap();
        let filler = "x".repeat(300);
        let line = |number: u64| format!("zfs command {number} {filler}");
        for number in 0..1000 {
            let command = line(number);
            let entry = match number {
                0 => Entry::Event { name: "create", detail: "", dataset: None },
                _ => Entry::Command { line: &command, user: number },
            };
            let record = entry.record(tx.txg(), number, "here");
            append_record(&mos, &tx, 0, (&record, number > 0)).unwrap();
        }
        let object = PoolDirectory::open(mos).unwrap().object("history").unwrap().unwrap();
        let mut bonus = Reader::new("history", object.bonus(), object.bonus_order());
        let header = HistoryHeader::read(&mut bonus).unwrap();
        let mut bytes = Vec::new();
        for range in header.ranges() {
            let mut part = vec![0; usize::try_from(range.end - range.start).unwrap()];
            object.read(range.start, &mut part).unwrap();
            bytes.extend(part);
        }
        let records: Vec<_> = Records::new(&bytes).map(Result::unwrap).collect();
        let kept = u64::try_from(records.len()).unwrap();
        assert_eq!((kept + header.lost, records[0].event().as_deref()), (1000, Some("create")));
        assert_eq!(records[1].command(), Some(line(1)), "the command that made it stays");
        for (record, number) in records.iter().rev().zip((0..1000).rev()).take(records.len() - 2) {
            assert_eq!(record.command(), Some(line(number)));
        }
        assert!(header.lost > 500 && kept > 100);
    }
}
