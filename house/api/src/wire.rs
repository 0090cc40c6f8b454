//! A request as an HTTP path, query string and body, and back.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Map, Value};

use crate::Call;

/// The path in front of every call.
pub const PREFIX: &str = "/api/v1";

/// The header with the command line that a pool's history records.
pub const COMMAND_HEADER: &str = "x-poolhouse-command";

/// The longest command line that is sent, in bytes; the rest is cut off. OpenZFS's histories have records of
/// at most 128 KiB.
const MAX_COMMAND: usize = 32 << 10;

/// Characters that stand for themselves in a path segment.
const SEGMENT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A request that is ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedCall {
    /// Path and query string.
    pub target: String,
    /// JSON, or nothing for a method without a body.
    pub body: Vec<u8>,
}

/// Encodes a request.
pub fn encode<C: Call>(call: &C) -> Result<EncodedCall, String> {
    let fields = serde_json::to_value(call).map_err(|why| why.to_string())?;
    let Value::Object(mut fields) = fields else {
        return Err(format!("{} has no fields", C::PATH));
    };
    let mut target = String::from(PREFIX);
    for segment in C::PATH.split('/').skip(1) {
        target.push('/');
        match path_field(segment) {
            Some(name) => {
                let value = fields.remove(name).and_then(|value| scalar(&value));
                let value = value.ok_or_else(|| format!("{}: {name} is missing", C::PATH))?;
                target.extend(utf8_percent_encode(&value, SEGMENT));
            }
            None => target.push_str(segment),
        }
    }
    if C::METHOD.has_body() {
        return Ok(EncodedCall { target, body: Value::Object(fields).to_string().into_bytes() });
    }
    let query = encode_query(&fields);
    if !query.is_empty() {
        target.push('?');
        target.push_str(&query);
    }
    Ok(EncodedCall { target, body: Vec::new() })
}

fn encode_query(fields: &Map<String, Value>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in fields {
        match value {
            Value::Array(all) => {
                query.extend_pairs(all.iter().filter_map(scalar).map(|value| (name, value)));
            }
            other => {
                query.extend_pairs(scalar(other).map(|value| (name, value)));
            }
        }
    }
    query.finish()
}

/// Decodes a request from the fields of its path (decoded already), its query string and its body.
pub fn decode<C: Call>(
    path: &[(String, String)],
    query: Option<&str>,
    body: &[u8],
) -> Result<C, String> {
    if !C::METHOD.has_body() {
        let mut all = form_urlencoded::Serializer::new(String::new());
        all.extend_pairs(path);
        all.extend_pairs(form_urlencoded::parse(query.unwrap_or_default().as_bytes()));
        return serde_html_form::from_str(&all.finish()).map_err(|why| why.to_string());
    }
    let fields = if body.is_empty() {
        Value::Object(Map::new())
    } else {
        serde_json::from_slice(body).map_err(|why| why.to_string())?
    };
    let Value::Object(mut fields) = fields else {
        return Err("the body must be a JSON object".to_owned());
    };
    fields.extend(path.iter().map(|(name, value)| (name.clone(), value.clone().into())));
    serde_json::from_value(Value::Object(fields)).map_err(|why| why.to_string())
}

/// The value of [`COMMAND_HEADER`].
pub fn encode_command(line: &str) -> String {
    let end = line.floor_char_boundary(MAX_COMMAND);
    utf8_percent_encode(line.get(..end).unwrap_or(line), SEGMENT).to_string()
}

/// The command line in [`COMMAND_HEADER`].
pub fn decode_command(header: &str) -> String {
    percent_decode_str(header).decode_utf8_lossy().into_owned()
}

fn path_field(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use super::{decode, decode_command, encode, encode_command};
    use crate::{
        Call, CancelJob, DestroyDatasets, DestroyPool, GetDaemon, ListDatasets, ListEvents,
        LoadKey, RenameDataset, Secret,
    };

    /// Encodes a call, and decodes it as a router does that matched `fields` in the path.
    fn round_trip<C: Call + PartialEq + Debug>(call: &C, fields: &[(&str, &str)]) -> String {
        let sent = encode(call).unwrap();
        let path: Vec<_> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let query = sent.target.split_once('?').map(|(_, query)| query);
        assert_eq!(decode::<C>(&path, query, &sent.body).as_ref(), Ok(call));
        sent.target
    }

    #[test]
    fn requests_survive_the_wire() {
        let list = ListDatasets {
            names: vec!["tank/a&b=c".to_owned(), "tank/ü".to_owned()],
            kinds: Vec::new(),
            depth: Some(0),
            properties: vec!["used".to_owned()],
        };
        round_trip(&list, &[]);
        assert_eq!(round_trip(&GetDaemon {}, &[]), "/api/v1/daemon");
        let destroy = DestroyDatasets {
            name: "tank/a@x%y".to_owned(),
            recursive: true,
            dry_run: true,
            ..DestroyDatasets::default()
        };
        assert_eq!(round_trip(&destroy, &[]), "/api/v1/datasets/destroy");
        let pool = DestroyPool { name: "tank%".to_owned(), force: true };
        let target = round_trip(&pool, &[("name", "tank%")]);
        assert_eq!(target, "/api/v1/pools/tank%25?force=true");
        round_trip(&CancelJob { id: 7 }, &[("id", "7")]);
        round_trip(&ListEvents { after: Some(u64::MAX), wait: 3 }, &[]);
        let key =
            LoadKey { name: "tank/a".to_owned(), secret: Secret(vec![0, 255]), dry_run: false };
        assert_eq!(round_trip(&key, &[("name", "tank/a")]), "/api/v1/datasets/tank%2Fa/key/load");
        let rename = RenameDataset {
            name: "tank/a".to_owned(),
            to: "tank/b".to_owned(),
            recursive: false,
            parents: true,
            force: false,
            keep_mounts: false,
        };
        round_trip(&rename, &[("name", "tank/a")]);
    }

    #[test]
    fn malformed_requests_are_refused() {
        let name = [("name".to_owned(), "tank".to_owned())];
        assert!(decode::<LoadKey>(&name, None, b"[]").is_err());
        assert!(decode::<LoadKey>(&name, None, b"{\"secret\":").is_err());
        assert!(decode::<LoadKey>(&[], None, b"{}").is_err());
        assert!(decode::<CancelJob>(&[("id".to_owned(), "x".to_owned())], None, b"").is_err());
        assert!(decode::<ListDatasets>(&[], Some("depth=-1"), b"").is_err());
    }

    #[test]
    fn command_lines_survive_the_header() {
        let line = "zfs set a='ä\n%' tank";
        assert_eq!(decode_command(&encode_command(line)), line);
        let long = "ä".repeat(super::MAX_COMMAND);
        assert_eq!(decode_command(&encode_command(&long)).len(), super::MAX_COMMAND);
    }
}
