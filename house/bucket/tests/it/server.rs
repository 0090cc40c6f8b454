//! A small service with the protocol of S3, in a thread: objects in memory, and faults.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Objects on a page of a list.
const PAGE: usize = 2;

/// The service. It ends with the test program.
pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) state: Arc<State>,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) objects: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The retention of objects, in XML.
    pub(crate) retention: Mutex<BTreeMap<String, String>>,
    requests: AtomicU64,
    /// Requests whose number this divides fail; 0: none.
    pub(crate) failing_period: AtomicU64,
    /// They fail after they were done.
    pub(crate) fails_late: AtomicU64,
    /// Bodies of answers are cut in the middle.
    pub(crate) cuts_bodies: AtomicU64,
}

struct Request {
    method: String,
    key: String,
    query: String,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
}

impl Server {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, &state));
            }
        });
        Self { address, state }
    }
}

fn serve(stream: TcpStream, state: &State) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut out = stream;
    while let Some(request) = read_request(&mut reader) {
        let number = state.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let period = state.failing_period.load(Ordering::Relaxed);
        let fails = period > 0 && number.is_multiple_of(period);
        let late = state.fails_late.load(Ordering::Relaxed) > 0;
        let (mut status, mut body) = (503, b"<Error><Code>SlowDown</Code></Error>".to_vec());
        if !fails || late {
            let done = answer(&request, state);
            if !fails {
                (status, body) = done;
            }
        }
        let length = body.len();
        if request.method == "HEAD" {
            body.clear();
        }
        let head = format!("HTTP/1.1 {status} X\r\nContent-Length: {length}\r\n\r\n");
        let cut = state.cuts_bodies.load(Ordering::Relaxed) > 0 && body.len() > 10;
        let end = if cut { body.len() / 2 } else { body.len() };
        if out.write_all(head.as_bytes()).and_then(|()| out.write_all(&body[..end])).is_err() || cut
        {
            return;
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|length| *length > 0)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    let length = headers.get("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let key = path.strip_prefix("/bucket/").unwrap_or_default().to_owned();
    Some(Request { method, key, query: query.replace("%2F", "/"), headers, body })
}

fn answer(request: &Request, state: &State) -> (u16, Vec<u8>) {
    if !request.query.contains("X-Amz-Signature=") {
        return (403, b"<Error><Message>no signature</Message></Error>".to_vec());
    }
    let mut objects = state.objects.lock().unwrap();
    let parameter = |name: &str| {
        let mut pairs = request.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.find(|(known, _)| *known == name).map(|(_, value)| value.to_owned())
    };
    let mut retention = state.retention.lock().unwrap();
    let is_retention = request.query.split('&').any(|pair| pair == "retention=");
    match (request.method.as_str(), objects.get(&request.key)) {
        ("PUT", Some(_)) if is_retention => {
            // a service with object lock demands it
            if !request.headers.contains_key("content-md5") {
                return (400, b"<Error><Code>InvalidRequest</Code></Error>".to_vec());
            }
            let body = String::from_utf8(request.body.clone()).unwrap();
            retention.insert(request.key.clone(), body);
            (200, Vec::new())
        }
        ("GET", Some(_)) if is_retention => match retention.get(&request.key) {
            Some(xml) => (200, xml.clone().into_bytes()),
            None => (404, b"<Error><Code>NoSuchObjectLockConfiguration</Code></Error>".to_vec()),
        },
        ("DELETE", _) if retention.contains_key(&request.key) => {
            (403, b"<Error><Message>the object is locked</Message></Error>".to_vec())
        }
        ("PUT", Some(_)) if request.headers.contains_key("if-none-match") => (412, Vec::new()),
        ("PUT", _) => {
            objects.insert(request.key.clone(), request.body.clone());
            (200, Vec::new())
        }
        ("DELETE", _) => {
            objects.remove(&request.key);
            (204, Vec::new())
        }
        ("GET", _) if request.key.is_empty() => {
            let prefix = parameter("prefix").unwrap_or_default();
            let after = parameter("continuation-token").unwrap_or_default();
            (200, list(&objects, &prefix, &after).into_bytes())
        }
        (_, None) => (404, b"<Error><Code>NoSuchKey</Code></Error>".to_vec()),
        ("GET", Some(object)) => {
            let range = request.headers.get("range").and_then(|it| it.strip_prefix("bytes="));
            let (start, last) = range.and_then(|range| range.split_once('-')).unwrap();
            let (start, last): (usize, usize) = (start.parse().unwrap(), last.parse().unwrap());
            match object.get(start..object.len().min(last + 1)) {
                Some(part) if !part.is_empty() => (206, part.to_vec()),
                _ => (416, Vec::new()),
            }
        }
        (_, Some(object)) => (200, object.clone()),
    }
}

fn list(objects: &BTreeMap<String, Vec<u8>>, prefix: &str, after: &str) -> String {
    let named = objects.iter().filter(|(key, _)| key.starts_with(prefix) && key.as_str() > after);
    let all: Vec<_> = named.collect();
    let page = &all[..all.len().min(PAGE)];
    let contents: String = page
        .iter()
        .map(|(key, object)| {
            format!(
                "<Contents><Key>{key}</Key><LastModified>2026-11-20T21:43:06.000Z</LastModified>\
                 <ETag>\"x\"</ETag><Size>{}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                object.len()
            )
        })
        .collect();
    let next = page
        .last()
        .filter(|_| all.len() > PAGE)
        .map(|(key, _)| format!("<NextContinuationToken>{key}</NextContinuationToken>"));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>bucket</Name><MaxKeys>{PAGE}</MaxKeys><IsTruncated>{}</IsTruncated>{contents}{}\
         </ListBucketResult>",
        next.is_some(),
        next.unwrap_or_default()
    )
}
