//! The costs: the drives, and their power.

use serde::Serialize;

use crate::Error;
use crate::capacity::{ratio, to_f64};
use crate::safety::HOURS_PER_YEAR;

const TIB: u64 = 1 << 40;

/// The price of drives.
#[derive(Clone, Debug, PartialEq)]
pub enum Prices {
    /// Each of them the same.
    PerDrive(f64),
    /// By size in bytes.
    BySize(Vec<(u64, f64)>),
}

impl Prices {
    /// Reads `90` (each drive), or `4TB=90,8TB=150`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let amount = |text: &str| {
            let number = text.trim().parse::<f64>().ok();
            number.filter(|number| number.is_finite() && *number >= 0.0)
        };
        if let Some(each) = amount(text) {
            return Ok(Self::PerDrive(each));
        }
        let mut prices = Vec::new();
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let read = part
                .split_once('=')
                .and_then(|(size, price)| Some((units::parse_bytes(size)?, amount(price)?)));
            prices.push(read.ok_or_else(|| Error::InvalidPrice { part: part.to_owned() })?);
        }
        if prices.is_empty() {
            return Err(Error::InvalidPrice { part: text.to_owned() });
        }
        Ok(Self::BySize(prices))
    }

    /// The price of a drive of `bytes` bytes.
    fn drive_price(&self, bytes: u64) -> Result<f64, Error> {
        match self {
            Self::PerDrive(price) => Ok(*price),
            Self::BySize(prices) => {
                // "4TB" is also the price of the drive that holds 4000787030016 bytes
                let near = |size: u64| bytes.abs_diff(size) <= size / 100;
                let found = prices.iter().filter(|(size, _)| near(*size));
                let nearest = found.min_by_key(|(size, _)| bytes.abs_diff(*size));
                nearest.map(|(_, price)| *price).ok_or(Error::NoPrice { bytes })
            }
        }
    }
}

/// The price of a pool.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cost {
    /// All drives; `null` where no prices are given.
    pub price: Option<f64>,
    /// The same for each TiB that is usable.
    pub price_per_usable_tib: Option<f64>,
    /// The power of the drives, watts.
    pub watts: f64,
    /// The price of a year of that.
    pub power_per_year: f64,
}

impl Cost {
    /// Of `drives`, of which `usable` bytes can be used; power at a price per kWh.
    pub(crate) fn new(
        drives: &[u64],
        usable: u64,
        prices: Option<&Prices>,
        watts: f64,
        per_kwh: f64,
    ) -> Result<Self, Error> {
        let price = match prices {
            Some(prices) => Some(
                drives
                    .iter()
                    .map(|drive| prices.drive_price(*drive))
                    .sum::<Result<f64, Error>>()?,
            ),
            None => None,
        };
        let watts = watts * to_f64(drives.len() as u64);
        let tib = ratio(usable, TIB);
        Ok(Self {
            price,
            price_per_usable_tib: price.filter(|_| usable > 0).map(|price| price / tib),
            watts,
            power_per_year: watts / 1000.0 * HOURS_PER_YEAR * per_kwh,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Cost, Prices};

    #[test]
    fn price_is_found_by_advertised_size() {
        let prices = Prices::parse("4TB=90,8TB=150").unwrap();
        let drives = [4_000_787_030_016, 8_000_000_000_000];
        let cost = Cost::new(&drives, 4 << 40, Some(&prices), 5.0, 0.5).unwrap();
        assert_eq!(cost.price, Some(240.0));
        assert_eq!(cost.price_per_usable_tib, Some(60.0));
        assert!((cost.power_per_year - 10.0 * 8.766 * 0.5).abs() < 1e-9);
        assert!(Cost::new(&[6_000_000_000_000], 1, Some(&prices), 5.0, 0.5).is_err());
        assert_eq!(Prices::parse("90"), Ok(Prices::PerDrive(90.0)));
        for wrong in ["", "4TB", "4TB=x", "-3"] {
            assert!(Prices::parse(wrong).is_err(), "{wrong}");
        }
    }
}
