//! Pages in a real browser without a window, on a screen as wide as a phone's.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::{path_arg, run_ok};

/// Browsers that may be installed, all of one family.
const BROWSERS: [&str; 5] =
    ["chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome"];

/// Measures the page once it is shown, and writes the result into the page's own text.
const PROBE: &str = r#"<script>
const errors = []; window.onerror = (what) => { errors.push(String(what)); };
window.addEventListener("load", () => {
  const boxes = [...document.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
  const texts = [...document.querySelectorAll("svg text")];
  const outside = texts.filter(text => {
    const box = text.getBoundingClientRect(), frame = text.closest("svg").getBoundingClientRect();
    return box.left < frame.left - 2 || box.right > frame.right + 2;
  });
  const small = texts.filter(text => text.getBoundingClientRect().height < 8);
  const found = {
    pictures: boxes.filter(box => box.width > 200 && box.height > 40).length,
    marks: document.querySelectorAll("svg rect, svg circle, svg path").length,
    outside: outside.map(text => text.textContent), small: small.length,
    wide: document.documentElement.scrollWidth, screen: window.innerWidth,
    title: document.title, text: document.body.innerText.length, errors,
  };
  const place = document.createElement("pre");
  place.id = "found"; place.textContent = JSON.stringify(found); document.body.append(place);
});
</script>"#;

fn find_browser() -> Option<&'static str> {
    let found = BROWSERS.into_iter().find(|name| {
        let mut command = Command::new(name);
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    });
    if found.is_none() {
        eprintln!("left out: no browser is installed (Debian: chromium-headless-shell)");
    }
    found
}

/// Opens a page and returns its visible text.
fn probe_page(browser: &str, page: &Path) -> Value {
    let html = std::fs::read_to_string(page).expect("a page");
    assert!(!html.contains("<script"), "the page itself has no script");
    let probed = page.with_extension("probed.html");
    std::fs::write(&probed, html.replace("</head>", &format!("{PROBE}</head>"))).expect("a file");
    let profile = fixtures::scratch_dir(&format!("browser-{}", std::process::id()));
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"])
        .args(["--disable-dev-shm-usage", "--window-size=390,844", "--virtual-time-budget=5000"])
        .args(["--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", probed.display()))
        .output()
        .expect("the browser starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("CONSOLE"), "the page makes the browser complain: {said}");
    let dom = String::from_utf8_lossy(&output.stdout).into_owned();
    let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split("</pre>").next());
    let found = found.unwrap_or_else(|| panic!("the page was not shown: {said}\n{dom}"));
    let text = found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    serde_json::from_str(&text).expect("JSON")
}

fn check_page(browser: &str, page: &Path, pictures: u64) {
    let found = probe_page(browser, page);
    let number = |name: &str| found[name].as_u64().unwrap_or_default();
    assert_eq!(number("pictures"), pictures, "{found}");
    assert!(number("marks") > 10 && number("text") > 200, "{found}");
    assert_eq!(found["errors"].as_array().map(Vec::len), Some(0), "{found}");
    assert_eq!(
        found["outside"].as_array().map(Vec::len),
        Some(0),
        "words leave a picture: {found}"
    );
    assert_eq!(number("small"), 0, "words can be read: {found}");
    assert!(number("wide") <= number("screen"), "nothing is wider than a phone: {found}");
}

fn scratch_dir(name: &str) -> PathBuf {
    fixtures::scratch_dir(&format!("browser-{name}"))
}

#[test]
fn a_plan_is_shown() {
    let Some(browser) = find_browser() else { return };
    let page = scratch_dir("plan").join("plan.html");
    run_ok(&["plan", "--drives", "6x4TB,2x8TB", "--for", "balance", "--html", path_arg(&page)]);
    // capacity bars, space against safety, three parities at three sectors
    check_page(browser, &page, 2 + 9);
}

#[test]
fn results_are_shown() {
    let Some(browser) = find_browser() else { return };
    let dir = scratch_dir("bench");
    let results = ["raidz2-6", "mirror"].map(|name| dir.join(format!("{name}.json")));
    for result in &results {
        let words = ["--seconds", "0.02", "--size", "4M", "--files", "40", "--runs", "2", "-q"];
        run_ok(&[&["bench", "path", path_arg(&dir), "-o", path_arg(result)], &words[..]].concat());
    }
    let one = dir.join("one.html");
    run_ok(&["bench", "report", path_arg(&results[0]), "-o", path_arg(&one)]);
    // sequential, random reads, random writes, small files
    check_page(browser, &one, 4);
    let both = dir.join("both.html");
    let drives = ["a", "b"].map(|name| dir.join(name));
    for drive in &drives {
        std::fs::write(drive, vec![7; 8 << 20]).expect("a file");
    }
    let disk = dir.join("disk.json");
    let words = ["--seconds", "0.02", "--runs", "2", "--zones", "3", "-q", "-o", path_arg(&disk)];
    run_ok(&[&["bench", "disk", path_arg(&drives[0]), path_arg(&drives[1])], &words[..]].concat());
    run_ok(&[
        "bench",
        "report",
        path_arg(&results[0]),
        path_arg(&results[1]),
        "-o",
        path_arg(&both),
    ]);
    check_page(browser, &both, 4 + 2 * 4);
    run_ok(&["bench", "report", path_arg(&disk), "-o", path_arg(&both)]);
    // sequential, random reads, zones
    check_page(browser, &both, 3);
}
