//! Ways to copy: the same tree by each of them to each destination, in turns.
//!
//! ```text
//! tree    what there is to copy, and what has arrived
//! own     a copier of ours: several files at a time
//! ways    it, and the programs that people use
//! places  where copies go: folders, mounted shares, other machines by ssh
//! ```
//!
//! Each run begins with nothing of the source in memory and counts until the copy is safe on its
//! drives. What was copied is counted, compared with the source, and removed again.

mod own;
mod places;
mod tree;
mod ways;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use units::human_bytes;

use crate::course::Course;
use crate::histogram::Histogram;
use crate::machine::Busy;
use crate::mount::Mount;
use crate::path::Heading;
use crate::present::{figure, percent};
use crate::record::{FORMAT, Kind, Measure, Record, Unit};
use crate::tally::{Name, Tally};
use crate::timed::Ran;
use crate::{Error, Machine, System, drive, machine, verdict};
use places::Place;
use tree::Tree;
pub use ways::Way;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Wish {
    /// The tree.
    pub source: PathBuf,
    /// Folders, or `HOST:PATH`.
    pub destinations: Vec<String>,
    /// The ways to be compared, where they are possible.
    pub ways: Vec<Way>,
    /// How often each is run.
    pub runs: usize,
    /// After how long a run is ended, though not all is copied.
    pub limit: Option<Duration>,
}

/// A tree and destinations that are ready to be copied to.
#[derive(Debug)]
pub struct Prepared {
    wish: Wish,
    tree: Tree,
    places: Vec<Place>,
    /// For each place the ways that lead to it, and why others do not.
    ways: Vec<Vec<Way>>,
    left_out: Vec<String>,
}

impl Wish {
    /// Looks at the tree and the destinations, without touching either.
    pub fn prepare(self, system: &System) -> Result<Prepared, Error> {
        let tree = Tree::of(&self.source)?;
        if tree.bytes == 0 {
            let what = format!("there is nothing to copy in '{}'", self.source.display());
            return Err(Error::asked(what));
        }
        let places: Vec<Place> = (self.destinations.iter())
            .map(|destination| Place::find(destination, &self.source, &tree, system))
            .collect::<Result<_, _>>()?;
        let mut ways = Vec::new();
        let mut left_out = Vec::new();
        for place in &places {
            let mut possible = Vec::new();
            for way in &self.ways {
                match way.obstacle(place) {
                    None => possible.push(*way),
                    Some(why) => {
                        left_out.push(format!("{} to {}: {why}", way.name(), place.name()));
                    }
                }
            }
            ways.push(possible);
        }
        if ways.iter().all(Vec::is_empty) {
            return Err(Error::asked(format!("no way to copy is left: {}", left_out.join("; "))));
        }
        Ok(Prepared { wish: self, tree, places, ways, left_out })
    }
}

impl Prepared {
    /// How many copies are made.
    pub fn copies(&self) -> usize {
        self.wish.runs * self.ways.iter().map(Vec::len).sum::<usize>()
    }

    /// Ends runs after so long.
    pub fn set_limit(&mut self, limit: Duration) {
        self.wish.limit = Some(limit);
    }

    /// What would be done, in sentences.
    pub fn intent(&self) -> Vec<String> {
        let Tree { bytes, files, .. } = self.tree;
        let source = self.wish.source.display();
        let mut all = vec![format!(
            "'{source}' has {files} files with {}; each copy is removed before the next is made.",
            human_bytes(bytes)
        )];
        for (place, ways) in self.places.iter().zip(&self.ways) {
            let names: Vec<&str> = ways.iter().map(|way| way.name()).collect();
            all.push(format!(
                "{} copies by each of {} to the new folder '{}'.",
                self.wish.runs,
                verdict::listed(&names),
                place.scratch()
            ));
        }
        all.extend(self.left_out.iter().map(|why| format!("Left out: {why}.")));
        all
    }

    /// Copies, in turns.
    pub fn measure(
        &self,
        heading: Heading,
        course: &Course<'_>,
        system: &System,
    ) -> Result<Record, Error> {
        let began = Instant::now();
        let before = verdict::busy_before(system);
        let mut tally = Tally::default();
        let complete = self.rounds(&mut tally, course, system)?;
        let measures = tally.measures();
        let mount = Mount::of(system, &self.wish.source).unwrap_or_default();
        Ok(Record {
            poolhouse_bench: FORMAT,
            kind: Kind::Copy,
            label: heading.label,
            subject: self.wish.source.display().to_string(),
            started: heading.started,
            seconds: began.elapsed().as_secs_f64(),
            complete,
            machine: Machine::of(system),
            drives: drive::below(system, &mount.device),
            versions: self.versions(system),
            settings: self.settings(),
            facts: self.facts(&mount, before),
            findings: self.findings(&measures, before),
            measures,
            notes: self.notes(),
        })
    }

    fn rounds(
        &self,
        tally: &mut Tally,
        course: &Course<'_>,
        system: &System,
    ) -> Result<bool, Error> {
        // nobody knows how long a copy takes before the first is made
        let mut each = self.wish.limit.unwrap_or(Duration::from_secs(10));
        let mut left = self.copies();
        for place in &self.places {
            place.make()?;
        }
        for run in 0..self.wish.runs {
            for (place, ways) in self.places.iter().zip(&self.ways) {
                for way in ways {
                    course.expect(each * u32::try_from(left).unwrap_or(u32::MAX));
                    let what = format!("{} to {}", way.name(), place.name());
                    let step = format!("{what}, run {} of {}", run + 1, self.wish.runs);
                    course.begin(&step, each);
                    let Some((copied, ran)) = self.copy(*way, place, course, system)? else {
                        return Ok(false);
                    };
                    (each, left) = ((each + ran.time) / 2, left - 1);
                    Self::keep(tally, *way, place, &copied, &ran);
                }
            }
        }
        Ok(true)
    }

    /// One copy; none if the work was stopped.
    fn copy(
        &self,
        way: Way,
        place: &Place,
        course: &Course<'_>,
        system: &System,
    ) -> Result<Option<(Tree, Ran)>, Error> {
        self.tree.chill();
        place.fresh()?;
        let (began, busy) = (Instant::now(), Busy::now(system));
        let whole = way.copy(&self.wish.source, place, self.wish.limit, course)?;
        place.settle()?;
        let time = began.elapsed();
        let busy = busy.and_then(|before| before.until(Busy::now(system)?));
        if course.stopped() {
            return Ok(None);
        }
        let copied = place.arrived(whole)?;
        if whole && (copied.files, copied.bytes) != (self.tree.files, self.tree.bytes) {
            return Err(Error::Program {
                program: way.name().to_owned(),
                why: format!(
                    "{} of {} files arrived at {}, with {} of {} bytes",
                    copied.files,
                    self.tree.files,
                    place.name(),
                    copied.bytes,
                    self.tree.bytes
                ),
            });
        }
        place.clear()?;
        let histogram = Histogram::default();
        let ran = Ran { operations: copied.files, bytes: copied.bytes, time, histogram, busy };
        Ok(Some((copied, ran)))
    }

    fn keep(tally: &mut Tally, way: Way, place: &Place, copied: &Tree, ran: &Ran) {
        let to = place.name();
        let id = format!("{to}/{}", way.id());
        let name =
            |id: String, what: String, unit| Name { id, what, group: "copies".to_owned(), unit };
        tally.add(name(id.clone(), format!("{} to {to}", way.name()), Unit::Rate), ran, None);
        if copied.files > 1 {
            let what = format!("{} to {to}, files", way.name());
            tally.add(name(format!("{id}-files"), what, Unit::Operations), ran, None);
        }
    }

    fn versions(&self, system: &System) -> BTreeMap<String, String> {
        let mut all = machine::versions(system);
        let ways: Vec<Way> = self.ways.concat();
        for way in ways {
            all.extend(way.version());
        }
        all
    }

    fn settings(&self) -> Map<String, Value> {
        let value = json!({
            "runs": self.wish.runs,
            "limit_seconds": self.wish.limit.map(|limit| limit.as_secs_f64()),
            "size_bytes": self.tree.bytes,
            "files": self.tree.files,
        });
        value.as_object().cloned().unwrap_or_default()
    }

    fn facts(&self, mount: &Mount, before: Option<f64>) -> Map<String, Value> {
        let destinations: BTreeMap<&str, Option<&Mount>> =
            self.places.iter().map(|place| (place.name(), place.mount())).collect();
        let value = json!({ "mount": mount, "destinations": destinations, "busy_before": before });
        value.as_object().cloned().unwrap_or_default()
    }

    /// For each destination the fastest way, and how far behind the others are.
    fn findings(&self, measures: &[Measure], before: Option<f64>) -> Vec<String> {
        let mut all: Vec<String> = verdict::disturbed(before).into_iter().collect();
        for (place, ways) in self.places.iter().zip(&self.ways) {
            let mean = |way: &Way| {
                let id = format!("{}/{}", place.name(), way.id());
                let measure = measures.iter().find(|measure| measure.id == id)?;
                Some((*way, measure.summary?.mean))
            };
            let mut rates: Vec<(Way, f64)> = ways.iter().filter_map(mean).collect();
            rates.sort_by(|a, b| b.1.total_cmp(&a.1));
            let [(best, most), others @ ..] = rates.as_slice() else { continue };
            let behind: Vec<String> = (others.iter())
                .map(|(way, rate)| format!("{} {}", way.name(), percent(rate / most)))
                .collect();
            let behind: Vec<&str> = behind.iter().map(String::as_str).collect();
            if !behind.is_empty() {
                all.push(format!(
                    "To {} the fastest way is {} with {}; of that reach {}.",
                    place.title(),
                    best.name(),
                    figure(*most, Unit::Rate),
                    behind.join(", ")
                ));
            }
        }
        let short = measures.iter().any(|measure| measure.shortest_run < 2.0);
        all.extend((short && self.wish.limit.is_none()).then(|| {
            "The tree is copied in less than two seconds, which says little: take a larger one."
                .to_owned()
        }));
        all.extend(verdict::spread(measures));
        all
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> =
            self.left_out.iter().map(|why| format!("Left out: {why}.")).collect();
        if self.wish.limit.is_some() {
            notes.push("Runs were ended before all was copied; what had arrived counts.".into());
        }
        if self.wish.ways.contains(&Way::Own) {
            notes.push(
                "poolhouse's own copier keeps modes, owners and times, but neither hard links, \
                 holes, attributes nor access lists, as cp -a does."
                    .into(),
            );
        }
        notes.push(
            "No way may share blocks between source and copy (reflinks): every byte is moved."
                .into(),
        );
        notes
    }
}
