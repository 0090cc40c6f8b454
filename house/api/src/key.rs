//! Keys of encrypted datasets. Only root and the daemon's own user may make these calls.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method, NeededPermission, pool_of};

/// A user's key: a passphrase, hexadecimal digits or raw bytes. It is never shown.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
pub struct Secret(pub Vec<u8>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// Loads the key of an encryption root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LoadKey {
    /// The encryption root.
    pub name: String,
    /// The user's key.
    pub secret: Secret,
    /// Only check that the key is right. It may be loaded already.
    #[serde(default)]
    pub dry_run: bool,
}

impl Call for LoadKey {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/key/load";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("load key for '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        Some(vec![NeededPermission::on(&self.name, "load-key")])
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        if self.dry_run { Vec::new() } else { vec![pool_of(&self.name).to_owned()] }
    }
}

/// Unloads the key of an encryption root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnloadKey {
    /// The encryption root.
    pub name: String,
}

impl Call for UnloadKey {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/key/unload";
    const CHANGES: bool = true;
    const FREES_MEMORY: bool = true;

    fn action(&self) -> String {
        format!("unload key for '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        Some(vec![NeededPermission::on(&self.name, "load-key")])
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}

/// Changes the user's key of a dataset, which becomes an encryption root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChangeKey {
    /// The dataset.
    pub name: String,
    /// keyformat, keylocation, pbkdf2iters.
    #[serde(default)]
    pub properties: Vec<(String, String)>,
    /// The new key.
    pub secret: Secret,
}

impl Call for ChangeKey {
    type Response = ();
    const METHOD: Method = Method::Put;
    const PATH: &'static str = "/datasets/{name}/key";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("change key for '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        Some(vec![NeededPermission::on(&self.name, "change-key")])
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}

/// Makes a dataset use the key of its parent's encryption root.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InheritKey {
    /// The dataset.
    pub name: String,
}

impl Call for InheritKey {
    type Response = ();
    const METHOD: Method = Method::Post;
    const PATH: &'static str = "/datasets/{name}/key/inherit";
    const CHANGES: bool = true;

    fn action(&self) -> String {
        format!("change key for '{}'", self.name)
    }

    fn needed_permissions(&self) -> Option<Vec<NeededPermission>> {
        Some(vec![NeededPermission::on(&self.name, "change-key")])
    }

    fn changed_pools(&self, (): &()) -> Vec<String> {
        vec![pool_of(&self.name).to_owned()]
    }
}
