//! A row of figures as a picture of one line.

const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Longest picture, in characters.
const WIDTH: usize = 48;

/// The course of `figures` from left to right, from zero up to `top`; neighbours share a character
/// where there are more than fit.
pub fn sparkline(figures: &[f64], top: f64) -> String {
    let columns = figures.len().min(WIDTH);
    let column = |number: usize| {
        let (from, to) = (number * figures.len() / columns, (number + 1) * figures.len() / columns);
        let part = &figures[from..to];
        part.iter().sum::<f64>() / part.len() as f64
    };
    (0..columns).map(column).map(|figure| step(figure, top)).collect()
}

fn step(figure: f64, top: f64) -> char {
    let share = if top > 0.0 { (figure / top).clamp(0.0, 1.0) } else { 0.0 };
    if figure <= 0.0 { ' ' } else { STEPS[((share * 8.0).ceil() as usize).clamp(1, 8) - 1] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_rises_with_the_figures_and_is_never_too_wide() {
        assert_eq!(sparkline(&[0.0, 1.0, 4.0, 8.0, 9.0], 8.0), " ▁▄██");
        assert_eq!(sparkline(&[0.0, 0.0], 0.0), "  ");
        assert_eq!(sparkline(&[], 1.0), "");
        let long: Vec<f64> = (1..120).map(f64::from).collect();
        let picture = sparkline(&long, 119.0);
        assert_eq!(picture.chars().count(), WIDTH);
        assert!(picture.starts_with("▁▁▁") && picture.ends_with("███"), "{picture}");
    }
}
