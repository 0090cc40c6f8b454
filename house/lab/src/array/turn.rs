//! One layout's turn: a pool is made of empty drives, measured, read whole, and destroyed.

use std::sync::Arc;
use std::time::Duration;

use engine::pool::NewDataset;
use serde_json::{Map, Value, json};
use units::human_bytes;

use super::drives::Drive;
use super::place::FileSystem;
use super::pool::Pool;
use super::{Layout, Wish};
use crate::course::Course;
use crate::number::{per_second, ratio};
use crate::path::rounds::Rounds;
use crate::path::size::{self, Size};
use crate::record::Unit;
use crate::store::Place as _;
use crate::tally::{Name, Tally};
use crate::timed::{Order, Task, Verb};
use crate::workload::LONG;
use crate::{Error, Machine, System};

/// Bytes of the small records that cost a layout the most: few columns, much parity and padding.
const SMALL_RECORD: u64 = 4 << 10;
/// Their file is that part of the large one.
const SMALL_PART: u64 = 8;

/// What all turns share.
pub(super) struct Turns<'a> {
    pub(super) drives: &'a [Arc<Drive>],
    pub(super) wish: &'a Wish,
    pub(super) course: &'a Course<'a>,
    pub(super) system: &'a System,
}

/// What came out for one layout.
#[derive(Default)]
pub(super) struct Column {
    pub(super) tally: Tally,
    pub(super) size: Option<Size>,
    /// Bytes in all vdevs, parity included.
    pub(super) pool_bytes: u64,
    pub(super) small: Option<Small>,
    pub(super) turns: usize,
}

/// What small records take.
#[derive(Clone, Copy)]
pub(super) struct Small {
    data: u64,
    allocated: u64,
}

impl Column {
    /// How fast a walk over the pool was: its bytes, and the time that it took.
    fn add_walk(&mut self, id: &str, what: &str, (bytes, time): (u64, Duration)) {
        let name = Name {
            id: id.to_owned(),
            what: what.to_owned(),
            group: "scrub".to_owned(),
            unit: Unit::Rate,
        };
        self.tally.add_figure(name, per_second(bytes, time), time, None);
    }

    /// What is known besides the figures.
    pub(super) fn facts(&self) -> Map<String, Value> {
        let small = self.small.map(|small| {
            json!({
                "record_bytes": SMALL_RECORD,
                "data_bytes": small.data,
                "allocated_bytes": small.allocated,
            })
        });
        let value = json!({ "pool_bytes": self.pool_bytes, "small_records": small });
        value.as_object().cloned().unwrap_or_default()
    }

    /// What small records cost, in a sentence.
    pub(super) fn finding(&self) -> Option<String> {
        let Small { data, allocated } = self.small?;
        Some(format!(
            "Records of {} take {:.2} times their size on the drives.",
            human_bytes(SMALL_RECORD),
            ratio(allocated, data)
        ))
    }
}

impl Turns<'_> {
    /// Does a layout's turn of that number; whether it was done to its end.
    pub(super) fn turn(
        &self,
        layout: &Layout,
        number: usize,
        column: &mut Column,
    ) -> Result<bool, Error> {
        self.course.begin(&format!("a pool of {layout}"), super::MAKING);
        let pool = Pool::make(self.drives, layout, &self.wish.properties, self.system)?;
        let place = FileSystem::of(&pool, pool.name());
        let size = match column.size {
            Some(size) => size,
            None => match self.size(&pool, &place)? {
                None => return Ok(false),
                Some(size) => *column.size.insert(size),
            },
        };
        column.pool_bytes = pool.with(|session| Ok(session.held().status().size))?;
        let (wish, course, system) = (&self.wish.work, self.course, self.system);
        let rounds = Rounds { place: &place, wish, size, course, system };
        let done = rounds.some(number..number + 1, &mut column.tally)?
            && self.small_records(&pool, layout, number, column)?
            && self.scrub(&pool, size, column)?
            && self.resilver(&pool, layout, size, column)?;
        if done {
            pool.destroy()?;
            column.turns += 1;
        }
        Ok(done)
    }

    /// How large the file is to be; none if the work was stopped.
    fn size(&self, pool: &Pool, place: &FileSystem) -> Result<Option<Size>, Error> {
        let wish = &self.wish.work;
        let free = pool.with(|session| Ok(session.held().space(pool.name()).available))?;
        let room = |wanted: u64| Error::Room {
            subject: "the pool".to_owned(),
            free: human_bytes(free),
            wanted: human_bytes(wanted),
        };
        // what is overwritten stays for a while, and small records take more than their size
        let most = free / 3;
        if let Some(wanted) = wish.size.filter(|wanted| *wanted > most) {
            return Err(room(wanted.saturating_mul(3)));
        }
        let Some(rate) = size::rate(place, wish, free, self.course, self.system)? else {
            return Ok(None);
        };
        let bytes = wish.size.unwrap_or_else(|| {
            let memory = Machine::of(self.system).memory_bytes;
            let beyond_caches = if size::is_quick(wish) { 0 } else { 2 * memory };
            let in_time = crate::number::whole(rate * wish.time.as_secs_f64());
            in_time.max(wish.least_size).max(beyond_caches).min(most)
        });
        let bytes = bytes / LONG * LONG;
        if bytes < LONG { Err(room(3 * LONG)) } else { Ok(Some(Size { bytes, rate })) }
    }

    /// Writes and reads records that are small; whether it was done to its end.
    fn small_records(
        &self,
        pool: &Arc<Pool>,
        layout: &Layout,
        number: usize,
        column: &mut Column,
    ) -> Result<bool, Error> {
        let name = format!("{}/small-records", pool.name());
        let properties = vec![("recordsize".to_owned(), SMALL_RECORD.to_string())];
        let new = NewDataset { name: name.clone(), properties };
        pool.with(|session| Ok(session.held().create_filesystem(&new)?))?;
        let Some(size) = column.size else { return Ok(false) };
        let data = (size.bytes / SMALL_PART / LONG).max(1) * LONG;
        let place = FileSystem::of(pool, &name);
        let file = place.blocks("small")?;
        let task = |verb| Task {
            verb,
            order: Order::Once,
            block: LONG,
            depth: 1,
            span: 0..data,
            time: None,
            zeros: self.wish.work.zeros,
            seed: 7000 + number as u64,
        };
        for (verb, id, what) in [
            (Verb::Write, "small-records-write", "write, records of 4K"),
            (Verb::Read, "small-records-read", "read, records of 4K"),
        ] {
            self.course.begin(what, size.pass() / u32::try_from(SMALL_PART).unwrap_or(1));
            let cached = if verb == Verb::Read { file.chill()? } else { None };
            let Some(ran) = task(verb).run(&*file, self.course, self.system)? else {
                return Ok(false);
            };
            if verb == Verb::Write {
                // what is counted is one side of a mirror
                let allocated = place.allocated("small")? * layout.copies();
                column.small = Some(Small { data, allocated });
            }
            let (id, what, group) = (id.to_owned(), what.to_owned(), "small records".to_owned());
            column.tally.add(Name { id, what, group, unit: Unit::Rate }, &ran, cached);
        }
        Ok(true)
    }

    /// Reads and checks all; whether it was done to its end.
    fn scrub(&self, pool: &Pool, size: Size, column: &mut Column) -> Result<bool, Error> {
        self.course.begin("all is read and checked", size.pass());
        let Some(scrub) = pool.scrub(self.course)? else { return Ok(false) };
        column.add_walk("scrub", "scrub: all read and checked", (scrub.bytes, scrub.time));
        Ok(true)
    }

    /// Empties a drive and gives it all that it held, where the others know; whether it was done to
    /// its end.
    fn resilver(
        &self,
        pool: &Pool,
        layout: &Layout,
        size: Size,
        column: &mut Column,
    ) -> Result<bool, Error> {
        let Some(drive) = layout.spare() else { return Ok(true) };
        self.course.begin("an emptied drive gets all that it held", size.pass());
        let Some(resilver) = pool.resilver(drive, self.course)? else { return Ok(false) };
        let done = (resilver.bytes, resilver.time);
        column.add_walk("resilver", "resilver: one drive gets all", done);
        Ok(true)
    }
}
