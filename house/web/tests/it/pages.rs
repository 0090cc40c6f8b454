//! The pages of a session.

use std::sync::Arc;

use api::{Drive, DriveList, DrivePlace, FanStatus, Overview, UpsStatus};
use health::{BayMap, Finding, Grade, Verdict};

use crate::client::{Browser, hostile_overview};

fn failing_drive() -> Drive {
    let finding = Finding {
        key: "pending_sectors".to_owned(),
        value: 8,
        grade: Grade::Failing,
        sentence: "The drive cannot read 8 sectors.".to_owned(),
        action: "Replace the drive.".to_owned(),
        is_noted: false,
    };
    Drive {
        name: "sdb".to_owned(),
        serial: Some("ZL2A".to_owned()),
        model: Some("ST4000".to_owned()),
        size: 4_000_787_030_016,
        kind: "HDD".to_owned(),
        temperature: Some(41),
        bay: Some("1-2".to_owned()),
        place: Some(DrivePlace {
            pool: "tank".to_owned(),
            vdev: "mirror-0".to_owned(),
            device: "/dev/sdb".to_owned(),
            state: "ONLINE".to_owned(),
            read_errors: 1,
            write_errors: 2,
            checksum_errors: 3,
        }),
        verdict: Verdict {
            grade: Grade::Failing,
            sentence: "The drive cannot read 8 sectors. Replace the drive.".to_owned(),
            findings: vec![finding],
        },
        ..Drive::default()
    }
}

fn show(browser: &Browser, overview: Overview) {
    *browser.daemon.overview.lock() = Arc::new(overview);
}

#[tokio::test]
async fn names_from_disks_are_no_html() {
    let mut browser = Browser::logged_in().await;
    show(&browser, hostile_overview());
    let page = browser.get("/").await.body;
    assert!(!page.contains("<script>"), "{page}");
    assert!(page.contains("&lt;script&gt;"), "{page}");
    let path = "/drives/..%2F%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E";
    assert!(page.contains(&format!("href=\"{path}\"")), "{page}");
    let page = browser.get(path).await;
    assert_eq!(page.status, 200);
    assert!(!page.body.contains("<script>"), "{}", page.body);
}

#[tokio::test]
async fn drives_are_a_table_and_a_map() {
    let mut browser = Browser::logged_in().await;
    let bays = BayMap {
        rows: vec![vec!["S9".to_owned(), "ZL2A".to_owned()], vec![String::new(), String::new()]],
    };
    let drives = DriveList {
        drives: vec![failing_drive()],
        bays,
        is_complete: true,
        ..DriveList::default()
    };
    show(&browser, Overview { drives, ..Overview::default() });
    let page = browser.get("/").await.body;
    for text in [
        "ZL2A",
        "ST4000",
        "4.0 TB",
        "41 °C",
        "tank/mirror-0",
        "1-1</span> absent<br>S9",
        "2-1</span> empty",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[tokio::test]
async fn drive_page_offers_to_note_findings() {
    let mut browser = Browser::logged_in().await;
    let mut drive = failing_drive();
    let drives = |drive: &Drive| DriveList { drives: vec![drive.clone()], ..DriveList::default() };
    show(&browser, Overview { drives: drives(&drive), ..Overview::default() });
    let page = browser.get("/drives/ZL2A").await;
    assert!(page.body.contains("1 read, 2 write, 3 checksum"), "{}", page.body);
    let question = browser.get("/do/note?drive=ZL2A").await;
    assert!(question.body.contains("poolhouse drives note ZL2A"), "{}", question.body);
    let csrf = page.csrf().to_owned();
    let noted = browser.post("/do/note", &format!("csrf={csrf}&drive=ZL2A")).await;
    assert_eq!((noted.status, noted.header("location")), (303, "/drives/ZL2A"));
    drive.verdict.findings[0].is_noted = true;
    show(&browser, Overview { drives: drives(&drive), ..Overview::default() });
    assert!(!browser.get("/drives/sdb").await.body.contains("I know"));
    assert_eq!(browser.get("/drives/none").await.status, 404);
}

#[tokio::test]
async fn drive_page_lets_its_light_blink() {
    let mut browser = Browser::logged_in().await;
    let drives = DriveList { drives: vec![failing_drive()], ..DriveList::default() };
    show(&browser, Overview { drives, ..Overview::default() });
    let page = browser.get("/drives/ZL2A").await;
    assert!(page.body.contains("poolhouse drives locate ZL2A"), "{}", page.body);
    let refused = browser.post("/do/locate", "csrf=wrong&drive=ZL2A").await;
    assert_eq!((refused.status, browser.daemon.done.lock().len()), (403, 0));
    let csrf = page.csrf().to_owned();
    let done = browser.post("/do/locate", &format!("csrf={csrf}&drive=ZL2A")).await;
    assert_eq!((done.status, done.header("location")), (303, "/drives/ZL2A"));
    assert_eq!(*browser.daemon.done.lock(), ["drives locate ZL2A"]);
}

#[tokio::test]
async fn ups_and_fans_are_shown_where_configured() {
    let mut browser = Browser::logged_in().await;
    show(&browser, Overview::default());
    assert!(!browser.get("/").await.body.contains("id=\"environment\""));
    let ups = UpsStatus {
        server: "cellar@localhost:3493".to_owned(),
        error: Some("no contact <b>".to_owned()),
        ..UpsStatus::default()
    };
    let fans =
        FanStatus { faults: vec!["fan front does not turn".to_owned()], ..FanStatus::default() };
    show(&browser, Overview { ups: Some(ups), fans: Some(fans), ..Overview::default() });
    let page = browser.get("/").await.body;
    for text in
        ["cellar@localhost:3493", "no contact &lt;b&gt;", "Full speed: fan front does not turn"]
    {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[tokio::test]
async fn old_overview_shows_its_age() {
    let mut browser = Browser::logged_in().await;
    show(&browser, Overview { time: 1_800_000_000 - 14, ..Overview::default() });
    assert!(!browser.get("/").await.body.contains(" old: a pool"));
    show(&browser, Overview { time: 1_800_000_000 - 90, ..Overview::default() });
    assert!(browser.get("/").await.body.contains("This is 1 min old: a pool"));
}

#[tokio::test]
async fn refused_actions_show_the_reason() {
    let mut browser = Browser::logged_in().await;
    assert_eq!(browser.get("/pools/none").await.status, 404);
    let csrf = browser.csrf().await;
    let refused = browser.post("/do/scrub", &format!("csrf={csrf}&pool=busy")).await;
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("is being resilvered"), "{}", refused.body);
    assert_eq!(browser.get("/do/scrub").await.status, 422);
}

/// A leaf of a pool.
fn leaf(name: &str, state: &str, children: &serde_json::Value) -> serde_json::Value {
    serde_json::json!({
        "name": name, "guid": 1, "state": state, "read_errors": 1, "write_errors": 2, "checksum_errors": 3,
        "class": null, "size": 4_000_000_000_000_u64, "physical_size": 4_000_000_000_000_u64, "allocated": 0,
        "fragmentation": null, "children": children,
    })
}

/// A pool with a mirror, as the API shows it.
fn mirror_pool(children: &serde_json::Value, scan: &serde_json::Value) -> api::PoolReport {
    let vdevs = serde_json::json!([leaf("mirror-0", "DEGRADED", children)]);
    serde_json::from_value(serde_json::json!({
        "name": "tank", "guid": 7, "state": "DEGRADED", "txg": 9, "size": 4_000_000, "allocated": 1_000_000,
        "fragmentation": null, "dedup_ratio": 100, "error": null, "scan": scan, "vdevs": vdevs, "caches": [],
        "spares": [], "cache_counts": engine::pool::CacheCounts::default(), "altroot": null,
    }))
    .unwrap()
}

#[tokio::test]
async fn guide_leads_from_verdict_to_resilver() {
    let mut browser = Browser::logged_in().await;
    let none = serde_json::json!([]);
    let pair =
        serde_json::json!([leaf("/dev/sda", "ONLINE", &none), leaf("/dev/sdb", "ONLINE", &none)]);
    let spare = |name: &str, size| Drive {
        name: name.to_owned(),
        path: format!("/dev/{name}").into(),
        size,
        is_used_by_system: name == "vda",
        ..Drive::default()
    };
    let drives = vec![
        failing_drive(),
        spare("sdx", 4_000_787_030_016),
        spare("sdy", 1_000_000_000),
        spare("vda", 8_000_000_000_000),
    ];
    let bays = BayMap { rows: vec![vec!["S9".to_owned(), "ZL2A".to_owned()]] };
    let drives = DriveList { drives, bays, is_complete: true, ..DriveList::default() };
    let pools = vec![mirror_pool(&pair, &serde_json::Value::Null)];
    show(&browser, Overview { pools, drives: drives.clone(), ..Overview::default() });
    let drive = browser.get("/drives/ZL2A").await.body;
    let guide = "/pools/tank/replace/%2Fdev%2Fsdb";
    assert!(drive.contains(guide), "{drive}");
    let page = browser.get(guide).await.body;
    for text in [
        "in bay <strong>1-2",
        "failing marked",
        "poolhouse drives locate ZL2A",
        "/do/offline?pool=tank&amp;device=%2Fdev%2Fsdb",
        "value=\"/dev/sdx\" checked",
        "too small: 4.0 TB are needed",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert!(!page.contains("/dev/vda"), "the system uses it");
    let question =
        browser.get("/do/replace?pool=tank&device=/dev/sdb&new=/dev/sdx&path=").await.body;
    assert!(question.contains("poolhouse zpool replace tank /dev/sdb /dev/sdx"), "{question}");
    // while the replacement runs, the guide shows how long it still takes
    let both =
        serde_json::json!([leaf("/dev/sdb", "OFFLINE", &none), leaf("/dev/sdx", "ONLINE", &none)]);
    let pair = serde_json::json!([
        leaf("/dev/sda", "ONLINE", &none),
        leaf("replacing-1", "DEGRADED", &both)
    ]);
    let scan = serde_json::json!({
        "scan": engine::pool::ScanKind::Resilver, "state": "scanning", "started": 1_799_999_000_u64, "ended": 0,
        "scanned": 500_000, "total": 1_000_000, "read": 0, "written": 0, "errors": 0, "damage": [],
    });
    let pools = vec![mirror_pool(&pair, &scan)];
    show(&browser, Overview { pools, drives, ..Overview::default() });
    let page = browser.get(guide).await.body;
    assert!(page.contains("The replacement runs.") && page.contains("50 %, 16 min left"), "{page}");
    assert_eq!(browser.get("/pools/tank").await.status, 200);
    // a device that is gone was replaced
    let page = browser.get("/pools/tank/replace/%2Fdev%2Fsdz").await.body;
    assert!(page.contains("is no part of pool tank"), "{page}");
}

/// A drive of 4 TB that belongs to no pool.
fn free_drive(name: &str) -> Drive {
    Drive {
        name: name.to_owned(),
        path: format!("/dev/{name}").into(),
        size: 4_000_787_030_016,
        ..Drive::default()
    }
}

#[tokio::test]
async fn planner_shows_layouts_of_chosen_drives() {
    let mut browser = Browser::logged_in().await;
    let drives = ["sda", "sdb", "sdc", "sdd"].map(free_drive).to_vec();
    let drives = DriveList { drives, ..DriveList::default() };
    show(&browser, Overview { drives, ..Overview::default() });
    assert!(!browser.get("/new-pool").await.body.contains("raidz2"));
    let chosen = "/new-pool?drive=/dev/sda&drive=/dev/sdb&drive=/dev/sdc&drive=/dev/sdd";
    let page = browser.get(chosen).await.body;
    for text in ["raidz2 4", "mirror 2", "name=\"layout\" value=\"raidz2 4\"", "MB/s"] {
        assert!(page.contains(text), "{text}: {page}");
    }
}

#[tokio::test]
async fn answers_of_the_api_become_pages() {
    let mut browser = Browser::logged_in().await;
    *browser.daemon.answers.lock() = vec![
        ("/api/v1/shares", r#"{"shares": [{"protocol": "smb", "dataset": "tank/a", "address": null, "port": null,
            "read_only": true, "source": "config", "problem": "it does not listen",
            "clients": [{"address": "10.0.0.9", "user": "anna"}]}]}"#.to_owned()),
        ("/api/v1/alerts", r#"{"alerts": [], "channels": [], "undelivered": []}"#.to_owned()),
        ("/api/v1/replicas", r#"[{"name": "cellar", "target": "ssh://b/tank", "succeeded": null, "error": "no route",
            "copies": [{"source": "tank", "snapshot": null, "snapshot_time": null, "missing": 3}]}]"#.to_owned()),
    ];
    for (path, texts) in [
        ("/shares", ["it does not listen", "anna", "10.0.0.9"]),
        ("/copies", ["no route", "cellar", "none"]),
        ("/alerts", ["None.", "Nobody is notified", "Ended"]),
        ("/datasets", ["Datasets", "No pool is imported", "poolhouse"]),
        ("/users", ["Invite a user", "Of shares", "poolhouse user add"]),
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        for text in texts {
            assert!(page.body.contains(text), "{text}: {}", page.body);
        }
    }
}

#[tokio::test]
async fn found_pools_are_offered_for_import() {
    let mut browser = Browser::logged_in().await;
    *browser.daemon.answers.lock() = vec![(
        "/api/v1/imports/search",
        r#"[{"name": "cellar", "guid": 42, "state": "exported", "host": "old", "health": "ONLINE", "reason": null,
             "vdevs": [[0, "cellar", "ONLINE"], [1, "mirror-0", "ONLINE"]]},
            {"name": "attic", "guid": 43, "state": "active", "host": "other", "health": "ONLINE",
             "reason": "it is in use by another system", "vdevs": []}]"#
            .to_owned(),
    )];
    let page = browser.get("/imports").await.body;
    for text in [
        "mirror-0",
        "/do/import?pool=cellar&amp;guid=42\"",
        "Import by force…",
        "not exported by other",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let question = browser.get("/do/import?pool=attic&guid=43&force=1").await.body;
    assert!(question.contains("poolhouse zpool import -f 43"), "{question}");
    assert!(question.contains("destroy it"), "{question}");
}

#[tokio::test]
async fn added_drives_are_checked_first() {
    let mut browser = Browser::logged_in().await;
    let mut drives = ["sdx", "sdy", "vda"].map(free_drive).to_vec();
    drives[2].is_in_burn_in = true;
    let drives = DriveList { drives, ..DriveList::default() };
    let pools = vec![mirror_pool(&serde_json::json!([]), &serde_json::Value::Null)];
    show(&browser, Overview { drives, pools, ..Overview::default() });
    let pool = browser.get("/pools/tank").await.body;
    assert!(pool.contains("/pools/tank/add"), "{pool}");
    assert!(pool.contains("/do/remove-vdev?pool=tank&amp;device=mirror-0"), "{pool}");
    let page = browser.get("/pools/tank/add?drive=/dev/sdx&drive=/dev/sdy").await.body;
    assert!(!page.contains("/dev/vda"), "a burn-in uses it: {page}");
    for text in ["mirror 2", "hot spares", "zpool add -n", "name=\"layout\" value=\"cache\""] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let question = "/do/add-vdev?pool=tank&layout=mirror+2&drive=/dev/sdx&drive=/dev/sdy";
    let question = browser.get(question).await.body;
    assert!(question.contains("poolhouse zpool add tank mirror /dev/sdx /dev/sdy"), "{question}");
}

#[tokio::test]
async fn properties_and_folders_have_actions() {
    let mut browser = Browser::logged_in().await;
    let dataset = r#"[{"name": "tank/a", "type": "filesystem", "key": "none", "properties": [
        {"name": "quota", "value": "5368709120", "source": "local", "received": null},
        {"name": "refquota", "value": "0", "source": "default", "received": null},
        {"name": "compression", "value": "zstd", "source": "local", "received": null},
        {"name": "atime", "value": "off", "source": "inherited from tank", "received": null}]}]"#;
    let files =
        r#"[{"name": "2026", "is_exact": true, "file_type": "/", "size": 2, "modified": 5}]"#;
    *browser.daemon.answers.lock() =
        vec![("/api/v1/datasets", dataset.to_owned()), ("/api/v1/files", files.to_owned())];
    let page = browser.get("/datasets/tank%2Fa").await.body;
    // a quota is never inherited
    for text in [
        "inherited from tank",
        "New value of quota",
        "property=compression",
        "<td>5G</td>",
        "value=\"5368709120\"",
        "<td>none</td>",
        "value=\"none\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    assert_eq!(page.matches("/do/inherit-property?").count(), 1, "{page}");
    let question =
        browser.get("/do/set-property?dataset=tank/a&property=quota&value=5G").await.body;
    assert!(question.contains("poolhouse zfs set quota=5G tank/a"), "{question}");
    let other = browser.get("/do/set-property?dataset=tank/a&property=x:y&value=5G").await;
    assert_eq!(other.status, 422, "{}", other.body);
    let folder = browser.get("/datasets/tank%2Fa/files?at=monday&path=").await.body;
    assert!(folder.contains("path=2026&amp;folder=1"), "{folder}");
    let question = browser.get("/do/restore?snapshot=tank/a@monday&path=2026&folder=1").await.body;
    assert!(question.contains("poolhouse files restore -r tank/a@monday 2026"), "{question}");
}

#[tokio::test]
async fn repositories_are_browsed_and_restored() {
    let mut browser = Browser::logged_in().await;
    *browser.daemon.answers.lock() = vec![
        ("/api/v1/repositories/snapshots", r#"[
            {"dataset": "tank/a", "name": "monday", "creation": 1799990000, "referenced": 1048576, "added": 1024,
             "is_encrypted": false, "is_volume": false},
            {"dataset": "tank/safe", "name": "monday", "creation": 1799990000, "referenced": 1, "added": 1,
             "is_encrypted": true, "is_volume": false}]"#.to_owned()),
        ("/api/v1/repositories", r#"[
            {"location": "s3://b/nas", "problem": null, "stored": 4096, "snapshots": 2, "newest": 1799990000},
            {"location": "file:///mnt/<usb>", "problem": "there is no folder", "stored": 0, "snapshots": 0,
             "newest": null}]"#.to_owned()),
        ("/api/v1/files",
            r#"[{"name": "x.txt", "is_exact": true, "file_type": "F", "size": 2, "modified": 5}]"#.to_owned()),
        ("/api/v1/datasets",
            r#"[{"name": "new/b", "type": "filesystem", "key": "none", "properties": []}]"#.to_owned()),
    ];
    let copies = browser.get("/copies").await.body;
    for text in [
        "/repositories?location=s3%3A%2F%2Fb%2Fnas",
        "there is no folder",
        "/do/create-repository?location=file%3A%2F%2F%2Fmnt%2F%3Cusb%3E",
        "/do/remove-repository?location=s3",
    ] {
        assert!(copies.contains(text), "{text}: {copies}");
    }
    let page = browser.get("/repositories?location=s3://b/nas").await.body;
    let files =
        "/repositories/files?location=s3%3A%2F%2Fb%2Fnas&dataset=tank%2Fa&at=monday&path=&into=";
    assert!(page.contains(&files.replace('&', "&amp;")), "{page}");
    assert_eq!(page.matches("/repositories/files?").count(), 1, "not without the key: {page}");
    let page = browser.get(files).await.body;
    let restore = "/do/restore?snapshot=tank%2Fa%40monday&path=x.txt&repository=s3%3A%2F%2Fb%2Fnas";
    assert!(page.contains(&restore.replace('&', "&amp;")), "{page}");
    assert!(page.contains("tank/a (not imported)") && page.contains("new/b"), "{page}");
    let page = browser.get(&format!("{files}new/b")).await.body;
    assert!(page.contains("&amp;into=new%2Fb"), "{page}");
    let question = browser.get(&format!("{restore}&into=new/b")).await.body;
    let command = "files restore --repository s3://b/nas --into new/b tank/a@monday x.txt";
    assert!(question.contains(command), "{question}");
    // names of files are for administrators
    let mut other = browser.invited("ben", api::Role::Operate).await;
    assert!(!other.get(files).await.body.contains("x.txt"));
}

#[tokio::test]
async fn benchmarks_are_chosen_and_reported() {
    let mut browser = Browser::logged_in().await;
    let answers = &browser.daemon.answers;
    let report = "<html><style>p {}</style><p>side by side</p></html>";
    *answers.lock() = vec![
        ("/api/v1/benchmarks/report?files=a.json&files=b.json", format!("{report:?}")),
        ("/api/v1/benchmarks", r#"{"folder": "/var/bench", "results": [
            {"file": "a.json", "problem": null, "kind": "path", "label": "<i>", "subject": "/tank",
             "started": "2026-11-28T10:00:00Z", "is_complete": false, "figures": [["read 1M", "150 MB/s"]],
             "findings": ["The processor is the limit."]},
            {"file": "b.json", "problem": "it is not a result", "kind": "", "label": "", "subject": "", "started": "",
             "is_complete": false, "figures": [], "findings": []}]}"#.to_owned()),
    ];
    let page = browser.get("/benchmarks").await.body;
    for text in [
        "&lt;i&gt;",
        "150 MB/s",
        "interrupted",
        "it is not a result",
        "name=\"file\" value=\"a.json\"",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let shown = browser.get("/benchmarks/report?file=a.json&file=b.json").await;
    assert_eq!((shown.status, shown.body.as_str()), (200, report));
    // its own style and nothing else
    let policy = shown.header("content-security-policy");
    assert!(policy.starts_with("default-src 'none'; style-src 'unsafe-inline'"), "{policy}");
    assert!(policy.contains("sandbox") && policy.contains("frame-ancestors 'none'"), "{policy}");
    assert!(!policy.contains("script-src"), "{policy}");
    let empty = r#"{"folder": "/var/bench", "results": []}"#.to_owned();
    *browser.daemon.answers.lock() = vec![("/api/v1/benchmarks", empty)];
    let page = browser.get("/benchmarks").await.body;
    assert!(page.contains("poolhouse bench path /tank -o /var/bench/tank.json"), "{page}");
}

#[tokio::test]
async fn pages_have_one_heading_and_labels() {
    let mut browser = Browser::logged_in().await;
    show(&browser, hostile_overview());
    *browser.daemon.answers.lock() = vec![
        ("/api/v1/shares", r#"{"shares": []}"#.to_owned()),
        ("/api/v1/alerts", r#"{"alerts": [], "channels": [], "undelivered": []}"#.to_owned()),
        ("/api/v1/benchmarks", r#"{"folder": "/b", "results": []}"#.to_owned()),
    ];
    for path in [
        "/",
        "/drives/sda",
        "/datasets",
        "/datasets/tank",
        "/shares",
        "/copies",
        "/alerts",
        "/users",
        "/new-pool",
        "/imports",
        "/benchmarks",
        "/repositories?location=file:///mnt/usb",
        "/repositories/files?location=file:///mnt/usb&dataset=tank&at=monday&path=",
        "/account",
        "/account/totp",
        "/do/scrub?pool=tank",
        "/login",
    ] {
        let page = browser.get(path).await.body;
        assert_eq!(page.matches("<h1").count(), 1, "{path}");
        assert!(page.contains("lang=\"en\"") && page.contains("id=\"main\""), "{path}");
        let inputs = page.matches("<input id=").count() + page.matches("<select id=").count();
        assert_eq!(page.matches("<label for=").count(), inputs, "{path}");
    }
}
