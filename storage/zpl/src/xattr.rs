//! Extended attributes, as Linux shows them.
//!
//! They are kept in two places: small ones as a packed list among the system attributes, others
//! as files in a hidden directory. A name comes with its namespace (`user.`, `trusted.`,
//! `security.`, `system.posix_acl_*`); one that has none was made by another system and shows as
//! the user's. Names of FreeBSD's own namespace do not show.
//!
//! Linux decides by the namespace alone who may set an attribute, and lets anyone set names that
//! begin with `system.`. So other names are refused, and also those that would have two namespaces.

use std::collections::BTreeMap;

use ondisk::nvlist::{Nvlist, Value};
use ondisk::sa::Attribute;
use units::ObjectId;

use crate::attributes::{AttributeError, sa_bytes};
use crate::fs::FsInner;
use crate::{Error, FsOptions, Inode, Result};

/// An extended attribute: where its value is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Xattr {
    /// Its name in Linux's form.
    pub name: Vec<u8>,
    location: XattrLocation,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum XattrLocation {
    Sa(Vec<u8>),
    Dir(ObjectId),
}

/// Linux refuses larger ones; so does memory here.
const MAX_XATTR_SIZE: u64 = 64 << 20;

impl Inode {
    /// The extended attributes that Linux would list, in the order of their names.
    pub fn xattrs(&self) -> Result<Vec<Xattr>> {
        self.with_current(Self::xattrs_locked)
    }

    fn xattrs_locked(&self) -> Result<Vec<Xattr>> {
        let inner = &*self.fs().inner;
        let mut found = BTreeMap::new();
        let dir = self.attributes().xattr_dir;
        if dir.exists() {
            inner.read_dir(dir, None, &mut |entry| {
                if let Some(name) = linux_name(entry.name, inner.options()) {
                    found.insert(name, XattrLocation::Dir(entry.object));
                }
                true
            })?;
        }
        // where a name is in both places, this one wins
        for (name, value) in self.sa_xattrs()? {
            if let Some(name) = linux_name(name, inner.options()) {
                found.insert(name, XattrLocation::Sa(value));
            }
        }
        Ok(found.into_iter().map(|(name, place)| Xattr { name, location: place }).collect())
    }

    /// The value of an extended attribute by its name as Linux lists it.
    pub fn xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>> {
        self.fs().inner.check_xattr_name(self.id(), name)?;
        self.with_current(|node| {
            let mut all = node.xattrs_locked()?.into_iter();
            all.find(|xattr| xattr.name == name)
                .map(|found| node.xattr_value_locked(found))
                .transpose()
        })
    }

    /// The error for an extended attribute whose value is damaged.
    pub fn malformed_xattr(&self, why: ondisk::Error) -> Error {
        self.fs().inner.attribute_error(self.id(), why.into())
    }

    /// The value of an extended attribute that was listed.
    pub fn xattr_value(&self, xattr: Xattr) -> Result<Vec<u8>> {
        self.with_current(|node| node.xattr_value_locked(xattr))
    }

    fn xattr_value_locked(&self, xattr: Xattr) -> Result<Vec<u8>> {
        let id = match xattr.location {
            XattrLocation::Sa(value) => return Ok(value),
            XattrLocation::Dir(id) => id,
        };
        let file = self.load_hidden(id)?;
        let size = file.attributes().size;
        if size > MAX_XATTR_SIZE {
            let rule = AttributeError::Rule("an extended attribute has at most 64 MiB");
            return Err(self.fs().inner.attribute_error(id, rule));
        }
        let mut value = vec![0; units::to_usize(size)];
        let count = file.read_locked(0, &mut value)?;
        value.truncate(count);
        Ok(value)
    }

    fn sa_xattrs(&self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        match self.overlay().and_then(|change| change.xattrs.as_ref()) {
            Some(changed) => Ok(changed.clone()),
            None => self.fs().inner.stored_sa_xattrs(self.id(), self.object()),
        }
    }
}

impl FsInner {
    /// Whether a file can have an extended attribute of a name.
    pub(crate) fn check_xattr_name(&self, object: ObjectId, name: &[u8]) -> Result<()> {
        let objset = self.objset.id();
        match check_name(name, self.options()) {
            None => Ok(()),
            Some(NameError::Unsupported(rule)) => Err(Error::NotSupported { objset, object, rule }),
            Some(NameError::Ambiguous(rule)) => Err(Error::Invalid { objset, object, rule }),
        }
    }

    /// The list among an object's system attributes.
    pub(crate) fn stored_sa_xattrs(
        &self,
        id: ObjectId,
        object: Option<&dmu::Object>,
    ) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
        let Some(object) = object else { return Ok(BTreeMap::new()) };
        let packed = sa_bytes(object, &self.schema, Attribute::Dxattr)
            .map_err(|fault| self.attribute_error(id, fault))?;
        let Some((packed, _)) = packed.filter(|packed| !packed.0.is_empty()) else {
            return Ok(BTreeMap::new());
        };
        let list = Nvlist::decode(&packed).map_err(|why| self.attribute_error(id, why.into()))?;
        Ok(xattr_pairs(&list).map(|(name, value)| (name.to_vec(), value.to_vec())).collect())
    }
}

/// The extended attributes in a list of them: names and values.
pub(crate) fn xattr_pairs(list: &Nvlist) -> impl Iterator<Item = (&[u8], &[u8])> {
    list.iter_bytes().filter_map(|(name, value)| match value {
        Value::Bytes(bytes) | Value::U8s(bytes) => Some((name, bytes.as_slice())),
        _ => None,
    })
}

/// Names with these prefixes have a namespace: Linux's, or FreeBSD's own.
const NAMESPACES: [&[u8]; 5] = [b"user.", b"trusted.", b"security.", b"system.", b"freebsd:"];
const USER_NAMESPACE: &[u8] = b"user.";
/// All that there is of `system.`.
const POSIX_ACL_NAMES: [&[u8]; 2] = [b"system.posix_acl_access", b"system.posix_acl_default"];

/// Why there can be no attribute of a name.
enum NameError {
    /// The namespace does not exist, or is disabled.
    Unsupported(&'static str),
    /// Another one may be had under the name.
    Ambiguous(&'static str),
}

fn has_namespace(name: &[u8]) -> bool {
    NAMESPACES.iter().any(|space| name.starts_with(space))
}

fn check_name(name: &[u8], options: FsOptions) -> Option<NameError> {
    if POSIX_ACL_NAMES.contains(&name) {
        return None;
    }
    let spaces = [USER_NAMESPACE, b"trusted.", b"security."];
    let Some(rest) = spaces.iter().find_map(|space| name.strip_prefix(*space)) else {
        let rule = "an extended attribute is one of user, trusted or security, or a POSIX ACL";
        return Some(NameError::Unsupported(rule));
    };
    let is_users = name.starts_with(USER_NAMESPACE);
    if rest.is_empty() || (is_users && has_namespace(rest)) {
        let rule = "a name has one namespace, and something behind it";
        return Some(NameError::Ambiguous(rule));
    }
    let rule = "attributes of users are off here (xattr=off)";
    (is_users && !options.user_xattrs).then_some(NameError::Unsupported(rule))
}

/// Under which name other systems keep what Linux calls so, if they do.
pub(crate) fn foreign_name(name: &[u8]) -> Option<&[u8]> {
    name.strip_prefix(USER_NAMESPACE).filter(|rest| !has_namespace(rest))
}

/// The name under which Linux lists an attribute, if it does.
fn linux_name(name: Vec<u8>, options: FsOptions) -> Option<Vec<u8>> {
    if POSIX_ACL_NAMES.contains(&name.as_slice()) {
        return options.posix_acls.then_some(name);
    }
    let name = if has_namespace(&name) { name } else { [USER_NAMESPACE, &name[..]].concat() };
    check_name(&name, options).is_none().then_some(name)
}

#[cfg(test)]
mod tests {
    use super::linux_name;
    use crate::FsOptions;

    #[test]
    fn names_show_as_linux_lists_them() {
        let all = FsOptions::default();
        let none = FsOptions { posix_acls: false, user_xattrs: false, ..FsOptions::default() };
        let see = |name: &[u8], options| linux_name(name.to_vec(), options);
        assert_eq!(see(b"user.a", all), Some(b"user.a".to_vec()));
        assert_eq!(see(b"SUNWattr", all), Some(b"user.SUNWattr".to_vec()));
        assert_eq!(see(b"freebsd:system:x", all), None);
        assert_eq!(see(b"system.posix_acl_access", none), None);
        assert_eq!(see(b"user.a", none), None);
        assert_eq!(see(b"security.selinux", none), Some(b"security.selinux".to_vec()));
        // what could not be read under the name that it would have
        for name in [&b"system.foo"[..], b"user.system.foo", b"user.user.a", b"user."] {
            assert_eq!(see(name, all), None);
        }
    }
}
