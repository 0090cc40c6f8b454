//! `poolhouse bench array`: makes pools of drives, measures and destroys them.

use std::io::Write;
use std::path::PathBuf;

use lab::array::{DraidLayout, DrivePart, Layout, Options, VdevLayout};
use lab::progress::Progress;
use lab::workload::{self, FileWorkload};
use lab::{BenchResult, Heading, System, path};
use planner::{GroupKind, PoolLayout};
use units::Ashift;

use super::measurement_progress::MeasurementProgress;
use super::path::{parse_duration, parse_size};
use super::result;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// `poolhouse bench array`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Every layout is created, measured and destroyed in turn, by Poolhouse's own engine in this program,
three times or more. Drives in use are refused, and so are drives with data, unless
--overwrite names them; at the end all are empty. Data cannot be compressed, and reads are cold: the
pool is closed and opened again before each. Results are files in a folder, one for each layout.

Examples:
  poolhouse bench array /dev/sd[b-f] -o results
  poolhouse bench array /dev/sd[b-f] --layout raidz,raidz2 --disks 3,4,5 --ashift 9,12 -o results
  poolhouse bench array d1 d2 d3 d4 --layout 'mirror 2 mirror 2' --layout 'raidz2 4' --quick
  poolhouse bench array /dev/sdb /dev/sdc --layout mirror --overwrite sdb     the data on sdb is lost
  poolhouse bench compare results/*.json"
)]
pub(crate) struct Args {
    /// The drives, or files in their place; each layout takes as many as it needs, from the first on
    #[arg(required = true, value_name = "DEV")]
    drives: Vec<PathBuf>,
    /// The layouts, as `poolhouse plan` takes them; of those without counts there is one for each
    /// number of disks. May be repeated
    #[arg(long, value_name = "WORDS", value_delimiter = ',')]
    layout: Vec<String>,
    /// Numbers of drives; all that are given, if not given
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',')]
    disks: Vec<usize>,
    /// log2 of the sector, one or several
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_values_t = [12])]
    #[arg(value_parser = clap::value_parser!(u64).range(9..=16))]
    ashift: Vec<u64>,
    /// The used part of each drive: `whole`, or from an offset on: 1M
    #[arg(long, value_name = "PLACES", value_delimiter = ',', default_value = "whole")]
    parts: Vec<String>,
    /// A drive that may hold something, which is lost; may be repeated
    #[arg(long, value_name = "NAME")]
    overwrite: Vec<String>,
    /// A property of the file system: recordsize=1M; may be repeated
    #[arg(long, value_name = "NAME=VALUE")]
    property: Vec<String>,
    #[command(flatten)]
    workload: WorkloadArgs,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep the results in this folder, one file for each layout
    #[arg(short, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The heading of the columns, before the layout
    #[arg(long, value_name = "WORDS")]
    label: Option<String>,
    /// Print the results for programs
    #[arg(long)]
    json: bool,
    /// No bar
    #[arg(short, long)]
    quiet: bool,
}

/// The measurements of each pool.
#[derive(clap::Args, Debug)]
struct WorkloadArgs {
    /// A look of less than a minute, for a few layouts
    #[arg(long, conflicts_with_all = ["seconds", "size"])]
    quick: bool,
    /// How often each layout is measured
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// How long a run takes
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// The large file's size; more than this machine's memory holds, if not given
    #[arg(long)]
    size: Option<String>,
    /// These workloads only; --dry-run names all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// How many small files at most
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
    /// Write zeros instead of data that cannot be compressed
    #[arg(long)]
    zeros: bool,
}

/// A quick look: seconds of all timed runs together, and the least of the large file.
const QUICK_TOTAL_SECONDS: f64 = 25.0;
const QUICK_MIN_SIZE: u64 = 32 << 20;
const QUICK_MAX_FILES: u32 = 1000;
const MIN_SIZE: u64 = 4 << 30;
/// The default layouts; those with more drives than given are left out.
const DEFAULT_LAYOUTS: [&str; 4] = ["stripe", "mirror", "raidz", "raidz2"];

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        let system = System::default();
        let opened = self.options()?.prepare(&system)?;
        if self.dry_run {
            return result::print_dry_run(&opened.describe_plan());
        }
        if self.output.is_none() && !self.json && !self.quiet {
            print::warning(&"the results are shown, but not kept: -o DIR keeps them");
        }
        if let Some(dir) = &self.output {
            std::fs::create_dir_all(dir).map_err(|error| Failure::destination(dir, &error))?;
        }
        let watch = MeasurementProgress::new(self.quiet);
        let course = Progress::new(&watch);
        let label = self.label.clone().unwrap_or_default();
        let heading = Heading { label, started: crate::time::now_rfc3339() };
        self.save_and_print(&watch.run(|| opened.measure(&heading, &course, &system))?)
    }

    /// Keeps and prints the results.
    fn save_and_print(&self, records: &[BenchResult]) -> CommandResult {
        for record in self.output.iter().flat_map(|_| records) {
            let dir = self.output.clone().unwrap_or_default();
            let text = serde_json::to_string_pretty(record)? + "\n";
            result::write_text(&dir.join(result_file_name(&record.label)), &text)?;
        }
        let mut out = std::io::stdout().lock();
        match records {
            _ if self.json => {
                drop(out);
                print::json(&records)?;
            }
            [one] => out.write_all(lab::formatting::format_result(one).as_bytes())?,
            several => {
                out.write_all(lab::compare::compare(several)?.to_text().as_bytes())?;
                for record in several {
                    for finding in &record.findings {
                        writeln!(out, "{}: {finding}", record.label)?;
                    }
                }
            }
        }
        let complete = records.iter().all(|record| record.complete);
        Ok(if complete { Outcome::Complete } else { Outcome::Interrupted })
    }

    fn options(&self) -> Result<Options, Failure> {
        let layouts = self.parse_layouts()?;
        Ok(Options {
            drives: self.drives.clone(),
            overwrite: self.overwrite.clone(),
            workload: self.workload.options(layouts.len())?,
            layouts,
            properties: self
                .property
                .iter()
                .map(|text| parse_property(text))
                .collect::<Result<_, _>>()?,
        })
    }

    /// Layouts by sectors and parts, each once.
    fn parse_layouts(&self) -> Result<Vec<Layout>, Failure> {
        let counts =
            if self.disks.is_empty() { vec![self.drives.len()] } else { self.disks.clone() };
        let mut found: Vec<Layout> = Vec::new();
        let asked: Vec<&str> = self.layout.iter().map(String::as_str).collect();
        for text in if asked.is_empty() { &DEFAULT_LAYOUTS[..] } else { &asked } {
            for &count in &counts {
                for &ashift in &self.ashift {
                    for part in &self.parts {
                        match parse_layout(text, count, ashift, part) {
                            Ok(layout) if found.contains(&layout) => {}
                            Ok(layout) => found.push(layout),
                            Err(_) if asked.is_empty() => {}
                            Err(why) => return Err(why),
                        }
                    }
                }
            }
        }
        Ok(found)
    }
}

/// The layout of these words for this many drives, or for the number in the words themselves.
fn parse_layout(text: &str, count: usize, ashift: u64, part: &str) -> Result<Layout, Failure> {
    let words = match PoolLayout::parse(text, count) {
        Err(planner::Error::DriveCountMismatch { required: wanted, .. }) => {
            PoolLayout::parse(text, wanted)?
        }
        other => other?,
    };
    let sector = Ashift::new(ashift)
        .ok_or_else(|| Failure::usage(format!("ashift is 9 to 16, not {ashift}")))?;
    let mut vdevs = Vec::new();
    for group in &words.0 {
        group.layout(sector)?;
        match group.kind {
            GroupKind::Stripe => vdevs.extend((0..group.width).map(|_| (VdevLayout::Single, 1))),
            GroupKind::Mirror => vdevs.push((VdevLayout::Mirror, group.width)),
            GroupKind::Raidz(parity) => vdevs.push((VdevLayout::Raidz(parity), group.width)),
            GroupKind::Draid { parity, data, spares } => {
                vdevs.push((VdevLayout::Draid(DraidLayout { parity, data, spares }), group.width));
            }
            GroupKind::Spare => {
                return Err(Failure::usage(format!("{group} cannot be measured")));
            }
        }
    }
    let part =
        if part == "whole" { DrivePart::Whole } else { DrivePart::PartitionAt(parse_size(part)?) };
    Ok(Layout { name: words.to_string(), vdevs, ashift, drive_part: part })
}

fn parse_property(text: &str) -> Result<(String, String), Failure> {
    let (name, value) = text.split_once('=').ok_or_else(|| {
        Failure::usage(format!("'{text}' is not a property: write recordsize=1M"))
    })?;
    Ok((name.to_owned(), value.to_owned()))
}

/// A file name made of a column's heading.
fn result_file_name(label: &str) -> String {
    let words = label.split(|letter: char| !letter.is_ascii_alphanumeric());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    format!("{}.json", words.join("-"))
}

impl WorkloadArgs {
    fn options(&self, layouts: usize) -> Result<path::Options, Failure> {
        let seconds = if self.quick { self.quick_run_seconds(layouts) } else { self.seconds };
        let files = if self.quick { self.files.min(QUICK_MAX_FILES) } else { self.files };
        let mut wish = path::Options {
            runs: self.runs.into(),
            run_time: parse_duration(seconds)?,
            size: self.size.as_deref().map(parse_size).transpose()?,
            min_size: if self.quick { QUICK_MIN_SIZE } else { MIN_SIZE },
            use_zeros: self.zeros,
            buffered: false,
            drop_caches: false,
            streams: workload::default_streams(),
            files: FileWorkload::ALL.to_vec(),
            max_files: usize::try_from(files).unwrap_or(usize::MAX),
        };
        if !self.only.is_empty() {
            wish.retain_workloads(&self.only)?;
        }
        Ok(wish)
    }

    /// Seconds of a run with which all runs of all layouts are over in less than a minute.
    fn quick_run_seconds(&self, layouts: usize) -> f64 {
        let workloads = workload::default_streams().len() + FileWorkload::ALL.len();
        let runs = workloads * layouts.max(1) * usize::from(self.runs);
        (QUICK_TOTAL_SECONDS / f64::from(u32::try_from(runs).unwrap_or(u32::MAX))).clamp(0.01, 0.3)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use lab::array::{DrivePart, VdevLayout};

    use super::{Args, result_file_name};

    #[derive(Parser, Debug)]
    struct TestCli {
        #[command(flatten)]
        args: Args,
    }

    fn parse(words: &str) -> Result<Vec<lab::array::Layout>, String> {
        let line = TestCli::try_parse_from(["array"].into_iter().chain(words.split('+')));
        let args = line.map_err(|error| error.to_string())?.args;
        args.parse_layouts().map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn layouts_are_by_disks_sectors_and_parts() {
        let all = parse("a+b+c+d+--layout+raidz,raidz2+--disks+3,4+--ashift+9,12").unwrap();
        assert_eq!(all.len(), 8);
        assert_eq!(all[0].to_string(), "raidz1 3, ashift 9");
        assert_eq!(result_file_name(&all[7].to_string()), "raidz2-4-ashift-12.json");
        let all = parse("a+b+c+d+--layout+mirror 2 mirror 2+--parts+whole,1M").unwrap();
        assert_eq!(all[0].vdevs, [(VdevLayout::Mirror, 2), (VdevLayout::Mirror, 2)]);
        assert_eq!((all[1].drive_part, all[1].drive_count()), (DrivePart::PartitionAt(1 << 20), 4));
        // an option with counts of its own needs none, and is listed once
        assert_eq!(parse("a+b+c+d+--layout+mirror 2+--disks+3,4").unwrap().len(), 1);
        assert_eq!(parse("a+b").unwrap().len(), 3, "two drives are too few for raidz2");
    }

    #[test]
    fn wrong_lines_are_refused() {
        for words in ["a+b+--layout+raidz3", "a+--ashift+8", "a+--layout+stripe 1+--parts+x"] {
            assert!(parse(words).is_err(), "{words}");
        }
    }
}
