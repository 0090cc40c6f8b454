//! `poolhouse bench path`: measures a folder.

use std::path::PathBuf;
use std::time::Duration;

use lab::path::Options;
use lab::progress::Progress;
use lab::workload::{self, FileWorkload};
use lab::{System, path};

use super::measurement_progress::MeasurementProgress;
use super::result::{self, ResultArgs};
use crate::outcome::{CommandResult, Failure};
use crate::print;

/// `poolhouse bench path`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "It works in a new folder in DIR, which is removed at the end, also after Ctrl-C; the results
until then are kept. Data cannot be compressed, reads bypass caches as far as the file
system allows, every workload is run three times or more, and runs take ten seconds.

Examples:
  poolhouse bench path /tank/test -o tank.json
  poolhouse bench path /mnt/nas --quick
  poolhouse bench path /tank/test --only write-1m-q1,read-1m-q1 --size 64G --runs 5
  poolhouse bench path /tank/test --dry-run"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch of the command")]
pub(crate) struct Args {
    /// The folder
    dir: PathBuf,
    /// A look of less than a minute
    #[arg(long, conflicts_with_all = ["seconds", "size"])]
    quick: bool,
    /// How often each workload is run
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// How long a run takes
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Size of the large file; the default is the bytes written in a run, and at least 4G
    #[arg(long)]
    size: Option<String>,
    /// These workloads only; --dry-run names all
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    only: Vec<String>,
    /// How many small files at most
    #[arg(long, value_name = "N", default_value_t = 16_384)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    files: u32,
    /// Write zeros, which compression makes nothing of, instead of data that cannot be compressed
    #[arg(long)]
    zeros: bool,
    /// Go through the page cache, as most programs do
    #[arg(long)]
    buffered: bool,
    /// Empty the machine's caches before small files are looked at and read; only root may
    #[arg(long)]
    drop_caches: bool,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    result: ResultArgs,
}

/// Seconds of a run of a quick look: all of its runs together take less than a minute.
const QUICK_RUN_SECONDS: f64 = 0.6;
const QUICK_MIN_SIZE: u64 = 64 << 20;
const QUICK_MAX_FILES: u32 = 2000;
const MIN_SIZE: u64 = 4 << 30;

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        let wish = self.options()?;
        let system = System::default();
        if self.dry_run {
            return result::print_dry_run(&wish.describe_plan(&self.dir, &system)?);
        }
        for old in lab::leftover_dirs(&self.dir) {
            let old = old.display();
            print::warning(&format!("'{old}' is left over from a measurement that was killed"));
        }
        self.result.warn_if_unsaved();
        let watch = MeasurementProgress::new(self.result.quiet);
        let course = Progress::new(&watch);
        let heading = self.result.heading(&self.dir.display().to_string());
        let measured = watch.run(|| path::measure(&self.dir, &wish, heading, &course, &system));
        self.result.save_and_print(&measured?)
    }

    fn options(&self) -> Result<Options, Failure> {
        let size = self.size.as_deref().map(parse_size).transpose()?;
        let seconds = if self.quick { QUICK_RUN_SECONDS } else { self.seconds };
        let mut wish = Options {
            runs: self.runs.into(),
            run_time: parse_duration(seconds)?,
            size,
            min_size: if self.quick { QUICK_MIN_SIZE } else { MIN_SIZE },
            use_zeros: self.zeros,
            buffered: self.buffered,
            drop_caches: self.drop_caches,
            streams: workload::default_streams(),
            files: FileWorkload::ALL.to_vec(),
            max_files: usize::try_from(if self.quick {
                self.files.min(QUICK_MAX_FILES)
            } else {
                self.files
            })
            .unwrap_or(usize::MAX),
        };
        if !self.only.is_empty() {
            wish.retain_workloads(&self.only)?;
        }
        Ok(wish)
    }
}

/// A size from the command line.
pub(crate) fn parse_size(text: &str) -> Result<u64, Failure> {
    units::parse_bytes(text).filter(|bytes| *bytes > 0).ok_or_else(|| {
        Failure::usage(format!("'{text}' is not a size: write 4G, 500MB or a number of bytes"))
    })
}

/// Seconds from the command line: a thousandth to a day.
pub(crate) fn parse_duration(seconds: f64) -> Result<Duration, Failure> {
    if (0.001..=86_400.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err(Failure::usage(format!("a run takes 0.001 to 86400 seconds, not {seconds}")))
    }
}
