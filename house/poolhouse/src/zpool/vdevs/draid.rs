//! The words for dRAID: `draid`, `draid2`, `draid2:4d:11c:1s`.

use api::VdevLayout;

use crate::outcome::Failure;

/// The default number of data columns, if there are enough drives.
const DEFAULT_DATA: u32 = 8;
const MAX_CHILDREN: usize = 255;
const MAX_SPARES: u32 = 100;

/// Whether a word is one for dRAID.
pub(super) fn is_draid(word: &str) -> bool {
    let Some(rest) = word.strip_prefix("draid") else { return false };
    let parity = rest.split(':').next().unwrap_or(rest);
    ["", "1", "2", "3"].contains(&parity)
}

/// Its layout for this many drives.
pub(super) fn parse_layout(word: &str, drives: usize) -> Result<VdevLayout, Failure> {
    let refuse = |why: String| Err(Failure::usage(format!("'{word}': {why}")));
    let mut parts = word.split(':');
    let parity = parts.next().and_then(|first| first.strip_prefix("draid")).unwrap_or("");
    let parity: u32 = parity.parse().unwrap_or(1);
    let (mut data, mut spares, mut children) = (None, 0, None);
    for part in parts {
        let number = part.get(..part.len().saturating_sub(1)).and_then(|text| text.parse().ok());
        match (number, part.chars().last()) {
            (Some(number), Some('d')) => data = Some(number),
            (Some(number), Some('c')) => children = Some(number),
            (Some(number), Some('s')) => spares = number,
            _ => return refuse(format!("'{part}' is not a number with d, c or s behind it")),
        }
    }
    let there = u32::try_from(drives).unwrap_or(u32::MAX);
    if children.is_some_and(|wanted| wanted != there) {
        return refuse(format!("{drives} drives are named"));
    }
    if drives > MAX_CHILDREN || spares > MAX_SPARES {
        return refuse(format!("it has {MAX_CHILDREN} drives and {MAX_SPARES} spares at most"));
    }
    let left = there.saturating_sub(spares).saturating_sub(parity);
    let data = data.unwrap_or(left.min(DEFAULT_DATA));
    if data == 0 || data > left {
        let wanted = data.max(1).saturating_add(parity).saturating_add(spares);
        return refuse(format!("it needs {wanted} drives at least, not {drives}"));
    }
    Ok(VdevLayout::Draid { parity, data, spares })
}

/// Its full name.
pub(in crate::zpool) fn format_layout(group: VdevLayout, drives: usize) -> String {
    match group {
        VdevLayout::Draid { parity, data, spares } => {
            format!("draid{parity}:{data}d:{drives}c:{spares}s")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use api::VdevLayout;

    use super::{format_layout, is_draid, parse_layout};

    #[test]
    fn words_for_draid_are_read() {
        let of = |parity, data, spares| VdevLayout::Draid { parity, data, spares };
        for (word, drives, wanted) in [
            ("draid", 4, of(1, 3, 0)),
            ("draid2", 14, of(2, 8, 0)),
            ("draid2:4d:11c:1s", 11, of(2, 4, 1)),
            ("draid3:2s", 9, of(3, 4, 2)),
        ] {
            assert!(is_draid(word));
            assert_eq!(parse_layout(word, drives).unwrap(), wanted, "{word}");
        }
        assert_eq!(format_layout(of(2, 4, 1), 11), "draid2:4d:11c:1s");
        for (word, drives) in
            [("draid2:4d:11c:1s", 10), ("draid3:6d", 8), ("draid:4x", 9), ("draid1:101s", 200)]
        {
            assert!(parse_layout(word, drives).is_err(), "{word}");
        }
        assert!(!is_draid("draid4") && !is_draid("draidx"));
    }
}
