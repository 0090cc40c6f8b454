//! The NFSv4 ACL of a file, wherever it is stored.

use ondisk::acl;
use ondisk::sa::Attribute;
use ondisk::znode::flag;
use ondisk::{ObjectType, Order, Reader};
use posix::acl::Ace;
use units::ObjectId;

use crate::attributes::{AttributeError, read_znode, sa_bytes};
use crate::{Inode, Result};

/// An NFSv4 ACL. POSIX ACLs are extended attributes: see [`Inode::xattr`].
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Nfs4Acl {
    /// Its entries in their order.
    pub entries: Vec<Ace>,
    /// The ACL is trivial: it equals the mode.
    pub is_trivial: bool,
}

impl Inode {
    /// The ACL; empty where none is stored.
    pub fn acl(&self) -> Result<Nfs4Acl> {
        self.with_current(Self::acl_locked)
    }

    fn acl_locked(&self) -> Result<Nfs4Acl> {
        let is_trivial = self.attributes().flags & flag::ACL_TRIVIAL != 0;
        if let Some(entries) = self.overlay().and_then(|change| change.acl.clone()) {
            return Ok(Nfs4Acl { entries, is_trivial });
        }
        let entries =
            self.stored_acl().map_err(|fault| self.fs().inner.attribute_error(self.id(), fault))?;
        Ok(Nfs4Acl { entries, is_trivial })
    }

    fn stored_acl(&self) -> std::result::Result<Vec<Ace>, AttributeError> {
        let Some(object) = self.object() else { return Ok(Vec::new()) };
        let schema = &self.fs().inner.schema;
        let stored = if object.dnode().bonus_kind == ObjectType::SA {
            if let Some((bytes, order)) = sa_bytes(object, schema, Attribute::DaclAces)? {
                let count = sa_bytes(object, schema, Attribute::DaclCount)?;
                let count = count.map(|(bytes, order)| Reader::new("ACL", &bytes, order).u64());
                return Ok(acl::parse(&bytes, count.transpose()?.unwrap_or(0), order)?);
            }
            match sa_bytes(object, schema, Attribute::ZnodeAcl)? {
                None => return Ok(Vec::new()),
                Some((bytes, order)) => {
                    acl::ZnodeAcl::read(&mut Reader::new("ACL", &bytes, order))?
                }
            }
        } else {
            read_znode(object.dnode())?.acl
        };
        if stored.external == 0 {
            return Ok(stored.parse(None, Order::Little)?);
        }
        self.external_acl(&stored)
    }

    fn external_acl(
        &self,
        stored: &acl::ZnodeAcl,
    ) -> std::result::Result<Vec<Ace>, AttributeError> {
        let object = self.fs().inner.objset.object(ObjectId::new(stored.external))?;
        if stored.bytes() > MAX_ACL_BYTES {
            return Err(AttributeError::Rule("an ACL has at most 4 MiB"));
        }
        let mut bytes = vec![0; units::to_usize(stored.bytes())];
        object.read(0, &mut bytes)?;
        let first = object.block(units::BlockId::new(0))?;
        let order = first.map_or(stored.order, |block| block.order());
        Ok(stored.parse(Some(&bytes), order)?)
    }
}

const MAX_ACL_BYTES: u64 = 4 << 20;
