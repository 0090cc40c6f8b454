//! Another user's key for what is encrypted already.

use std::sync::Arc;

use dsl::write::{self, Rewrap};
use dsl::{Dataset, KeyFormat, Stretching};
use transform::crypt::WrappingKey;

use super::encrypt::{UserKey, Wish, judge_location, nonce, usage};
use super::{Held, NewDataset, World};
use crate::{Error, Result, keys};

/// What closes the keys of datasets, before and after.
struct Turn {
    old: Arc<WrappingKey>,
    new: Arc<WrappingKey>,
    format: KeyFormat,
    stretching: Stretching,
    world: World,
}

impl Turn {
    fn make<T>(&self, work: impl FnOnce(&Rewrap<'_>) -> T) -> T {
        let nonce = || nonce(&self.world);
        let (old, new, format) = (&*self.old, &*self.new, self.format);
        work(&Rewrap { old, new, format, stretching: self.stretching, nonce: &nonce })
    }
}

impl Held {
    /// Gives a dataset a user's key of its own, or another one, and so all that have theirs from it.
    /// Its content stays as it is, and what was written can be opened with the old key no more than
    /// with any other. `properties` may be keyformat, keylocation and pbkdf2iters; its key must be
    /// loaded.
    pub fn change_key(
        &self,
        dataset: &str,
        properties: &[(String, String)],
        secret: &[u8],
    ) -> Result<()> {
        let mut named = NewDataset { name: dataset.to_owned(), properties: properties.to_vec() };
        let wish = Wish::take(&mut named);
        if let Some((other, _)) = named.properties.first() {
            return Err(usage(dataset, &format!("{other} is not about its key")));
        }
        if wish.encryption.is_some() {
            return Err(usage(dataset, "its cipher stays what it is"));
        }
        // nobody changes it besides, or makes something below with the old key, or looks for its key
        // between the change and the moment that the new one is known
        self.make_unseen(|| self.turn(dataset, &wish, secret))
    }

    fn turn(&self, dataset: &str, wish: &Wish, secret: &[u8]) -> Result<()> {
        let found = self.find(dataset)?;
        let old = loaded(&found)?;
        let failed = |error: dsl::Error| Error::of_dataset(dataset, &error);
        let own = self.encryption_root(dataset)?.as_deref() == Some(dataset);
        let location = wish.location.clone().or_else(|| (!own).then(|| "prompt".to_owned()));
        location.as_ref().map_or(Ok(()), |location| judge_location(dataset, location))?;
        let now = found.key_facts().map_err(failed)?.and_then(|facts| facts.format);
        let word = wish.format.clone().unwrap_or_else(|| keys::word(now).to_owned());
        let world = self.0.world.clone();
        let UserKey { wrapping, format, stretching } =
            wish.user_key(&world, dataset, &word, Some(secret))?;
        let new = Arc::new(wrapping);
        let turn = Turn { old, new: Arc::clone(&new), format, stretching, world };
        let name = dataset.to_owned();
        self.change(move |_, change| {
            turn.make(|rewrap| {
                write::change_key(change, &name, rewrap, location.as_deref())
                    .map_err(|error| Error::of_dataset(&name, &error))
            })
        })?;
        self.remember(dataset, Some(new))
    }

    /// Has an encryption root use the key of what is above it, and so all that have theirs from it.
    /// Both keys must be loaded.
    pub fn inherit_key(&self, dataset: &str) -> Result<()> {
        self.make_unseen(|| self.turn_to_above(dataset))
    }

    fn turn_to_above(&self, dataset: &str) -> Result<()> {
        let found = self.find(dataset)?;
        let failed = |error: dsl::Error| Error::of_dataset(dataset, &error);
        let old = loaded(&found)?;
        let above = dataset.rsplit_once('/').map(|(above, _)| self.find(above)).transpose()?;
        let facts = above.as_ref().map(Dataset::key_facts).transpose().map_err(failed)?.flatten();
        let (Some(above), Some(facts)) = (above, facts) else {
            return Err(usage(dataset, "what is above it is not encrypted"));
        };
        let new = loaded(&above)?;
        let stretching = Stretching { salt: facts.salt, iterations: facts.iterations };
        let format = facts.format.unwrap_or(KeyFormat::Raw);
        let turn = Turn { old, new, format, stretching, world: self.0.world.clone() };
        let name = dataset.to_owned();
        self.change(move |_, change| {
            turn.make(|rewrap| {
                write::inherit_key(change, &name, rewrap)
                    .map_err(|error| Error::of_dataset(&name, &error))
            })
        })
    }
}

/// The user's key that opens a dataset.
fn loaded(dataset: &Dataset) -> Result<Arc<WrappingKey>> {
    let failed = |error: dsl::Error| Error::of_dataset(&dataset.name(), &error);
    if dataset.key_facts().map_err(failed)?.is_none() {
        return Err(Error::NotEncrypted { dataset: dataset.name() });
    }
    dataset.tree().wrapping(dataset).map_err(failed)?.ok_or_else(|| keys::locked(dataset))
}
