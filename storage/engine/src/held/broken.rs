//! Intent logs that could not be done again to their end.
//!
//! As OpenZFS has it, that ends the log and not the import: what comes after the record builds on it,
//! and the rest of the pool is sound. Whoever has the pool must tell the user.

use std::fmt;

use super::Held;

/// An intent log that could not be done again to its end after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenLog {
    /// The dataset.
    pub dataset: String,
    /// The first record that was not done, by its number.
    pub record: u64,
    /// Why not.
    pub why: String,
}

impl fmt::Display for BrokenLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dataset, record, why } = self;
        write!(
            f,
            "'{dataset}': its intent log could not be done again from record {record} on ({why}): what was \
             done to it in the last seconds before the crash is lost, though programs were promised that \
             it lasts; see whether what they wrote last is there"
        )
    }
}

impl Held {
    pub(super) fn note_broken(&self, log: BrokenLog) {
        self.0.broken_logs.lock().push(log);
    }

    /// The logs that could not be done again to their end, as far as nobody was told of them yet.
    /// There may be more when datasets are opened whose keys were not there before.
    pub fn take_broken_logs(&self) -> Vec<BrokenLog> {
        std::mem::take(&mut *self.0.broken_logs.lock())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use ondisk::zil::Body;
    use sim::Storm;
    use units::ObjectId;
    use zil::Item;

    use super::super::{
        Caller, Held, Memory, New, NewPool, NewVdev, Purpose, Shape, World, create_on, hold_on,
    };

    fn world() -> World {
        let mut state = 9_u8;
        let random = parking_lot::Mutex::new(move |bytes: &mut [u8]| {
            for byte in bytes {
                state = state.wrapping_mul(141).wrapping_add(3);
                *byte = state;
            }
        });
        World {
            random: Arc::new(move |bytes| random.lock()(bytes)),
            now: Arc::new(|| (1_700_000_000, 0)),
            workers: 2,
            dirty: 64 << 20,
            cache: Memory::default(),
            host: (0x1234, "here".to_owned()),
        }
    }

    fn make(held: &Held, name: &str) {
        let live = held.files("tank").expect("file system");
        let now = crate::files::Time { seconds: 1_700_000_001, nanoseconds: 5 };
        let caller = Caller { uid: 1000, gid: 100, now, keeps_setid: false };
        let root = ObjectId::new(live.files().root_id());
        live.make(&caller, root, name.as_bytes(), &New::default()).expect("file");
    }

    fn is_there(held: &Held, name: &str) -> bool {
        let live = held.files("tank").expect("file system");
        live.files().find(name.as_bytes()).expect("a look").is_some()
    }

    #[test]
    fn a_record_that_cannot_be_done_ends_its_log_and_not_the_import() {
        let storm = Storm::new(&[96 << 20]);
        let drives = vec![PathBuf::from("/disk0")];
        let vdevs = vec![NewVdev { shape: Shape::Single, drives, purpose: Purpose::Data }];
        let (name, properties) = ("tank".to_owned(), Vec::new());
        let new = NewPool { name, vdevs, ashift: None, properties, force: false };
        let held = create_on(&new, &storm.devices(), &world()).expect("pool");
        let live = held.files("tank").expect("file system");
        // the first promise of a log comes with a group
        make(&held, "first");
        live.fsync(None).expect("fsync");
        held.sync().expect("group");
        make(&held, "before");
        let (dir, object) = (ObjectId::new(live.files().root_id()), ObjectId::new(1 << 30));
        let tx = held.0.owned.begin().expect("group");
        let link = Body::Link { dir, object, name: b"of what never was".to_vec() };
        live.log.add(&tx, Item::ordered(link));
        drop(tx);
        make(&held, "after");
        live.fsync(None).expect("fsync");
        let storm = Storm::from_memory(storm.journal().cut(storm.journal().len(), 1));
        let held = hold_on(&storm.devices(), "tank", &world()).expect("taken over");
        assert!(is_there(&held, "before") && !is_there(&held, "after"));
        let told = held.take_broken_logs();
        assert_eq!(told.len(), 1, "{told:?}");
        let said = told[0].to_string();
        assert!(
            said.starts_with("'tank': its intent log") && said.contains("1073741824"),
            "{said}"
        );
        assert_eq!(held.take_broken_logs(), []);
        make(&held, "later");
        held.export().expect("export");
        drop(held);
        let held = hold_on(&storm.devices(), "tank", &world()).expect("taken over again");
        assert!(is_there(&held, "before") && is_there(&held, "later"));
        assert_eq!(held.take_broken_logs(), [], "it is given up for good");
    }
}
