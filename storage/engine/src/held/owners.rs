//! What users, groups and projects may use of a file system of a held pool.

use zpl::{Limit, Owner};

use super::Held;
use crate::owners;
use crate::{Error, Result};

impl Held {
    /// Sets what an owner may use, if the property is one that says so; owners go by their numbers.
    pub(super) fn set_owner(&self, name: &str, property: &str, value: &str) -> Option<Result<()>> {
        let fact = owners::parse(property)?;
        if !fact.limit {
            let what = format!("{property} is what is used, and cannot be set");
            return Some(Err(Error::Usage { what }));
        }
        let most = match value {
            "none" => Some(0),
            text => units::parse_binary(text),
        };
        let Some(most) = most else {
            let what = format!("{property}={value}: it is no number");
            return Some(Err(Error::Usage { what }));
        };
        let limit = if fact.objects { Limit::Objects(most) } else { Limit::Bytes(most) };
        Some(self.limit(name, fact.owner, limit))
    }

    fn limit(&self, name: &str, owner: Owner, limit: Limit) -> Result<()> {
        let live = self.files(name)?;
        let tx = self.0.owned.begin().map_err(|why| self.explain(&why))?;
        let objset = &live.store().objset;
        zpl::set_quota(objset, &tx, owner, limit, &mut || self.0.world.number())
            .map_err(|why| Error::Refused { what: format!("'{name}': {why}") })?;
        drop(tx);
        self.sync()
    }
}
