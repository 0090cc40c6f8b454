//! `zpool split`: one device of each mirror becomes a pool of its own.

use ondisk::label::PoolState;
use serde::{Deserialize, Serialize};
use spa::{ActivePool, ImportPoint, PoolOpenOptions, SplitDevice};
use units::Guid;

use super::Pool;
use super::pool_name::check_pool_name;
use crate::pool::handles::Vdevs;
use crate::{Error, Result};

/// A device that a split takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitVdev {
    /// Where it is.
    pub path: String,
    /// Its guid.
    pub guid: u64,
}

/// How a pool is split.
#[derive(Clone, Debug, Default)]
pub struct SplitOptions {
    /// The devices for the new pool, by path or guid; of a mirror without one, the last.
    pub devices: Vec<String>,
    /// Pool properties of the new pool.
    pub properties: Vec<(String, String)>,
    /// Check only.
    pub dry_run: bool,
}

impl Vdevs<'_> {
    /// Splits devices off the mirrors of the pool: they become a pool of another name, exported, with all
    /// that the pool holds now. Returns the devices.
    pub fn split(self, new_name: &str, options: &SplitOptions) -> Result<Vec<SplitVdev>> {
        self.pool.check_writable()?;
        check_pool_name(new_name)?;
        let guids: Vec<Guid> = options
            .devices
            .iter()
            .map(|name| self.pool.find_drive(name).map(|leaf| leaf.guid))
            .collect::<Result<_>>()?;
        let devices = self
            .pool
            .0
            .spa
            .plan_split(&guids)
            .map_err(|error| self.pool.split_error(new_name, &error))?;
        let shown = devices.iter().map(|device| SplitVdev {
            path: device.device.name().to_owned(),
            guid: device.guid.get(),
        });
        let shown: Vec<SplitVdev> = shown.collect();
        if options.dry_run {
            return Ok(shown);
        }
        self.pool
            .0
            .spa
            .detach_split(&devices)
            .map_err(|error| self.pool.split_error(new_name, &error))?;
        self.pool.create_split_pool(new_name, &devices, options).map_err(|error| {
            let paths: Vec<&str> = shown.iter().map(|device| device.path.as_str()).collect();
            Error::Refused {
                what: format!(
                    "Unable to split {}: its devices are detached, and the new pool could not be written \
                     ({error}). Attach them again with `zpool attach`: {}",
                    self.pool.name(),
                    paths.join(" ")
                ),
            }
        })?;
        Ok(shown)
    }
}

impl Pool {
    /// Makes the detached devices a pool of their own.
    fn create_split_pool(
        &self,
        new_name: &str,
        devices: &[SplitDevice],
        options: &SplitOptions,
    ) -> Result<()> {
        let environment = &self.0.environment;
        let drives: Vec<_> = devices.iter().map(|split| split.device.clone()).collect();
        let guids: Vec<Guid> = devices.iter().map(|split| split.guid).collect();
        let search = crate::search_devices(&drives);
        let candidate = search.find_candidate(&self.guid().to_string())?;
        let open =
            PoolOpenOptions { cache: environment.cache.clone(), import_point: ImportPoint::Newest };
        let failed = |error: spa::Error| Error::NotWritable {
            pool: new_name.to_owned(),
            why: error.to_string(),
        };
        let mut pool = candidate.open(&open).map_err(failed)?;
        pool.rename(new_name);
        let active = ActivePool::new(pool, environment.to_spa()).map_err(failed)?;
        active.set_host(environment.host.clone());
        active.complete_split(&guids, self.name()).map_err(failed)?;
        let new = Self::with_rewind(None, active, environment.clone(), None);
        let set = options
            .properties
            .iter()
            .try_for_each(|(name, value)| new.properties().set_pool(name, value));
        new.close_with_state(PoolState::Exported)?;
        set
    }

    fn split_error(&self, new_name: &str, error: &spa::Error) -> Error {
        let why = match error {
            spa::Error::Split(why) => why.to_string(),
            spa::Error::DeviceChange(why) => why.to_string(),
            spa::Error::Removal(why) => why.to_string(),
            other => return self.explain_error(other),
        };
        let what = format!("Unable to split {} into {new_name}: {why}", self.name());
        Error::Refused { what }
    }
}
