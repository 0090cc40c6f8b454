//! Properties that a stream brings: those of each dataset, and the mounts that follow them.

use std::collections::BTreeMap;

use api::{Event, ReceiveStream};
use engine::dataset::DatasetQuery;
use engine::pool::{
    Package, ReceiveProperties, StreamHeader, StreamInput, UserSecret, is_encryption_property,
};

use super::receive::Naming;
use super::{ManagedPool, Pools};
use crate::Result;
use crate::events::ChangeOptions;

const KEY_LOCATION: &str = "keylocation";

/// The properties of a received dataset: those of the stream, and those of the command. -o sets a property of the
/// top dataset; the datasets below inherit it.
pub(super) fn received_properties(
    call: &ReceiveStream,
    (input, naming): (&StreamInput<'_>, &Naming<'_>),
    (header, target): (&StreamHeader, &str),
) -> Result<ReceiveProperties> {
    let package = input.package();
    let mut listed = package.into_iter().flat_map(|it| &it.datasets).filter_map(|dataset| {
        let found = dataset.snapshots.iter().find(|(_, guid)| *guid == header.guid);
        found.map(|(name, _)| (dataset, name))
    });
    let (mut received, mut of_snapshot) = (None, Vec::new());
    if let Some((dataset, snapshot)) = listed.next() {
        let mut properties = dataset.properties.clone();
        if package.is_some_and(|package| package.to_snapshot != *snapshot) {
            // snapshots before the last one may exceed the quota of the last one
            properties.retain(|(property, _)| property != "refquota");
        }
        received = Some(properties);
        let listed = dataset.snapshot_properties.iter().find(|(name, _)| name == snapshot);
        of_snapshot.extend(listed.into_iter().flat_map(|(_, properties)| properties.clone()));
    }
    let mut excluded = call.excluded_properties.clone();
    let mut set = call.set_properties.clone();
    let is_top = target == naming.top_target()?;
    if !is_top || (package.is_some() && header.from_guid != 0) {
        // the first stream of a tree has the key, and the datasets below inherit it
        set.retain(|(property, _)| !is_encryption_property(property));
    }
    if !is_top {
        excluded.extend(set.drain(..).map(|(property, _)| property));
    }
    Ok(ReceiveProperties { received, of_snapshot, set, excluded })
}

/// The user's key, if these properties make an encryption root.
pub(super) fn received_secret(
    call: &ReceiveStream,
    properties: &ReceiveProperties,
) -> Option<UserSecret> {
    let makes_root = properties.set.iter().any(|(property, _)| property == "keyformat");
    let secret = call.secret.as_ref().filter(|_| makes_root);
    secret.map(|secret| UserSecret::new(secret.0.clone()))
}

/// Gives the encryption roots of a raw stream the place of the key that they had on the sender.
pub(super) fn follow_key_locations(
    pool: &ManagedPool,
    package: &Package,
    naming: &Naming<'_>,
) -> Result<()> {
    for dataset in package.datasets.iter().filter(|it| package.is_raw && it.is_encryption_root) {
        let sent = dataset.properties.iter().find(|(property, _)| property == KEY_LOCATION);
        let Some((_, engine::pool::PackagedValue::Text(sent))) = sent else { continue };
        let local = naming.local_name(&dataset.name)?;
        let Ok(known) = pool.property_values(&local) else { continue };
        let is_root = known.get("encryptionroot") == Some(&local);
        if is_root && known.get(KEY_LOCATION).is_some_and(|known| known != sent) {
            pool.handle.properties().set(&local, KEY_LOCATION, sent)?;
        }
    }
    Ok(())
}

impl Pools {
    /// Has mounts and shares follow the properties that a receive changed. `before` are the values before it. Returns
    /// a sentence for each file system that could not follow.
    pub(super) fn follow_properties(
        &self,
        target: &str,
        before: &BTreeMap<String, String>,
        options: &ChangeOptions,
    ) -> Result<Vec<String>> {
        let after = self.pool_of_dataset(target)?.property_values(target)?;
        let is_changed =
            |(property, value): &(&String, &String)| before.get(*property) != Some(value);
        let event = |(property, value): (&String, &String)| Event::PropertySet {
            dataset: target.to_owned(),
            property: property.clone(),
            value: Some(value.clone()),
        };
        let events: Vec<_> = after.iter().filter(is_changed).map(event).collect();
        if events.is_empty() {
            return Ok(Vec::new());
        }
        let followed = self.change_dataset(target, |_| self.change(&events, options, || Ok(())));
        Ok(match followed {
            Ok(((), failed)) => failed,
            Err(why) => vec![format!(
                "'{target}' stays mounted as before: {why}; its received properties take effect at \
                 the next mount"
            )],
        })
    }
}

impl ManagedPool {
    /// The settable properties of a file system or volume, and its encryption root.
    pub(super) fn property_values(&self, name: &str) -> Result<BTreeMap<String, String>> {
        let query = DatasetQuery { depth: Some(0), ..DatasetQuery::default() };
        let mut values = BTreeMap::new();
        self.handle.datasets().list(
            name,
            &query,
            &mut |dataset| {
                for property in dataset.properties {
                    let is_settable = engine::dataset::is_settable(&property.name, &dataset.kind);
                    if dataset.name == name && (is_settable || property.name == "encryptionroot") {
                        values.insert(property.name, property.value);
                    }
                }
            },
            &mut |_| (),
        )?;
        Ok(values)
    }
}
