//! Quotas of users, groups and projects in a file system of an imported pool.

use ondisk::version;
use zpl::{QuotaLimit, QuotaOwner};

use super::accounting::has_feature;
use super::{NewDataset, Pool};
use crate::owner_properties;
use crate::{Error, Result};

/// Owner quotas of a file system.
pub(super) type OwnerQuotas = Vec<(QuotaOwner, QuotaLimit)>;

/// An owner's quota, if the property is one; owners are numbers.
fn parse_quota(property: &str, value: &str) -> Option<Result<(QuotaOwner, QuotaLimit)>> {
    let fact = owner_properties::parse(property)?;
    let usage = |what: String| Some(Err(Error::Usage { what }));
    if !fact.is_quota {
        return usage(format!("{property} is the used space, and cannot be set"));
    }
    let most = match value {
        "none" => Some(0),
        text => units::parse_binary(text),
    };
    let Some(most) = most else { return usage(format!("{property}={value}: it is not a number")) };
    let limit = if fact.is_objects { QuotaLimit::Objects(most) } else { QuotaLimit::Bytes(most) };
    Some(Ok((fact.owner, limit)))
}

/// Whether a property is of a user, a group or a project.
pub(super) fn is_owner_quota(property: &str) -> bool {
    owner_properties::parse(property).is_some()
}

/// Takes out of the properties of a file system that is to be what owners may use in it.
pub(super) fn extract_quotas(new: &mut NewDataset) -> Result<OwnerQuotas> {
    let mut limits = Vec::new();
    let mut others = Vec::new();
    for (property, value) in new.properties.drain(..) {
        match parse_quota(&property, &value) {
            Some(known) => limits.push(known?),
            None => others.push((property, value)),
        }
    }
    new.properties = others;
    Ok(limits)
}

impl Pool {
    /// Sets an owner's quota, if the property is one.
    pub(super) fn set_owner_quota(
        &self,
        name: &str,
        property: &str,
        value: &str,
    ) -> Option<Result<()>> {
        let known = parse_quota(property, value)?;
        Some(known.and_then(|known| self.set_owner_quotas(name, &[known])))
    }

    /// Whether the pool has what such limits take.
    pub(super) fn check_quota_features(
        &self,
        name: &str,
        limits: &[(QuotaOwner, QuotaLimit)],
    ) -> Result<()> {
        if !limits.is_empty() {
            self.require_version(version::USERSPACE, name)?;
        }
        let projects = limits.iter().any(|(owner, _)| matches!(owner, QuotaOwner::Project(_)));
        if projects && !has_feature(&self.0.spa.synced_mos(), "project_quota") {
            let why =
                "limits of projects take the feature project_quota, which the pool has not enabled";
            return Err(Error::Refused { what: format!("'{name}': {why}") });
        }
        Ok(())
    }

    /// Sets what owners may use.
    pub(super) fn set_owner_quotas(
        &self,
        name: &str,
        limits: &[(QuotaOwner, QuotaLimit)],
    ) -> Result<()> {
        if limits.is_empty() {
            return Ok(());
        }
        self.check_quota_features(name, limits)?;
        let refused = |why: &str| Error::Refused { what: format!("'{name}': {why}") };
        let fs = self.datasets().filesystem(name)?;
        let tx = self.0.spa.begin_dataset_tx(fs.dataset());
        let tx = tx.map_err(|error| self.explain_error(&error))?;
        let objset = fs.dataset().objset();
        for (owner, limit) in limits {
            zpl::set_quota(objset, &tx, *owner, *limit, &mut || self.0.environment.random_u64())
                .map_err(|error| refused(&error.to_string()))?;
        }
        drop(tx);
        self.sync()
    }
}
