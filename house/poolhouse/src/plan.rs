//! `poolhouse plan`: predicts a layout of drives, to the byte, before they are bought.

use std::io::Write;
use std::path::PathBuf;

use planner::{
    DriveClass, DriveSpec, Goal, Plan, PlanRequest, PoolLayout, Prices, RecordMix, SpaceRules,
};
use units::Ashift;

use crate::outcome::{CommandResult, Failure, Outcome};
use crate::{pictures, print};

/// `poolhouse plan`.
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  poolhouse plan --drives 24x4TB                   sensible layouts
  poolhouse plan --drives 8x12TB --for balance     the best one first
  poolhouse plan --drives 24x4TB --layout 'raidz2 18 raidz2 6'
  poolhouse plan --drives 6x4000787030016,4x8TB --layout 'raidz2 6 mirror 2 mirror 2' --json
  poolhouse plan --drives 6x8TB --price 8TB=150 --recordsize 16K=20%,1M=80% --html plan.html")]
pub(crate) struct PlanArgs {
    /// The drives: counts and sizes (24x4TB, 2x3TiB,3x2TB); TB is decimal, TiB and T are binary
    #[arg(long, value_name = "LIST")]
    drives: String,
    /// The layout in zpool's words with counts: stripe 6, mirror 2 mirror 2, raidz2 18 raidz2 6,
    /// draid2:8d:24c:1s, spare 1; drives are dealt to the groups in order. May be repeated.
    /// Without it, all layouts that make sense are shown
    #[arg(long, value_name = "WORDS")]
    layout: Vec<String>,
    /// Goal by which the layouts are sorted
    #[arg(long = "for", value_name = "GOAL", conflicts_with = "layout")]
    #[arg(value_parser = ["capacity", "safety", "speed", "balance"])]
    goal: Option<String>,
    /// log2 of the sector: 9 for 512 bytes, 12 for 4 KiB
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u64).range(9..=16))]
    ashift: u64,
    /// The recordsize or volblocksize, or a mix of them: 128K, or 16K=30%,1M=70%
    #[arg(long, value_name = "SIZES", default_value = "128K")]
    recordsize: String,
    /// The drives are whole disks, which OpenZFS partitions; otherwise files or partitions
    #[arg(long)]
    whole_disks: bool,
    /// OpenZFS release of the slop space rules: 2014 (until 0.6.3), 2015 (0.6.4), 2019 (0.8), 2021
    /// (2.1)
    #[arg(long, value_name = "YEAR", default_value = "2021")]
    #[arg(value_parser = ["2014", "2015", "2019", "2021"])]
    slop: String,
    #[command(flatten)]
    drive_args: DriveArgs,
    #[command(flatten)]
    usage: UsageArgs,
    /// Also simulate 5 years of each layout this many times
    #[arg(long, value_name = "TIMES", default_value_t = 0, default_missing_value = "100000")]
    #[arg(num_args = 0..=1, value_parser = clap::value_parser!(u64).range(..=100_000_000))]
    simulate: u64,
    /// The seed of the played years
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Write a page with pictures
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the pictures as SVG files into a folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Write the pictures as PNG files into a folder
    #[arg(long, value_name = "DIR")]
    png: Option<PathBuf>,
    /// Print it for programs
    #[arg(long)]
    json: bool,
}

/// The properties of a drive.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Properties of a drive")]
struct DriveArgs {
    /// The class of drive, which sets the figures below where they are not given
    #[arg(long, default_value = "nas")]
    #[arg(value_parser = ["desktop", "nas", "enterprise", "ssd", "nvme"])]
    class: String,
    /// Sequential speed, a second: 180MB
    #[arg(long, value_name = "BYTES")]
    drive_speed: Option<String>,
    /// Random operations a second
    #[arg(long, value_name = "N")]
    drive_iops: Option<f64>,
    /// Percent of drives that fail in a year
    #[arg(long, value_name = "PERCENT")]
    afr: Option<f64>,
    /// Chance that a bit cannot be read: 1e-14
    #[arg(long, value_name = "CHANCE")]
    ure: Option<f64>,
    /// Mean power of a drive
    #[arg(long, value_name = "WATTS")]
    watts: Option<f64>,
}

/// How it is used, and paid for.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Use and money")]
struct UsageArgs {
    /// Percent of the pool that is in use, for resilver times and safety
    #[arg(long, value_name = "PERCENT", default_value_t = 80.0)]
    fill: f64,
    /// Hours from a failure until a replacement begins to be filled
    #[arg(long, value_name = "HOURS", default_value_t = 24.0)]
    wait: f64,
    /// Price of a drive: 90, or by size 4TB=90,8TB=150
    #[arg(long, value_name = "PRICES")]
    price: Option<String>,
    /// Price of a kWh
    #[arg(long, value_name = "PRICE", default_value_t = 0.30)]
    kwh: f64,
}

impl PlanArgs {
    /// Runs the command.
    pub(crate) fn run(&self) -> CommandResult {
        let question = self.build_question()?;
        let answer = if self.layout.is_empty() {
            let goal = self.goal.as_deref().and_then(Goal::from_name);
            Plan::ranked(&question, goal)
        } else {
            let read = |text: &String| PoolLayout::parse(text, question.drives.len());
            let words = self.layout.iter().map(read).collect::<Result<Vec<_>, _>>();
            words.and_then(|words| Plan::for_layouts(&question, &words))
        }?;
        if let Some(path) = &self.html {
            write_file(path, &planner::picture::render_page(&answer, &question))?;
        }
        let pictures = || planner::picture::draw_all(&answer, &question);
        if let Some(dir) = &self.svg {
            pictures::write_svg(dir, pictures())?;
        }
        if let Some(dir) = &self.png {
            pictures::write_png(dir, pictures())?;
        }
        if self.json {
            print::json(&answer)?;
        } else {
            let text = planner::report::format_plan(&answer);
            std::io::stdout().lock().write_all(text.as_bytes())?;
        }
        Ok(Outcome::Complete)
    }

    fn build_question(&self) -> Result<PlanRequest, Failure> {
        let drives = planner::parse_drives(&self.drives)?;
        let ashift = Ashift::new(self.ashift)
            .ok_or_else(|| Failure::usage(format!("ashift is 9 to 16, not {}", self.ashift)))?;
        Ok(PlanRequest {
            records: RecordMix::parse(&self.recordsize)?,
            whole_disks: self.whole_disks,
            rules: SpaceRules::from_year(&self.slop).unwrap_or_default(),
            drive: self.drive_args.to_drive()?,
            fill: self.usage.fill / 100.0,
            replacement_delay_hours: self.usage.wait,
            prices: self.usage.price.as_deref().map(Prices::parse).transpose()?,
            price_per_kwh: self.usage.kwh,
            simulation_runs: self.simulate,
            seed: self.seed,
            ..PlanRequest::new(drives, ashift)
        })
    }
}

impl DriveArgs {
    fn to_drive(&self) -> Result<DriveSpec, Failure> {
        let usual = DriveSpec::from(DriveClass::from_name(&self.class).unwrap_or_default());
        let speed = match &self.drive_speed {
            None => usual.bytes_per_second,
            Some(text) => planner::parse_rate(text)
                .ok_or_else(|| Failure::usage(format!("'{text}' is not a speed: write 180MB")))?,
        };
        Ok(DriveSpec {
            bytes_per_second: speed,
            operations_per_second: self.drive_iops.unwrap_or(usual.operations_per_second),
            annual_failure_rate: self.afr.map_or(usual.annual_failure_rate, |afr| afr / 100.0),
            unreadable_per_bit: self.ure.unwrap_or(usual.unreadable_per_bit),
            watts: self.watts.unwrap_or(usual.watts),
        })
    }
}

fn write_file(path: &std::path::Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::destination(path, &error))
}

impl From<planner::Error> for Failure {
    fn from(error: planner::Error) -> Self {
        Self::usage(error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::PlanArgs;

    #[derive(Parser, Debug)]
    struct TestCli {
        #[command(flatten)]
        plan: PlanArgs,
    }

    fn parse_question(words: &[&str]) -> Result<planner::PlanRequest, String> {
        let line =
            TestCli::try_parse_from(["plan"].iter().chain(words)).map_err(|e| e.to_string())?;
        line.plan.build_question().map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn arguments_describe_the_plan() {
        let words =
            "--drives 2x4TB,1x3TB --class enterprise --afr 2 --drive-speed 200MB/s --fill 50";
        let question = parse_question(&words.split(' ').collect::<Vec<_>>()).unwrap();
        assert_eq!(question.drives, [4_000_000_000_000, 4_000_000_000_000, 3_000_000_000_000]);
        let figures = [
            (question.drive.annual_failure_rate, 0.02),
            (question.drive.bytes_per_second, 200e6),
            (question.drive.operations_per_second, 120.0),
            (question.fill, 0.5),
        ];
        for (told, expected) in figures {
            assert!((told - expected).abs() < 1e-9, "{told} is not {expected}");
        }
    }

    #[test]
    fn wrong_lines_are_refused() {
        for words in [
            &["--drives", "four"][..],
            &["--drives", "4x4TB", "--ashift", "8"],
            &["--drives", "4x4TB", "--slop", "2013"],
            &["--drives", "4x4TB", "--recordsize", "100K"],
            &["--drives", "4x4TB", "--price", "much"],
            &["--drives", "4x4TB", "--drive-speed", "fast"],
            &["--drives", "4x4TB", "--for", "money"],
        ] {
            assert!(parse_question(words).is_err(), "{words:?}");
        }
    }
}
