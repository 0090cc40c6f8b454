//! Figures of several sides that took turns.

use crate::timing::median;

/// The figures of one side of a workload, round by round.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) rates: Vec<f64>,
}

/// A side's name, and what measures it once.
pub(crate) type NamedMeasurement<'a> = (String, Box<dyn FnMut() -> Result<f64, String> + 'a>);

/// Measures sides in turns; a first turn of each does not count. A side that fails is left out, and
/// the reason is printed.
pub(crate) fn measure_in_turns(rounds: usize, sides: &mut [NamedMeasurement<'_>]) -> Vec<Series> {
    let mut found: Vec<Series> = sides
        .iter()
        .map(|(name, _)| Series { name: name.clone(), rates: Vec::with_capacity(rounds) })
        .collect();
    let mut failed = vec![false; sides.len()];
    for round in 0..=rounds.max(1) {
        for ((side, (name, work)), failed) in found.iter_mut().zip(&mut *sides).zip(&mut failed) {
            if *failed {
                continue;
            }
            match work() {
                Ok(figure) if round > 0 => side.rates.push(figure),
                Ok(_) => {}
                Err(why) => {
                    println!("left out: {name}: {why}");
                    *failed = true;
                }
            }
        }
    }
    found.retain(|side| !side.rates.is_empty());
    found
}

/// How many times the rate of another side this one's is: the median of the rounds' own ratios.
pub(crate) fn median_ratio(ours: &Series, theirs: &Series) -> f64 {
    let pairs = ours.rates.iter().zip(&theirs.rates);
    median(&pairs.map(|(ours, theirs)| ours / theirs).collect::<Vec<_>>())
}

/// Prints a line: the first side's rate, and that of each other with the ratio.
pub(crate) fn print_comparison(what: &str, unit: &str, sides: &[Series], wanted: &[(&str, f64)]) {
    let Some((ours, others)) = sides.split_first() else { return };
    let digits = if median(&ours.rates) < 100.0 { 2 } else { 0 };
    print!("{what:<34} {} {:.digits$} {unit}", ours.name, median(&ours.rates));
    for other in others {
        let wish = wanted.iter().find(|(name, _)| *name == other.name);
        let wish = wish.map_or(String::new(), |(_, wanted)| format!(", wanted: {wanted}"));
        print!(
            "   {} {:.digits$} (ratio {:.2}{wish})",
            other.name,
            median(&other.rates),
            median_ratio(ours, other)
        );
    }
    println!();
}

#[cfg(test)]
mod tests {
    use super::{measure_in_turns, median_ratio};

    #[test]
    fn first_turn_and_failing_sides_are_ignored() {
        let (mut first, mut second) = (0.0, 8.0);
        let sides = measure_in_turns(
            3,
            &mut [
                (
                    "a".to_owned(),
                    Box::new(|| {
                        first += 1.0;
                        Ok(first)
                    }),
                ),
                (
                    "b".to_owned(),
                    Box::new(|| {
                        second /= 2.0;
                        Ok(second)
                    }),
                ),
                ("c".to_owned(), Box::new(|| Err("no".to_owned()))),
            ],
        );
        assert_eq!(sides.len(), 2);
        assert_eq!(sides[0].rates, [2.0, 3.0, 4.0]);
        assert!((median_ratio(&sides[0], &sides[1]) - 3.0).abs() < 1e-9);
    }
}
