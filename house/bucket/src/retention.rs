//! Object lock: the retention of an object, read and extended.
//!
//! ```text
//! <Retention><Mode>GOVERNANCE</Mode><RetainUntilDate>2026-12-01T00:00:00Z</RetainUntilDate></Retention>
//! ```

use base64ct::{Base64, Encoding as _};
use jiff::Timestamp;
use md5::{Digest as _, Md5};

/// The retention of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Retention {
    /// `GOVERNANCE`, or `COMPLIANCE`, which nobody can shorten.
    pub(crate) mode: String,
    /// Seconds since 1970.
    pub(crate) until: u64,
}

impl Retention {
    /// The mode of objects that have no retention yet.
    pub(crate) const DEFAULT_MODE: &str = "GOVERNANCE";

    /// Reads the reply of the store; `None` if it is not one.
    pub(crate) fn parse(xml: &str) -> Option<Self> {
        let mode = super::s3::xml_text(xml, "Mode")?.to_owned();
        let until = super::s3::xml_text(xml, "RetainUntilDate").and_then(super::s3::parse_time)?;
        Some(Self { mode, until })
    }

    /// The body of a request; `None` for a time that no calendar has.
    pub(crate) fn to_xml(&self) -> Option<String> {
        let until = Timestamp::from_second(i64::try_from(self.until).ok()?).ok()?;
        let mode = &self.mode;
        Some(format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>{mode}</Mode>\
             <RetainUntilDate>{until}</RetainUntilDate></Retention>"
        ))
    }
}

/// The value of the header Content-MD5, which buckets with object lock demand.
pub(crate) fn content_md5(body: &[u8]) -> String {
    Base64::encode_string(&Md5::digest(body))
}

#[cfg(test)]
mod tests {
    use super::{Retention, content_md5};

    #[test]
    fn retention_survives_the_way_to_xml() {
        let retention = Retention { mode: "COMPLIANCE".to_owned(), until: 1_795_210_986 };
        let xml = retention.to_xml().unwrap();
        assert!(xml.contains("<RetainUntilDate>2026-11-20T21:43:06Z</RetainUntilDate>"), "{xml}");
        assert_eq!(Retention::parse(&xml), Some(retention));
        assert_eq!(Retention::parse("<Error><Code>NoSuchKey</Code></Error>"), None);
        let never = Retention { mode: String::new(), until: u64::MAX };
        assert_eq!(never.to_xml(), None);
    }

    #[test]
    fn content_md5_is_in_base64() {
        assert_eq!(content_md5(b""), "1B2M2Y8AsgTpgAmY7PhCfg==");
    }
}
