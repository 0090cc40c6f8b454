//! Files of other servers, as their manuals and tools write them.

use std::path::Path;

use api::{ImportedShares, ShareFileFormat};

use super::{ImportPlan, plan_import};
use crate::shares::DatasetFacts;

fn datasets() -> Vec<DatasetFacts> {
    let filesystem = |name: &str| DatasetFacts {
        name: name.to_owned(),
        mounted_at: Some(format!("/{name}").into()),
        ..DatasetFacts::default()
    };
    let volume =
        DatasetFacts { name: "tank/disk".to_owned(), is_volume: true, ..DatasetFacts::default() };
    vec![filesystem("tank"), filesystem("tank/a"), filesystem("tank/b c"), volume]
}

fn plan(format: ShareFileFormat, text: &str) -> ImportPlan {
    plan_import((format, text), &datasets(), &[], Path::new("/secrets"))
}

fn import(format: ShareFileFormat, text: &str) -> ImportedShares {
    plan(format, text).report
}

/// The options of the only share.
fn options(format: ShareFileFormat, text: &str) -> Vec<String> {
    let report = import(format, text);
    let [share] = &report.added[..] else { panic!("{report:?}") };
    share.options.iter().map(|(name, value)| format!("{name} = {}", value.trim())).collect()
}

/// The reason why the only share was skipped.
fn reason(format: ShareFileFormat, text: &str) -> String {
    let report = import(format, text);
    let [skipped] = &report.skipped[..] else { panic!("{report:?}") };
    assert!(report.added.is_empty(), "{report:?}");
    skipped.reason.clone()
}

#[test]
fn exports_become_nfs_shares() {
    let options = |text| options(ShareFileFormat::Exports, text);
    assert_eq!(
        options(
            "# nas\n/tank/a 10.0.0.0/24(rw,sync,no_root_squash) \\\n  fd00::7(ro,no_root_squash)\n"
        ),
        [
            "networks = [\"10.0.0.0/24\"]",
            "read_only_networks = [\"fd00::7\"]",
            "squash = \"none\"",
            "privileged_ports = true"
        ]
    );
    assert_eq!(
        options("\"/tank/b c\" -all_squash,anonuid=1000,insecure 10.1.0.0/255.255.0.0(rw)"),
        ["networks = [\"10.1.0.0/16\"]", "squash = \"all\"", "anonuid = 1000"]
    );
    // a space before the parenthesis opens the share to everybody, as the kernel reads it
    let open = options("/tank/b\\040c (rw)");
    assert_eq!(open, ["networks = [\"*\"]", "privileged_ports = true"]);
    assert_eq!(options("/tank/a nas.lan(rw)")[0], "networks = [\"nas.lan\"]");
    assert_eq!(options("/tank/a *.lan(rw)")[0], "networks = [\"*.lan\"]");
    assert_eq!(options("/tank/a *.l[ao]n(rw)")[0], "networks = [\"*.l[ao]n\"]");
    assert_eq!(options("/tank/a @trusted(rw)")[0], "networks = [\"@trusted\"]");
    assert_eq!(options("/tank/a *")[0], "read_only_networks = [\"*\"]");
}

#[test]
fn exports_that_would_admit_others_are_skipped() {
    for (text, why) in [
        ("/tank/a *.l[aon(rw)", "not a pattern of names"),
        ("/tank/a @(rw)", "nor a netgroup"),
        ("/tank/a *(sec=krb5p)", "sec=sys alone"),
        ("/tank/a *(rw,novel)", "option novel is not known"),
        ("/tank/a 10.0.0.1(rw) 10.0.0.2(rw,no_root_squash)", "different options"),
        ("/tank/a", "names no clients"),
        ("/tank/a/sub *(ro)", "folder in 'tank/a'"),
        ("/srv *(ro)", "no file system of an imported pool"),
        ("\"/tank/a *(ro)", "quotation mark"),
    ] {
        let reason = reason(ShareFileFormat::Exports, text);
        assert!(reason.contains(why), "{text}: {reason}");
    }
}

#[test]
fn smb_conf_becomes_smb_shares() {
    let options = |text| options(ShareFileFormat::SmbConf, text);
    let text = "[global]\n workgroup = HOME\n hosts allow = 192.168.1. 10.0.0.7\n; old\n\
                [Photos]\n comment = all of them\n path = /tank/a/\n Writeable = Yes\n\
                valid users = anna, ben\n browsable = no\n";
    assert_eq!(
        options(text),
        [
            "name = \"Photos\"",
            "users = [\"anna\", \"ben\"]",
            "networks = [\"192.168.1.0/24\", \"10.0.0.7\"]",
            "hidden = true"
        ]
    );
    assert_eq!(import(ShareFileFormat::SmbConf, text).added[0].ignored, ["comment"]);
    let backups =
        "[tm]\npath = /tank/a\nread only = no\nvalid users = anna\nfruit:time machine = yes";
    assert_eq!(options(backups)[2], "time_machine = true");
    // without an option that grants it, writing is forbidden
    assert_eq!(options("[a]\npath = /tank/a")[1], "read_only = true");
}

#[test]
fn smb_shares_that_would_admit_others_are_skipped() {
    for (text, why) in [
        ("[a]\npath = /tank/a\nvalid users = @family", "'@family'"),
        ("[a]\npath = /tank/a\nforce user = root", "'forceuser'"),
        ("[global]\ninvalid users = ben\n[a]\npath = /tank/a", "'invalidusers'"),
        ("[a]\npath = /tank/a\nhosts allow = nas.lan", "'nas.lan'"),
        ("[a]\npath = /tank/%U", "variable"),
        ("[a]\nguest ok = yes", "no path"),
        ("[homes]\nread only = no", "not a share of one directory"),
        ("[a]\npath = /tank/a\nfruit:time machine = yes", "belongs to one user"),
    ] {
        let reason = reason(ShareFileFormat::SmbConf, text);
        assert!(reason.contains(why), "{text}: {reason}");
    }
}

#[test]
fn scst_targets_become_iscsi_shares() {
    let scst = "HANDLER vdisk_blockio {\n\tDEVICE d {\n\t\tfilename /dev/zvol/tank/disk\n\t}\n}\n\
                TARGET_DRIVER iscsi {\n  enabled 1\n  TARGET iqn.2020-01.lan.nas:d {\n    \
                LUN 3 d {\n      read_only 1\n    }\n  }\n}\n";
    let options = options(ShareFileFormat::Scst, scst);
    assert_eq!(options[..2], ["target = \"iqn.2020-01.lan.nas:d\"", "lun = 3"]);
    assert_eq!(options[2..], ["networks = \"*\"", "read_only = true"]);
    let group = |initiator: &str| {
        let lun = format!("GROUP g {{\n LUN 0 d\n INITIATOR {initiator}\n }}");
        scst.replace("LUN 3 d {\n      read_only 1\n    }", &lun)
    };
    let grouped = import(ShareFileFormat::Scst, &group("iqn.1993-08.org.debian:01:abc"));
    assert_eq!(grouped.added[0].options[3].1.trim(), "[\"iqn.1993-08.org.debian:01:abc\"]");
    for (text, why) in [
        (group("*"), "patterns"),
        (scst.replace("enabled 1", "TARGET x {\n IncomingUser \"a b\"\n }"), "CHAP"),
        (scst.replace("enabled 1", "TARGET x {\n IncomingUser a\n }"), "no password"),
        (group("a\n }\n GROUP h {\n LUN 1 d\n INITIATOR b"), "different units"),
        (scst.replace("DEVICE d", "DEVICE e"), "device is not in the file"),
        (scst.replace("iscsi {", "qla2x00t {"), "driver is qla2x00t"),
        ("}\n".to_owned(), "closes nothing"),
        ("A {\n".repeat(9), "nested too deeply"),
        ("A {\n".to_owned(), "is missing"),
    ] {
        let skipped = import(ShareFileFormat::Scst, &text).skipped;
        assert!(skipped.len() == 1 && skipped[0].reason.contains(why), "{text}: {skipped:?}");
    }
}

#[test]
fn tgt_and_lio_become_iscsi_shares() {
    let tgt = "<target iqn.2020-01.lan.nas:disk>\n  backing-store /dev/zvol/tank/disk # all\n  \
               initiator-address 10.0.0.0/24\n  write-cache on\n</target>\n";
    assert_eq!(
        options(ShareFileFormat::TargetsConf, tgt),
        ["target = \"iqn.2020-01.lan.nas:disk\"", "lun = 1", "networks = [\"10.0.0.0/24\"]"]
    );
    let lio = r#"{"storage_objects": [{"name": "d", "plugin": "block", "dev": "/dev/zvol/tank/disk"}],
      "targets": [{"fabric": "iscsi", "wwn": "iqn.2003-01.org.linux-iscsi.nas:1", "tpgs": [{
        "attributes": {"generate_node_acls": 0, "authentication": 0},
        "luns": [{"index": 0, "storage_object": "/backstores/block/d"}],
        "node_acls": [{"node_wwn": "iqn.1993-08.org.debian:01:abc", "mapped_luns": []}]}]}]}"#;
    assert_eq!(
        options(ShareFileFormat::Lio, lio),
        [
            "target = \"iqn.2003-01.org.linux-iscsi.nas:1\"",
            "lun = 0",
            "networks = \"*\"",
            "initiators = [\"iqn.1993-08.org.debian:01:abc\"]"
        ]
    );
    for (format, text, why) in [
        (ShareFileFormat::TargetsConf, tgt.replace("write-cache on", "incominguser a b"), "CHAP"),
        (
            ShareFileFormat::TargetsConf,
            tgt.replace(
                "write-cache on",
                "incominguser a 123456789012\nincominguser b 123456789013",
            ),
            "several CHAP users",
        ),
        (
            ShareFileFormat::TargetsConf,
            tgt.replace(
                "write-cache on",
                "incominguser a 123456789012\noutgoinguser b 123456789012",
            ),
            "are the same",
        ),
        (ShareFileFormat::TargetsConf, tgt.replace("tank/disk", "tank/none"), "not a volume"),
        (ShareFileFormat::TargetsConf, tgt.replace("</target>", ""), "</target> is missing"),
        (
            ShareFileFormat::Lio,
            lio.replace("\"authentication\": 0", "\"authentication\": 1"),
            "CHAP",
        ),
        (ShareFileFormat::Lio, lio.replace("/block/d", "/block/e"), "device is not in the file"),
        (ShareFileFormat::Lio, "{".to_owned(), "not a saveconfig.json"),
    ] {
        let reason = reason(format, &text);
        assert!(reason.contains(why), "{text}: {reason}");
    }
}

/// The fields of CHAP of the only share, and the contents of its files by their paths.
fn chap(format: ShareFileFormat, text: &str) -> (Vec<String>, Vec<(String, String)>) {
    let fields = options(format, text).into_iter().filter(|it| !it.starts_with("target"));
    let fields = fields.filter(|it| it.starts_with("chap") || it.starts_with("mutual")).collect();
    let files = plan(format, text).secrets.into_iter();
    (fields, files.map(|file| (file.path.display().to_string(), file.secret)).collect())
}

#[test]
fn chap_passwords_get_files_of_their_own() {
    let tgt = "<target iqn.2020-01.lan.nas:disk>\n backing-store /dev/zvol/tank/disk\n \
               incominguser anna secret-of-anna\n outgoinguser nas secret-of-nas\n</target>\n";
    let scst = "HANDLER vdisk_blockio {\n DEVICE d {\n filename /dev/zvol/tank/disk\n }\n}\n\
                TARGET_DRIVER iscsi {\n TARGET iqn.2020-01.lan.nas:disk {\n\
                IncomingUser \"anna secret-of-anna\"\n OutgoingUser \"nas secret-of-nas\"\n\
                GROUP g {\n LUN 0 d\n INITIATOR iqn.a\n }\n GROUP h {\n LUN 0 d\n INITIATOR iqn.b\n }\n }\n}\n";
    let lio = r#"{"storage_objects": [{"name": "d", "plugin": "block", "dev": "/dev/zvol/tank/disk"}],
      "targets": [{"fabric": "iscsi", "wwn": "iqn.2020-01.lan.nas:disk", "tpgs": [{
        "attributes": {"generate_node_acls": 0, "authentication": 1},
        "luns": [{"index": 0, "storage_object": "/backstores/block/d"}],
        "node_acls": [{"node_wwn": "iqn.1993-08.org.debian:01:abc", "chap_userid": "anna",
          "chap_password": "secret-of-anna", "chap_mutual_userid": "nas",
          "chap_mutual_password": "secret-of-nas", "mapped_luns": []}]}]}]}"#;
    let file = |kind: &str| format!("/secrets/iqn.2020-01.lan.nas:disk-{kind}");
    let fields = [
        "chap_user = \"anna\"".to_owned(),
        format!("chap_secret_file = \"{}\"", file("chap")),
        "mutual_user = \"nas\"".to_owned(),
        format!("mutual_secret_file = \"{}\"", file("mutual")),
    ];
    let files =
        [(file("chap"), "secret-of-anna".to_owned()), (file("mutual"), "secret-of-nas".to_owned())];
    for (format, text) in [
        (ShareFileFormat::TargetsConf, tgt),
        (ShareFileFormat::Scst, scst),
        (ShareFileFormat::Lio, lio),
    ] {
        assert_eq!(chap(format, text), (fields.to_vec(), files.to_vec()), "{text}");
        let report = format!("{:?}", import(format, text));
        assert!(!report.contains("secret-of"), "the report shows a password: {report}");
    }
    let grouped = options(ShareFileFormat::Scst, scst);
    assert!(grouped.contains(&"initiators = [\"iqn.a\", \"iqn.b\"]".to_owned()), "{grouped:?}");
    let second = lio.replace(
        "\"mapped_luns\": []}",
        "\"mapped_luns\": []}, {\"node_wwn\": \"iqn.b\", \"chap_userid\": \"ben\", \"chap_password\": \"another one 12\"}",
    );
    assert!(reason(ShareFileFormat::Lio, &second).contains("different CHAP users"));
}

#[test]
fn nvmet_subsystems_become_nvme_shares() {
    let text = r#"{"hosts": [{"nqn": "nqn.2014-08.org.example:a"}],
      "ports": [{"addr": {"trtype": "tcp", "traddr": "10.0.0.1"}, "subsystems": ["nqn.2020-01.lan.nas:d"]}],
      "subsystems": [{"nqn": "nqn.2020-01.lan.nas:d", "attr": {"allow_any_host": "0"},
        "allowed_hosts": ["nqn.2014-08.org.example:a"],
        "namespaces": [{"nsid": 3, "enable": 1, "device": {"path": "/dev/zvol/tank/disk"}}]}]}"#;
    let wanted = [
        "nqn = \"nqn.2020-01.lan.nas:d\"",
        "namespace = 3",
        "networks = \"*\"",
        "hosts = [\"nqn.2014-08.org.example:a\"]",
    ];
    assert_eq!(options(ShareFileFormat::Nvmet, text), wanted);
    let open = text.replace("\"allow_any_host\": \"0\"", "\"allow_any_host\": 1");
    assert_eq!(options(ShareFileFormat::Nvmet, &open), wanted[..3]);
    let secret = "\"nqn\": \"nqn.2014-08.org.example:a\", \"dhchap_key\": \"DHHC-1:00:AAAA:\"";
    for (from, to, why) in [
        ("\"nqn\": \"nqn.2014-08.org.example:a\"", secret, "DH-HMAC-CHAP"),
        ("\"trtype\": \"tcp\"", "\"trtype\": \"rdma\"", "TCP"),
        ("\"enable\": 1", "\"enable\": 0", "not enabled"),
        ("[\"nqn.2014-08.org.example:a\"]", "[]", "no host"),
        ("{\"hosts\"", "[", "not a config.json"),
    ] {
        let text = text.replacen(from, to, 1);
        let reason = reason(ShareFileFormat::Nvmet, &text);
        assert!(reason.contains(why), "{text}: {reason}");
    }
}

#[test]
fn names_of_shares_cannot_add_fields() {
    let text =
        "[a\"\ntime_machine = true]\npath = /tank/a\n[2026]\npath = /tank/b c\nwritable = yes";
    let report = import(ShareFileFormat::SmbConf, text);
    assert_eq!(report.added.len(), 1, "{report:?}");
    assert_eq!(report.added[0].options[0].1.trim(), "\"2026\"");
}
