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
    let drives = DriveList { drives: vec![failing_drive()], bays, is_complete: true };
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
    assert!(page.body.contains("poolhouse drives note ZL2A"), "{}", page.body);
    let csrf = page.csrf().to_owned();
    let noted = browser.post("/drives/ZL2A/note", &format!("csrf={csrf}")).await;
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
    let refused = browser.post("/drives/ZL2A/locate", "csrf=wrong").await;
    assert_eq!((refused.status, browser.daemon.done.lock().len()), (403, 0));
    let csrf = page.csrf().to_owned();
    let done = browser.post("/drives/ZL2A/locate", &format!("csrf={csrf}")).await;
    assert_eq!((done.status, done.header("location")), (303, "/drives/ZL2A"));
    assert_eq!(*browser.daemon.done.lock(), ["locate ZL2A"]);
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
    assert!(browser.get("/live").await.body.contains("This is 1 min old: a pool"));
}

#[tokio::test]
async fn unknown_pools_have_no_actions() {
    let mut browser = Browser::logged_in().await;
    assert_eq!(browser.get("/pools/none/scrub").await.status, 404);
    let csrf = browser.get("/").await.csrf().to_owned();
    let refused = browser.post("/pools/busy/scrub", &format!("csrf={csrf}")).await;
    assert_eq!(refused.status, 409);
    assert!(refused.body.contains("is being resilvered"), "{}", refused.body);
}

#[tokio::test]
async fn pages_have_one_heading_and_labels() {
    let mut browser = Browser::logged_in().await;
    show(&browser, hostile_overview());
    for path in ["/", "/drives/sda", "/login"] {
        let page = browser.get(path).await.body;
        assert_eq!(page.matches("<h1").count(), 1, "{path}");
        assert!(page.contains("lang=\"en\"") && page.contains("id=\"main\""), "{path}");
        let inputs = page.matches("<input id=").count();
        assert_eq!(page.matches("<label for=").count(), inputs, "{path}");
    }
}
