//! One layout's turn: a pool is made of empty drives, measured, read whole, and destroyed.

use std::sync::Arc;
use std::time::Duration;

use engine::pool::NewDataset;
use serde_json::{Map, Value, json};
use units::human_bytes;

use super::drives::Drive;
use super::filesystem::FileSystem;
use super::pool::Pool;
use super::{Layout, Options};
use crate::bench_result::Unit;
use crate::number::{per_second, ratio};
use crate::path::file_size::{self, FileSize};
use crate::path::workload_runner::WorkloadRunner;
use crate::progress::Progress;
use crate::tally::{MeasureName, Tally};
use crate::target::FileTarget as _;
use crate::timed_run::{Operation, Order, Task};
use crate::workload::SEQUENTIAL_BLOCK_SIZE;
use crate::{Error, Machine, System};

/// Bytes of the small records that cost a layout the most: few columns, much parity and padding.
const SMALL_RECORD: u64 = 4 << 10;
/// Their file is that part of the large one.
const SMALL_FILE_DIVISOR: u64 = 8;

/// The state that all runs share.
pub(super) struct LayoutRunner<'a> {
    pub(super) drives: &'a [Arc<Drive>],
    pub(super) options: &'a Options,
    pub(super) progress: &'a Progress<'a>,
    pub(super) system: &'a System,
}

/// The result of one layout.
#[derive(Default)]
pub(super) struct LayoutResult {
    pub(super) tally: Tally,
    pub(super) size: Option<FileSize>,
    /// Bytes in all vdevs, parity included.
    pub(super) pool_bytes: u64,
    pub(super) small_records: Option<SmallRecordSpace>,
    pub(super) completed_runs: usize,
}

/// The space of small records.
#[derive(Clone, Copy)]
pub(super) struct SmallRecordSpace {
    data_bytes: u64,
    allocated_bytes: u64,
}

impl LayoutResult {
    /// How fast a walk over the pool was: its bytes, and the time that it took.
    fn add_scan(&mut self, id: &str, what: &str, (bytes, time): (u64, Duration)) {
        let name = MeasureName {
            id: id.to_owned(),
            title: what.to_owned(),
            group: "scrub".to_owned(),
            unit: Unit::BytesPerSecond,
        };
        self.tally.add_value(name, per_second(bytes, time), time, None);
    }

    /// The facts besides the figures.
    pub(super) fn facts(&self) -> Map<String, Value> {
        let small = self.small_records.map(|small| {
            json!({
                "record_bytes": SMALL_RECORD,
                "data_bytes": small.data_bytes,
                "allocated_bytes": small.allocated_bytes,
            })
        });
        let value = json!({ "pool_bytes": self.pool_bytes, "small_records": small });
        value.as_object().cloned().unwrap_or_default()
    }

    /// The space overhead of small records, in a sentence.
    pub(super) fn small_record_finding(&self) -> Option<String> {
        let SmallRecordSpace { data_bytes: data, allocated_bytes: allocated } =
            self.small_records?;
        Some(format!(
            "Records of {} take {:.2} times their size on the drives.",
            human_bytes(SMALL_RECORD),
            ratio(allocated, data)
        ))
    }
}

impl LayoutRunner<'_> {
    /// Does a layout's turn of that number; whether it was done to its end.
    pub(super) fn run_layout(
        &self,
        layout: &Layout,
        number: usize,
        column: &mut LayoutResult,
    ) -> Result<bool, Error> {
        self.progress.start_step(&format!("a pool of {layout}"), super::POOL_CREATE_TIME);
        let pool = Pool::create(self.drives, layout, &self.options.properties, self.system)?;
        let place = FileSystem::new(&pool, pool.name());
        let size = match column.size {
            Some(size) => size,
            None => match self.choose_size(&pool, &place)? {
                None => return Ok(false),
                Some(size) => *column.size.insert(size),
            },
        };
        column.pool_bytes = pool.with_session(|session| Ok(session.pool().status().size))?;
        let (wish, course, system) = (&self.options.workload, self.progress, self.system);
        let rounds =
            WorkloadRunner { target: &place, options: wish, size, progress: course, system };
        let done = rounds.run_rounds(number..number + 1, &mut column.tally)?
            && self.measure_small_records(&pool, layout, number, column)?
            && self.measure_scrub(&pool, size, column)?
            && self.measure_resilver(&pool, layout, size, column)?;
        if done {
            pool.destroy()?;
            column.completed_runs += 1;
        }
        Ok(done)
    }

    /// How large the file is to be; none if the work was stopped.
    fn choose_size(&self, pool: &Pool, place: &FileSystem) -> Result<Option<FileSize>, Error> {
        let wish = &self.options.workload;
        let free = pool
            .with_session(|session| Ok(session.pool().datasets().space(pool.name()).available))?;
        let room = |wanted: u64| Error::NoSpace {
            subject: "the pool".to_owned(),
            available: human_bytes(free),
            needed: human_bytes(wanted),
        };
        // overwritten data stays for a while, and small records take more than their size
        let most = free / 3;
        if let Some(wanted) = wish.size.filter(|wanted| *wanted > most) {
            return Err(room(wanted.saturating_mul(3)));
        }
        let Some(rate) =
            file_size::measure_write_rate(place, wish, free, self.progress, self.system)?
        else {
            return Ok(None);
        };
        let bytes = wish.size.unwrap_or_else(|| {
            let memory = Machine::read(self.system).memory_bytes;
            let beyond_caches = if file_size::is_quick(wish) { 0 } else { 2 * memory };
            let in_time = crate::number::to_u64(rate * wish.run_time.as_secs_f64());
            in_time.max(wish.min_size).max(beyond_caches).min(most)
        });
        let bytes = bytes / SEQUENTIAL_BLOCK_SIZE * SEQUENTIAL_BLOCK_SIZE;
        if bytes < SEQUENTIAL_BLOCK_SIZE {
            Err(room(3 * SEQUENTIAL_BLOCK_SIZE))
        } else {
            Ok(Some(FileSize { bytes, write_rate: rate }))
        }
    }

    /// Writes and reads records that are small; whether it was done to its end.
    fn measure_small_records(
        &self,
        pool: &Arc<Pool>,
        layout: &Layout,
        number: usize,
        column: &mut LayoutResult,
    ) -> Result<bool, Error> {
        let name = format!("{}/small-records", pool.name());
        let properties = vec![("recordsize".to_owned(), SMALL_RECORD.to_string())];
        let new = NewDataset { name: name.clone(), properties };
        pool.with_session(|session| Ok(session.pool().datasets().create_filesystem(&new)?))?;
        let Some(size) = column.size else { return Ok(false) };
        let data = (size.bytes / SMALL_FILE_DIVISOR / SEQUENTIAL_BLOCK_SIZE).max(1)
            * SEQUENTIAL_BLOCK_SIZE;
        let place = FileSystem::new(pool, &name);
        let file = place.create_block_file("small")?;
        let task = |verb| Task {
            operation: verb,
            order: Order::Sequential,
            block_size: SEQUENTIAL_BLOCK_SIZE,
            queue_depth: 1,
            range: 0..data,
            time_limit: None,
            use_zeros: self.options.workload.use_zeros,
            seed: 7000 + number as u64,
        };
        for (verb, id, what) in [
            (Operation::Write, "small-records-write", "write, records of 4K"),
            (Operation::Read, "small-records-read", "read, records of 4K"),
        ] {
            self.progress.start_step(
                what,
                size.pass_duration() / u32::try_from(SMALL_FILE_DIVISOR).unwrap_or(1),
            );
            let cached = if verb == Operation::Read { file.drop_cache()? } else { None };
            let Some(ran) = task(verb).run(&*file, self.progress, self.system)? else {
                return Ok(false);
            };
            if verb == Operation::Write {
                // the counted bytes are those of one child of a mirror
                let allocated = place.allocated_bytes("small")? * layout.mirror_width();
                column.small_records =
                    Some(SmallRecordSpace { data_bytes: data, allocated_bytes: allocated });
            }
            let (id, what, group) = (id.to_owned(), what.to_owned(), "small records".to_owned());
            column.tally.add_run(
                MeasureName { id, title: what, group, unit: Unit::BytesPerSecond },
                &ran,
                cached,
            );
        }
        Ok(true)
    }

    /// Reads and checks all; whether it was done to its end.
    fn measure_scrub(
        &self,
        pool: &Pool,
        size: FileSize,
        column: &mut LayoutResult,
    ) -> Result<bool, Error> {
        self.progress.start_step("all is read and checked", size.pass_duration());
        let Some(scrub) = pool.scrub(self.progress)? else { return Ok(false) };
        column.add_scan("scrub", "scrub: all read and checked", (scrub.bytes, scrub.duration));
        Ok(true)
    }

    /// Clears a drive and resilvers it, if there is redundancy; returns whether it was
    /// finished.
    fn measure_resilver(
        &self,
        pool: &Pool,
        layout: &Layout,
        size: FileSize,
        column: &mut LayoutResult,
    ) -> Result<bool, Error> {
        let Some(drive) = layout.first_redundant_drive() else { return Ok(true) };
        self.progress.start_step("resilver of an emptied drive", size.pass_duration());
        let Some(resilver) = pool.resilver(drive, self.progress)? else { return Ok(false) };
        let done = (resilver.bytes, resilver.duration);
        column.add_scan("resilver", "resilver: one drive gets all", done);
        Ok(true)
    }
}
