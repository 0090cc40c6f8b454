//! The identity and the privileges of a caller.

use std::sync::Arc;

use crate::Time;

/// A privilege beyond the caller's IDs, as capabilities(7) names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Capability {
    /// Changes owners and groups of any file (`CAP_CHOWN`).
    Chown,
    /// Reads, writes and executes any file; executes only files with an execute bit (`CAP_DAC_OVERRIDE`).
    DacOverride,
    /// Reads any file, searches any directory (`CAP_DAC_READ_SEARCH`).
    DacReadSearch,
    /// Changes any file as its owner may (`CAP_FOWNER`).
    FileOwner,
    /// Writes leave the set-ID bits of a file (`CAP_FSETID`).
    FileSetId,
    /// Changes the immutable and append-only flags (`CAP_LINUX_IMMUTABLE`).
    Immutable,
    /// Creates device nodes (`CAP_MKNOD`).
    MakeNode,
    /// Sets file capabilities (`CAP_SETFCAP`).
    SetFileCapabilities,
    /// Uses the `trusted.` and `security.` extended attributes (`CAP_SYS_ADMIN`).
    Administrator,
}

/// The user, the groups and the privileges of a caller. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Credentials {
    /// The user: owner of new files.
    pub uid: u32,
    /// The primary group: group of new files, unless their directory is set-group-ID.
    pub gid: u32,
    /// Supplementary groups; none if the caller has no others.
    groups: Option<Arc<[u32]>>,
    /// A bit for each [`Capability`].
    capabilities: u16,
}

impl Credentials {
    /// The superuser: user 0, group 0, every capability.
    pub const ROOT: Self = Self { uid: 0, gid: 0, groups: None, capabilities: u16::MAX };

    /// A user with one group and without capabilities.
    pub const fn new(uid: u32, gid: u32) -> Self {
        Self { uid, gid, groups: None, capabilities: 0 }
    }

    /// The same caller with these supplementary groups.
    #[must_use]
    pub fn with_groups(self, groups: &[u32]) -> Self {
        Self { groups: (!groups.is_empty()).then(|| groups.into()), ..self }
    }

    /// The same caller with one more capability.
    #[must_use]
    pub fn with_capability(self, capability: Capability) -> Self {
        Self { capabilities: self.capabilities | bit(capability), ..self }
    }

    /// The same caller with every capability.
    #[must_use]
    pub fn with_all_capabilities(self) -> Self {
        Self { capabilities: u16::MAX, ..self }
    }

    /// The same caller without a capability.
    #[must_use]
    pub fn without_capability(self, capability: Capability) -> Self {
        Self { capabilities: self.capabilities & !bit(capability), ..self }
    }

    /// The supplementary groups.
    pub fn groups(&self) -> &[u32] {
        self.groups.as_deref().unwrap_or_default()
    }

    /// Whether a group is the primary one or a supplementary one.
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups().contains(&gid)
    }

    /// Whether the caller has a capability.
    pub fn has(&self, capability: Capability) -> bool {
        self.capabilities & bit(capability) != 0
    }

    /// Whether the caller is the owner `uid`, or may act as any owner.
    pub fn is_owner_or_capable(&self, uid: u32) -> bool {
        self.uid == uid || self.has(Capability::FileOwner)
    }
}

fn bit(capability: Capability) -> u16 {
    1 << capability as u16
}

/// The caller of a change and the time of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChangeContext {
    /// The caller.
    pub credentials: Credentials,
    /// The time that the change records in the files.
    pub now: Time,
}
