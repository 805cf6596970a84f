//! Figures in words: sizes, rates, shares.

/// `4 KiB`, `1.5 MiB`, `100 TiB`.
pub fn size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", short(value), UNITS[unit])
}

/// `62.7/s`, `1,675/s`, `2.5 M/s`.
pub fn rate(per_second: f64) -> String {
    if per_second >= 1e6 {
        return format!("{} M/s", short(per_second / 1e6));
    }
    if per_second >= 100.0 {
        return format!("{}/s", count(per_second.round() as u64));
    }
    format!("{}/s", short(per_second))
}

/// `18.9 MB/s`, `5,415 MB/s`: 10^6 bytes.
pub fn throughput(bytes_per_second: f64) -> String {
    let megabytes = bytes_per_second / 1e6;
    if megabytes >= 100.0 {
        return format!("{} MB/s", count(megabytes.round() as u64));
    }
    format!("{} MB/s", short(megabytes))
}

/// `27x`, `1.3x`, `1.00x` near one.
pub fn factor(gain: f64) -> String {
    match gain {
        gain if !gain.is_finite() => "-".to_owned(),
        gain if gain >= 100.0 => format!("{}x", count(gain.round() as u64)),
        gain if gain >= 10.0 => format!("{gain:.0}x"),
        gain if gain >= 2.0 => format!("{gain:.1}x"),
        gain => format!("{gain:.2}x"),
    }
}

/// `4 KiB a request`.
pub fn a_request(bytes: f64) -> String {
    format!("{} a request", size(bytes as u64))
}

/// `37 %`, `0.4 %`, `100 %` only for all.
pub fn percent(share: f64) -> String {
    let value = share * 100.0;
    match value {
        0.0 => "0 %".to_owned(),
        value if value < 10.0 => format!("{value:.1} %"),
        value if value > 99.0 && value < 100.0 => format!("{value:.1} %"),
        value => format!("{value:.0} %"),
    }
}

/// `13,884`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `350 ns`, `12.5 us`, `16 ms`, `6.8 s`, `1 h 12 min`.
pub fn duration(nanos: u64) -> String {
    let value = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{} us", short(value / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", short(value / 1e6)),
        1_000_000_000..120_000_000_000 => format!("{} s", short(value / 1e9)),
        _ => {
            let minutes = nanos / 60_000_000_000;
            match (minutes / 60, minutes % 60) {
                (0, minutes) => format!("{minutes} min"),
                (hours, 0) => format!("{hours} h"),
                (hours, minutes) => format!("{hours} h {minutes} min"),
            }
        }
    }
}

/// The same of microseconds.
pub fn micros(us: f64) -> String {
    duration((us * 1e3) as u64)
}

/// `1,675`, `62.7`, `0.35`: three significant digits, or all of a larger number.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 && size < u64::MAX as f64 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", count(size.round() as u64))
        }
        size if size > 0.0 && size < 0.01 => format!("{value:.2e}"),
        _ => short(value),
    }
}

/// Three significant digits, without zeros that say nothing.
fn short(value: f64) -> String {
    let decimals = match value {
        value if value >= 99.95 => 0,
        value if value >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.decimals$}");
    if !text.contains('.') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A word as a shell takes it, in quotes where it has to be.
pub fn shell_word(text: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "/._-:=,+@%".contains(letter);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

/// Words behind each other, as a shell takes them.
pub fn shell_words(words: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| shell_word(word.as_ref())).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short_and_have_their_unit() {
        assert_eq!(size(4096), "4 KiB");
        assert_eq!(size(1536 << 10), "1.5 MiB");
        assert_eq!(size(u64::MAX), "16 EiB");
        assert_eq!(rate(62.71), "62.7/s");
        assert_eq!(rate(1675.2), "1,675/s");
        assert_eq!(throughput(5.415e9), "5,415 MB/s");
        assert_eq!(factor(27.4), "27x");
        assert_eq!(factor(1.004), "1.00x");
        assert_eq!(percent(0.004), "0.4 %");
        assert_eq!(percent(0.999), "99.9 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(count(13_884), "13,884");
        assert_eq!(duration(16_000_000), "16 ms");
        assert_eq!(duration(4_320_000_000_000), "1 h 12 min");
        assert_eq!(duration(480_000_000_000), "8 min");
        assert_eq!(duration(7_200_000_000_000), "2 h");
    }

    #[test]
    fn a_shell_takes_each_word_as_one() {
        let words = ["mode=write-back", "a b", "it's", "", "past:x&y|z", "$HOME"];
        assert_eq!(shell_words(words), "mode=write-back 'a b' 'it'\\''s' '' 'past:x&y|z' '$HOME'");
    }
}
