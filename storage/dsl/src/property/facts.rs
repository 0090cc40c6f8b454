//! The facts about a dataset that are told as properties.

use std::collections::HashMap;

use ondisk::dsl::{Dataset as Phys, Dir as DirPhys};
use units::{ObjectId, ObjsetId};
use zap::Zap;

use super::space::available;
use crate::settings::Setting;
use crate::{Dataset, KeyStatus, Kind, Result};

/// Whether a property is wanted.
pub(super) type Wanted<'a> = &'a dyn Fn(&str) -> bool;

const KEYS: [&str; 5] = ["keystatus", "encryption", "keyformat", "pbkdf2iters", "encryptionroot"];
pub(super) const CONTENT: [&str; 6] =
    ["version", "normalization", "utf8only", "casesensitivity", "volsize", "volblocksize"];

/// Facts by the property's name.
#[derive(Debug, Default)]
pub(super) struct Facts {
    found: HashMap<&'static str, Setting>,
    /// Whether what stands in the dataset's content could not be read.
    pub(super) lacks_content: bool,
}

impl Facts {
    /// All that can be told. What cannot be read is left out: other facts are still worth telling.
    ///
    /// `wanted` says of which properties the facts are wanted: the dear ones are not asked for
    /// without need.
    pub(super) fn of(dataset: &Dataset, kind: Kind, volume: bool, wanted: Wanted<'_>) -> Self {
        let mut facts = Self::default();
        let any = |names: &[&str]| names.iter().any(|name| wanted(name));
        facts.text("type", kind.name());
        facts.number("guid", dataset.guid().get());
        if let Some(mark) = dataset.bookmark_record() {
            facts.number("creation", mark.creation_time);
            facts.number("createtxg", mark.creation_txg.get());
            if mark.has_sizes() {
                facts.number("referenced", mark.referenced);
                facts.number("logicalreferenced", mark.uncompressed);
            }
            if wanted("redact_snaps")
                && let Ok(Some(list)) = dataset.redaction_list()
            {
                facts.numbers("redact_snaps", list.snaps.iter().map(|guid| guid.get()));
            }
            return facts;
        }
        if let Some(phys) = dataset.phys() {
            facts.of_record(dataset, phys, wanted);
            if phys.is_snapshot() {
                facts.of_snapshot(dataset, phys, wanted);
            } else {
                facts.of_dir(dataset, phys, wanted);
            }
        }
        // each part tells what it can
        if any(&KEYS) {
            let _ = facts.of_keys(dataset);
        }
        if any(&CONTENT) {
            // of what is half received the part that says it may be missing
            facts.lacks_content =
                !volume && dataset.is_inconsistent() || facts.of_content(dataset, volume).is_err();
        }
        facts
    }

    pub(super) fn get(&self, name: &str) -> Option<&Setting> {
        self.found.get(name)
    }

    fn number(&mut self, name: &'static str, number: u64) {
        self.found.insert(name, Setting::Number(number));
    }

    fn text(&mut self, name: &'static str, text: impl Into<String>) {
        self.found.insert(name, Setting::Text(text.into()));
    }

    fn numbers(&mut self, name: &'static str, numbers: impl Iterator<Item = u64>) {
        let all: Vec<String> = numbers.map(|number| number.to_string()).collect();
        self.text(name, all.join(","));
    }

    fn of_record(&mut self, dataset: &Dataset, phys: &Phys, wanted: Wanted<'_>) {
        self.number("creation", phys.creation_time);
        self.number("createtxg", phys.creation_txg.get());
        self.number("objsetid", dataset.id().map_or(0, ObjsetId::get));
        self.number("referenced", phys.referenced);
        self.number("logicalreferenced", phys.uncompressed);
        self.number("refcompressratio", ratio(phys.uncompressed, phys.compressed));
        if wanted("written")
            && let Ok(Some(written)) = dataset.written()
        {
            self.number("written", written);
        }
        if wanted("redact_snaps")
            && let Ok(Some(guids)) = dataset.field(Phys::REDACTED_SNAPS)
        {
            self.numbers("redact_snaps", guids.integers());
        }
    }

    fn of_snapshot(&mut self, dataset: &Dataset, phys: &Phys, wanted: Wanted<'_>) {
        self.number("used", phys.unique);
        self.number("compressratio", ratio(phys.uncompressed, phys.compressed));
        self.number("defer_destroy", phys.is_defer_destroy().into());
        if wanted("userrefs")
            && let Ok(holds) = dataset.holds()
        {
            self.number("userrefs", u64::try_from(holds.len()).unwrap_or(u64::MAX));
        }
        if wanted("clones")
            && let Ok(clones) = dataset.clones()
            && !clones.is_empty()
        {
            self.text("clones", clones.join(","));
        }
    }

    fn of_dir(&mut self, dataset: &Dataset, phys: &Phys, wanted: Wanted<'_>) {
        let dir = dataset.dir();
        let record = dir.phys();
        self.number("used", record.used);
        self.number("logicalused", record.uncompressed);
        self.number("compressratio", ratio(record.uncompressed, record.compressed));
        self.number("quota", record.quota);
        self.number("reservation", record.reserved);
        if record.has_breakdown() {
            let breakdown = record.breakdown;
            self.number("usedbysnapshots", breakdown.snapshots);
            self.number("usedbydataset", breakdown.head);
            self.number("usedbyrefreservation", breakdown.refreservation);
            let below = breakdown.children.saturating_add(breakdown.child_reservations);
            self.number("usedbychildren", below);
        }
        let limit = |name| match dataset.setting(name) {
            Ok(Some((Setting::Number(number), _))) => number,
            _ => 0,
        };
        let (refquota, refreservation) = (limit("refquota"), limit("refreservation"));
        self.number("refquota", refquota);
        self.number("refreservation", refreservation);
        self.number("available", available(dataset, refquota, refreservation));
        debug_assert!(!phys.is_snapshot(), "a head has no space of its own");
        self.of_dir_fields(dataset, wanted);
        if wanted("origin")
            && let Ok(Some(origin)) = dataset.clone_origin()
        {
            self.text("origin", origin.name());
        }
        if wanted("receive_resume_token")
            && let Ok(Some(token)) = dataset.resume_token()
        {
            self.text("receive_resume_token", token);
        }
        self.number("mounted", 0);
    }

    fn of_dir_fields(&mut self, dataset: &Dataset, wanted: Wanted<'_>) {
        let counts = [
            ("filesystem_count", DirPhys::FILESYSTEM_COUNT),
            ("snapshot_count", DirPhys::SNAPSHOT_COUNT),
            ("snapshots_changed", DirPhys::SNAPSHOTS_CHANGED),
        ];
        for (name, field) in counts.into_iter().filter(|(name, _)| wanted(name)) {
            let Ok(Some(value)) = dataset.dir().field(field) else { continue };
            let first = value.integers().next();
            if let Some(number) = first.filter(|number| *number != 0 || name.ends_with("count")) {
                self.number(name, number);
            }
        }
    }

    fn of_keys(&mut self, dataset: &Dataset) -> Result<()> {
        let Some(status) = dataset.key_status()? else { return Ok(()) };
        self.number("keystatus", if status == KeyStatus::Available { 2 } else { 1 });
        let Some(facts) = dataset.key_facts()? else { return Ok(()) };
        self.number("encryption", facts.suite);
        let table = Zap::open(dataset.tree().mos().object(facts.record)?)?;
        if let Some(format) = table.lookup_u64(b"keyformat")? {
            self.number("keyformat", format);
        }
        self.number("pbkdf2iters", facts.iterations);
        if let Some(root) = dataset.tree().dir(facts.root) {
            self.text("encryptionroot", root.path());
        }
        Ok(())
    }

    /// What was chosen when the dataset was made stands in its content.
    fn of_content(&mut self, dataset: &Dataset, volume: bool) -> Result<()> {
        let objset = dataset.open()?;
        if volume {
            let zap = Zap::open(objset.object(ObjectId::new(2))?)?;
            if let Some(size) = zap.lookup_u64(b"size")? {
                self.number("volsize", size);
            }
            let data = objset.object(ObjectId::new(1))?;
            self.number("volblocksize", data.block_size().into());
            return Ok(());
        }
        let master = Zap::open(objset.object(ObjectId::new(1))?)?;
        let choices = [
            ("version", "VERSION", 5),
            ("normalization", "normalization", 0),
            ("utf8only", "utf8only", 0),
            ("casesensitivity", "casesensitivity", 0),
        ];
        for (name, entry, otherwise) in choices {
            self.number(name, master.lookup_u64(entry.as_bytes())?.unwrap_or(otherwise));
        }
        Ok(())
    }
}

/// Hundredths; without any bytes, 1.
fn ratio(uncompressed: u64, compressed: u64) -> u64 {
    let hundredfold = u128::from(uncompressed).saturating_mul(100);
    let ratio = hundredfold.checked_div(u128::from(compressed)).unwrap_or(100);
    u64::try_from(ratio).unwrap_or(u64::MAX)
}
