//! Properties of a received dataset: those of the stream, and those of the command.

use dsl::DatasetKind;
use dsl::PropertyValue;
use dsl::property::{check_stored_value, parse_value};
use dsl::write::{self, SetSource, SyncTaskContext};
use ondisk::stream::PackagedValue;
use spa::ActivePool;

use super::encryption::is_encryption_property;
use super::history::{format_assignment, record_dataset_event};
use crate::{Error, Result};

/// Properties that a new dataset gets after its data. The data can exceed the quota of the sender's newest snapshot.
const DELAYED: [&str; 2] = ["refquota", "sharesmb"];
/// The receiver has its own place of the key.
const KEY_LOCATION: &str = "keylocation";

/// The properties of a dataset that is received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveProperties {
    /// Those of the stream. They replace all that were received before. None: the stream has no properties.
    pub received: Option<Vec<(String, PackagedValue)>>,
    /// Those of the stream's snapshot.
    pub of_snapshot: Vec<(String, PackagedValue)>,
    /// Those to set (-o).
    pub set: Vec<(String, String)>,
    /// Those whose received value does not count (-x).
    pub excluded: Vec<String>,
}

/// The moment of a receive in which properties are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PropertyPhase {
    /// Before the data of a new dataset.
    BeforeData,
    /// After the data of a new dataset.
    AfterData,
    /// After the data of a dataset that existed.
    Existing,
}

impl PropertyPhase {
    fn includes(self, property: &str) -> bool {
        match self {
            Self::BeforeData => !DELAYED.contains(&property),
            Self::AfterData => DELAYED.contains(&property),
            Self::Existing => true,
        }
    }
}

impl ReceiveProperties {
    /// Sets the properties of a phase. Returns a sentence for each one of the stream that this pool cannot have.
    pub(super) fn apply(
        &self,
        active: &ActivePool,
        change: &SyncTaskContext<'_>,
        (name, kind): (&str, DatasetKind),
        phase: PropertyPhase,
    ) -> Result<Vec<String>> {
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        // before the received ones, which then only count where none was set here
        for (property, text) in self.set.iter().filter(|(property, _)| phase.includes(property)) {
            let value = parse_value(property, kind, text).map_err(failed)?;
            let assignment = (property.as_str(), &value);
            write::set_property(change, name, kind, assignment, SetSource::Local)
                .map_err(failed)?;
            let assignment = format_assignment(property, &value);
            record_dataset_event(active, change, "set", name, &assignment);
        }
        let mut warnings = Vec::new();
        if let Some(received) = &self.received {
            if phase == PropertyPhase::Existing {
                remove_stale(change, name, received)?;
            }
            for (property, value) in received.iter().filter(|(it, _)| phase.includes(it)) {
                // one that is not inherited cannot be hidden
                let is_left_out =
                    self.excluded.contains(property) && !dsl::property::is_inheritable(property);
                if property != KEY_LOCATION && !is_left_out {
                    warnings.extend(set_received(change, (name, kind), (property, value)));
                }
            }
        }
        let excluded = self.excluded.iter().filter(|it| !is_encryption_property(it));
        for property in excluded.filter(|property| phase.includes(property)) {
            // one that is never inherited keeps its value
            let _ = write::exclude_received_property(change, name, kind, property);
        }
        Ok(warnings)
    }

    /// Sets the properties of the received snapshot. Returns a sentence for each one that it cannot have.
    pub(super) fn apply_to_snapshot(
        &self,
        change: &SyncTaskContext<'_>,
        snapshot: &str,
    ) -> Vec<String> {
        let target = (snapshot, DatasetKind::Snapshot);
        let set = |(property, value): &(String, PackagedValue)| {
            set_received(change, target, (property, value))
        };
        self.of_snapshot.iter().filter_map(set).collect()
    }
}

/// Sets the received value of a property. Returns why it could not.
fn set_received(
    change: &SyncTaskContext<'_>,
    (name, kind): (&str, DatasetKind),
    (property, value): (&str, &PackagedValue),
) -> Option<String> {
    let value = match value {
        PackagedValue::Number(number) => PropertyValue::Number(*number),
        PackagedValue::Text(text) => PropertyValue::Text(text.clone()),
    };
    let set = check_stored_value(property, kind, &value).and_then(|()| {
        write::set_property(change, name, kind, (property, &value), SetSource::Received)
    });
    let why = set.err()?;
    Some(format!("cannot receive {property} property on {name}: {why}"))
}

/// Removes the received values that the stream no longer has.
fn remove_stale(
    change: &SyncTaskContext<'_>,
    name: &str,
    received: &[(String, PackagedValue)],
) -> Result<()> {
    let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
    for property in write::received_property_names(change, name).map_err(failed)? {
        let is_sent = received.iter().any(|(sent, _)| *sent == property);
        if !is_sent && property != KEY_LOCATION {
            write::remove_received_property(change, name, &property).map_err(failed)?;
        }
    }
    Ok(())
}
