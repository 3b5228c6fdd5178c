//! The confidence interval of a figure from a few runs.
//!
//! Rounds are interleaved, so a ratio is taken in each round, of the two runs that had the same seed and the
//! same state of the machine; the effect of a slow minute on both cancels out. Ratios spread evenly on a
//! logarithmic axis, so ours is their geometric mean, and its interval is Student's for the mean of their
//! logarithms. Other figures have the arithmetic mean and its interval. Student's holds for as few as two
//! runs; a bootstrap would not need its assumption, a normal distribution, but of three or seven values a
//! bootstrap knows too little: its intervals are too narrow.

/// A mean, and its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The mean.
    pub mean: f64,
    /// Lower and upper end; a single value has none.
    pub ends: Option<(f64, f64)>,
}

impl Interval {
    /// The interval of figures as they are; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Interval> {
        let n = values.len() as f64;
        if values.is_empty() {
            return None;
        }
        let mean = values.iter().sum::<f64>() / n;
        let ends = (values.len() > 1).then(|| {
            let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
            let reach = quantile(values.len() - 1) * (variance / n).sqrt();
            (mean - reach, mean + reach)
        });
        Some(Interval { mean, ends })
    }

    /// The interval of ratios; values that are not a number above 0 are left out.
    pub fn of_ratios(values: &[f64]) -> Option<Interval> {
        let logs = values.iter().filter(|v| v.is_finite() && **v > 0.0).map(|v| v.ln());
        let of_logs = Interval::of(&logs.collect::<Vec<_>>())?;
        let ends = of_logs.ends.map(|(low, high)| (low.exp(), high.exp()));
        Some(Interval { mean: of_logs.mean.exp(), ends })
    }

    /// Whether the whole interval lies on one side of `value`.
    pub fn excludes(&self, value: f64) -> bool {
        self.ends.is_some_and(|(low, high)| low > value || high < value)
    }
}

/// Student's distribution at 97.5 %, by degrees of freedom.
fn quantile(freedom: usize) -> f64 {
    const FEW: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
    if let Some(t) = freedom.checked_sub(1).and_then(|i| FEW.get(i)) {
        return *t;
    }
    // From here on, the series of Cornish and Fisher is right within 0.2 %.
    let (z, f) = (1.959_964_f64, freedom as f64);
    z + (z.powi(3) + z) / (4.0 * f) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * f * f)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_rt::rng::Rng;

    #[test]
    fn students_table_goes_on() {
        for (freedom, t) in [(1, 12.706), (2, 4.303), (6, 2.447), (11, 2.201), (20, 2.086), (60, 2.000)] {
            assert!((quantile(freedom) - t).abs() < 0.003, "{freedom}: {}", quantile(freedom));
        }
    }

    #[test]
    fn one_value_has_no_interval() {
        assert_eq!(Interval::of(&[]), None);
        assert_eq!(Interval::of(&[2.0]), Some(Interval { mean: 2.0, ends: None }));
        assert!(!Interval::of_ratios(&[2.0]).unwrap().excludes(1.0));
        assert_eq!(Interval::of_ratios(&[0.0, f64::NAN, f64::INFINITY]), None);
    }

    #[test]
    fn a_ratio_and_its_inverse_say_the_same() {
        let there = Interval::of_ratios(&[2.0, 2.5, 4.0]).unwrap();
        let back = Interval::of_ratios(&[1.0 / 2.0, 1.0 / 2.5, 1.0 / 4.0]).unwrap();
        let (low, high) = there.ends.unwrap();
        let (back_low, back_high) = back.ends.unwrap();
        assert!((there.mean * back.mean - 1.0).abs() < 1e-9);
        assert!((low * back_high - 1.0).abs() < 1e-9 && (high * back_low - 1.0).abs() < 1e-9);
        assert!(low < 1.6 && high > 4.8 && low > 1.0, "{low} {high}");
    }

    /// With three runs as with seven, 95 of 100 intervals contain the true value.
    #[test]
    fn an_interval_holds_as_often_as_it_says() {
        let seed = 7;
        println!("seed {seed}");
        let mut rng = Rng::new(seed);
        for runs in [3, 7] {
            let mut noisy = || (0..12).map(|_| rng.unit() - 0.5).sum::<f64>().mul_add(0.2, 3.0);
            let held = (0..2000).filter(|_| {
                let values: Vec<f64> = (0..runs).map(|_| noisy()).collect();
                !Interval::of(&values).unwrap().excludes(3.0)
            });
            let held = held.count();
            assert!((1860..1940).contains(&held), "{runs} runs: {held} of 2000");
        }
    }
}
