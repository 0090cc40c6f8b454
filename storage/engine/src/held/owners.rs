//! What users, groups and projects may use of a file system of a held pool.

use ondisk::version;
use zpl::{Limit, Owner};

use super::accounts::has;
use super::{Held, NewDataset};
use crate::owners;
use crate::{Error, Result};

/// What owners may use of a file system.
pub(super) type Limits = Vec<(Owner, Limit)>;

/// What an owner may use, if the property is one that says so; owners go by their numbers.
fn limit(property: &str, value: &str) -> Option<Result<(Owner, Limit)>> {
    let fact = owners::parse(property)?;
    let usage = |what: String| Some(Err(Error::Usage { what }));
    if !fact.limit {
        return usage(format!("{property} is what is used, and cannot be set"));
    }
    let most = match value {
        "none" => Some(0),
        text => units::parse_binary(text),
    };
    let Some(most) = most else { return usage(format!("{property}={value}: it is no number")) };
    let limit = if fact.objects { Limit::Objects(most) } else { Limit::Bytes(most) };
    Some(Ok((fact.owner, limit)))
}

/// Takes out of the properties of a file system that is to be what owners may use in it.
pub(super) fn take(new: &mut NewDataset) -> Result<Limits> {
    let mut limits = Vec::new();
    let mut others = Vec::new();
    for (property, value) in new.properties.drain(..) {
        match limit(&property, &value) {
            Some(known) => limits.push(known?),
            None => others.push((property, value)),
        }
    }
    new.properties = others;
    Ok(limits)
}

impl Held {
    /// Sets what an owner may use, if the property is one that says so.
    pub(super) fn set_owner(&self, name: &str, property: &str, value: &str) -> Option<Result<()>> {
        let known = limit(property, value)?;
        Some(known.and_then(|known| self.limit(name, &[known])))
    }

    /// Whether the pool has what such limits take.
    pub(super) fn may_limit(&self, name: &str, limits: &[(Owner, Limit)]) -> Result<()> {
        if !limits.is_empty() {
            self.require_version(version::USERSPACE, name)?;
        }
        let projects = limits.iter().any(|(owner, _)| matches!(owner, Owner::Project(_)));
        if projects && !has(&self.0.owned.look(), "project_quota") {
            let why =
                "limits of projects take the feature project_quota, which the pool has not enabled";
            return Err(Error::Refused { what: format!("'{name}': {why}") });
        }
        Ok(())
    }

    /// Sets what owners may use.
    pub(super) fn limit(&self, name: &str, limits: &[(Owner, Limit)]) -> Result<()> {
        if limits.is_empty() {
            return Ok(());
        }
        self.may_limit(name, limits)?;
        let refused = |why: &str| Error::Refused { what: format!("'{name}': {why}") };
        let live = self.files(name)?;
        let tx = self.0.owned.begin().map_err(|why| self.explain(&why))?;
        let objset = &live.store().objset;
        for (owner, limit) in limits {
            zpl::set_quota(objset, &tx, *owner, *limit, &mut || self.0.world.number())
                .map_err(|why| refused(&why.to_string()))?;
        }
        drop(tx);
        self.sync()
    }
}
