//! Keys of encrypted datasets: loaded, unloaded, changed.

use api::{ChangeKey, Event, LoadKey};

use super::{ManagedPool, Pools};
use crate::events::ChangeOptions;
use crate::{Error, Result};

impl Pools {
    pub(crate) fn load_key(&self, call: &LoadKey) -> Result<Vec<String>> {
        if call.dry_run {
            let pool = self.pool_of_dataset(&call.name)?;
            pool.handle.keys().check(&call.name, &call.secret.0)?;
            return Ok(Vec::new());
        }
        self.change_dataset(&call.name, |pool| {
            let coming = [Event::KeyLoaded { dataset: call.name.clone() }];
            let work = || Ok(pool.handle.keys().load(&call.name, &call.secret.0)?);
            Ok(self.change(&coming, &ChangeOptions::default(), work)?.1)
        })
    }

    pub(crate) fn unload_key(&self, name: &str) -> Result<Vec<String>> {
        self.change_dataset(name, |pool| {
            let coming = [Event::KeyUnloaded { dataset: name.to_owned() }];
            let work = || Ok(pool.handle.keys().unload(name)?);
            Ok(self.change(&coming, &ChangeOptions::default(), work)?.1)
        })
    }

    pub(crate) fn change_key(&self, call: &ChangeKey) -> Result<()> {
        self.change_dataset(&call.name, |pool| {
            Ok(pool.handle.keys().change(&call.name, &call.properties, &call.secret.0)?)
        })
    }

    pub(crate) fn inherit_key(&self, name: &str) -> Result<()> {
        self.change_dataset(name, |pool| Ok(pool.handle.keys().inherit(name)?))
    }
}

impl ManagedPool {
    /// Refuses if a mounted file system uses the key of this encryption root.
    pub(super) fn check_key_unused(&self, root: &str) -> Result<()> {
        let own: Vec<String> = self.handle.keys().encryption_root(root)?.into_iter().collect();
        match self.find_mounted_with_key(&own, |_| true)? {
            None => Ok(()),
            Some((mounted, _)) => {
                Err(Error::refused_error(format!("'{mounted}' is mounted; unmount it first")))
            }
        }
    }

    /// Refuses if a file system that stays mounted uses the key of one that is unmounted.
    pub(super) fn check_keys_unused(&self, goes: &dyn Fn(&str) -> bool) -> Result<()> {
        let mounted = self.mounted_filesystems().into_iter().map(|(name, _)| name);
        let going: Vec<_> = mounted.filter(|name| goes(name)).collect();
        match self.find_mounted_with_key(&going, |name| !goes(name))? {
            None => Ok(()),
            Some((other, root)) => Err(Error::refused_error(format!(
                "'{root}' cannot be locked: '{other}', which is mounted, has its key"
            ))),
        }
    }

    /// A mounted and chosen file system with one of the encryption roots, and that root.
    fn find_mounted_with_key(
        &self,
        roots: &[String],
        chosen: impl Fn(&str) -> bool,
    ) -> Result<Option<(String, String)>> {
        // with many datasets each look takes a while
        let mounted = if roots.is_empty() { Vec::new() } else { self.mounted_filesystems() };
        for (name, _) in mounted.into_iter().filter(|(name, _)| chosen(name)) {
            let root = self.handle.keys().encryption_root(&name)?;
            if let Some(root) = root.filter(|root| roots.contains(root)) {
                return Ok(Some((name, root)));
            }
        }
        Ok(None)
    }
}
