//! `poolhouse bench plan`: compares the expected with the measured figures.

use std::io::Write;
use std::path::PathBuf;

use lab::BenchResult;
use lab::bench_result::BenchKind;
use lab::bottleneck::{self, ExpectedRates};
use planner::{DriveClass, DriveSpec, LayoutPlan, PlanRequest, PoolLayout, RecordMix};
use serde_json::Value;
use units::Ashift;

use super::result;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::print;

/// `poolhouse bench plan`.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "The drives' figures come from a result of `bench disk` if one is given, or else from their
class; a result of `bench net` gives the network's limit. A result of `bench array` names its
own layout and drives.

Examples:
  poolhouse bench plan results/raidz2-6-ashift-12.json drives.json
  poolhouse bench plan tank.json --drives 6x4TB --layout 'raidz2 6'
  poolhouse bench plan tank.json drives.json --drives 6x4TB --layout 'raidz2 6'
  poolhouse bench plan nas.json drives.json network.json --drives 4x8TB --layout 'mirror 2 mirror 2'"
)]
pub(crate) struct Args {
    /// A result of `bench path` or `bench array`, with those of `bench disk` and `bench net`, if
    /// there are any
    #[arg(required = true, value_name = "RESULT")]
    results: Vec<PathBuf>,
    /// The drives, as `poolhouse plan` takes them
    #[arg(long, value_name = "LIST")]
    drives: Option<String>,
    /// The layout, as `poolhouse plan` takes it
    #[arg(long, value_name = "WORDS")]
    layout: Option<String>,
    /// log2 of the sector; 12 if nothing else is known
    #[arg(long, value_parser = clap::value_parser!(u64).range(9..=16))]
    ashift: Option<u64>,
    /// The recordsize
    #[arg(long, value_name = "SIZE", default_value = "128K")]
    recordsize: String,
    /// The class of drive, where no result of drives is given
    #[arg(long, default_value = "nas")]
    #[arg(value_parser = ["desktop", "nas", "enterprise", "ssd", "nvme"])]
    class: String,
    /// Print it for programs
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(&self) -> CommandResult {
        let records = result::read_records(&self.results)?;
        let of = |kind| records.iter().find(|record| record.kind == kind);
        let measured = of(BenchKind::Path).or_else(|| of(BenchKind::Array)).ok_or_else(|| {
            Failure::usage("a result of `bench path` or `bench array` is expected")
        })?;
        let disk = of(BenchKind::Disk);
        let expected = self.expected_performance(measured, disk)?;
        let judgement =
            bottleneck::find_bottlenecks(&expected, measured, disk, of(BenchKind::Net))?;
        if self.json {
            print::json(&judgement)?;
        } else {
            std::io::stdout().lock().write_all(judgement.to_text().as_bytes())?;
        }
        Ok(Outcome::Complete)
    }

    fn expected_performance(
        &self,
        measured: &BenchResult,
        disk: Option<&BenchResult>,
    ) -> Result<ExpectedRates, Failure> {
        let fact = |name: &str| measured.facts.get(name);
        let wanted = |what: &str| Failure::usage(format!("--{what} must name the measurement"));
        let drives = match (&self.drives, fact("drive_bytes").and_then(Value::as_array)) {
            (Some(text), _) => planner::parse_drives(text)?,
            (None, Some(sizes)) => sizes.iter().filter_map(Value::as_u64).collect(),
            (None, None) => return Err(wanted("drives")),
        };
        let layout = self.layout.as_deref().or_else(|| fact("layout")?.as_str());
        let words = PoolLayout::parse(layout.ok_or_else(|| wanted("layout"))?, drives.len())?;
        let ashift = self.ashift.or_else(|| fact("ashift")?.as_u64()).unwrap_or(12);
        let ashift = Ashift::new(ashift)
            .ok_or_else(|| Failure::usage(format!("ashift is 9 to 16, not {ashift}")))?;
        let block = super::path::parse_size(&self.recordsize)?;
        let mut drive = DriveSpec::from(DriveClass::from_name(&self.class).unwrap_or_default());
        if let Some(figures) = disk.map(bottleneck::drive_rates).transpose()? {
            drive.bytes_per_second = figures.bytes_per_second;
            drive.operations_per_second = figures.operations_per_second;
        }
        let records = RecordMix::parse(&self.recordsize)?;
        let question = PlanRequest { drive, records, ..PlanRequest::new(drives, ashift) };
        let plan = LayoutPlan::new(&question, &words)?;
        let record = plan.records.iter().find(|record| record.record_bytes == block);
        Ok(ExpectedRates {
            layout: plan.layout.clone(),
            write: plan.speed.sequential_write,
            read: plan.speed.sequential_read,
            random_reads: plan.speed.random_reads,
            random_writes: plan.speed.random_writes,
            block_size: block,
            redundant_fraction: record.map_or(0.0, |record| record.parity),
        })
    }
}
