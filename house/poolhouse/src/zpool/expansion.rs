//! The progress or result of a raidz expansion, in the words of zpool(8).

use std::io::{self, Write};

use engine::pool::ExpansionStatus;
use units::human_space;

use super::scan::format_duration;
use crate::table::escape_control;
use crate::time::format_local;

/// A slower copy gets no estimated time, as with zpool(8), in bytes a second.
const SLOW_RATE: u64 = 10 << 20;

/// Prints it, on lines of its own.
pub(super) fn print_expansion(expansion: &ExpansionStatus, out: &mut dyn Write) -> io::Result<()> {
    let ExpansionStatus { started, ended, copied, total, .. } = *expansion;
    let (vdev, seconds) = (escape_control(&expansion.vdev), ended.saturating_sub(started));
    if expansion.state == "finished" {
        let (copied, time) = (human_space(copied), format_duration(seconds));
        let ended = format_local(ended);
        return writeln!(out, "expand: expanded {vdev} copied {copied} in {time}, on {ended}");
    }
    writeln!(out, "expand: expansion of {vdev} in progress since {}", format_local(started))?;
    let rate = copied / seconds.max(1);
    let hundredths = copied.min(total).saturating_mul(10_000).checked_div(total).unwrap_or(0);
    write!(
        out,
        "\t{} / {} copied at {}/s, {}.{:02}% done",
        human_space(copied),
        human_space(total),
        human_space(rate),
        hundredths / 100,
        hundredths % 100
    )?;
    if let Some(why) = &expansion.pause {
        return writeln!(out, ", paused for resilver or clear\n\t{}", escape_control(why));
    }
    match expansion
        .progress()
        .and_then(|progress| progress.seconds_left)
        .filter(|_| rate >= SLOW_RATE)
    {
        Some(left) => writeln!(out, ", {} to go", format_duration(left)),
        None => writeln!(out, ", (copy is slow, no estimated time)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(state: &str, pause: Option<&str>) -> String {
        let expansion = ExpansionStatus {
            vdev: "raidz1-0".to_owned(),
            state: state.to_owned(),
            started: 1_000_000_000,
            ended: 1_000_000_010,
            copied: 1 << 30,
            total: 4 << 30,
            pause: pause.map(str::to_owned),
        };
        let mut out = Vec::new();
        print_expansion(&expansion, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn expansion_is_shown_in_words_of_zpool() {
        let text = printed("expanding", None);
        assert!(text.starts_with("expand: expansion of raidz1-0 in progress since "), "{text}");
        assert!(text.contains("1G / 4G copied at 102M/s, 25.00% done, 00:00:30 to go"), "{text}");
        let text = printed("paused", Some("device 'sda' is not online"));
        assert!(text.contains("paused for resilver or clear\n\tdevice 'sda'"), "{text}");
        let text = printed("finished", None);
        assert!(text.starts_with("expand: expanded raidz1-0 copied 1G in 00:00:10, on "), "{text}");
    }
}
