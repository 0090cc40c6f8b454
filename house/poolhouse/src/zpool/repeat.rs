//! The common part of `zpool list` and `zpool status`: the choice of pools, the names of vdevs, and
//! repeated output.

use std::io::{self, Write};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use api::{ListPools, PoolReport};
use engine::pool::VdevStatus;

use crate::daemon::DaemonArgs;
use crate::outcome::{CommandResult, Failure, Outcome};
use crate::time;

/// Which pools, and how often.
#[derive(clap::Args, Debug)]
pub(super) struct RepeatArgs {
    /// With the time before it: u as seconds since 1970, d as a date
    #[arg(short = 'T', value_name = "u|d", value_parser = ["u", "d"])]
    time: Option<String>,
    /// Vdevs by their numbers (GUIDs)
    #[arg(short = 'g')]
    guids: bool,
    /// Drives where their paths lead to, if these are links
    #[arg(short = 'L')]
    links: bool,
    /// Pools (none: all), then every how many seconds it is shown again, and how often in all
    #[arg(value_name = "POOL... SECONDS COUNT")]
    words: Vec<String>,
}

/// Which pools are shown, and how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RepeatPlan<'a> {
    /// The pools; none: all.
    pub(super) pools: &'a [String],
    /// The time from one report to the next.
    pub(super) interval: Option<Duration>,
    /// How many reports there are.
    pub(super) count: Option<u64>,
}

impl RepeatArgs {
    /// Calls `show` for the pools; its argument tells whether it is the first time.
    pub(super) fn run_repeatedly(
        &self,
        asking: &DaemonArgs,
        verbose: bool,
        mut show: impl FnMut(Vec<PoolReport>, &[String], bool) -> CommandResult,
    ) -> CommandResult {
        let RepeatPlan { pools, interval, count } = self.plan()?;
        for turn in 0.. {
            let found = asking.request(&ListPools { names: pools.to_vec(), verbose })?;
            self.print_time()?;
            show(found, pools, turn == 0)?;
            io::stdout().flush()?;
            let Some(wait) = interval.filter(|_| count.is_none_or(|count| turn + 1 < count)) else {
                break;
            };
            thread::sleep(wait);
        }
        Ok(Outcome::Complete)
    }

    /// Which pools are shown, and how often.
    pub(super) fn plan(&self) -> Result<RepeatPlan<'_>, Failure> {
        parse_words(&self.words)
    }

    /// Prints the time, if that is wanted.
    pub(super) fn print_time(&self) -> io::Result<()> {
        print_time(self.time.as_deref())
    }

    /// The name of a vdev.
    pub(super) fn vdev_name(&self, vdev: &VdevStatus) -> String {
        vdev_name(vdev, self.guids, self.links)
    }
}

/// The name of a vdev: its guid, its path without symbolic links, or its name in `zpool status`.
pub(super) fn vdev_name(vdev: &VdevStatus, guids: bool, links: bool) -> String {
    if guids {
        return vdev.guid.to_string();
    }
    let target = Some(&vdev.name).filter(|name| links && name.starts_with('/'));
    let target = target.and_then(|path| std::fs::canonicalize(path).ok());
    target.map_or_else(|| vdev.name.clone(), |path| path.display().to_string())
}

/// Prints the time for `-T`: u as seconds since 1970, anything else as a date.
pub(super) fn print_time(form: Option<&str>) -> io::Result<()> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    match form {
        Some("u") => writeln!(io::stdout(), "{now}"),
        Some(_) => writeln!(io::stdout(), "{}", time::format_date(now)),
        None => Ok(()),
    }
}

/// Pools' names begin with a letter: a number at the end is an interval.
fn parse_words(words: &[String]) -> Result<RepeatPlan<'_>, Failure> {
    let number = |word: &String| word.starts_with(|first: char| first.is_ascii_digit());
    let names = words.iter().rposition(|word| !number(word)).map_or(0, |last| last + 1);
    let (pools, numbers) = words.split_at(names);
    let bad = |word: &String| Failure::usage(format!("{word}: a number above 0 is expected"));
    let seconds = |word: &String| {
        let seconds = word.parse().ok().filter(|seconds: &f64| *seconds > 0.0);
        seconds.and_then(|it| Duration::try_from_secs_f64(it).ok()).ok_or_else(|| bad(word))
    };
    let times =
        |word: &String| word.parse().ok().filter(|count| *count > 0).ok_or_else(|| bad(word));
    match numbers {
        [] => Ok(RepeatPlan { pools, interval: None, count: None }),
        [wait] => Ok(RepeatPlan { pools, interval: Some(seconds(wait)?), count: None }),
        [wait, count] => {
            Ok(RepeatPlan { pools, interval: Some(seconds(wait)?), count: Some(times(count)?) })
        }
        [_, _, more, ..] => Err(Failure::usage(format!("{more}: nothing can follow a count"))),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_words;

    #[test]
    fn numbers_behind_the_pools_are_how_often() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        let of = |text: &str| {
            let words = words(text);
            parse_words(&words)
                .map(|plan| (plan.pools.join(" "), plan.interval, plan.count))
                .map_err(|_| ())
        };
        let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
        assert_eq!(of(""), Ok((String::new(), None, None)));
        assert_eq!(of("tank dozer"), Ok(("tank dozer".to_owned(), None, None)));
        assert_eq!(of("5"), Ok((String::new(), seconds(5.0), None)));
        assert_eq!(of("tank 0.5 3"), Ok(("tank".to_owned(), seconds(0.5), Some(3))));
        for wrong in ["tank 0", "tank 1 0", "tank 1 2 3", "1 1.5", "1s", "1e99"] {
            assert_eq!(of(wrong), Err(()), "{wrong}");
        }
    }
}
