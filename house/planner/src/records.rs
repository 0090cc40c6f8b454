//! The block sizes that a pool will hold: recordsize or volblocksize, or a mix of them.

use crate::Error;
use crate::capacity::to_f64;

/// Block sizes and their shares of the data.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordMix(Vec<(u64, f64)>);

impl Default for RecordMix {
    fn default() -> Self {
        Self(vec![(1 << 17, 1.0)])
    }
}

impl RecordMix {
    /// Reads `128K`, or a mix as `16K=30%,1M=70%` (the shares are made to add up).
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut mix = Vec::new();
        for part in text.split([',', ' ']).filter(|part| !part.is_empty()) {
            let wrong = || Error::InvalidRecordSize { part: part.to_owned() };
            let (size, share) = match part.split_once(['=', ':']) {
                Some((size, share)) => {
                    (size, share.trim_end_matches('%').parse::<f64>().map_err(|_| wrong())?)
                }
                None => (part, 1.0),
            };
            let bytes = units::parse_bytes(size).ok_or_else(wrong)?;
            let sound =
                bytes.is_power_of_two() && (512..=geometry::MAX_BLOCK as u64).contains(&bytes);
            if !sound || !share.is_finite() || share <= 0.0 {
                return Err(wrong());
            }
            mix.push((bytes, share));
        }
        let sum: f64 = mix.iter().map(|part| part.1).sum();
        if mix.is_empty() {
            return Err(Error::InvalidRecordSize { part: text.to_owned() });
        }
        for part in &mut mix {
            part.1 /= sum;
        }
        Ok(Self(mix))
    }

    /// The sizes in bytes, and their shares of the data, which add up to 1.
    pub fn shares(&self) -> &[(u64, f64)] {
        &self.0
    }

    /// The largest block, bytes.
    pub fn largest_size(&self) -> u64 {
        self.0.iter().map(|part| part.0).max().unwrap_or(1 << 17)
    }

    /// The mean of `value` over the data's block sizes, where `value` is a rate (so
    /// that times add up): the weighted harmonic mean.
    pub fn harmonic_mean(&self, value: impl Fn(u64) -> f64) -> f64 {
        let time: f64 = self.0.iter().map(|(size, share)| share / value(*size)).sum();
        if time > 0.0 { 1.0 / time } else { 0.0 }
    }

    /// The mean size of a block by their number, bytes.
    pub fn mean_block_size(&self) -> f64 {
        self.harmonic_mean(to_f64)
    }
}

#[cfg(test)]
mod tests {
    use super::RecordMix;

    #[test]
    fn shares_of_mix_add_up() {
        let mix = RecordMix::parse("16K=30%,1M=70%").unwrap();
        assert_eq!(mix.shares()[0].0, 16 << 10);
        assert!((mix.shares()[1].1 - 0.7).abs() < 1e-12);
        assert_eq!(RecordMix::parse("128K").unwrap(), RecordMix::default());
        assert_eq!(mix.largest_size(), 1 << 20);
        for wrong in ["", "100K", "32M", "16K=-1", "16K=x", "256"] {
            assert!(RecordMix::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mean_of_rates_is_harmonic() {
        let mix = RecordMix::parse("16K=1,32K=1").unwrap();
        let rate = mix.harmonic_mean(|size| if size == 16 << 10 { 1.0 } else { 3.0 });
        assert!((rate - 1.5).abs() < 1e-12);
    }
}
