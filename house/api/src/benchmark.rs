//! Results of `poolhouse bench` in a folder of the daemon.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Call, Method};

/// Lists the results of `poolhouse bench` in the daemon's folder, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ListBenchmarks {}

impl Call for ListBenchmarks {
    type Response = BenchmarkList;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/benchmarks";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "list the results of benchmarks".to_owned()
    }
}

/// The results in the daemon's folder.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BenchmarkList {
    /// The folder.
    pub folder: PathBuf,
    /// Its results.
    pub results: Vec<Benchmark>,
}

/// A result of `poolhouse bench`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Benchmark {
    /// The name of its file.
    pub file: String,
    /// Why the file cannot be read as a result; none: it can be.
    pub problem: Option<String>,
    /// The kind of subject: `path`, `disk`, `net`, `copy`, `array`.
    pub kind: String,
    /// The user's label.
    pub label: String,
    /// The subject: the folder, the drives, the host.
    pub subject: String,
    /// When it began, in RFC 3339 form.
    pub started: String,
    /// Whether all was measured.
    pub is_complete: bool,
    /// The first of its figures, each as a name and a value with its unit.
    pub figures: Vec<(String, String)>,
    /// Its findings, in sentences.
    pub findings: Vec<String>,
}

/// Makes one page in HTML of some results, with their figures side by side where they are of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GetBenchmarkReport {
    /// The names of the files.
    #[serde(default)]
    pub files: Vec<String>,
}

impl Call for GetBenchmarkReport {
    type Response = String;
    const METHOD: Method = Method::Get;
    const PATH: &'static str = "/benchmarks/report";
    const CHANGES: bool = false;
    const OWNER_ONLY: bool = true;

    fn action(&self) -> String {
        "show the results of benchmarks".to_owned()
    }
}
