//! Properties of a received dataset: those of the stream, and those of the command.

use dsl::DatasetKind;
use dsl::PropertyValue;
use dsl::property::{check_stored_value, parse_value};
use dsl::write::{self, SetSource, SyncTaskContext};
use ondisk::stream::PackagedValue;
use spa::ActivePool;

use super::history::{format_assignment, record_dataset_event};
use crate::{Error, Result};

/// The properties of a dataset that is received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReceiveProperties {
    /// Those of the stream.
    pub received: Vec<(String, PackagedValue)>,
    /// Those to set (-o).
    pub set: Vec<(String, String)>,
    /// Those of the stream that are overridden (-x).
    pub excluded: Vec<String>,
}

impl ReceiveProperties {
    /// Sets the properties. Returns a sentence for each one of the stream that this pool cannot have.
    pub(super) fn apply(
        &self,
        active: &ActivePool,
        change: &SyncTaskContext<'_>,
        (name, kind): (&str, DatasetKind),
    ) -> Result<Vec<String>> {
        let mut warnings = Vec::new();
        for (property, value) in &self.received {
            // the place of the key is one on the sender
            let is_overridden = property == "keylocation"
                || self.excluded.contains(property)
                || self.set.iter().any(|(known, _)| known == property);
            if is_overridden {
                continue;
            }
            let value = match value {
                PackagedValue::Number(number) => PropertyValue::Number(*number),
                PackagedValue::Text(text) => PropertyValue::Text(text.clone()),
            };
            let set = check_stored_value(property, kind, &value).and_then(|()| {
                let assignment = (property.as_str(), &value);
                write::set_property(change, name, kind, assignment, SetSource::Received)
            });
            if let Err(why) = set {
                warnings.push(format!("cannot receive {property} property on {name}: {why}"));
            }
        }
        let failed = |error: dsl::Error| Error::from_dsl_error(name, &error);
        for (property, text) in &self.set {
            let value = parse_value(property, kind, text).map_err(failed)?;
            let assignment = (property.as_str(), &value);
            write::set_property(change, name, kind, assignment, SetSource::Local)
                .map_err(failed)?;
            let assignment = format_assignment(property, &value);
            record_dataset_event(active, change, "set", name, &assignment);
        }
        for property in &self.excluded {
            // one that is never inherited keeps its value
            let _ = write::inherit_property(change, name, kind, property, false);
        }
        Ok(warnings)
    }
}
