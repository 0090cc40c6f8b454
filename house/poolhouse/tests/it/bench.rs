//! `bench`: its measurements, results and leftovers. No test expects a figure.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::command::{path_arg, run, run_json, run_ok};

/// Short runs on little data: the figures mean nothing, but every step runs.
const SHORT_RUN_ARGS: [&str; 8] =
    ["--seconds", "0.02", "--size", "4M", "--files", "40", "--runs", "2"];

fn scratch_dir(name: &str) -> PathBuf {
    fixtures::scratch_dir(&format!("bench-{name}"))
}

fn is_empty_dir(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("a folder").next().is_none()
}

fn bench_path(dir: &Path, more: &[&str]) -> Value {
    let words = ["bench", "path", path_arg(dir), "--json", "-q"];
    run_json(&[&words[..], &SHORT_RUN_ARGS, more].concat())
}

fn string_list(value: &Value) -> Vec<String> {
    let items = value.as_array().expect("a list").iter();
    items.map(|item| item.as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn measurement_leaves_the_folder_unchanged() {
    let dir = scratch_dir("path");
    let record = bench_path(&dir, &[]);
    assert_eq!((record["kind"].as_str(), record["complete"].as_bool()), (Some("path"), Some(true)));
    let measures = record["measures"].as_array().expect("a list");
    assert_eq!(measures.len(), 22);
    for measure in measures {
        let runs = measure["runs"].as_array().expect("a list");
        assert_eq!(runs.len(), 2, "{measure}");
        assert!(runs.iter().all(|run| run.as_f64().is_some_and(|run| run > 0.0)), "{measure}");
        assert!(measure["summary"]["plus_minus"].is_f64(), "{measure}");
        assert!(measure["latency"]["p99_ms"].is_f64(), "{measure}");
    }
    assert_eq!(record["settings"]["data"], "incompressible");
    assert_eq!(record["settings"]["size_bytes"], 4 << 20);
    for known in ["/machine/kernel", "/machine/memory_bytes", "/facts/mount/kind"] {
        assert!(!record.pointer(known).unwrap_or(&Value::Null).is_null(), "{known}");
    }
    assert!(is_empty_dir(&dir), "nothing is left behind");
}

#[test]
fn zeros_and_caches_are_marked_in_results() {
    let dir = scratch_dir("zeros");
    let record = bench_path(&dir, &["--zeros", "--buffered", "--only", "write-1m-q1,read-1m-q1"]);
    assert_eq!(record["settings"]["data"], "zeros");
    assert_eq!(record["settings"]["direct"], false);
    assert_eq!(record["measures"].as_array().map(Vec::len), Some(2));
    let notes = string_list(&record["notes"]).join(" ");
    assert!(notes.contains("Zeros were written") && notes.contains("page cache, as requested"));
    let wrong = run(&["bench", "path", path_arg(&dir), "--only", "read-2m"]);
    assert_eq!(wrong.status, 2);
    assert!(wrong.stderr.contains("workload 'read-2m' does not exist; choose from: write-1m-q1"));
}

#[test]
fn dry_run_lists_the_affected_files() {
    let dir = scratch_dir("dry");
    let said = run_ok(&["bench", "path", path_arg(&dir), "--dry-run"]);
    assert!(said.contains(path_arg(&dir)) && said.contains("Nothing was touched"), "{said}");
    assert!(is_empty_dir(&dir));
    let drive = dir.join("drive");
    std::fs::write(&drive, vec![1; 8 << 20]).expect("a file");
    let said = run_ok(&["bench", "disk", path_arg(&drive), "--dry-run"]);
    assert!(said.contains("would be read."), "{said}");
    let said = run_ok(&["bench", "net", "nowhere", "--dry-run"]);
    assert!(said.contains("'nowhere'") && said.contains("Nothing is written"), "{said}");
}

#[test]
fn missing_or_full_targets_are_refused() {
    let dir = scratch_dir("refused");
    let large = run(&["bench", "path", path_arg(&dir), "--size", "1E"]);
    assert_eq!(large.status, 13, "{}", large.stderr);
    assert!(large.stderr.contains("free, and 1E are needed"), "{}", large.stderr);
    assert!(is_empty_dir(&dir));
    let nowhere = run(&["bench", "path", path_arg(&dir.join("nowhere"))]);
    assert_eq!(nowhere.status, 10, "{}", nowhere.stderr);
}

#[test]
fn interrupted_measurement_keeps_results_and_cleans_up() {
    let dir = scratch_dir("interrupted");
    let kept = scratch_dir("kept").join("result.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
    command.args(["bench", "path", path_arg(&dir), "--size", "4M", "--seconds", "60", "-q"]);
    command.args(["-o", path_arg(&kept)]).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.process_group(0).spawn().expect("it starts");
    // the first workloads go through 4 MiB and are over at once, the next takes a minute
    let number = child.id();
    let begun = || dir.join(format!("poolhouse-bench-{number}")).join("large").exists();
    while !begun() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(500));
    let kill = Command::new("kill").args(["-INT", &number.to_string()]).status();
    assert!(kill.expect("kill").success());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(130));
    assert!(is_empty_dir(&dir), "its files are gone");
    let text = std::fs::read_to_string(&kept).expect("the result is kept");
    let record: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!(record["complete"], false);
}

#[test]
fn drives_are_read_alone_and_together() {
    let dir = scratch_dir("disk");
    let drives = ["a", "b"].map(|name| dir.join(name));
    for drive in &drives {
        std::fs::write(drive, vec![7; 8 << 20]).expect("a file");
    }
    let words = ["--seconds", "0.02", "--runs", "2", "--zones", "3", "--json", "-q"];
    let names = drives.each_ref().map(|drive| path_arg(drive));
    let record = run_json(&[&["bench", "disk"], &names[..], &words].concat());
    assert_eq!(record["kind"], "disk");
    let ids: Vec<&str> = record["measures"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|measure| measure["id"].as_str())
        .collect();
    let first = names[0];
    for id in ["read-1m-outer", "read-1m-middle", "read-1m-inner", "random-read-4k-q32"] {
        assert!(ids.contains(&format!("{first}/{id}").as_str()), "{id}: {ids:?}");
    }
    assert!(ids.contains(&"all/together-read-1m"), "{ids:?}");
    assert_eq!(record["facts"]["zones"][1]["points"].as_array().map(Vec::len), Some(3));
    for drive in &drives {
        let bytes = std::fs::read(drive).expect("a file");
        assert!(bytes.len() == 8 << 20 && bytes.iter().all(|byte| *byte == 7), "only read");
    }
}

#[test]
fn drives_that_hold_anything_are_never_written_to() {
    let drive = scratch_dir("overwrite").join("drive");
    let words = ["--seconds", "0.02", "--runs", "2", "--zones", "2", "--json", "-q"];
    let name = path_arg(&drive);
    let overwrite = |name: &str| {
        run(&[&["bench", "disk", path_arg(&drive), "--overwrite", name], &words[..]].concat())
    };
    let mut bytes = vec![0; 8 << 20];
    bytes[100_000] = 1;
    std::fs::write(&drive, &bytes).expect("a file");
    let refused = overwrite("drive");
    assert_eq!(refused.status, 11, "{}", refused.stderr);
    assert!(refused.stderr.contains("its first MiB is not empty"), "{}", refused.stderr);
    assert_eq!(std::fs::read(&drive).expect("a file"), bytes);
    assert_eq!(overwrite("other").status, 2, "another name was typed");
    std::fs::write(&drive, vec![0; 8 << 20]).expect("a file");
    let done = overwrite("drive");
    assert_eq!(done.status, 0, "{}", done.stderr);
    assert!(done.stdout.contains(&format!("{name}/write-1m-outer")), "{}", done.stdout);
    let after = std::fs::read(&drive).expect("a file");
    let (ends, inside) = ([&after[..1 << 20], &after[7 << 20..]], &after[1 << 20..7 << 20]);
    assert!(ends.iter().all(|end| end.iter().all(|byte| *byte == 0)));
    assert!(inside.iter().any(|byte| *byte != 0));
}

/// A listener that ends with the test.
struct Listener(std::process::Child, String);

impl Listener {
    fn start() -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_poolhouse"));
        command.args(["bench", "net", "--listen", "127.0.0.1:0", "-q"]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe");
        BufReader::new(out).read_line(&mut line).expect("a line");
        let address = line.strip_prefix("listening at ").and_then(|rest| rest.split(';').next());
        Self(child, address.expect("an address").to_owned())
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_network_is_measured_both_ways() {
    let listener = Listener::start();
    let words = ["--seconds", "0.3", "--runs", "2", "--streams", "2", "--buffers", "64K"];
    let record = run_json(&[&["bench", "net", &listener.1, "--json", "-q"], &words[..]].concat());
    assert_eq!((record["kind"].as_str(), record["complete"].as_bool()), (Some("net"), Some(true)));
    let measures = record["measures"].as_array().expect("a list");
    let wanted = [
        "latency-idle",
        "up-1",
        "up-2",
        "latency-up",
        "down-1",
        "down-2",
        "latency-down",
        "both-up",
        "both-down",
        "up-1-buffer-64k",
        "down-1-buffer-64k",
    ];
    for id in wanted {
        let measure = measures.iter().find(|measure| measure["id"] == id);
        let runs = measure.and_then(|measure| measure["runs"].as_array());
        assert!(runs.is_some_and(|runs| runs.len() == 2), "{id}: {measures:?}");
    }
    assert!(record["facts"]["path"]["mtu"].as_u64().is_some_and(|mtu| mtu > 500));
    assert!(string_list(&record["findings"])[0].contains("the same machine"));
    let nobody = run(&["bench", "net", "127.0.0.1:1", "-q"]);
    assert_eq!(nobody.status, 10);
    assert!(
        nobody.stderr.contains("start `poolhouse bench net --listen` there"),
        "{}",
        nobody.stderr
    );
}

#[test]
fn arrays_are_measured_and_compared_with_the_plan() {
    let dir = scratch_dir("array");
    let drives = ["d1", "d2", "d3"].map(|name| dir.join(name));
    for drive in &drives {
        let file = std::fs::File::create_new(drive).expect("a file");
        file.set_len(256 << 20).expect("a sparse file");
    }
    let results = dir.join("results");
    let mut words = vec!["bench", "array"];
    words.extend(drives.iter().map(|drive| path_arg(drive)));
    words.extend(["--layout", "raidz,mirror 2", "--ashift", "9,12", "-q"]);
    words.extend(["--only", "write-1m-q1,read-1m-q1,random-read-128k-q32,file-create"]);
    let dry = run_ok(&[&words[..], &SHORT_RUN_ARGS[..], &["--dry-run"]].concat());
    assert!(dry.contains("raidz1 3, ashift 9") && dry.contains("Nothing was touched"), "{dry}");
    let text = run_ok(&[&words[..], &SHORT_RUN_ARGS[..], &["-o", path_arg(&results)]].concat());
    assert!(text.contains("sequential write 1M") && text.contains("mirror 2, ashift 12"), "{text}");
    let kept =
        ["raidz1-3-ashift-9", "raidz1-3-ashift-12", "mirror-2-ashift-9", "mirror-2-ashift-12"];
    let kept = kept.map(|name| results.join(format!("{name}.json")));
    let all: Vec<&str> = kept.iter().map(|path| path_arg(path)).collect();
    let comparison = run_json(&[&["bench", "compare"], &all[..], &["--json"]].concat());
    assert_eq!(comparison["columns"].as_array().map(Vec::len), Some(4));
    assert_eq!(comparison["rows"].as_array().map(Vec::len), Some(4 + 4));
    let judged = run_json(&["bench", "plan", all[0], "--json"]);
    assert_eq!(judged["layout"], "raidz1 3");
    assert_eq!(judged["rows"].as_array().map(Vec::len), Some(3));
    std::fs::write(&drives[0], vec![1; 256 << 20]).expect("a file");
    let refused = run(&[&words[..], &SHORT_RUN_ARGS[..]].concat());
    assert_eq!(refused.status, 11, "{}", refused.stderr);
}

#[test]
fn results_are_compared_and_reported() {
    let dir = scratch_dir("compare");
    let only = ["--only", "write-1m-q1,read-1m-q1,random-read-4k-q1", "-q"];
    let results = ["a", "b"].map(|name| dir.join(format!("{name}.json")));
    for result in &results {
        let output = ["-o", path_arg(result)];
        run_ok(&[&["bench", "path", path_arg(&dir)], &SHORT_RUN_ARGS[..], &only, &output].concat());
    }
    let [a, b] = results.each_ref().map(|result| path_arg(result));
    let text = run_ok(&["bench", "compare", a, b]);
    assert!(text.contains("change") && text.contains("sequential write 1M"), "{text}");
    let pictures = dir.join("pictures");
    let page = dir.join("page.html");
    let words = [
        "--svg",
        path_arg(&pictures),
        "--png",
        path_arg(&pictures),
        "--html",
        path_arg(&page),
        "--json",
    ];
    let comparison = run_json(&[&["bench", "compare", a, b], &words[..]].concat());
    assert_eq!(comparison["rows"].as_array().map(Vec::len), Some(3));
    assert!(comparison["rows"][0]["cells"][1]["change"]["is_noise"].is_boolean());
    assert!(pictures.join("sequential.svg").exists());
    let painted = std::fs::read(pictures.join("sequential.png")).expect("a picture");
    assert!(painted.starts_with(b"\x89PNG"));
    let one = run_ok(&["bench", "report", a]);
    for html in [one, std::fs::read_to_string(&page).expect("a page")] {
        assert!(html.contains("<svg") && html.contains("</html>"), "{html}");
        assert!(!html.contains("<script") && !html.contains("http://"));
    }
    std::fs::write(&page, "{}").expect("a file");
    let wrong = run(&["bench", "compare", a, path_arg(&page)]);
    assert_eq!(wrong.status, 10);
    assert!(wrong.stderr.contains("not a result of `poolhouse bench`"), "{}", wrong.stderr);
}

#[test]
fn copy_methods_are_compared_and_copies_removed() {
    let root = scratch_dir("copy");
    let (source, target) = (root.join("source"), root.join("target"));
    std::fs::create_dir_all(source.join("a/b")).expect("a folder");
    std::fs::create_dir(&target).expect("a folder");
    for number in 0..20 {
        std::fs::write(source.join(format!("a/b/{number}")), vec![number; 50_000]).expect("a file");
    }
    let words = ["bench", "copy", path_arg(&source), path_arg(&target), "--runs", "2", "-q"];
    let record = run_json(&[&words[..], &["--json"]].concat());
    assert_eq!((record["kind"].as_str(), record["complete"].as_bool()), (Some("copy"), Some(true)));
    assert_eq!(record["settings"]["files"], 20);
    assert_eq!(record["settings"]["size_bytes"], 1_000_000);
    let notes = string_list(&record["notes"]).join("\n");
    let mut ways = vec!["poolhouse", "cp"];
    for way in ["rsync", "rsync-ssh"] {
        let name = way.replace("-ssh", " over ssh");
        if notes.contains(&format!("Left out: {name} to")) {
            eprintln!("left out: {name}, which is not to be had here");
        } else {
            ways.push(way);
        }
    }
    for way in ways {
        let id = format!("{}/{way}", path_arg(&target));
        let measures = record["measures"].as_array().expect("a list");
        let measure = measures.iter().find(|measure| measure["id"] == id.as_str());
        let runs = measure.and_then(|measure| measure["runs"].as_array());
        assert!(runs.is_some_and(|runs| runs.len() == 2), "{way}: {record}");
    }
    assert!(is_empty_dir(&target), "no copy is left");
    let only = run(&[&words[..], &["--ways", "teleport"]].concat());
    assert!(
        only.status == 2 && only.stderr.contains("choose from: poolhouse, cp, rsync, rsync-ssh")
    );
    let into_itself = run(&["bench", "copy", path_arg(&source), path_arg(&source.join("a"))]);
    assert!(into_itself.status == 2 && into_itself.stderr.contains("is inside the tree to copy"));
    let said = run_ok(&[&words[..], &["--dry-run"]].concat());
    assert!(said.contains("20 files with 977K") && said.contains("Nothing was touched"), "{said}");
    assert!(is_empty_dir(&target));
}

#[test]
fn plan_is_compared_with_the_measurement() {
    let dir = scratch_dir("judged");
    let kept = dir.join("path.json");
    run_ok(
        &[&["bench", "path", path_arg(&dir), "-q", "-o", path_arg(&kept)], &SHORT_RUN_ARGS[..]]
            .concat(),
    );
    let plan = ["bench", "plan", path_arg(&kept), "--drives", "6x4TB", "--layout", "raidz2 6"];
    let judged = run_json(&[&plan[..], &["--json"]].concat());
    assert_eq!(judged["layout"], "raidz2 6");
    assert_eq!(judged["rows"].as_array().map(Vec::len), Some(4));
    assert!(judged["rows"][0]["expected"].as_f64().is_some_and(|rate| rate > 7e8), "{judged}");
    // sentences are broken where the line ends
    let text = run_ok(&plan).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("expected") && text.contains("that the drives should give"), "{text}");
    let wrong =
        run(&["bench", "plan", path_arg(&kept), "--drives", "6x4TB", "--layout", "raidz2 5"]);
    assert_eq!(wrong.status, 2, "{}", wrong.stderr);
}
