//! The wrapped key of a dataset for raw streams. The user's key is not needed for that.

use ondisk::dsl::Dataset as DatasetPhys;
use ondisk::objset::ObjsetHeader;
use ondisk::stream::{CryptKeydata, MetaShape};
use transform::crypt::{Suite, WrappedKey};

use crate::{Dataset, Error, KeyFormat, Pbkdf2Params, Result};

/// The version of the key's form that raw streams can carry.
const KEY_VERSION: u64 = 1;

impl Dataset {
    /// The wrapped key of an encrypted snapshot, and the data that the MAC of its object set
    /// covers. `from_ivset_guid` is the set of IVs of the base; 0 for a full stream. `None` if the
    /// snapshot is not encrypted.
    pub fn crypt_keydata(
        &self,
        header: &ObjsetHeader,
        from_ivset_guid: u64,
    ) -> Result<Option<CryptKeydata>> {
        let (Some(wrapped), Some(own)) = (self.wrapped_key()?, self.key_info()?) else {
            return Ok(None);
        };
        let root = self.tree().encryption_root(self)?;
        let root = root.map(|root| root.key_info()).transpose()?.flatten();
        let facts = root.unwrap_or(own);
        let user_key = UserKeyForm {
            format: facts.format,
            stretching: Pbkdf2Params { salt: facts.salt, iterations: facts.iterations },
        };
        let ivsets = IvsetGuids { to: self.ivset_guid()?, from: from_ivset_guid };
        raw_keydata(&wrapped, header, user_key, ivsets)
            .map(Some)
            .map_err(|why| Error::Key { name: self.name(), why })
    }

    /// The set of nonces of an encrypted snapshot, or of the snapshot that a bookmark is of. 0: it is not
    /// recorded.
    pub fn ivset_guid(&self) -> Result<u64> {
        if let Some(mark) = self.bookmark_record() {
            return Ok(mark.ivset_guid);
        }
        let found = self.zap_field(DatasetPhys::IVSET_GUID)?;
        Ok(found.and_then(|value| value.u64()).unwrap_or(0))
    }
}

/// The form of the user's key, which wraps the dataset's key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UserKeyForm {
    /// The format; none if it is unknown.
    pub format: Option<KeyFormat>,
    /// The parameters of PBKDF2, which only passphrases use.
    pub stretching: Pbkdf2Params,
}

/// The sets of nonces of a raw stream. 0: the pool does not record them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IvsetGuids {
    /// Of the snapshot that is sent.
    pub to: u64,
    /// Of the base; 0 for a full stream.
    pub from: u64,
}

/// The key record of a raw stream, from the wrapped key and the header of the snapshot's object set.
pub fn raw_keydata(
    wrapped: &WrappedKey,
    header: &ObjsetHeader,
    user_key: UserKeyForm,
    ivsets: IvsetGuids,
) -> std::result::Result<CryptKeydata, transform::Error> {
    if wrapped.version != KEY_VERSION {
        let code = wrapped.version;
        return Err(transform::Error::Unsupported { feature: "raw stream of a key version", code });
    }
    let is_passphrase = user_key.format == Some(KeyFormat::Passphrase);
    let Pbkdf2Params { salt, iterations } = user_key.stretching;
    let shape = header.meta.as_ref().map_or_else(MetaShape::default, |meta| MetaShape {
        checksum: meta.checksum,
        compression: meta.compression,
        levels: meta.levels,
        block_size: meta.block_size,
        indirect_shift: meta.indirect_shift,
        pointer_count: units::narrow::<u8>(meta.pointers.len()),
        max_block: meta.max_block.get(),
    });
    Ok(CryptKeydata {
        suite: wrapped.suite.code(),
        guid: wrapped.guid,
        version: wrapped.version,
        master: wrapped.master,
        hmac: wrapped.hmac,
        iv: wrapped.iv,
        mac: wrapped.mac,
        portable_mac: header.portable_mac,
        key_format: user_key.format.map_or(0, KeyFormat::code),
        iterations: if is_passphrase { iterations } else { 0 },
        salt: if is_passphrase { salt } else { 0 },
        meta: shape,
        to_ivset_guid: ivsets.to,
        from_ivset_guid: ivsets.from,
    })
}

/// The wrapped key in a raw stream.
pub fn wrapped_key_of(keydata: &CryptKeydata) -> std::result::Result<WrappedKey, transform::Error> {
    if keydata.version != KEY_VERSION {
        let code = keydata.version;
        return Err(transform::Error::Unsupported { feature: "raw stream of a key version", code });
    }
    Ok(WrappedKey {
        suite: Suite::from_code(keydata.suite)?,
        guid: keydata.guid,
        version: keydata.version,
        iv: keydata.iv,
        mac: keydata.mac,
        master: keydata.master,
        hmac: keydata.hmac,
    })
}
