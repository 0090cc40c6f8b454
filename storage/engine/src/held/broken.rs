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
    use ondisk::zil::Body;
    use sim::Storm;
    use units::ObjectId;
    use zil::Item;

    use super::super::New;
    use super::super::replayed::{cut, hold, is_there, make, pool, promise, root};

    #[test]
    fn a_record_that_cannot_be_done_ends_its_log_and_not_the_import() {
        let storm = Storm::new(&[96 << 20]);
        let held = pool(&storm);
        let live = held.files("tank").expect("file system");
        make(&held, "before", &New::default());
        let (dir, object) = (root(&live), ObjectId::new(1 << 30));
        let link = Body::Link { dir, object, name: b"of what never was".to_vec() };
        promise(&held, Item::ordered(link));
        make(&held, "after", &New::default());
        live.fsync(None).expect("fsync");
        let storm = cut(&storm);
        let held = hold(&storm.devices());
        assert!(is_there(&held, "before") && !is_there(&held, "after"));
        let told = held.take_broken_logs();
        assert_eq!(told.len(), 1, "{told:?}");
        let said = told[0].to_string();
        assert!(
            said.starts_with("'tank': its intent log") && said.contains("1073741824"),
            "{said}"
        );
        assert_eq!(held.take_broken_logs(), []);
        make(&held, "later", &New::default());
        held.export().expect("export");
        drop(held);
        let held = hold(&storm.devices());
        assert!(is_there(&held, "before") && is_there(&held, "later"));
        assert_eq!(held.take_broken_logs(), [], "it is given up for good");
    }
}
