//! TLS: required of clients, offered to them, and started with nothing left over from before.

use std::io::Write;
use std::sync::Arc;

use lun::LunOptions;
use nbd::Encryption;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tls::{Authority, Date};

use crate::client::{Client, text};
use crate::programs::{TempDir, image, is_installed, run};
use crate::served_pool::{ServedPool, options};

const ACK: u32 = 1;
const UNSUPPORTED: u32 = 1 << 31 | 1;
const TLS_REQUIRED: u32 = 1 << 31 | 5;
const EXPORT_NAME: u32 = 1;
const ABORT: u32 = 2;
const LIST: u32 = 3;
const STARTTLS: u32 = 5;
const GO: u32 = 7;

/// A server with a certificate for this machine's loopback, and the root that clients trust.
fn served(is_required: bool) -> (ServedPool, String) {
    served_to(is_required, None)
}

/// The same, for clients that show a certificate of a root.
fn served_to(is_required: bool, clients: Option<&str>) -> (ServedPool, String) {
    let from = Date { year: 2026, month: 1, day: 1 };
    let names = ["localhost", "127.0.0.1"].map(str::to_owned);
    let authority = Authority::new("test", &names, from).unwrap();
    let to = Date { year: 2035, ..from };
    let (chain, key) = authority.issue(&names, from, to).unwrap();
    let mut config = tls::server_config(chain.as_bytes(), key.as_bytes()).unwrap();
    if let Some(roots) = clients {
        config = tls::with_client_roots(&config, roots.as_bytes()).unwrap();
    }
    let certificate = Arc::new(move || Ok(Arc::clone(&config)));
    let encryption = Some(Encryption { certificate, is_required });
    let served = ServedPool::start_encrypted(&options(), LunOptions::default(), encryption);
    (served, authority.certificate().to_owned())
}

#[test]
fn required_tls_hides_exports_from_plain_clients() {
    let (served, _) = served(true);
    let mut client = Client::connect(served.address());
    assert_eq!(client.option(LIST, &[])[0].0, TLS_REQUIRED);
    assert_eq!(client.option(GO, &[text("disk"), vec![0, 0]].concat())[0].0, TLS_REQUIRED);
    assert_eq!(client.option(99, &[])[0].0, TLS_REQUIRED);
    assert_eq!(client.option(ABORT, &[])[0].0, ACK);
    let mut old = Client::connect(served.address());
    old.send_option(EXPORT_NAME, b"disk");
    assert!(old.is_closed());
}

#[test]
fn bytes_before_tls_end_the_connection() {
    let (served, _) = served(false);
    let mut client = Client::connect(served.address());
    let mut options = Vec::new();
    for option in [STARTTLS, LIST] {
        options.extend(b"IHAVEOPT");
        options.extend(option.to_be_bytes());
        options.extend([0; 4]);
    }
    client.stream.write_all(&options).unwrap();
    assert!(client.is_closed());
    // a client that speaks no TLS after all
    let mut client = Client::connect(served.address());
    assert_eq!(client.option(STARTTLS, &[])[0].0, ACK);
    client.stream.write_all(&[0; 64]).unwrap();
    assert!(client.is_closed());
}

#[test]
fn servers_without_certificate_refuse_tls() {
    let plain = ServedPool::start();
    let mut client = Client::connect(plain.address());
    assert_eq!(client.option(STARTTLS, &[])[0].0, UNSUPPORTED);
    assert_eq!(client.option(LIST, &[]).len(), 2);
}

#[test]
fn libnbd_copies_volumes_by_tls() {
    if !is_installed(&["nbdinfo", "nbdcopy"]) {
        return;
    }
    let (served, root) = served(true);
    let folder = TempDir::new("tls");
    std::fs::write(folder.file("ca-cert.pem"), root).unwrap();
    let authority = served.address();
    let url = format!("nbds://{authority}/disk?tls-certificates={}", folder.file(""));
    let (source, copy) = (folder.file("source"), folder.file("copy"));
    std::fs::write(&source, image()).unwrap();
    run("nbdcopy", &["--connections=4", "--flush", &source, &url]);
    run("nbdcopy", &["--connections=4", &url, &copy]);
    assert!(std::fs::read(&copy).unwrap() == image());
    let facts = run("nbdinfo", &["--json", &url]);
    assert!(facts.contains("\"TLS\": true"), "{facts}");
}

#[test]
fn qemu_converts_volumes_by_tls() {
    if !is_installed(&["qemu-img"]) {
        return;
    }
    let (served, root) = served(true);
    let folder = TempDir::new("qemu-tls");
    std::fs::write(folder.file("ca-cert.pem"), root).unwrap();
    let source = folder.file("source");
    std::fs::write(&source, image()).unwrap();
    let credentials = format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", folder.file(""));
    let target = format!(
        "driver=nbd,host=127.0.0.1,port={},export=disk,tls-creds=tls0",
        served.address().port()
    );
    let mut convert = vec!["convert", "--object", &credentials, "-n", "-f", "raw"];
    convert.extend(["--target-image-opts", &source, &target]);
    run("qemu-img", &convert);
    let image = format!("driver=raw,file.filename={source},file.driver=file");
    let compare = ["compare", "--object", &credentials, "--image-opts", &image, &target];
    run("qemu-img", &compare);
}

/// The root of clients, and a certificate of it with its key, in PEM.
fn client_certificate() -> [String; 3] {
    let root_key = KeyPair::generate().unwrap();
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root_pem = root.self_signed(&root_key).unwrap().pem();
    let mut client = CertificateParams::new(vec!["hypervisor".to_owned()]).unwrap();
    client.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let pem = client.signed_by(&key, &Issuer::new(root, root_key)).unwrap().pem();
    [root_pem, pem, key.serialize_pem()]
}

#[test]
fn clients_show_certificates_where_asked() {
    if !is_installed(&["nbdinfo"]) {
        return;
    }
    let [root, certificate, key] = client_certificate();
    let (served, server_root) = served_to(true, Some(&root));
    let [_, stranger, strange_key] = client_certificate();
    let shown = [Some((&certificate, &key)), Some((&stranger, &strange_key)), None];
    let admitted = shown.map(|shown| {
        let folder = TempDir::new("client-tls");
        std::fs::write(folder.file("ca-cert.pem"), &server_root).unwrap();
        if let Some((certificate, key)) = shown {
            std::fs::write(folder.file("client-cert.pem"), certificate).unwrap();
            std::fs::write(folder.file("client-key.pem"), key).unwrap();
        }
        let url = format!("nbds://{}/disk?tls-certificates={}", served.address(), folder.file(""));
        let mut nbdinfo = std::process::Command::new("nbdinfo");
        nbdinfo.args(["--size", &url]).output().unwrap().status.success()
    });
    assert_eq!(admitted, [true, false, false]);
    assert!(tls::with_client_roots(&tls_config(), b"no certificate").is_err());
}

fn tls_config() -> Arc<tls::ServerConfig> {
    let from = Date { year: 2026, month: 1, day: 1 };
    let names = ["localhost".to_owned()];
    let authority = Authority::new("test", &names, from).unwrap();
    let (chain, key) = authority.issue(&names, from, from).unwrap();
    tls::server_config(chain.as_bytes(), key.as_bytes()).unwrap()
}
