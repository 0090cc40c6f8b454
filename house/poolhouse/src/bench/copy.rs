//! `poolhouse bench copy`: compares ways to move the same tree.

use std::path::PathBuf;
use std::time::Duration;

use lab::System;
use lab::copy::{CopyMethod, Options};
use lab::progress::Progress;

use super::measurement_progress::MeasurementProgress;
use super::path::parse_duration;
use super::result::{self, ResultArgs};
use crate::outcome::{CommandResult, Failure};
use crate::print;

/// `poolhouse bench copy`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Ways: poolhouse (our own copier), cp, rsync, rsync-ssh. Each mounted share can be a destination
of its own. Every copy is made in a new folder in DEST, which is removed at the end.

Examples:
  poolhouse bench copy ~/photos /tank/test -o copy.json
  poolhouse bench copy ~/photos /mnt/nfs /mnt/smb nas:/tank/test
  poolhouse bench copy ~/photos /mnt/nfs --ways cp,rsync --runs 5"
)]
pub(crate) struct Args {
    /// The folder that is copied
    #[arg(value_name = "SRC")]
    source: PathBuf,
    /// Where to: folders, mounted shares, or HOST:PATH for rsync over ssh
    #[arg(required = true, value_name = "DEST")]
    destinations: Vec<String>,
    /// These ways only
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    ways: Vec<String>,
    /// A look of less than a minute: copies are ended before they are whole
    #[arg(long, conflicts_with = "seconds")]
    quick: bool,
    /// How often each way is run
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    runs: u16,
    /// End a copy after so long, though it is not whole
    #[arg(long)]
    seconds: Option<f64>,
    /// Print what would be done, and do nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    result: ResultArgs,
}

/// All copies of a quick look take so long.
const QUICK_SECONDS: u64 = 40;

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        let system = System::default();
        let mut prepared = self.options()?.prepare(&system)?;
        if self.quick {
            let copies = u32::try_from(prepared.copy_count().max(1)).unwrap_or(u32::MAX);
            prepared.set_time_limit(Duration::from_secs(QUICK_SECONDS) / copies);
        }
        if self.dry_run {
            return result::print_dry_run(&prepared.describe_plan());
        }
        for old in self.destinations.iter().flat_map(|dir| lab::leftover_dirs(dir.as_ref())) {
            let old = old.display();
            print::warning(&format!("'{old}' is left over from a measurement that was killed"));
        }
        self.result.warn_if_unsaved();
        let watch = MeasurementProgress::new(self.result.quiet);
        let course = Progress::new(&watch);
        let heading = self.result.heading(&self.source.display().to_string());
        let measured = watch.run(|| prepared.measure(heading, &course, &system));
        self.result.save_and_print(&measured?)
    }

    fn options(&self) -> Result<Options, Failure> {
        let way = |name: &String| {
            CopyMethod::from_id(name).ok_or_else(|| {
                let known = CopyMethod::ALL.map(CopyMethod::id).join(", ");
                Failure::usage(format!("way '{name}' does not exist; choose from: {known}"))
            })
        };
        let ways = match self.ways.as_slice() {
            [] => CopyMethod::ALL.to_vec(),
            names => names.iter().map(way).collect::<Result<_, _>>()?,
        };
        Ok(Options {
            source: self.source.clone(),
            destinations: self.destinations.clone(),
            methods: ways,
            runs: self.runs.into(),
            time_limit: self.seconds.map(parse_duration).transpose()?,
        })
    }
}
