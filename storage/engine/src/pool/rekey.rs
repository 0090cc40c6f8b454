//! Changes the user's key of encrypted datasets.

use std::sync::Arc;

use dsl::write::{self, KeyChange};
use dsl::{Dataset, KeyFormat, Pbkdf2Params};
use transform::crypt::WrappingKey;

use super::encryption::{
    EncryptionOptions, UserKey, check_location_format, encryption_error, random_iv,
};
use super::{Environment, NewDataset, Pool};
use crate::pool::handles::Keys;
use crate::{Error, Result, keys};

/// The wrapping keys of datasets, before and after.
struct KeyChangeParams {
    old_key: Arc<WrappingKey>,
    new_key: Arc<WrappingKey>,
    format: KeyFormat,
    pbkdf2: Pbkdf2Params,
    environment: Environment,
}

impl KeyChangeParams {
    fn with_rewrap<T>(&self, work: impl FnOnce(&KeyChange<'_>) -> T) -> T {
        let nonce = || random_iv(&self.environment);
        let (old, new, format) = (&*self.old_key, &*self.new_key, self.format);
        work(&KeyChange { old_key: old, new_key: new, format, pbkdf2: self.pbkdf2, nonce: &nonce })
    }
}

impl Keys<'_> {
    /// Gives a dataset a user's key of its own, or another one, and so all with the same encryption
    /// root. Its content stays unchanged; the old key no longer opens it. `properties` may be
    /// keyformat, keylocation and pbkdf2iters; its key must be loaded.
    pub fn change(
        self,
        dataset: &str,
        properties: &[(String, String)],
        secret: &[u8],
    ) -> Result<()> {
        let mut named = NewDataset { name: dataset.to_owned(), properties: properties.to_vec() };
        let options = EncryptionOptions::extract(&mut named);
        if let Some((other, _)) = named.properties.first() {
            return Err(encryption_error(&format!("{other} is not about its key")));
        }
        if options.encryption.is_some() {
            return Err(encryption_error("its cipher cannot be changed"));
        }
        // no other change, child or key load with the old key may come between the change and the
        // moment when the new key is known
        self.pool.with_opens_blocked(|| self.pool.change_user_key(dataset, &options, secret))
    }
}

impl Pool {
    fn change_user_key(
        &self,
        dataset: &str,
        options: &EncryptionOptions,
        secret: &[u8],
    ) -> Result<()> {
        let found = self.find_dataset(dataset)?;
        let old = loaded_wrapping_key(&found)?;
        let failed = |error: dsl::Error| Error::from_dsl_error(dataset, &error);
        let own = self.keys().encryption_root(dataset)?.as_deref() == Some(dataset);
        let location = options.location.clone().or_else(|| (!own).then(|| "prompt".to_owned()));
        location.as_ref().map_or(Ok(()), |location| check_location_format(location))?;
        let now = found.key_info().map_err(failed)?.and_then(|facts| facts.format);
        let word = options.format.clone().unwrap_or_else(|| keys::format_name(now).to_owned());
        let world = self.0.environment.clone();
        let UserKey { wrapping_key: wrapping, format, pbkdf2: stretching } =
            options.derive_user_key(&world, dataset, &word, Some(secret))?;
        let new = Arc::new(wrapping);
        let turn = KeyChangeParams {
            old_key: old,
            new_key: Arc::clone(&new),
            format,
            pbkdf2: stretching,
            environment: world,
        };
        let name = dataset.to_owned();
        self.run_sync_task(move |_, change| {
            turn.with_rewrap(|rewrap| {
                write::change_key(change, &name, rewrap, location.as_deref())
                    .map_err(|error| Error::from_dsl_error(&name, &error))
            })
        })?;
        self.store_user_key(dataset, Some(new))
    }
}

impl Keys<'_> {
    /// Makes an encryption root use its parent's key, and so all with the same root.
    /// Both keys must be loaded.
    pub fn inherit(self, dataset: &str) -> Result<()> {
        self.pool.with_opens_blocked(|| self.pool.inherit_parent_key(dataset))
    }
}

impl Pool {
    fn inherit_parent_key(&self, dataset: &str) -> Result<()> {
        let found = self.find_dataset(dataset)?;
        let failed = |error: dsl::Error| Error::from_dsl_error(dataset, &error);
        let old = loaded_wrapping_key(&found)?;
        let above =
            dataset.rsplit_once('/').map(|(above, _)| self.find_dataset(above)).transpose()?;
        let facts = above.as_ref().map(Dataset::key_info).transpose().map_err(failed)?.flatten();
        let (Some(above), Some(facts)) = (above, facts) else {
            return Err(encryption_error("its parent is not encrypted"));
        };
        let new = loaded_wrapping_key(&above)?;
        let stretching = Pbkdf2Params { salt: facts.salt, iterations: facts.iterations };
        let format = facts.format.unwrap_or(KeyFormat::Raw);
        let turn = KeyChangeParams {
            old_key: old,
            new_key: new,
            format,
            pbkdf2: stretching,
            environment: self.0.environment.clone(),
        };
        let name = dataset.to_owned();
        self.run_sync_task(move |_, change| {
            turn.with_rewrap(|rewrap| {
                write::inherit_key(change, &name, rewrap)
                    .map_err(|error| Error::from_dsl_error(&name, &error))
            })
        })
    }
}

/// The user's key that opens a dataset.
fn loaded_wrapping_key(dataset: &Dataset) -> Result<Arc<WrappingKey>> {
    let failed = |error: dsl::Error| Error::from_dsl_error(&dataset.name(), &error);
    if dataset.key_info().map_err(failed)?.is_none() {
        return Err(Error::NotEncrypted { dataset: dataset.name() });
    }
    dataset.tree().wrapping_key(dataset).map_err(failed)?.ok_or_else(|| keys::locked_error(dataset))
}
