//! A store in a bucket with the S3 protocol: AWS, Ceph, Garage, SeaweedFS, Backblaze B2 and others.
//!
//! An object is created with `If-None-Match: *`, so that none is overwritten. Requests that fail for reasons
//! that pass (no connection, 429, 500, 503) are repeated a few times. A repeated creation may find its own work,
//! which the repository recognises by the content.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use engine::backup::{ObjectInfo, ObjectStore, StoreError};
use rusty_s3::actions::ListObjectsV2;
use rusty_s3::{Bucket, Credentials, Method, S3Action, UrlStyle};
use ureq::http::{Response, StatusCode};
use ureq::{Agent, Body};

use crate::retention::{Retention, content_md5};

/// How long a signed request is valid.
const SIGNATURE_TIME: Duration = Duration::from_hours(1);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// A transfer without progress for this time has failed.
const STALL_TIMEOUT: Duration = Duration::from_mins(1);
/// The pauses before a request is repeated.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(8),
];
/// The longest answers to lists and errors, bytes.
const MAX_ANSWER: u64 = 16 << 20;

/// How a bucket is reached.
#[derive(Clone)]
pub struct S3Access {
    /// The address of the service, as `https://s3.example.org`; none: AWS.
    pub endpoint: Option<String>,
    /// The region; "us-east-1" where the service has none.
    pub region: String,
    /// The access key's ID.
    pub key_id: String,
    /// The secret access key.
    pub secret: String,
    /// The token of temporary credentials.
    pub token: Option<String>,
    /// Certificates in PEM that are trusted; none: those of the system.
    pub ca_file: Option<PathBuf>,
}

impl fmt::Debug for S3Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Access")
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("key_id", &self.key_id)
            .finish_non_exhaustive()
    }
}

impl S3Access {
    /// From the variables that all S3 tools know: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN,
    /// AWS_REGION, AWS_ENDPOINT_URL, AWS_CA_BUNDLE. None: there is no key among them.
    pub fn from_variables(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let region = set("AWS_REGION").or_else(|| set("AWS_DEFAULT_REGION"));
        Some(Self {
            endpoint: set("AWS_ENDPOINT_URL_S3").or_else(|| set("AWS_ENDPOINT_URL")),
            region: region.unwrap_or_else(|| "us-east-1".to_owned()),
            key_id: set("AWS_ACCESS_KEY_ID")?,
            secret: set("AWS_SECRET_ACCESS_KEY")?,
            token: set("AWS_SESSION_TOKEN"),
            ca_file: set("AWS_CA_BUNDLE").map(PathBuf::from),
        })
    }
}

/// A store in a bucket.
pub struct S3Store {
    agent: Agent,
    bucket: Bucket,
    credentials: Credentials,
    /// The prefix of the names of objects: empty, or `FOLDER/`.
    prefix: String,
    location: String,
}

type SendResult = Result<Response<Body>, ureq::Error>;

impl S3Store {
    /// The store at `s3://BUCKET/FOLDER`; the folder may be missing.
    pub fn open(location: &str, access: &S3Access) -> engine::Result<Self> {
        let usage = |what: String| engine::Error::Usage { what };
        let rest = location.strip_prefix("s3://").unwrap_or(location);
        let (name, folder) = rest.split_once('/').unwrap_or((rest, ""));
        if name.is_empty() {
            return Err(usage(format!(
                "'{location}' names no bucket; s3://BUCKET/FOLDER is expected"
            )));
        }
        let folder = folder.trim_matches('/');
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let aws = || format!("https://s3.{}.amazonaws.com", access.region);
        let style = if access.endpoint.is_some() { UrlStyle::Path } else { UrlStyle::VirtualHost };
        let endpoint = access.endpoint.clone().unwrap_or_else(aws);
        let url = endpoint.parse().map_err(|why| usage(format!("'{endpoint}': {why}")))?;
        let (name, region) = (name.to_owned(), access.region.clone());
        let bucket = Bucket::new(url, style, name, region)
            .map_err(|why| usage(format!("'{location}' is not the address of a bucket: {why}")))?;
        let (key, secret) = (access.key_id.clone(), access.secret.clone());
        let credentials = match &access.token {
            Some(token) => Credentials::new_with_token(key, secret, token.clone()),
            None => Credentials::new(key, secret),
        };
        let mut config = Agent::config_builder()
            .timeout_connect(Some(CONNECT_TIMEOUT))
            .timeout_per_read(Some(STALL_TIMEOUT))
            .timeout_per_write(Some(STALL_TIMEOUT))
            .timeout_recv_response(Some(STALL_TIMEOUT))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .user_agent("poolhouse");
        if endpoint.starts_with("https://") {
            let tls = tls::client_config(access.ca_file.as_deref()).map_err(certificates_error)?;
            config = config.tls_config(tls);
        }
        let agent = Agent::new_with_config(config.build());
        Ok(Self { agent, bucket, credentials, prefix, location: location.to_owned() })
    }

    fn key(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    /// The address of an object's retention, signed.
    fn retention_url(&self, method: Method, name: &str) -> String {
        let url = self.bucket.object_url(&self.key(name));
        let (key, secret) = (self.credentials.key(), self.credentials.secret());
        let (token, region) = (self.credentials.token(), self.bucket.region());
        let (seconds, now) = (SIGNATURE_TIME.as_secs(), jiff::Timestamp::now());
        let query = [("retention", "")].into_iter();
        let no_headers = std::iter::empty();
        let sign = rusty_s3::signing::sign;
        let signed =
            sign(&now, method, url, key, secret, token, region, seconds, query, no_headers);
        signed.to_string()
    }

    /// The retention of an object; `None`: it has none.
    fn retention(&self, name: &str) -> Result<Option<Retention>, StoreError> {
        let url = self.retention_url(Method::Get, name);
        request(&|| self.agent.get(&url).call(), &|mut answer| {
            let status = answer.status();
            let text = read_body(&mut answer, MAX_ANSWER)?;
            let text = String::from_utf8_lossy(&text);
            // AWS has status 404 for it, others 400
            let is_none = text.contains("<Code>NoSuchObjectLockConfiguration</Code>");
            if !status.is_success() && !is_none {
                return Err(refusal_of(status, &text));
            }
            // a retention without a time is none, too
            Ok(Retention::parse(&text))
        })
    }
}

/// Sends a request, and repeats it after temporary failures. `accept` reads the result from the
/// reply.
fn request<T>(
    send: &dyn Fn() -> SendResult,
    accept: &dyn Fn(Response<Body>) -> Result<T, Refusal>,
) -> Result<T, StoreError> {
    let mut pauses = PAUSES.iter();
    loop {
        let refusal = match send() {
            Ok(answer) => match accept(answer) {
                Ok(value) => return Ok(value),
                Err(refusal) => refusal,
            },
            Err(why) => Refusal::Passing(why.to_string()),
        };
        let why = match refusal {
            Refusal::Final(why) => return Err(why),
            Refusal::Passing(why) => why,
        };
        let Some(pause) = pauses.next() else { return Err(StoreError::Unavailable { why }) };
        std::thread::sleep(*pause);
    }
}

/// The reason why a reply is not the expected one.
enum Refusal {
    /// A later try may succeed.
    Passing(String),
    /// It will be the same.
    Final(StoreError),
}

/// The meaning of an error reply.
fn refusal(mut answer: Response<Body>) -> Refusal {
    let text = answer.body_mut().with_config().limit(MAX_ANSWER).read_to_string();
    refusal_of(answer.status(), &text.unwrap_or_default())
}

fn refusal_of(status: StatusCode, text: &str) -> Refusal {
    let message = ["Message", "Code"].iter().find_map(|tag| xml_text(text, tag));
    let why = match message {
        Some(message) => format!("{message} (HTTP status {})", status.as_u16()),
        None => format!("HTTP status {status}"),
    };
    match status.as_u16() {
        412 => Refusal::Final(StoreError::AlreadyExists),
        404 if text.contains("NoSuchBucket") => Refusal::Final(StoreError::Denied { why }),
        404 => Refusal::Final(StoreError::NotFound),
        // two creators at once: the next try shows which was first
        409 | 408 | 429 | 500 | 502 | 503 | 504 => Refusal::Passing(why),
        _ => Refusal::Final(StoreError::Denied { why }),
    }
}

/// The text of the first element of that name.
pub(crate) fn xml_text<'a>(xml: &'a str, tag: &str) -> Option<&'a str> {
    let (_, rest) = xml.split_once(&format!("<{tag}>"))?;
    rest.split_once('<').map(|(text, _)| text)
}

fn read_body(answer: &mut Response<Body>, limit: u64) -> Result<Vec<u8>, Refusal> {
    let read = answer.body_mut().with_config().limit(limit).read_to_vec();
    // a body that is cut, too
    read.map_err(|why| Refusal::Passing(why.to_string()))
}

impl ObjectStore for S3Store {
    fn location(&self) -> String {
        self.location.clone()
    }

    fn create(&self, name: &str, content: &[u8]) -> Result<(), StoreError> {
        let key = self.key(name);
        // a bucket with object lock takes no object without it
        let sum = content_md5(content);
        let send = || {
            let url = self.bucket.put_object(Some(&self.credentials), &key).sign(SIGNATURE_TIME);
            let put = self.agent.put(url.as_str()).header("If-None-Match", "*");
            put.header("Content-MD5", &sum).send(content)
        };
        request(&send, &|answer| {
            if answer.status().is_success() { Ok(()) } else { Err(refusal(answer)) }
        })
    }

    fn read(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>, StoreError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let (key, length) = (self.key(name), range.end.saturating_sub(range.start));
        let last = range.end.saturating_sub(1);
        let send = || {
            let url = self.bucket.get_object(Some(&self.credentials), &key).sign(SIGNATURE_TIME);
            let range = format!("bytes={}-{last}", range.start);
            self.agent.get(url.as_str()).header("Range", range).call()
        };
        request(&send, &|mut answer| match answer.status().as_u16() {
            206 => read_body(&mut answer, length.saturating_add(1)),
            // the object ends before the range begins
            416 => Ok(Vec::new()),
            200 => {
                // the service knows no ranges
                let whole = read_body(&mut answer, range.end.saturating_add(u64::from(u32::MAX)))?;
                let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(whole.len());
                Ok(whole.get(index(range.start)..index(range.end)).unwrap_or_default().to_vec())
            }
            _ => Err(refusal(answer)),
        })
    }

    fn size(&self, name: &str) -> Result<u64, StoreError> {
        let key = self.key(name);
        let send = || {
            let url = self.bucket.head_object(Some(&self.credentials), &key).sign(SIGNATURE_TIME);
            self.agent.head(url.as_str()).call()
        };
        request(&send, &|answer| {
            if !answer.status().is_success() {
                return Err(refusal(answer));
            }
            let length = answer.headers().get("content-length");
            let length = length.and_then(|value| value.to_str().ok()?.parse().ok());
            length.ok_or_else(|| Refusal::Passing("the answer has no length".to_owned()))
        })
    }

    fn list(&self, prefix: &str) -> Result<Vec<ObjectInfo>, StoreError> {
        let key = self.key(prefix);
        let (mut found, mut next) = (Vec::new(), None::<String>);
        loop {
            let send = || {
                let mut list = self.bucket.list_objects_v2(Some(&self.credentials));
                list.with_prefix(key.as_str());
                if let Some(token) = &next {
                    list.with_continuation_token(token.as_str());
                }
                self.agent.get(list.sign(SIGNATURE_TIME).as_str()).call()
            };
            let page = request(&send, &|mut answer| {
                if !answer.status().is_success() {
                    return Err(refusal(answer));
                }
                let text = read_body(&mut answer, MAX_ANSWER)?;
                let text = String::from_utf8_lossy(&text);
                ListObjectsV2::parse_response(&text)
                    .map_err(|why| Refusal::Passing(format!("the list cannot be parsed: {why}")))
            })?;
            for object in page.contents {
                let Some(name) = object.key.strip_prefix(&self.prefix) else { continue };
                let modified = object.last_modified.as_deref().and_then(parse_time);
                let size = object.size.unwrap_or(0);
                found.push(ObjectInfo { name: name.to_owned(), size, modified });
            }
            next = page.next_continuation_token;
            if next.is_none() {
                return Ok(found);
            }
        }
    }

    fn delete(&self, name: &str) -> Result<(), StoreError> {
        let key = self.key(name);
        let send = || {
            let url = self.bucket.delete_object(Some(&self.credentials), &key).sign(SIGNATURE_TIME);
            self.agent.delete(url.as_str()).call()
        };
        let deleted = request(&send, &|answer| {
            if answer.status().is_success() { Ok(()) } else { Err(refusal(answer)) }
        });
        if deleted == Err(StoreError::NotFound) { Ok(()) } else { deleted }
    }

    fn protect(&self, name: &str, until: u64) -> Result<bool, StoreError> {
        let found = self.retention(name)?;
        if found.as_ref().is_some_and(|found| found.until >= until) {
            return Ok(false);
        }
        let mode = found.map_or_else(|| Retention::DEFAULT_MODE.to_owned(), |found| found.mode);
        let body = Retention { mode, until }.to_xml();
        let body = body.ok_or_else(|| StoreError::Denied { why: "no such time".to_owned() })?;
        let (url, sum) = (self.retention_url(Method::Put, name), content_md5(body.as_bytes()));
        let send = || self.agent.put(&url).header("Content-MD5", &sum).send(body.as_bytes());
        request(&send, &|answer| {
            if answer.status().is_success() { Ok(true) } else { Err(refusal(answer)) }
        })
    }
}

/// Seconds since 1970 of an RFC 3339 time.
pub(crate) fn parse_time(text: &str) -> Option<u64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(time.as_second()).ok()
}

fn certificates_error(error: tls::CertificateError) -> engine::Error {
    let reason = error.why.map_or_else(
        || "it holds no certificate".to_owned(),
        |why| engine::error::io_error_text(&why),
    );
    engine::Error::UnusablePath { path: error.path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::{S3Access, S3Store, parse_time, xml_text};

    #[test]
    fn answers_are_understood() {
        let xml = "<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>";
        assert_eq!(xml_text(xml, "Message"), Some("Reduce your rate"));
        assert_eq!(xml_text(xml, "Key"), None);
        assert_eq!(parse_time("2026-11-20T21:43:06.000Z"), Some(1_795_210_986));
        assert_eq!(parse_time("yesterday"), None);
    }

    #[test]
    fn debug_output_has_no_secret() {
        let variables = |name: &str| match name {
            "AWS_ACCESS_KEY_ID" => Some("key".to_owned()),
            "AWS_SECRET_ACCESS_KEY" | "AWS_SESSION_TOKEN" => Some("hidden".to_owned()),
            _ => None,
        };
        let access = S3Access::from_variables(&variables).unwrap();
        assert!(!format!("{access:?}").contains("hidden"));
        assert!(S3Access::from_variables(&|_| None).is_none());
        assert!(S3Store::open("s3://", &access).is_err());
    }
}
