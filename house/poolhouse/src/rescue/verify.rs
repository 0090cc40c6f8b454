//! `poolhouse rescue verify`: reads every block with all its copies and parity, and reports
//! damage.

use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use engine::check::{BlockTotals, DamagedRange, Findings, ObjectDamage, PoolVerifier, SpaceRange};
use job::Job;
use serde::Serialize;
use units::human_bytes;

use crate::outcome::{CommandResult, Outcome};
use crate::parallel::thread_count;
use crate::pool_args::PoolArgs;
use crate::progress::Progress;
use crate::table::{Align, Table, escape_control};
use crate::{interrupt, print};

/// Read and check every block, copy and parity
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Every block that a dataset, a snapshot or the pool itself references is read:
each copy on every device, and parity. Nothing is repaired. The allocated space of the space maps is
compared with the references. Damaged files are named with their ranges: REPAIRABLE ones are readable
thanks to redundancy, LOST ones are not. Exit status: 0 no damage (devices may be missing), 1 damage,
130 interrupted, with the findings so far.

Examples:
  poolhouse rescue verify -d ~/images tank
  poolhouse rescue verify -d /dev/sdb1 -d /dev/sdc1 --json tank > findings.json"
)]
pub(crate) struct Args {
    /// The pool, by name or guid
    pub(crate) pool: String,
    /// How many at a time; 0: as many as suits this machine
    #[arg(short, long, value_name = "N", default_value_t = 0)]
    pub(crate) jobs: usize,
    /// No progress bar
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// Findings, and how long it took.
#[derive(Serialize)]
struct VerifyResult {
    #[serde(flatten)]
    findings: Findings,
    seconds: f64,
    bytes_per_second: f64,
    threads: usize,
}

/// The interval of progress updates.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);
/// The most ranges printed of each file and each vdev; JSON has all.
const MAX_RANGES_SHOWN: usize = 10;

pub(crate) fn run(args: &Args, common: &PoolArgs) -> CommandResult {
    let pool = common.open(&args.pool)?;
    let threads = thread_count(args.jobs);
    interrupt::install_handler();
    let start = Instant::now();
    let job = Arc::new(Job::default());
    let verify = PoolVerifier::new(&pool, Arc::clone(&job))?;
    let progress = Progress::new(job.progress.bytes_total(), args.quiet);
    loop {
        run_round(&verify, threads, &job, &progress);
        if !verify.next_round() {
            break;
        }
    }
    progress.finish();
    let seconds = start.elapsed().as_secs_f64();
    let findings = verify.findings();
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown with three digits")]
    let bytes_per_second = findings.examined_bytes as f64 / seconds.max(1e-9);
    let answer = VerifyResult { findings, seconds, bytes_per_second, threads };
    if common.json {
        print::json(&answer)?;
    } else {
        let mut out = BufWriter::new(io::stdout().lock());
        print_report(&answer, &mut out)?;
        out.flush()?;
    }
    if !answer.findings.complete {
        return Err(engine::Error::Interrupted.into());
    }
    Ok(Outcome::complete_unless(!answer.findings.clean))
}

/// Works on all threads until they all come back; this one shows how far they are.
fn run_round(verify: &PoolVerifier, threads: usize, job: &Job, progress: &Progress) {
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| verify.work())).collect();
        let mut shown = job.progress.bytes_done();
        while workers.iter().any(|worker| !worker.is_finished()) {
            if interrupt::is_interrupted() {
                job.cancel.cancel();
            }
            let done = job.progress.bytes_done();
            progress.add_bytes(done.saturating_sub(shown));
            shown = done;
            // short work need not wait for a whole tick
            let until = Instant::now() + REFRESH_INTERVAL;
            while Instant::now() < until && workers.iter().any(|worker| !worker.is_finished()) {
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    });
}

fn print_report(answer: &VerifyResult, out: &mut impl Write) -> io::Result<()> {
    let found = &answer.findings;
    print_block_tables(found, out)?;
    print_summary(answer, out)?;
    print_devices(found, out)?;
    print_space(found, out)?;
    for note in &found.notes {
        let word = if note.is_fault { "FAULT" } else { "note" };
        writeln!(out, "{word}: {}", escape_control(&note.what))?;
    }
    print_damaged(found, out)?;
    print_verdict(found, out)
}

fn block_row(name: String, blocks: &BlockTotals) -> [String; 5] {
    let BlockTotals { blocks, logical_bytes, stored_bytes, allocated_bytes } = *blocks;
    let size = human_bytes;
    [name, blocks.to_string(), size(logical_bytes), size(stored_bytes), size(allocated_bytes)]
}

fn print_block_tables(found: &Findings, out: &mut impl Write) -> io::Result<()> {
    let columns = |first| {
        let right = Align::Right;
        [
            (first, Align::Left),
            ("BLOCKS", right),
            ("LOGICAL", right),
            ("STORED", right),
            ("ALLOCATED", right),
        ]
    };
    let mut table = Table::with_header(&columns("TYPE"));
    for each in &found.types {
        let level = if each.level == 0 { String::new() } else { format!(" L{}", each.level) };
        table.add_row(block_row(format!("{}{level}", each.kind), &each.blocks));
    }
    table.add_row(block_row("total".to_owned(), &found.total));
    table.print(out)?;
    writeln!(out)?;
    let mut table = Table::with_header(&columns("SIZE UP TO"));
    for each in &found.sizes {
        table.add_row(block_row(human_bytes(each.up_to), &each.blocks));
    }
    table.print(out)?;
    writeln!(out)
}

fn print_summary(answer: &VerifyResult, out: &mut impl Write) -> io::Result<()> {
    let found = &answer.findings;
    #[expect(clippy::cast_possible_truncation, reason = "a rate fits")]
    #[expect(clippy::cast_sign_loss, reason = "a rate is not below 0")]
    let rate = human_bytes(answer.bytes_per_second as u64);
    writeln!(
        out,
        "{} as of txg {}: {} of {} datasets and snapshots, {} blocks, {} read with all copies and \
         parity in {:.1} s, {rate}/s with {} threads",
        escape_control(&found.pool),
        found.txg,
        found.datasets_done,
        found.datasets,
        found.total.blocks,
        human_bytes(found.examined_bytes),
        answer.seconds,
        answer.threads
    )?;
    let also = [
        (found.embedded, "stand in their pointers"),
        (found.gangs, "are in pieces"),
        (found.shared, "are further references to shared blocks"),
        (found.redacted, "were left out by a redacted send"),
        (found.freeing.blocks, "wait to be freed"),
    ];
    for (count, what) in also.into_iter().filter(|(count, _)| *count > 0) {
        writeln!(out, "  {count} blocks {what}")?;
    }
    Ok(())
}

fn print_devices(found: &Findings, out: &mut impl Write) -> io::Result<()> {
    for device in &found.devices {
        let facts = [
            (device.checksum_errors, "wrong"),
            (device.read_errors, "unreadable"),
            (device.absent, "not there"),
            (device.stale, "written while it was missing"),
        ];
        let mut said: Vec<String> = Vec::new();
        if device.missing {
            said.push("missing".to_owned());
        }
        let counted = facts.iter().filter(|(count, _)| *count > 0);
        said.extend(counted.map(|(count, what)| format!("its part of {count} blocks {what}")));
        if !said.is_empty() {
            writeln!(out, "{}: {}", escape_control(&device.path), said.join(", "))?;
        }
    }
    Ok(())
}

fn print_space(found: &Findings, out: &mut impl Write) -> io::Result<()> {
    for space in &found.space {
        let head = format!("vdev {}", space.vdev);
        let facts = [
            (space.leaked_bytes, "allocated, and nothing refers to it", &space.leaks),
            (space.unallocated_bytes, "in use, and not allocated", &space.unallocated),
            (space.contradicting_bytes, "allocated or freed twice in the space maps", &Vec::new()),
        ];
        for (bytes, what, ranges) in facts.into_iter().filter(|(bytes, ..)| *bytes > 0) {
            writeln!(out, "{head}: {} {what}", human_bytes(bytes))?;
            print_ranges(ranges, out)?;
        }
    }
    if found.doubly_claimed_bytes > 0 {
        writeln!(out, "{} claimed by two blocks", human_bytes(found.doubly_claimed_bytes))?;
        print_ranges(&found.double_claims, out)?;
    }
    if found.invalid_dvas > 0 {
        writeln!(out, "{} blocks have addresses outside of the space", found.invalid_dvas)?;
        print_ranges(&found.invalid_ranges, out)?;
    }
    Ok(())
}

fn print_ranges(ranges: &[SpaceRange], out: &mut impl Write) -> io::Result<()> {
    for range in ranges.iter().take(MAX_RANGES_SHOWN) {
        let place = range.claimed_by.as_ref().map(|place| format!("  {place}")).unwrap_or_default();
        let length = range.end.saturating_sub(range.start);
        writeln!(out, "  {}:{:x}:{length:x}{place}", range.vdev, range.start)?;
    }
    print_omitted(ranges.len(), out)
}

fn print_omitted(count: usize, out: &mut impl Write) -> io::Result<()> {
    match count.saturating_sub(MAX_RANGES_SHOWN) {
        0 => Ok(()),
        more => writeln!(out, "  and {more} more"),
    }
}

fn print_damaged(found: &Findings, out: &mut impl Write) -> io::Result<()> {
    for object in &found.damaged {
        let word = if object.is_lost() { "LOST" } else { "REPAIRABLE" };
        writeln!(out, "{word}: {}", escape_control(&object.display_name()))?;
        for range in object.ranges.iter().take(MAX_RANGES_SHOWN) {
            writeln!(out, "  {}", escape_control(&describe_range(object, range)))?;
        }
        print_omitted(object.ranges.len(), out)?;
    }
    if found.unnamed > 0 {
        writeln!(out, "{} more damaged blocks are not named", found.unnamed)?;
    }
    Ok(())
}

fn describe_range(object: &ObjectDamage, range: &DamagedRange) -> String {
    let DamagedRange { start, end, lost, devices, why } = range;
    let mut line = match object.part {
        "content" if *end == u64::MAX => "somewhere in it".to_owned(),
        "content" => format!("bytes {start} to {end}"),
        "objects" => format!("objects {start} to {end}"),
        _ => "not its content".to_owned(),
    };
    line += if *lost { ": lost" } else { ": redundancy makes up for it" };
    if !devices.is_empty() {
        line += &format!("; wrong on {}", devices.join(", "));
    }
    if let Some(why) = why {
        line += &format!("; {why}");
    }
    line
}

fn print_verdict(found: &Findings, out: &mut impl Write) -> io::Result<()> {
    let degraded = match found.degraded {
        0 => String::new(),
        count => format!(" ({count} blocks were put together without devices that are missing)"),
    };
    let what = match (found.complete, found.clean) {
        (false, _) => "stopped before the end; the findings above cover the examined part",
        (true, true) => "nothing is wrong",
        (true, false) => "not all is well",
    };
    writeln!(out, "{} blocks lost, {} repairable{degraded}: {what}", found.lost, found.repairable)
}
