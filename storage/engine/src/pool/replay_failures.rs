//! Intent logs that could not be done again to their end.
//!
//! As in OpenZFS, that ends the replay and not the import: later records depend on the failed one,
//! and the rest of the pool is intact. The caller must report it to the user.

use std::fmt;

use super::Pool;
use crate::pool::handles::Datasets;

/// An intent log that could not be done again to its end after a crash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayFailure {
    /// The dataset.
    pub dataset: String,
    /// The first record that was not done, by its number.
    pub seq: u64,
    /// Why not.
    pub why: String,
}

impl fmt::Display for ReplayFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dataset, seq: record, why } = self;
        write!(
            f,
            "'{dataset}': its intent log could not be replayed from record {record} on ({why}); synchronous writes of the last seconds before the crash may be lost: check the files that were written last"
        )
    }
}

impl Pool {
    pub(super) fn add_replay_failure(&self, log: ReplayFailure) {
        self.0.replay_failures.lock().push(log);
    }
}

impl Datasets<'_> {
    /// The logs that were not replayed completely, as far as they were not reported yet.
    /// There may be more when datasets are opened whose keys were loaded later.
    pub fn take_replay_failures(self) -> Vec<ReplayFailure> {
        std::mem::take(&mut *self.pool.0.replay_failures.lock())
    }
}

#[cfg(test)]
mod tests {
    use ondisk::zil::Body;
    use sim::DiskArray;
    use units::ObjectId;
    use zil::Itx;

    use super::super::replay_tests::{
        create_file, create_pool, cut_power, exists, import, log_record, root_object,
    };
    use posix::NewInode;

    #[test]
    fn failed_record_ends_the_replay_not_the_import() {
        let storm = DiskArray::new(&[96 << 20]);
        let pool = create_pool(&storm);
        let fs = pool.datasets().filesystem("tank").expect("file system");
        create_file(&pool, "before", &NewInode::default());
        let (dir, object) = (root_object(&fs), ObjectId::new(1 << 30));
        let link = Body::Link { dir, object, name: b"of what never was".to_vec() };
        log_record(&pool, Itx::new_ordered(link));
        create_file(&pool, "after", &NewInode::default());
        fs.fsync(None).expect("fsync");
        let storm = cut_power(&storm);
        let pool = import(&storm.devices());
        assert!(exists(&pool, "before") && !exists(&pool, "after"));
        let told = pool.datasets().take_replay_failures();
        assert_eq!(told.len(), 1, "{told:?}");
        let said = told[0].to_string();
        assert!(
            said.starts_with("'tank': its intent log") && said.contains("1073741824"),
            "{said}"
        );
        assert_eq!(pool.datasets().take_replay_failures(), []);
        create_file(&pool, "later", &NewInode::default());
        pool.export().expect("export");
        drop(pool);
        let pool = import(&storm.devices());
        assert!(exists(&pool, "before") && exists(&pool, "later"));
        assert_eq!(pool.datasets().take_replay_failures(), [], "it is freed for good");
    }
}
