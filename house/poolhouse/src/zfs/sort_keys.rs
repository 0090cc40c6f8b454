//! The order in which datasets are listed: `-s` and `-S`, as often as wanted, the first counts most.

use std::cmp::Ordering;

use clap::{Arg, ArgAction, ArgMatches, Command, FromArgMatches};
use engine::dataset::Dataset;

use super::select::expand_property;

/// A sort key of datasets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SortKey {
    pub(super) property: String,
    /// The greatest come first.
    pub(super) descending: bool,
}

/// The keys in the order in which they were given. (Derived, there would be one list for each letter.)
#[derive(Clone, Debug, Default)]
pub(super) struct SortKeys(pub(super) Vec<SortKey>);

/// The two letters: the name inside, and whether the greatest come first.
const SORT_ARGS: [(&str, bool); 2] = [("up", false), ("down", true)];

impl SortKey {
    /// Numbers by size, words by letters. Missing values are last in either direction.
    pub(super) fn compare(&self, one: &Dataset, other: &Dataset) -> Ordering {
        match (self.value(one), self.value(other)) {
            (None, None) => Ordering::Equal,
            (None, Some(_)) => Ordering::Greater,
            (Some(_), None) => Ordering::Less,
            (Some(one), Some(other)) if self.descending => compare_values(other, one),
            (Some(one), Some(other)) => compare_values(one, other),
        }
    }

    fn value<'a>(&self, dataset: &'a Dataset) -> Option<&'a str> {
        if self.property == "name" {
            return Some(&dataset.name);
        }
        dataset.property_value(&self.property).filter(|value| !matches!(*value, "" | "-"))
    }
}

fn compare_values(one: &str, other: &str) -> Ordering {
    match (one.parse::<u64>(), other.parse::<u64>()) {
        (Ok(one), Ok(other)) => one.cmp(&other),
        _ => one.cmp(other),
    }
}

impl clap::Args for SortKeys {
    fn augment_args(command: Command) -> Command {
        let arg = |(name, falling): (&'static str, bool)| {
            let (letter, help) = if falling {
                ('S', "The same in descending order")
            } else {
                ('s', "Sorted by this property; may be repeated, the first counts most")
            };
            let arg = Arg::new(name).short(letter).value_name("PROPERTY").help(help);
            arg.action(ArgAction::Append)
        };
        command.args(SORT_ARGS.map(arg))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SortKeys {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut order = Self::default();
        order.update_from_arg_matches(matches)?;
        Ok(order)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let mut given: Vec<(usize, &String, bool)> = Vec::new();
        for (name, falling) in SORT_ARGS {
            let (Some(places), Some(words)) =
                (matches.indices_of(name), matches.get_many::<String>(name))
            else {
                continue;
            };
            given.extend(places.zip(words).map(|(place, word)| (place, word, falling)));
        }
        given.sort_by_key(|each| each.0);
        let keys = given.into_iter().flat_map(|(_, word, falling)| {
            expand_property(word)
                .into_iter()
                .map(move |property| SortKey { property, descending: falling })
        });
        self.0 = keys.collect();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, FromArgMatches};
    use engine::KeyState;
    use engine::dataset::{Dataset, Property};

    use super::SortKeys;

    /// The order of datasets with these values of `used` and `quota`.
    fn sorted(words: &str, datasets: &[(&str, &str, &str)]) -> String {
        let command = SortKeys::augment_args(clap::Command::new("list"));
        let words = std::iter::once("list").chain(words.split_whitespace());
        let order = SortKeys::from_arg_matches(&command.get_matches_from(words)).unwrap();
        let property = |name: &str, value: &str| Property {
            name: name.to_owned(),
            value: value.to_owned(),
            source: "-".to_owned(),
            received: None,
        };
        let dataset = |(name, used, quota): &(&str, &str, &str)| Dataset {
            name: (*name).to_owned(),
            kind: "filesystem".to_owned(),
            key: KeyState::None,
            properties: vec![property("used", used), property("quota", quota)],
        };
        let mut found: Vec<_> = datasets.iter().map(dataset).collect();
        super::super::list::sort_datasets(&mut found, &order.0);
        found.iter().map(|it| it.name.as_str()).collect()
    }

    #[test]
    fn numbers_are_sorted_by_size() {
        let sizes = [("a", "100", "-"), ("b", "20", "-"), ("c", "3", "-")];
        assert_eq!(sorted("-s used", &sizes), "cba");
        assert_eq!(sorted("-S used", &sizes), "abc");
    }

    #[test]
    fn the_key_that_is_given_first_counts_most() {
        let both = [("a", "1", "7"), ("b", "2", "7"), ("c", "1", "9"), ("d", "2", "9")];
        assert_eq!(sorted("-S used -s quota", &both), "bdac");
        assert_eq!(sorted("-s quota -S used", &both), "badc");
        assert_eq!(sorted("-S quota -s used", &both), "cdab");
    }

    #[test]
    fn sort_is_stable_and_missing_values_are_last() {
        let some = [("a", "1", "-"), ("b", "1", "5"), ("c", "1", ""), ("d", "1", "8")];
        assert_eq!(sorted("-S used", &some), "abcd");
        assert_eq!(sorted("-s quota", &some), "bdac");
        assert_eq!(sorted("-S quota", &some), "dbac");
        assert_eq!(sorted("-S name", &some), "dcba");
    }
}
