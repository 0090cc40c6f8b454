//! History and error log: the commands and events of the pool, and its unreadable blocks.
//!
//! History header (bonus of the history object):
//!
//! ```text
//! offset  size  field        meaning
//!      0     8  create_end   end of the record of the pool's creation, which is kept for ever
//!      8     8  size         bytes of the object in use at most: the ring ends here
//!     16     8  first        logical offset of the oldest record after it
//!     24     8  end          logical offset of the end
//!     32     8  lost         records overwritten
//!     40
//! ```
//!
//! Logical offsets only grow; in the object they wrap between `create_end` and `size`. A record is
//! 8 bytes, little-endian always, with the length of the packed name/value list that follows.
//!
//! Error log: a ZAP whose names are four hexadecimal numbers with colons between; either
//! objset:object:level:block, or, with head_errlog, in a ZAP for each head dataset (whose name is
//! the dataset's object number), object:level:block:birth.
//!
//! Learnt from: `zdb -h` of the fixtures. Proved by: `golden_history`.

use std::ops::Range;

use units::{BlockId, Level, ObjectId, ObjsetId, Txg, Zbookmark};

use crate::nvlist::{Encoding, Nvlist, Value};
use crate::{Error, Order, Reader, Result};

const STRUCTURE: &str = "pool history";

/// The head of the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HistoryHeader {
    /// End of the record of the pool's creation, bytes.
    pub create_end: u64,
    /// End of the ring in the object, bytes.
    pub size: u64,
    /// Logical offset of the oldest record after the creation.
    pub first: u64,
    /// Logical offset of the end.
    pub end: u64,
    /// How many records were overwritten.
    pub lost: u64,
}

impl HistoryHeader {
    /// Bytes on disk.
    pub const SIZE: usize = 40;

    /// Reads the bonus.
    pub fn read(reader: &mut Reader<'_>) -> Result<Self> {
        let create_end = reader.u64()?;
        let size = reader.u64()?;
        let first = reader.u64()?;
        let end = reader.u64()?;
        let lost = reader.u64()?;
        let all = Self { create_end, size, first, end, lost };
        let ring = size.checked_sub(create_end);
        let used = end.checked_sub(first);
        if first < create_end || ring.zip(used).is_none_or(|(ring, used)| used > ring) {
            return Err(reader.corrupt_field(32, "the records fit the ring", end));
        }
        Ok(all)
    }

    /// The bonus.
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let Self { create_end, size, first, end, lost } = *self;
        let mut out = [0; Self::SIZE];
        for (place, word) in out.chunks_exact_mut(8).zip([create_end, size, first, end, lost]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        out
    }

    /// The location of a number of bytes from a logical offset on: one range, or two where
    /// they wrap around the ring's end.
    pub fn object_ranges(&self, offset: u64, length: u64) -> [Range<u64>; 2] {
        let ring = self.size.saturating_sub(self.create_end);
        let within = offset.saturating_sub(self.create_end).checked_rem(ring).unwrap_or(0);
        let start = within.saturating_add(self.create_end);
        let straight = length.min(self.size.saturating_sub(start));
        let wrapped = length.saturating_sub(straight);
        [
            start..start.saturating_add(straight),
            self.create_end..self.create_end.saturating_add(wrapped),
        ]
    }

    /// The ranges of the object that hold the records, oldest first. Their concatenation is the
    /// input of [`Records`].
    pub fn ranges(&self) -> Vec<Range<u64>> {
        let mut all = Vec::new();
        all.push(0..self.create_end);
        let ring = self.size.saturating_sub(self.create_end);
        let used = self.end.saturating_sub(self.first);
        if ring > 0 {
            all.extend(self.object_ranges(self.first, used));
        }
        all.retain(|range| !range.is_empty());
        all
    }
}

/// One thing that was done, to be written down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry<'a> {
    /// A user's command.
    Command {
        /// The command line.
        line: &'a str,
        /// The user.
        user: u64,
    },
    /// The pool did something itself.
    Event {
        /// The kind, in a word.
        name: &'a str,
        /// The rest.
        detail: &'a str,
        /// The dataset that it was done to.
        dataset: Option<(&'a str, ObjsetId)>,
    },
}

impl Entry<'_> {
    /// The record of it: its length, and the packed list.
    pub fn record(&self, txg: Txg, time: u64, host: &str) -> Vec<u8> {
        let text = |text: &str| Value::Str(text.as_bytes().to_vec());
        let mut list = Nvlist::new();
        match *self {
            Self::Command { line, user } => {
                list.push("history command", text(line));
                list.push("history zone", text("linux"));
                list.push("history who", Value::U64(user));
            }
            Self::Event { name, detail, dataset } => {
                if let Some((name, id)) = dataset {
                    list.push("dsname", text(name));
                    list.push("dsid", Value::U64(id.get()));
                }
                list.push("internal_name", text(name));
                list.push("history internal str", text(detail));
                list.push("history txg", Value::U64(txg.get()));
            }
        }
        list.push("history time", Value::U64(time));
        list.push("history hostname", text(host));
        let packed = list.encode(Encoding::Native(Order::Little));
        let mut record = u64::try_from(packed.len()).unwrap_or(0).to_le_bytes().to_vec();
        record.extend(packed);
        record
    }
}

/// One thing that was done.
#[derive(Clone, PartialEq, Debug)]
pub struct HistoryRecord {
    /// All of it.
    pub nvlist: Nvlist,
}

impl HistoryRecord {
    /// When, seconds since 1970.
    pub fn time(&self) -> Option<u64> {
        self.nvlist.u64("history time")
    }

    /// The txg, on internal events.
    pub fn txg(&self) -> Option<Txg> {
        self.nvlist.u64("history txg").map(Txg::new)
    }

    /// The command line, where a person gave one.
    pub fn command(&self) -> Option<String> {
        self.nvlist.text("history command")
    }

    /// The user that gave the command.
    pub fn user(&self) -> Option<u64> {
        self.nvlist.u64("history who")
    }

    /// The zone of the host: "linux" where Linux wrote it.
    pub fn zone(&self) -> Option<String> {
        self.nvlist.text("history zone")
    }

    /// The host on which it was given.
    pub fn host(&self) -> Option<String> {
        self.nvlist.text("history hostname")
    }

    /// The name of an internal event, as recorded or from its number in old pools.
    pub fn event(&self) -> Option<String> {
        if let Some(name) = self.nvlist.text("internal_name") {
            return Some(name);
        }
        let number = self.nvlist.u64("history internal event")?;
        let known = usize::try_from(number).ok().and_then(|number| EVENTS.get(number));
        Some(known.map_or_else(|| format!("event {number}"), ToString::to_string))
    }

    /// The description of an internal event.
    pub fn detail(&self) -> Option<String> {
        self.nvlist.text("history internal str")
    }

    /// The dataset it was done to: its name then, and its object.
    pub fn dataset(&self) -> Option<(String, ObjsetId)> {
        let name = self.nvlist.text("dsname")?;
        Some((name, ObjsetId::new(self.nvlist.u64("dsid").unwrap_or(0))))
    }

    /// The call of the system that was made, on records of newer pools.
    pub fn ioctl(&self) -> Option<String> {
        self.nvlist.text("ioctl")
    }
}

/// The events of pools before version 5000, by number.
pub const EVENTS: [&str; 41] = [
    "invalid event",
    "pool create",
    "vdev add",
    "pool remove",
    "pool destroy",
    "pool export",
    "pool import",
    "vdev attach",
    "vdev replace",
    "vdev detach",
    "vdev online",
    "vdev offline",
    "vdev upgrade",
    "pool clear",
    "pool scrub",
    "pool property set",
    "create",
    "clone",
    "destroy",
    "destroy_begin_sync",
    "inherit",
    "property set",
    "quota set",
    "permission update",
    "permission remove",
    "permission who remove",
    "promote",
    "receive",
    "rename",
    "reservation set",
    "replay_inc_sync",
    "replay_full_sync",
    "rollback",
    "snapshot",
    "filesystem version upgrade",
    "refquota set",
    "refreservation set",
    "pool scrub done",
    "user hold",
    "user release",
    "pool split",
];

/// Reads records one by one. An unreadable record is an error, and reading continues with the next
/// one. An impossible length is the last error.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    reader: Reader<'a>,
}

impl<'a> Records<'a> {
    /// Over the bytes of [`HistoryHeader::ranges`].
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { reader: Reader::new(STRUCTURE, bytes, Order::Little) }
    }

    fn read_packed(&mut self) -> Result<&'a [u8]> {
        let length = self.reader.u64()?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        self.reader.bytes(length)
    }
}

impl Iterator for Records<'_> {
    type Item = Result<HistoryRecord>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.remaining() == 0 {
            return None;
        }
        match self.read_packed() {
            Ok(bytes) => Some(Nvlist::decode(bytes).map(|nvlist| HistoryRecord { nvlist })),
            Err(error) => {
                self.reader.rest();
                Some(Err(error))
            }
        }
    }
}

/// A block that could not be read, from the error log's older form.
pub fn parse_error(name: &str) -> Result<Zbookmark> {
    let [objset, object, level, block] = parse_four_numbers(name)?;
    Ok(Zbookmark::new(
        ObjsetId::new(objset),
        ObjectId::new(object),
        Level::new(low_byte(level)),
        BlockId::new(block),
    ))
}

/// The same from the form of head_errlog, of that dataset; with the block's birth.
pub fn parse_head_error(dataset: ObjsetId, name: &str) -> Result<(Zbookmark, Txg)> {
    let [object, level, block, birth] = parse_four_numbers(name)?;
    let zbookmark = Zbookmark::new(
        dataset,
        ObjectId::new(object),
        Level::new(low_byte(level)),
        BlockId::new(block),
    );
    Ok((zbookmark, Txg::new(birth)))
}

/// Levels are small; the marks below 0 of some writers keep their low byte.
const fn low_byte(level: u64) -> u8 {
    level.to_le_bytes()[0]
}

fn parse_four_numbers(name: &str) -> Result<[u64; 4]> {
    let mut out = [0; 4];
    let mut parts = name.split(':');
    for slot in &mut out {
        let number = parts.next().and_then(|part| u64::from_str_radix(part, 16).ok());
        *slot = number.ok_or(BAD_NAME)?;
    }
    match parts.next() {
        None => Ok(out),
        Some(_) => Err(BAD_NAME),
    }
}

const BAD_NAME: Error = Error::Rule {
    structure: "error log",
    at: 0,
    rule: "a name is four hexadecimal numbers",
    found: 0,
};

#[cfg(test)]
mod tests {
    use super::{Entry, HistoryHeader, Records, parse_error, parse_head_error};
    use crate::nvlist::{Encoding, Nvlist, Value};
    use crate::{Order, Reader, Result};
    use units::{ObjsetId, Txg};

    fn header(words: [u64; 5]) -> Result<HistoryHeader> {
        let raw: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        HistoryHeader::read(&mut Reader::new("h", &raw, Order::Little))
    }

    #[test]
    fn ring_wraps_after_the_creation_record() {
        let young = header([100, 1000, 100, 250, 0]).unwrap();
        assert_eq!(young.ranges(), [0..100, 100..250]);
        // 1300 and 2000 are 400 and 200 in the ring of 900 bytes from 100 on
        let old = header([100, 1000, 1300, 2000, 7]).unwrap();
        assert_eq!(old.ranges(), [0..100, 400..1000, 100..200]);
        assert!(header([100, 1000, 1300, 2300, 0]).is_err());
        assert!(header([100, 1000, 50, 60, 0]).is_err());
        assert!(header([100, 90, 100, 100, 0]).is_err());
        assert_eq!(header([100, 100, 100, 100, 0]).unwrap().ranges().len(), 1);
    }

    #[test]
    fn records_survive_encoding() {
        let dataset = Some(("tank/a@one", ObjsetId::new(161)));
        let event = Entry::Event { name: "snapshot", detail: "", dataset };
        let command = Entry::Command { line: "zfs snapshot tank/a@one", user: 1000 };
        let mut raw = event.record(Txg::new(17), 5, "here");
        raw.extend(command.record(Txg::new(17), 6, "here"));
        let all: Vec<_> = Records::new(&raw).map(Result::unwrap).collect();
        assert_eq!(all[0].event().as_deref(), Some("snapshot"));
        assert_eq!(all[0].dataset(), Some(("tank/a@one".to_owned(), ObjsetId::new(161))));
        assert_eq!((all[0].txg(), all[0].time()), (Some(Txg::new(17)), Some(5)));
        assert_eq!(all[1].command().as_deref(), Some("zfs snapshot tank/a@one"));
        assert_eq!((all[1].user(), all[1].host().as_deref()), (Some(1000), Some("here")));
        let header = header([100, 1000, 1300, 2000, 7]).unwrap();
        let bytes = header.encode();
        let again = HistoryHeader::read(&mut Reader::new("h", &bytes, Order::Little));
        assert_eq!(again.unwrap(), header);
        assert_eq!(header.object_ranges(1800, 200), [900..1000, 100..200]);
    }

    #[test]
    fn corrupt_record_does_not_hide_the_next() {
        let mut list = Nvlist::new();
        list.push("history time", Value::U64(5));
        list.push("history internal event", Value::U64(33));
        let packed = list.encode(Encoding::Native(Order::Big));
        let mut raw = 4_u64.to_le_bytes().to_vec();
        raw.extend([9; 4]);
        raw.extend((packed.len() as u64).to_le_bytes());
        raw.extend(&packed);
        raw.extend(u64::MAX.to_le_bytes());
        let all: Vec<_> = Records::new(&raw).collect();
        assert_eq!(all.len(), 3);
        assert!(all[0].is_err() && all[2].is_err());
        let record = all[1].clone().unwrap();
        assert_eq!((record.time(), record.event().as_deref()), (Some(5), Some("snapshot")));
    }

    #[test]
    fn both_error_log_formats_are_parsed() {
        assert_eq!(
            parse_error("36:2:0:1f").unwrap().to_string(),
            "objset 54 object 2 level 0 block 31"
        );
        let (zbookmark, birth) = parse_head_error(ObjsetId::new(54), "2:1:0:1c").unwrap();
        assert_eq!(zbookmark.to_string(), "objset 54 object 2 level 1 block 0");
        assert_eq!(birth, Txg::new(28));
        for wrong in ["", "1:2:3", "1:2:3:4:5", "x:1:2:3"] {
            assert!(parse_error(wrong).is_err());
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes: Vec<u8>, words: [u64; 5], name: String) {
            Records::new(&bytes).for_each(drop);
            if let Ok(header) = header(words) {
                let sum: u64 = header.ranges().iter().map(|range| range.end - range.start).sum();
                proptest::prop_assert!(sum <= header.size);
            }
            let _ = parse_error(&name);
        }
    }
}
