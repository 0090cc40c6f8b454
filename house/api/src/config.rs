//! The configuration file of the daemon, as it is in effect.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Gets the configuration in effect. It may contain addresses and tokens of others.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetConfig {}

impl Call for GetConfig {
    type Response = ConfigReport;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/config";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "read the configuration".to_owned()
    }
}

/// The configuration in effect.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigReport {
    /// The file.
    pub path: PathBuf,
    /// The text in effect, with its comments; empty if there is no file.
    pub text: String,
    /// Sentences about the file on disk, if it differs from `text` because it has mistakes.
    pub problems: Vec<String>,
}

/// Sets a field of a section in the configuration file. Comments stay, and the services follow at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetConfig {
    /// The section, as `web`.
    pub section: String,
    /// The field, as `listen`.
    pub field: String,
    /// Its value in TOML, or plain text; none: remove it.
    #[serde(default)]
    pub value: Option<String>,
}

impl Call for SetConfig {
    type Response = ();
    const METHOD: Method = Method::Patch;
    const PATH: &'static str = "/config";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("set {}.{}", self.section, self.field)
    }
}

/// Adds a section of which there may be several, as `[[replica]]`, to the configuration file. Comments stay, and the
/// services follow at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AddConfigSection {
    /// The section, as `replica`.
    pub section: String,
    /// Its fields, with values in TOML or plain text.
    pub fields: Vec<(String, String)>,
}

impl Call for AddConfigSection {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/config/sections";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("add [[{}]]", self.section)
    }
}

/// Removes the sections of a name that have a field of this value from the configuration file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoveConfigSection {
    /// The section, as `replica`.
    pub section: String,
    /// The field, as `name`.
    pub field: String,
    /// Its value in TOML, or plain text.
    pub value: String,
}

impl Call for RemoveConfigSection {
    type Response = ();
    const METHOD: Method = Method::Delete;
    const PATH: &'static str = "/config/sections";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("remove [[{}]]", self.section)
    }
}
