//! Versity's gateway, if it is installed: it verifies signatures, and has object lock.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bucket::S3Access;
use engine::backup::{BackupRepository, ObjectStore};
use rusty_s3::actions::CreateBucket;
use rusty_s3::{Bucket, Credentials, S3Action, UrlStyle};

use crate::TempDir;
use crate::repositories::{create_pool, environment, exercise, protect_and_prune};

const START_LIMIT: Duration = Duration::from_mins(1);
const NOW: u64 = 1_700_000_000;

/// A gateway over a folder, which ends with this.
struct Versity {
    child: Child,
    address: String,
    _folder: TempDir,
}

impl Versity {
    /// Starts a gateway with an empty bucket, with object lock if `is_locked`; none: it is not installed.
    fn start(name: &str, is_locked: bool) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let (address, folder) = (format!("127.0.0.1:{port}"), TempDir::new(name));
        for part in ["data", "versions", "iam"] {
            std::fs::create_dir_all(folder.0.join(part)).unwrap();
        }
        let path = |part: &str| folder.0.join(part).display().to_string();
        let mut command = Command::new("versitygw");
        command.args(["--access", "key", "--secret", "secret-of-key", "--port", &address]);
        command.args(["--iam-dir", &path("iam"), "posix"]);
        if is_locked {
            command.args(["--versioning-dir", &path("versions")]);
        }
        command.arg(path("data"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().ok()?;
        let mut gateway = Self { child, address, _folder: folder };
        let last = Instant::now() + START_LIMIT;
        while TcpStream::connect(&gateway.address).is_err() {
            assert!(gateway.child.try_wait().unwrap().is_none(), "versitygw ended");
            assert!(Instant::now() < last, "versitygw does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        gateway.create_bucket(is_locked);
        Some(gateway)
    }

    fn create_bucket(&self, is_locked: bool) {
        let url = format!("http://{}", self.address).parse().unwrap();
        let bucket = Bucket::new(url, UrlStyle::Path, "bucket", "us-east-1").unwrap();
        let credentials = Credentials::new("key", "secret-of-key");
        let mut create = CreateBucket::new(&bucket, &credentials);
        let lock = "x-amz-bucket-object-lock-enabled";
        if is_locked {
            create.headers_mut().insert(lock, "true");
        }
        let url = create.sign(Duration::from_mins(5));
        let request = ureq::put(url.as_str());
        let request = if is_locked { request.header(lock, "true") } else { request };
        assert!(request.send_empty().unwrap().status().is_success());
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        let access = S3Access {
            endpoint: Some(format!("http://{}", self.address)),
            region: "us-east-1".to_owned(),
            key_id: "key".to_owned(),
            secret: "secret-of-key".to_owned(),
            token: None,
            ca_file: None,
        };
        bucket::open("s3://bucket/folder", true, Some(&access)).unwrap()
    }
}

impl Drop for Versity {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Says that a test did nothing.
fn skip() {
    eprintln!(
        "skipped: there is no versitygw (go install github.com/versity/versitygw/cmd/versitygw@latest)"
    );
}

#[test]
fn repository_in_versitygw_equals_the_pool() {
    let Some(gateway) = Versity::start("versity", false) else { return skip() };
    exercise(&gateway.store());
}

#[test]
fn versitygw_extends_protection() {
    let Some(gateway) = Versity::start("versity-lock", true) else { return skip() };
    let (store, environment) = (gateway.store(), environment());
    let pool = create_pool(&environment);
    BackupRepository::create(Arc::clone(&store), &environment.random, NOW).unwrap();
    // it keeps versions, so that a deleted object is only hidden
    assert_eq!(protect_and_prune(&store, &environment, &pool), []);
}
