//! The history of a fixture pool (version 28, written by a newer system, native lists) against
//! what `zdb -h` prints of it.

use ondisk::history::{HistoryHeader, HistoryRecord, Records};
use ondisk::{Order, Reader};

fn line(record: &HistoryRecord) -> String {
    if let Some(command) = record.command() {
        return command;
    }
    if let Some(ioctl) = record.ioctl() {
        return format!("ioctl {ioctl}");
    }
    let txg = record.txg().expect("the pool notes its txg");
    let mut line = format!("[txg:{txg}] {}", record.event().expect("an event"));
    if let Some((name, id)) = record.dataset() {
        line = format!("{line} {name} ({id})");
    }
    format!("{line} {}", record.detail().unwrap_or_default()).trim_end().to_owned()
}

#[test]
fn golden_history() {
    let bytes = include_bytes!("../golden/history-version-28.bin");
    let lines: Vec<_> = Records::new(bytes).map(|record| line(&record.expect("a list"))).collect();
    let golden: Vec<_> = include_str!("../golden/history-version-28.txt").lines().collect();
    assert_eq!(lines, golden);
}

#[test]
fn ranges_cover_creation_and_ring() {
    // as `zdb -dddd` prints the object's bonus
    let words = [1296_u64, 184_549, 1296, 6252, 0];
    let bonus: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let header = HistoryHeader::read(&mut Reader::new("history", &bonus, Order::Little));
    assert_eq!(header.expect("a header").ranges(), [0..1296, 1296..6252]);
}
