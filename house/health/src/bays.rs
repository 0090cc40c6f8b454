//! The map of bays: which drive is in which row and column of the case.
//!
//! ```toml
//! [bays]                                     # seen from the front; "" is an empty bay
//! rows = [["WD-WX12", "ZL2A0PCB", ""],
//!         ["ZL2A0PCD", "", "S5H9NS0N"]]
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// The bays of a case, row by row, with the serial numbers of the drives in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BayMap {
    /// The rows from top to bottom, each from left to right; an empty string is an empty bay.
    pub rows: Vec<Vec<String>>,
}

/// A bay, counted from 1; printed as `2-3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Bay {
    /// The row from the top.
    pub row: usize,
    /// The column from the left.
    pub column: usize,
}

impl fmt::Display for Bay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.row, self.column)
    }
}

impl BayMap {
    /// The bay of a drive.
    pub fn bay_of(&self, serial: &str) -> Option<Bay> {
        self.bays().find(|(_, in_it)| *in_it == serial && !serial.is_empty()).map(|(bay, _)| bay)
    }

    /// All bays with the serial numbers in them, row by row.
    pub fn bays(&self) -> impl Iterator<Item = (Bay, &str)> {
        (1..).zip(&self.rows).flat_map(|(row, bays)| {
            (1..).zip(bays).map(move |(column, serial)| (Bay { row, column }, serial.trim()))
        })
    }

    /// A serial number that is in two bays, if there is one.
    pub fn duplicate(&self) -> Option<&str> {
        let mut seen = std::collections::BTreeSet::new();
        self.bays()
            .map(|(_, serial)| serial)
            .find(|serial| !serial.is_empty() && !seen.insert(*serial))
    }

    /// Whether no bay is drawn.
    pub fn is_empty(&self) -> bool {
        self.rows.iter().all(Vec::is_empty)
    }
}

#[cfg(test)]
mod tests {
    use super::BayMap;

    fn map(rows: &[&[&str]]) -> BayMap {
        let row = |row: &&[&str]| row.iter().map(|serial| (*serial).to_owned()).collect();
        BayMap { rows: rows.iter().map(row).collect() }
    }

    #[test]
    fn drives_are_found_in_their_bays() {
        let bays = map(&[&["A", ""], &["B", "C"]]);
        assert_eq!(bays.bay_of("C").unwrap().to_string(), "2-2");
        assert_eq!((bays.bay_of(""), bays.bay_of("D")), (None, None));
        assert_eq!(bays.duplicate(), None);
        assert_eq!(map(&[&["A", "", ""], &["A"]]).duplicate(), Some("A"));
        assert!(map(&[&[]]).is_empty() && !bays.is_empty());
    }
}
