//! How far the removal of a vdev has come, or what came of the last, in the words of zpool(8).

use std::io::{self, Write};

use engine::pool::RemovalStatus;
use units::human_bytes;

use crate::table::escape_control;
use crate::time::format_local;

/// A slower copy gets no estimated time, as with zpool(8), in bytes a second.
const SLOW_RATE: u64 = 10 << 20;

/// Prints it, on lines of its own.
pub(super) fn print_removal(removal: &RemovalStatus, out: &mut dyn Write) -> io::Result<()> {
    let RemovalStatus { started, ended, copied, total, .. } = *removal;
    let (vdev, seconds) = (escape_control(&removal.vdev), ended.saturating_sub(started));
    match removal.state.as_str() {
        "finished" => {
            let (id, copied, time) = (removal.id, human_bytes(copied), hours_and_minutes(seconds));
            let ended = format_local(ended);
            writeln!(
                out,
                "remove: Removal of vdev {id} copied {copied} in {time}, completed on {ended}"
            )?;
        }
        "canceled" => {
            writeln!(out, "remove: Removal of {vdev} canceled on {}", format_local(ended))?;
        }
        _ => {
            writeln!(
                out,
                "remove: Evacuation of {vdev} in progress since {}",
                format_local(started)
            )?;
            print_progress(removal, copied, total, seconds, out)?;
        }
    }
    if removal.mapping_memory > 0 {
        let memory = human_bytes(removal.mapping_memory);
        writeln!(out, "\t{memory} memory used for removed device mappings")?;
    }
    Ok(())
}

fn print_progress(
    removal: &RemovalStatus,
    copied: u64,
    total: u64,
    seconds: u64,
    out: &mut dyn Write,
) -> io::Result<()> {
    let rate = copied / seconds.max(1);
    let hundredths = copied.min(total).saturating_mul(10_000).checked_div(total).unwrap_or(0);
    write!(
        out,
        "\t{} copied out of {} at {}/s, {}.{:02}% done",
        human_bytes(copied),
        human_bytes(total),
        human_bytes(rate),
        hundredths / 100,
        hundredths % 100
    )?;
    if let Some(why) = &removal.pause {
        return writeln!(out, ", paused\n\t{}", escape_control(why));
    }
    let left = removal.progress().and_then(|progress| progress.seconds_left);
    match left.filter(|_| rate >= SLOW_RATE) {
        Some(left) => writeln!(out, ", {} to go", hours_and_minutes(left)),
        None => writeln!(out, ", (copy is slow, no estimated time)"),
    }
}

/// "0h5m".
fn hours_and_minutes(seconds: u64) -> String {
    format!("{}h{}m", seconds / 3600, seconds / 60 % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(state: &str, pause: Option<&str>) -> String {
        let removal = RemovalStatus {
            vdev: "mirror-1".to_owned(),
            id: 1,
            state: state.to_owned(),
            started: 1_000_000_000,
            ended: 1_000_000_100,
            copied: 1 << 30,
            total: 4 << 30,
            mapping_memory: if state == "finished" { 2400 } else { 0 },
            pause: pause.map(str::to_owned),
        };
        let mut out = Vec::new();
        print_removal(&removal, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn removal_is_shown_in_words_of_zpool() {
        let text = printed("evacuating", None);
        assert!(text.starts_with("remove: Evacuation of mirror-1 in progress since "), "{text}");
        assert!(text.contains("1G copied out of 4G at 10.2M/s, 25.00% done, 0h5m to go"), "{text}");
        let text = printed("paused", Some("device 'sda' is unavailable"));
        assert!(text.contains("25.00% done, paused\n\tdevice 'sda'"), "{text}");
        let text = printed("canceled", None);
        assert!(text.starts_with("remove: Removal of mirror-1 canceled on "), "{text}");
        let text = printed("finished", None);
        assert!(
            text.starts_with("remove: Removal of vdev 1 copied 1G in 0h1m, completed on "),
            "{text}"
        );
        assert!(text.contains("\t2.34K memory used for removed device mappings"), "{text}");
    }
}
