//! The mapping of values to coordinates, and the values for ticks.

/// The spacing of values on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Evenly.
    Linear,
    /// By their logarithm; values must be positive.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Scale {
    kind: Kind,
    /// Values at the ends.
    domain: (f64, f64),
    /// Coordinates of the ends.
    range: (f64, f64),
}

impl Scale {
    /// An axis from 0 or less to a round number not below `max`.
    pub fn linear(min: f64, max: f64, range: (f64, f64), ticks: usize) -> Scale {
        let max = if max > min { max } else { min + 1.0 };
        let step = step(max - min, ticks);
        let domain = ((min / step).floor() * step, (max / step).ceil() * step);
        Scale { kind: Kind::Linear, domain, range }
    }

    /// An axis exactly from `min` to `max`.
    pub fn exact(min: f64, max: f64, range: (f64, f64)) -> Scale {
        Scale { kind: Kind::Linear, domain: (min, if max > min { max } else { min + 1.0 }), range }
    }

    /// An axis between powers of `base`, or for 10 also 2 and 5 times those, that contains `min` and `max`.
    pub fn log(min: f64, max: f64, base: f64, range: (f64, f64)) -> Scale {
        let low = if min.is_finite() && min > 0.0 { min } else { 1.0 };
        let high = if max.is_finite() && max > low { max } else { low };
        let (mut from, mut to) = (f64::NEG_INFINITY, f64::INFINITY);
        for v in round(low, high, base) {
            from = if v <= low * (1.0 + 1e-9) { from.max(v) } else { from };
            to = if v >= high * (1.0 - 1e-9) && v > from { to.min(v) } else { to };
        }
        Scale { kind: Kind::Log, domain: (from, to), range }
    }

    /// The coordinate of `x`; a value outside is at an end.
    pub fn at(&self, x: f64) -> f64 {
        let (a, b) = self.domain;
        let x = if x.is_finite() { x.clamp(a, b) } else { a };
        let part = match self.kind {
            Kind::Linear => (x - a) / (b - a),
            Kind::Log => (x / a).ln() / (b / a).ln(),
        };
        self.range.0 + part * (self.range.1 - self.range.0)
    }

    /// Values at the ends.
    #[cfg(test)]
    fn domain(&self) -> (f64, f64) {
        self.domain
    }

    /// At most about `most` round values of a linear axis.
    pub fn ticks(&self, most: usize) -> Vec<f64> {
        let (a, b) = self.domain;
        let step = step(b - a, most);
        let first = (a / step - 1e-9).ceil();
        let at = |i: u32| (first + f64::from(i)) * step;
        (0..100).map(at).take_while(|v| *v <= b + step * 1e-6).collect()
    }

    /// Powers of `base`, for 10 with 2 and 5 times those when there are few; at most `most`.
    pub fn log_ticks(&self, base: f64, most: usize) -> Vec<f64> {
        let (a, b) = self.domain;
        let inside = |v: &f64| *v >= a * (1.0 - 1e-9) && *v <= b * (1.0 + 1e-9);
        let all: Vec<f64> = round(a, b, base).into_iter().filter(inside).collect();
        if all.len() <= most {
            return all;
        }
        let power = |v: &f64| (v.ln() / base.ln() - (v.ln() / base.ln()).round()).abs() < 1e-6;
        let powers: Vec<f64> = all.into_iter().filter(power).collect();
        let every = powers.len().div_ceil(most.max(1)).max(1);
        powers.into_iter().step_by(every).collect()
    }
}

/// Round values of a logarithmic axis, from below `low` to above `high`.
fn round(low: f64, high: f64, base: f64) -> Vec<f64> {
    let exponent = |v: f64| (v.ln() / base.ln()).floor() as i32;
    let factors: &[f64] = if base == 10.0 { &[1.0, 2.0, 5.0] } else { &[1.0] };
    let of = |e: i32| factors.iter().map(move |m| m * base.powi(e));
    (exponent(low) - 1..=exponent(high) + 2).flat_map(of).collect()
}

/// 1, 2 or 5 times a power of ten, so that `span` has at most `most` steps.
fn step(span: f64, most: usize) -> f64 {
    let rough = span / most.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let m = [1.0, 2.0, 5.0, 10.0].into_iter().find(|m| m * power >= rough * 0.9999).unwrap_or(10.0);
    m * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let s = Scale::linear(0.0, 52.4, (100.0, 0.0), 5);
        assert_eq!(s.domain(), (0.0, 60.0));
        assert_eq!(s.ticks(5), [0.0, 20.0, 40.0, 60.0]);
        assert_eq!((s.at(0.0), s.at(30.0), s.at(1e9)), (100.0, 50.0, 0.0));
        let s = Scale::log(3e3, 4e6, 10.0, (0.0, 40.0));
        assert_eq!(s.domain(), (2e3, 5e6));
        assert_eq!(s.log_ticks(10.0, 6), [1e4, 1e5, 1e6]);
        assert!((s.at(1e5) - 20.0).abs() < 1e-9);
        assert_eq!(Scale::log(4096.0, 5000.0, 2.0, (0.0, 1.0)).domain(), (4096.0, 8192.0));
        assert_eq!(Scale::log(1.0, 8.0, 10.0, (0.0, 1.0)).log_ticks(10.0, 8), [1.0, 2.0, 5.0, 10.0]);
    }

    #[test]
    fn odd_values_make_an_axis_too() {
        for (a, b) in [(0.0, 0.0), (f64::NAN, f64::INFINITY), (5.0, 5.0), (-1.0, 0.0)] {
            let s = Scale::log(a, b, 10.0, (0.0, 1.0));
            assert!(s.at(a).is_finite() && s.at(b).is_finite() && !s.log_ticks(10.0, 5).is_empty());
        }
        let s = Scale::linear(0.0, 0.0, (0.0, 1.0), 4);
        assert!(s.at(f64::NAN) == 0.0 && s.ticks(4).len() > 1);
    }
}
