//! Keys and values of login and text PDUs: `key=value`, each with a NUL behind it.

use super::{Error, Result};

/// Bytes of the longest key.
const MAX_KEY: usize = 63;
/// Bytes of the longest value.
const MAX_VALUE: usize = 8192;
/// Keys of one text.
const MAX_KEYS: usize = 128;

/// Keys and values, in their order.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Text(Vec<(String, String)>);

impl Text {
    /// Parses the data segment of a login or text PDU.
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let mut keys: Vec<(String, String)> = Vec::new();
        for part in bytes.split(|byte| *byte == 0).filter(|part| !part.is_empty()) {
            let part = std::str::from_utf8(part).map_err(|_| Error::NotUtf8)?;
            let (key, value) = part.split_once('=').ok_or(Error::NoKey)?;
            if key.is_empty() || key.len() > MAX_KEY || value.len() > MAX_VALUE {
                return Err(Error::TooLong);
            }
            if keys.len() == MAX_KEYS || keys.iter().any(|(known, _)| known == key) {
                return Err(Error::TooManyKeys);
            }
            keys.push((key.to_owned(), value.to_owned()));
        }
        Ok(Self(keys))
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    /// Keys and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a key. SendTargets repeats keys in its answer.
    pub fn push(&mut self, key: &str, value: &(impl ToString + ?Sized)) {
        self.0.push((key.to_owned(), value.to_string()));
    }

    /// The data segment.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (key, value) in &self.0 {
            bytes.extend_from_slice(key.as_bytes());
            bytes.push(b'=');
            bytes.extend_from_slice(value.as_bytes());
            bytes.push(0);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_parsed_and_printed() {
        let bytes = b"InitiatorName=iqn.2026-01.org.example:a\0AuthMethod=CHAP,None\0Empty=\0";
        let text = Text::parse(bytes).unwrap();
        assert_eq!(text.value("AuthMethod"), Some("CHAP,None"));
        assert_eq!(text.value("Empty"), Some(""));
        assert_eq!(text.encode(), bytes);
        assert_eq!(Text::parse(b"a=1\0a=2\0"), Err(Error::TooManyKeys));
        assert_eq!(Text::parse(b"novalue\0"), Err(Error::NoKey));
        assert_eq!(Text::parse(b"=x\0"), Err(Error::TooLong));
        assert_eq!(Text::parse(b"a=\xff\0"), Err(Error::NotUtf8));
    }
}
