//! Sizes in the form that zpool(8) and zfs(8) print and read.

const UNITS: [&str; 7] = ["", "K", "M", "G", "T", "P", "E"];

/// `bytes` in the short form of the field's own tools: three or four digits and a binary unit
/// ("68.4T", "128K", "512").
pub fn human_bytes(count: u64) -> String {
    let power = (count.max(1).ilog2() / 10) as usize;
    let unit = 1_u64 << (10 * power);
    let whole = count / unit;
    if count.is_multiple_of(unit) {
        return format!("{whole}{}", UNITS[power]);
    }
    // the most decimals that fit five characters, as the field's tools do it
    for decimals in [2, 1, 0] {
        #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
        let text = format!("{:.decimals$}{}", count as f64 / unit as f64, UNITS[power]);
        if text.len() <= 5 || decimals == 0 {
            return text;
        }
    }
    unreachable!("the last round always returns")
}

/// The same with a B behind numbers below 1024 ("0B", "512B"), as zfs(8) prints space.
pub fn human_space(count: u64) -> String {
    if count < 1024 { format!("{count}B") } else { human_bytes(count) }
}

/// Reads "128K", "1.5G", "4TB" (decimal), "4TiB" (binary), "512"; `None` for anything else or
/// what does not fit.
pub fn parse_bytes(text: &str) -> Option<u64> {
    parse(text, true)
}

/// Reads sizes by the rule of zfsprops(7): all units are binary, so "1.5G", "1536M" and "1.50GB"
/// are equal.
pub fn parse_binary(text: &str) -> Option<u64> {
    parse(text, false)
}

fn parse(text: &str, knows_decimal: bool) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(split);
    let unit = unit.trim().to_ascii_uppercase();
    let (letter, decimal) = match unit.as_str() {
        "" | "B" => ("", false),
        u if u.ends_with("IB") => (u.get(..u.len() - 2)?, false),
        u if u.ends_with('B') => (u.get(..u.len() - 1)?, knows_decimal),
        u => (u, false),
    };
    let power = u32::try_from(UNITS.iter().position(|known| *known == letter)?).ok()?;
    let factor =
        if decimal { 1000_u64.checked_pow(power)? } else { 1024_u64.checked_pow(power)? };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    let number: f64 = digits.parse().ok()?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a fraction of a unit is rounded to bytes; the range is checked"
    )]
    let scaled = {
        let product = number * factor as f64;
        (product < u64::MAX as f64).then_some(product.round() as u64)
    };
    scaled
}

#[cfg(test)]
mod tests {
    use super::{human_bytes, human_space, parse_binary, parse_bytes};

    #[test]
    fn sizes_match_zfs_tool_output() {
        for (count, text) in [
            (0, "0"),
            (512, "512"),
            (1024, "1K"),
            (1536, "1.50K"),
            (131_072, "128K"),
            (83_886_080, "80M"),
            (40_713_216, "38.8M"),
            (1_229_824, "1.17M"),
            (u64::MAX, "16.0E"),
        ] {
            assert_eq!(human_bytes(count), text);
        }
        assert_eq!([0, 512, 1536].map(human_space), ["0B", "512B", "1.50K"]);
    }

    #[test]
    fn decimal_and_binary_units_are_distinguished() {
        assert_eq!(parse_bytes("4TB"), Some(4_000_000_000_000));
        assert_eq!(parse_bytes("4TiB"), Some(4 << 40));
        assert_eq!(parse_bytes("4T"), Some(4 << 40));
        assert_eq!(parse_bytes("1.5k"), Some(1536));
        assert_eq!(parse_bytes("17"), Some(17));
        assert_eq!(parse_bytes("17X"), None);
        assert_eq!(parse_bytes("999999999999E"), None);
    }

    #[test]
    fn properties_have_binary_units_only() {
        for text in ["1.5G", "1536M", "1.50GB", "1.5gb", "1.5GiB", "1610612736", "1610612736B"] {
            assert_eq!(parse_binary(text), Some(3 << 29), "{text}");
        }
        assert_eq!((parse_binary("17X"), parse_binary("1Z")), (None, None));
    }
}
