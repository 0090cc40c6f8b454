//! The rounds: all workloads one after the other, and that several times.

use std::ops::Range;
use std::time::{Duration, Instant};

use super::Wish;
use super::size::Size;
use crate::content::{Content, Random};
use crate::course::Course;
use crate::histogram::Histogram;
use crate::machine::Busy;
use crate::record::Unit;
use crate::store::{Blocks, Place};
use crate::tally::{Name, Tally};
use crate::timed::{Order, Ran, Task, Verb};
use crate::workload::{Files, LONG, SMALL_FILE, Stream, StreamVerb};
use crate::{Error, System};

/// Small files in one folder.
const IN_FOLDER: usize = 1000;
/// Small files that are made between two looks at the clock.
const BETWEEN_LOOKS: usize = 16;

/// What all rounds share.
pub(crate) struct Rounds<'a> {
    pub(crate) place: &'a dyn Place,
    pub(crate) wish: &'a Wish,
    pub(crate) size: Size,
    pub(crate) course: &'a Course<'a>,
    pub(crate) system: &'a System,
}

/// How long all of it will take.
pub(crate) fn expected(wish: &Wish, size: Size) -> Duration {
    let streams = wish.streams.iter().map(|stream| takes(stream, wish, size));
    let files = wish.time * u32::try_from(wish.files.len()).unwrap_or(0);
    let round = streams.sum::<Duration>() + files;
    round * u32::try_from(wish.runs).unwrap_or(1)
}

fn takes(stream: &Stream, wish: &Wish, size: Size) -> Duration {
    match stream.verb.order() {
        Order::Once => size.pass(),
        Order::Random => wish.time,
    }
}

impl Rounds<'_> {
    /// Does all; whether they were done to their end.
    pub(crate) fn run(&self, tally: &mut Tally) -> Result<bool, Error> {
        self.some(0..self.wish.runs, tally)
    }

    /// Does some of them; whether they were done to their end.
    pub(crate) fn some(&self, rounds: Range<usize>, tally: &mut Tally) -> Result<bool, Error> {
        let mut file = None;
        for round in rounds {
            for stream in &self.wish.streams {
                let name = format!("{}, run {} of {}", stream.what(), round + 1, self.wish.runs);
                if !self.stream(stream, &name, round, &mut file, tally)? {
                    return Ok(false);
                }
            }
            if !self.wish.files.is_empty() && !self.files(round, tally)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One run on the large file; whether it was done to its end.
    fn stream(
        &self,
        stream: &Stream,
        name: &str,
        round: usize,
        file: &mut Option<Box<dyn Blocks>>,
        tally: &mut Tally,
    ) -> Result<bool, Error> {
        if stream.verb == StreamVerb::Write {
            self.fresh(file)?;
        } else if file.is_none() {
            self.course.begin("a file to work on", self.size.pass());
            let blocks = self.fresh(file)?;
            let write = Stream { verb: StreamVerb::Write, block: LONG, depth: 1 };
            if self.task(&write, round).run(blocks, self.course, self.system)?.is_none() {
                return Ok(false);
            }
        }
        let Some(blocks) = file.as_deref() else { return Ok(false) };
        self.course.begin(name, takes(stream, self.wish, self.size));
        let reads = stream.verb.verb() == Verb::Read;
        let cached = if reads { blocks.chill()? } else { None };
        let Some(ran) = self.task(stream, round).run(blocks, self.course, self.system)? else {
            return Ok(false);
        };
        let name = Name {
            id: stream.id(),
            what: stream.what(),
            group: stream.group().to_owned(),
            unit: stream.unit(),
        };
        tally.add(name, &ran, cached);
        Ok(true)
    }

    /// A new file in place of the one before.
    fn fresh<'f>(&self, file: &'f mut Option<Box<dyn Blocks>>) -> Result<&'f dyn Blocks, Error> {
        if file.take().is_some() {
            self.place.remove("large")?;
            self.place.settle()?;
        }
        Ok(&**file.insert(self.place.blocks("large")?))
    }

    fn task(&self, stream: &Stream, round: usize) -> Task {
        let order = stream.verb.order();
        Task {
            verb: stream.verb.verb(),
            order,
            block: stream.block,
            depth: stream.depth,
            span: 0..self.size.bytes,
            time: (order == Order::Random).then_some(self.wish.time),
            zeros: self.wish.zeros,
            // every run writes and visits something else
            seed: (round as u64 + 1) * 100 + stream.depth as u64 + stream.block,
        }
    }

    /// One round on small files; whether it was done to its end.
    fn files(&self, round: usize, tally: &mut Tally) -> Result<bool, Error> {
        self.place.settle()?;
        let mut names = Vec::new();
        let mut folders = Vec::new();
        let verbs = Files::ALL;
        for verb in verbs {
            let wanted = self.wish.files.contains(&verb);
            let what = format!("{}, run {} of {}", verb.what(), round + 1, self.wish.runs);
            let takes = if wanted { self.wish.time } else { Duration::ZERO };
            self.course.begin(&what, takes);
            let ran = match verb {
                Files::Create => self.create(round, &mut names, &mut folders)?,
                _ => self.each(verb, round, &names)?,
            };
            if self.course.stopped() {
                return Ok(false);
            }
            if wanted {
                let (id, what) = (verb.id().to_owned(), verb.what().to_owned());
                let group = "small files".to_owned();
                tally.add(Name { id, what, group, unit: Unit::Operations }, &ran, None);
            }
        }
        folders.iter().try_for_each(|folder| self.place.remove_folder(folder))?;
        Ok(true)
    }

    /// Makes files until the time is over or there are enough.
    fn create(
        &self,
        round: usize,
        names: &mut Vec<String>,
        folders: &mut Vec<String>,
    ) -> Result<Ran, Error> {
        let mut content = Content::new(round as u64 + 1, SMALL_FILE, 1, self.wish.zeros);
        let mut timer = Timer::start(self.system);
        while names.len() < self.wish.most_files && !self.course.stopped() {
            if names.len().is_multiple_of(BETWEEN_LOOKS) && timer.began.elapsed() >= self.wish.time
            {
                break;
            }
            if names.len().is_multiple_of(IN_FOLDER) {
                let folder = format!("small-{}", folders.len());
                self.place.folder(&folder)?;
                folders.push(folder);
            }
            let name = format!("small-{}/{}", folders.len() - 1, names.len());
            timer.time(|| self.place.put(&name, content.next_block(SMALL_FILE)))?;
            names.push(name);
        }
        self.place.settle()?;
        Ok(timer.stop(self.system))
    }

    /// Does something to each file, in an order that has nothing to do with how they were made.
    fn each(&self, verb: Files, round: usize, names: &[String]) -> Result<Ran, Error> {
        self.cool(verb, names)?;
        let mut order: Vec<&String> = names.iter().collect();
        let mut random = Random::new(round as u64 + 77);
        for end in (1..order.len()).rev() {
            let other = random.below(end as u64 + 1);
            order.swap(end, usize::try_from(other).unwrap_or(end));
        }
        let mut into = [0_u8; SMALL_FILE];
        let mut timer = Timer::start(self.system);
        for name in order {
            timer.time(|| match verb {
                Files::Stat => self.place.look(name),
                Files::Read => self.place.take(name, &mut into),
                Files::Create | Files::Delete => self.place.remove(name),
            })?;
            if self.course.stopped() {
                break;
            }
        }
        if verb == Files::Delete {
            self.place.settle()?;
        }
        Ok(timer.stop(self.system))
    }

    /// Takes the files' content out of memory, and with `drop_caches` all that is known of them.
    fn cool(&self, verb: Files, names: &[String]) -> Result<(), Error> {
        let forgets = verb == Files::Stat && self.place.forgets_attributes();
        if verb == Files::Read || forgets {
            self.place.chill(names)?;
        }
        if self.wish.drop_caches && verb != Files::Delete {
            let path = self.system.path("proc/sys/vm/drop_caches");
            std::fs::write(&path, "3").map_err(Error::file(&path, "written"))?;
        }
        Ok(())
    }
}

/// Times single operations and all together.
struct Timer {
    began: Instant,
    busy: Option<Busy>,
    histogram: Histogram,
    operations: u64,
}

impl Timer {
    fn start(system: &System) -> Self {
        let busy = Busy::now(system);
        Self { began: Instant::now(), busy, histogram: Histogram::default(), operations: 0 }
    }

    fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        let before = Instant::now();
        let done = operation();
        self.histogram.add(before.elapsed());
        self.operations += 1;
        done
    }

    fn stop(self, system: &System) -> Ran {
        let time = self.began.elapsed();
        let busy = self.busy.and_then(|before| before.until(Busy::now(system)?));
        let bytes = self.operations * SMALL_FILE as u64;
        Ran { operations: self.operations, bytes, time, histogram: self.histogram, busy }
    }
}
