//! Gains in words.

use super::Gain;
use headpond_report::factor;

/// `1.5x (1.4x to 1.6x)`; without the interval where there is none.
pub(crate) fn told(gain: Gain) -> String {
    let middle = factor(gain.factor);
    interval(gain).map_or(middle.clone(), |interval| format!("{middle} ({interval})"))
}

/// `1.4x to 1.6x`, in a column.
pub(crate) fn between(gain: Gain) -> String {
    interval(gain).unwrap_or_else(|| "-".to_owned())
}

fn interval(gain: Gain) -> Option<String> {
    match gain.interval() {
        Some((low, high)) => Some(format!("{} to {}", factor(low), factor(high))),
        None => gain.has_parts().then(|| "its parts differ too much to say".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_told_where_there_is_one() {
        let known = Gain { factor: 1.5, low: 1.4, high: 1.6 };
        assert_eq!(
            (told(known), between(known)),
            ("1.50x (1.40x to 1.60x)".into(), "1.40x to 1.60x".into())
        );
        let open = Gain { factor: 1.5, low: 1e-9, high: 2e14 };
        assert_eq!(told(open), "1.50x (its parts differ too much to say)");
        let unknown = Gain { factor: 1.5, low: 0.0, high: f64::INFINITY };
        assert_eq!((told(unknown), between(unknown)), ("1.50x".into(), "-".into()));
    }
}
