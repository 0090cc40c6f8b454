//! The service of benchmarks: shows the results of `poolhouse bench` that are in a folder.
//!
//! ```toml
//! [bench]
//! results = "/srv/bench"    # without it the folder "bench" of the state directory
//! ```

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::{Benchmark, BenchmarkList, GetBenchmarkReport, ListBenchmarks};
use lab::BenchResult;
use lab::bench_result::Measure;
use lab::formatting::format_value;
use serde::Deserialize;

use super::Service;
use crate::context::Context;
use crate::router::Router;
use crate::{Error, Result};

/// The section's name.
pub(super) const SECTION: &str = "bench";
/// The results that are listed, at most.
const MAX_RESULTS: usize = 200;
/// The results on one page, at most.
const MAX_COMPARED: usize = 12;
/// The bytes of a result, at most.
const MAX_BYTES: u64 = 8 << 20;
/// The figures that the list shows of each.
const SHOWN_FIGURES: usize = 4;

/// The section `[bench]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct BenchConfig {
    /// The folder of the results.
    results: Option<PathBuf>,
}

/// The service of benchmarks.
pub(super) struct BenchmarkService {
    context: Arc<Context>,
}

impl BenchmarkService {
    pub(super) fn new(context: &Arc<Context>) -> Self {
        Self { context: Arc::clone(context) }
    }

    fn folder(&self) -> PathBuf {
        let config: BenchConfig = self.context.config.current().section(SECTION);
        config.results.unwrap_or_else(|| self.context.state_dir.benchmarks())
    }
}

impl Service for BenchmarkService {
    fn name(&self) -> &'static str {
        "benchmarks"
    }

    fn calls(self: Arc<Self>, router: &mut Router) {
        let service = Arc::clone(&self);
        router.add(move |_: &ListBenchmarks, _| list(&service.folder()));
        router.add(move |call: &GetBenchmarkReport, _| report(&self.folder(), &call.files));
    }
}

/// The results in a folder, the newest first.
fn list(folder: &Path) -> Result<BenchmarkList> {
    let mut files = Vec::new();
    match fs::read_dir(folder) {
        Ok(entries) => {
            let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
            files.extend(names.filter(|name| is_name(name)));
        }
        Err(why) if why.kind() == ErrorKind::NotFound => {}
        Err(why) => return Err(Error::file_error(folder, &why)),
    }
    files.sort_unstable();
    let mut results: Vec<Benchmark> =
        files.into_iter().take(MAX_RESULTS).map(|file| summary(folder, file)).collect();
    results.sort_by(|one, other| other.started.cmp(&one.started));
    Ok(BenchmarkList { folder: folder.to_owned(), results })
}

/// Whether a name is one of a result in the folder, and leads nowhere else.
fn is_name(name: &str) -> bool {
    let is_json = Path::new(name).extension().is_some_and(|it| it == "json");
    is_json && !name.contains(['/', '\0']) && !name.starts_with('.')
}

fn summary(folder: &Path, file: String) -> Benchmark {
    let result = match read(folder, &file) {
        Ok(result) => result,
        Err(why) => {
            return Benchmark { file, problem: Some(why.to_string()), ..Benchmark::default() };
        }
    };
    let figure = |measure: &Measure| {
        let mean = measure.summary.as_ref()?.mean;
        Some((measure.what.clone(), format_value(mean, measure.unit)))
    };
    Benchmark {
        file,
        problem: None,
        kind: result.kind.name().to_owned(),
        figures: result.measures.iter().filter_map(figure).take(SHOWN_FIGURES).collect(),
        label: result.label,
        subject: result.subject,
        started: result.started,
        is_complete: result.complete,
        findings: result.findings,
    }
}

fn read(folder: &Path, file: &str) -> Result<BenchResult> {
    let refused = |why: String| Error::refused_error(format!("'{file}': {why}"));
    if !is_name(file) {
        return Err(refused("it is not the name of a result in the folder".to_owned()));
    }
    let path = folder.join(file);
    let metadata = fs::metadata(&path).map_err(|why| Error::file_error(&path, &why))?;
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(refused("it is no file of a result".to_owned()));
    }
    let text = fs::read_to_string(&path).map_err(|why| Error::file_error(&path, &why))?;
    BenchResult::parse(&text).map_err(|why| refused(why.to_string()))
}

/// The page of some results.
fn report(folder: &Path, files: &[String]) -> Result<String> {
    if files.is_empty() || files.len() > MAX_COMPARED {
        let why = format!("choose 1 to {MAX_COMPARED} results");
        return Err(Error::usage_error(why));
    }
    let results: Result<Vec<_>> = files.iter().map(|file| read(folder, file)).collect();
    lab::html_report::render_page(&results?).map_err(|why| Error::refused_error(why.to_string()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{is_name, list, report};

    /// A folder with two results, and a file that is none.
    fn folder(name: &str) -> PathBuf {
        let folder = format!("poolhouse-benchmarks-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for (file, day, mean) in [("old.json", 1, 100e6), ("new.json", 2, 150e6)] {
            let result = serde_json::json!({
                "poolhouse_bench": 1, "kind": "path", "label": file, "subject": "/tank/<b>",
                "started": format!("2026-11-0{day}T10:00:00Z"), "seconds": 2.0, "complete": true,
                "machine": { "name": "nas", "kernel": "", "system": "", "processor": "", "processors": 2,
                             "governor": null, "memory_bytes": 1 },
                "drives": [], "versions": {}, "settings": {}, "facts": {}, "notes": [],
                "findings": ["The processor is the limit."],
                "measures": [{ "id": "read", "what": "read 1M", "group": "sequential", "unit": "bytes/s",
                               "runs": [mean, mean], "summary": null, "shortest_run": 1.0 }],
            });
            std::fs::write(folder.join(file), result.to_string()).unwrap();
        }
        std::fs::write(folder.join("other.json"), "{}").unwrap();
        std::fs::write(folder.join("notes.txt"), "x").unwrap();
        folder
    }

    #[test]
    fn results_are_listed_newest_first() {
        let folder = folder("list");
        let found = list(&folder).unwrap().results;
        let files: Vec<_> = found.iter().map(|it| it.file.as_str()).collect();
        assert_eq!(files, ["new.json", "old.json", "other.json"]);
        let figure = ("read 1M".to_owned(), "150 MB/s".to_owned());
        assert_eq!((&found[0].kind[..], &found[0].figures), ("path", &vec![figure]));
        assert!(found[2].problem.as_deref().unwrap().contains("not a result"));
        assert!(list(&folder.join("none")).unwrap().results.is_empty());
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn reports_stay_within_their_folder() {
        let folder = folder("report");
        let page = report(&folder, &["old.json".to_owned(), "new.json".to_owned()]).unwrap();
        assert!(page.contains("+50 %") && page.contains("/tank/&lt;b&gt;"), "{page}");
        for file in ["../report.json", "/etc/x.json", ".hidden.json", "notes.txt", "none.json", ""]
        {
            assert!(report(&folder, &[file.to_owned()]).is_err(), "{file}");
        }
        assert!(!is_name("a\0.json"));
        assert!(report(&folder, &[]).is_err());
        std::fs::remove_dir_all(folder).unwrap();
    }
}
