//! File systems and volumes of all pools, as far as shares concern them.

use std::collections::HashMap;
use std::path::PathBuf;

use engine::KeyState;
use engine::dataset::{Dataset, DatasetQuery};

use super::{ManagedPool, Pools};
use crate::shares::{DatasetFacts, SHARE_PROPERTIES};

impl Pools {
    /// The file systems and volumes of all pools. A pool that cannot be read has none.
    pub(crate) fn share_facts(&self) -> Vec<DatasetFacts> {
        let mut all = Vec::new();
        for pool in self.all() {
            let mounted: HashMap<String, PathBuf> =
                pool.mounted_filesystems().into_iter().collect();
            let query = DatasetQuery {
                kinds: ["filesystem", "volume"].map(str::to_owned).to_vec(),
                depth: None,
                properties: ["mountpoint", "canmount", "quota", "refquota", "acltype"]
                    .into_iter()
                    .chain(SHARE_PROPERTIES)
                    .map(str::to_owned)
                    .collect(),
            };
            let mut add = |dataset: Dataset| {
                let mounted_at = mounted.get(&dataset.name).cloned();
                all.push(pool.facts_of(dataset, mounted_at));
            };
            let listed =
                pool.handle.datasets().list(pool.handle.name(), &query, &mut add, &mut |_| ());
            if let Err(why) = listed {
                self.log.write_line(&format!("shares of '{}': {why}", pool.handle.name()));
            }
        }
        all
    }
}

impl ManagedPool {
    fn facts_of(&self, dataset: Dataset, mounted_at: Option<PathBuf>) -> DatasetFacts {
        let shared = SHARE_PROPERTIES.map(|name| {
            let found = dataset.properties.iter().find(|property| property.name == name);
            found.map_or_else(
                || ("off".to_owned(), "default".to_owned()),
                |found| (found.value.clone(), found.source.clone()),
            )
        });
        let limits = ["quota", "refquota"].map(|name| dataset.property_value(name)?.parse().ok());
        let quota = limits.into_iter().flatten().filter(|limit: &u64| *limit > 0).min();
        let mountpoint = dataset.property_value("mountpoint");
        DatasetFacts {
            is_volume: dataset.kind == "volume",
            is_locked: dataset.key == KeyState::Locked,
            canmount: dataset.property_value("canmount").unwrap_or("off").to_owned(),
            mountpoint: mountpoint.and_then(|point| self.with_altroot(point)),
            mounted_at,
            // the share service knows
            is_unmounted: false,
            quota,
            has_nfs4_acls: dataset.property_value("acltype") == Some("nfsv4"),
            shared,
            name: dataset.name,
        }
    }
}
