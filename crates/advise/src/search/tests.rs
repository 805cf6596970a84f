//! The search against a judge whose answers are known.

use super::class_axis::class_axis;
use super::*;
use crate::testing::{Job, scattered, together};
use headpond_trace::{Op, RecordFlags, TraceRecord};
use headpond_whatif::{Bins, Lap, Stack};
use std::collections::{BTreeMap, BTreeSet};

/// Answers with products of factors; on few requests it errs.
struct Factors {
    factors: BTreeMap<(&'static str, &'static str), f64>,
    without_cache: f64,
    /// Of the logarithm of a cost, on a thousand requests.
    error: f64,
    asked: usize,
}

impl Factors {
    fn cost(&self, candidate: &Candidate) -> f64 {
        let known = self.factors.iter();
        let holds = |(key, value): (&str, &str)| candidate.value(key) == Some(value);
        match candidate.has_cache() {
            false => self.without_cache,
            true => known.filter(|(it, _)| holds(**it)).map(|(_, factor)| factor).product(),
        }
    }
}

impl Judge for Factors {
    fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError> {
        let trial = |question: &Question| {
            self.asked += 1;
            let error = self.error * 1000.0 / question.requests as f64;
            let sign = (scattered(self.asked as u64, 1) % 200) as f64 / 100.0 - 1.0;
            trial(self.cost(&question.candidate) * (sign * error).exp())
        };
        Ok(questions.iter().map(trial).collect())
    }
}

fn trial(cost: f64) -> Trial {
    let lap = Lap { requests: 100, seconds: cost / 8.0, mean_us: cost, p99_us: cost };
    Trial {
        laps: vec![lap; 8],
        kinds: Vec::new(),
        expected: Expected { cache_bytes_per_request: 4096.0, ..Expected::NOTHING },
        cache_bytes_per_second: 0.0,
        errors: 0,
        windows: Vec::new(),
        measured_from_s: 0.0,
        took: Bins::default(),
        behind: 0.0,
    }
}

fn judge(factors: &[(&'static str, &'static str, f64)]) -> Factors {
    let factors = factors.iter().map(|&(key, value, factor)| ((key, value), factor)).collect();
    Factors { factors, without_cache: 1.0, error: 0.1, asked: 0 }
}

fn found(judge: &mut impl Judge, change: impl FnOnce(&mut Quest)) -> SearchResult {
    let long = Job::new(4, 100, 1 << 20).run(|n| (Op::Write, n << 20));
    found_for(&Signature::of_records(&long), judge, change)
}

fn found_for(
    signature: &Signature,
    judge: &mut impl Judge,
    change: impl FnOnce(&mut Quest),
) -> SearchResult {
    let mut quest = Quest {
        goal: Goal::Throughput,
        freedom: Freedom { cache: true, array: true },
        standing: None,
        cleaning: CleaningConfig::default(),
        classes: ClassSetting::None,
        may_be_dirty: true,
        cache_bytes_max: None,
        requests: 20_000,
        is_exhaustive: false,
    };
    change(&mut quest);
    search(signature, quest, judge).unwrap()
}

#[test]
fn the_best_combination_is_found_among_hundreds() {
    let mut judge = judge(&[
        ("mode", "write-only", 0.5),
        ("cleaning", "acp-very-aggressive", 0.7),
        ("seq-cutoff", "4M", 0.8),
        ("eviction", "arc", 0.9),
        ("strip", "128K", 0.8),
    ]);
    let found = found(&mut judge, |_| {});
    assert_eq!(
        found.chosen.candidate.to_string(),
        "mode=write-only preset=acp-very-aggressive seq-cutoff=4M eviction=arc strip=128K"
    );
    assert!(found.trials == judge.asked && judge.asked < 240, "{}", judge.asked);
}

#[test]
fn a_parameter_of_the_best_cleaner_is_found_and_goes_with_it() {
    let mut judge = judge(&[
        ("mode", "write-back", 0.5),
        ("cleaning", "acp-very-aggressive", 0.7),
        ("cleaning.acp.wake-up-ms", "10", 0.8),
        ("cleaning.in-flight-max", "16", 0.9),
        ("cleaning.alru.staleness-s", "5", 0.1),
    ]);
    judge.error = 0.0;
    let found = found(&mut judge, |_| {});
    let chosen = &found.chosen.candidate;
    assert_eq!(
        chosen.to_string(),
        "mode=write-back preset=acp-very-aggressive seq-cutoff=full cleaning.in-flight-max=16 \
         cleaning.acp.wake-up-ms=10"
    );
    let told = |key| found.effects.iter().find(|effect| effect.key == key);
    let wake_up = told("cleaning.acp.wake-up-ms").unwrap();
    assert_eq!((&*wake_up.value, &*wake_up.instead), ("10", "1"));
    assert!((wake_up.gain.factor - 1.0 / 0.8).abs() < 1e-9, "{wake_up:?}");
    assert!(told("cleaning.alru.staleness-s").is_none());
    let other = chosen.with("cleaning", "stripe");
    let values = ["cleaning.acp.wake-up-ms", "cleaning.in-flight-max"].map(|key| other.value(key));
    assert_eq!(values, [None, Some("16")]);
    assert_eq!(other.with("mode", "write-through").value("cleaning.in-flight-max"), None);
}

#[test]
fn parameters_are_asked_for_with_their_cleaner_only() {
    /// Keeps what it is asked, and forgets no order.
    struct Asked(Factors, Vec<Candidate>);
    impl Judge for Asked {
        fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError> {
            self.1.extend(questions.iter().map(|question| question.candidate.clone()));
            self.0.judge(questions)
        }
    }
    let asked_with = |cleaning| {
        let factors = judge(&[("mode", "write-back", 0.5), ("cleaning", cleaning, 0.6)]);
        let mut judge = Asked(Factors { error: 0.0, ..factors }, Vec::new());
        found(&mut judge, |_| {});
        judge.1
    };
    let cleaners =
        [("stripe", "stripe"), ("alru", "alru-very-aggressive"), ("acp", "acp-very-aggressive")];
    for (policy, cleaning) in cleaners {
        let asked = asked_with(cleaning);
        assert_eq!(asked, asked_with(cleaning), "the same questions in the same order");
        let of_policy = format!("cleaning.{policy}.");
        let mut found = 0;
        for candidate in asked {
            for setting in candidate.settings() {
                let is_parameter = setting.key.starts_with("cleaning.");
                assert!(!is_parameter || candidate.risk() == Risk::Dirty, "{candidate}");
                if setting.key.matches('.').count() == 2 {
                    assert!(setting.key.starts_with(&of_policy), "{candidate}");
                    assert_eq!(candidate.value("cleaning"), Some(cleaning));
                    found += 1;
                }
            }
        }
        assert!(found > 0, "{policy} has parameters");
    }
}

#[test]
fn ratios_of_any_machine_rise_in_every_combination_and_begin_with_its_own() {
    for ratios in [[10, 40, 75], [30, 35, 38], [0, 0, 0], [100, 100, 100], [15, 60, 60]] {
        let mut cleaning = CleaningConfig::default();
        let [low, target, high] = ratios;
        (cleaning.stripe.low_percent, cleaning.stripe.target_percent) = (low, target);
        cleaning.stripe.high_percent = high;
        cleaning.check().unwrap();
        let freedom = Freedom { cache: false, array: false };
        let signature = Signature::of_records(&[TraceRecord::new(0, Op::Write, 0, 4096)]);
        let axes = further_axes(&signature, freedom, cleaning, &ClassSetting::None);
        let values = ["low", "target", "high"].map(|name| -> Vec<u32> {
            let key = format!("cleaning.stripe.{name}-percent");
            let axis = axes.iter().find(|axis| axis.key == key).unwrap();
            axis.values.iter().map(|value| value.parse().unwrap()).collect()
        });
        let [lows, targets, highs] = &values;
        assert_eq!([lows[0], targets[0], highs[0]], ratios);
        for (low, target) in lows.iter().flat_map(|low| targets.iter().map(move |it| (low, it))) {
            assert!(low <= target && highs.iter().all(|high| target <= high), "{values:?}");
        }
    }
}

/// With a cleaner and a strip that are good together only, and alike where few requests are asked.
struct Together {
    factors: Factors,
    cleaning: &'static str,
    asked_min: usize,
}

impl Judge for Together {
    fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError> {
        let trials = self.factors.judge(questions)?.into_iter().zip(questions);
        let together = |(of, question): (Trial, &Question)| {
            let is = |key, value| question.candidate.value(key) == Some(value);
            let are = is("cleaning", self.cleaning) && is("strip", "256K");
            match (question.requests >= self.asked_min, are) {
                (false, _) => trial(if question.candidate.has_cache() { 0.5 } else { 1.0 }),
                (true, true) => trial(of.cost(Goal::Throughput) * 0.5),
                (true, false) => of,
            }
        };
        Ok(trials.map(together).collect())
    }
}

#[test]
fn a_strip_and_a_cleaner_that_are_good_together_only_are_found() {
    let mut factors = judge(&[
        ("mode", "write-back", 0.5),
        ("cleaning", "alru-very-aggressive", 1.15),
        ("strip", "256K", 1.15),
    ]);
    factors.error = 0.03;
    let mut judge = Together { factors, cleaning: "alru-very-aggressive", asked_min: 0 };
    let chosen = found(&mut judge, |_| {}).chosen.candidate.to_string();
    assert_eq!(chosen, "mode=write-back preset=alru-very-aggressive seq-cutoff=full strip=256K");
}

#[test]
fn what_few_requests_do_not_tell_apart_is_told_on_everything() {
    let mut factors = judge(&[("mode", "write-back", 0.5), ("strip", "256K", 1.15)]);
    factors.error = 0.0;
    let mut judge = Together { factors, cleaning: "acp-very-aggressive", asked_min: 20_000 };
    let chosen = found(&mut judge, |_| {}).chosen.candidate;
    let values = [chosen.value("cleaning"), chosen.value("strip")];
    assert_eq!(values, [Some("acp-very-aggressive"), Some("256K")], "{chosen}");
}

#[test]
fn what_is_safer_is_taken_unless_the_other_gains_more() {
    let advised = |clean, dirty| {
        let mut judge = judge(&[
            ("mode", "write-through", clean),
            ("mode", "write-around", 2.0),
            ("mode", "write-invalidate", 2.0),
            ("mode", "write-back", dirty),
            ("mode", "write-only", 2.0),
        ]);
        judge.error = 0.0;
        found(&mut judge, |_| {}).chosen.candidate.mode().to_owned()
    };
    assert_eq!(advised(0.50, 0.49), "write-through");
    assert_eq!(advised(0.50, 0.40), "write-back");
    assert_eq!(advised(0.95, 0.93), "pass-through");
    assert_eq!(advised(0.95, 0.85), "write-back");
}

#[test]
fn what_may_not_be_dirty_is_not_and_what_may_not_be_changed_stays() {
    let mut judge =
        judge(&[("mode", "write-back", 0.1), ("strip", "16K", 0.1), ("line", "64K", 0.1)]);
    judge.without_cache = 2.0;
    let found = found(&mut judge, |quest| {
        quest.may_be_dirty = false;
        quest.freedom = Freedom { cache: false, array: false };
    });
    assert_eq!(found.chosen.candidate.risk(), Risk::Clean);
    let values = ["line", "strip"].map(|key| found.chosen.candidate.value(key).is_none());
    assert_eq!(values, [true, true]);
    assert!(found.finalists.iter().all(|it| it.candidate.risk() != Risk::Dirty));
}

#[test]
fn settings_that_do_nothing_stay_what_they_are_by_themselves() {
    let mut judge = judge(&[("mode", "write-back", 0.5)]);
    judge.error = 0.0;
    let candidate = found(&mut judge, |_| {}).chosen.candidate;
    assert_eq!(candidate.to_string(), "mode=write-back cleaning=stripe seq-cutoff=full");
}

#[test]
fn an_interval_holds_the_gain_and_is_narrow_where_all_laps_agree() {
    let gain = trial(1.0).gain_over(&trial(2.0), Goal::Throughput);
    assert!((gain.factor - 2.0).abs() < 1e-9 && gain.high - gain.low < 1e-6, "{gain:?}");
    let mut uneven = trial(2.0);
    for (number, lap) in uneven.laps.iter_mut().enumerate() {
        lap.seconds *= if number % 2 == 0 { 0.5 } else { 1.5 };
    }
    let gain = trial(1.0).gain_over(&uneven, Goal::Throughput);
    assert!(gain.low < 1.7 && gain.high > 2.3 && (gain.factor - 2.0).abs() < 1e-9, "{gain:?}");
}

#[test]
fn a_gain_that_may_be_chance_is_none() {
    let is_likely = |factor, low, high| Gain { factor, low, high }.is_likely();
    assert!(is_likely(1.1, 1.09, 1.11) && is_likely(9.0, 0.7, 117.0));
    assert!(!is_likely(2.3, 0.29, 18.0) && !is_likely(0.9, 0.89, 0.91));
    assert!(!is_likely(5.0, 0.0, f64::INFINITY) && !is_likely(1.0, 1.0, 1.0));
}

#[test]
fn every_reason_is_of_a_value_that_is_advised() {
    // Nearly as good as the best, and safer: it is chosen in the end, not what was refined.
    let mut judge = judge(&[
        ("mode", "write-through", 0.505),
        ("mode", "write-back", 0.5),
        ("cleaning", "acp-very-aggressive", 0.97),
        ("seq-cutoff", "256K", 0.9),
    ]);
    judge.error = 0.3;
    let found = found(&mut judge, |_| {});
    let chosen = &found.chosen.candidate;
    for effect in &found.effects {
        let set = chosen.value(effect.key);
        assert!(set.is_none_or(|set| set == effect.value), "{effect:?}: {chosen}");
    }
    for key in ["cleaning", "seq-cutoff"] {
        let is_default = |value: &str| ["stripe", "full"].contains(&value);
        let is_told = found.effects.iter().any(|effect| effect.key == key);
        assert!(is_told || chosen.value(key).is_none_or(is_default), "{key}: {chosen}");
    }
}

#[test]
fn what_is_set_now_is_not_advised_where_it_is_less_safe_than_what_is_wanted() {
    let standing = Candidate::new([("mode", "write-back".to_owned())]);
    let mut judge = judge(&[("mode", "write-back", 0.1), ("mode", "write-through", 0.5)]);
    let found = found(&mut judge, |quest| {
        quest.standing = Some(standing);
        quest.may_be_dirty = false;
    });
    assert_eq!(found.chosen.candidate.risk(), Risk::Clean);
}

#[test]
fn a_cache_that_holds_nothing_gains_nothing() {
    struct Empty(Factors);
    impl Judge for Empty {
        fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError> {
            let empty = |trial| Trial { expected: Expected::NOTHING, ..trial };
            Ok(self.0.judge(questions)?.into_iter().map(empty).collect())
        }
    }
    let found = found(&mut Empty(judge(&[("mode", "write-back", 0.5)])), |_| {});
    assert!(!found.chosen.candidate.has_cache());
}

#[test]
fn what_is_set_now_stays_where_nothing_does_much_better() {
    let standing = Candidate::new([
        ("mode", "write-around".to_owned()),
        ("seq-cutoff", "2M".to_owned()),
        ("promotion", "nhit".to_owned()),
    ]);
    let advised = |write_back: f64| {
        let mut judge = judge(&[
            ("mode", "write-around", 0.5),
            ("mode", "write-back", write_back),
            ("promotion", "always", 1.01),
        ]);
        (judge.error, judge.without_cache) = (0.0, 2.0);
        let found = found(&mut judge, |quest| quest.standing = Some(standing.clone()));
        assert_eq!(found.standing.as_ref().unwrap().candidate, standing);
        found.chosen.candidate
    };
    assert_eq!(advised(0.49), standing);
    let other = advised(0.25);
    assert_eq!((other.mode(), other.value("promotion")), ("write-back", None));
}

#[test]
fn what_is_set_now_of_settings_that_are_not_tried_stays() {
    let machine = crate::testing::situation("size = \"64G\"\nmode = \"write-back\"\n");
    let standing = Candidate::standing(&machine.stack);
    // Of short requests all over the volume what is read ahead is not tried.
    let mut judge = judge(&[("mode", "write-back", 0.5), ("readahead", "adaptive", 0.5)]);
    judge.error = 0.0;
    let short = Job::new(4, 500, 4096).run(|n| (Op::Write, scattered(n, 1 << 22)));
    let found = found_for(&Signature::of_records(&short), &mut judge, |quest| {
        quest.standing = Some(standing.clone());
    });
    assert_eq!(found.chosen.candidate, standing);
    assert!(found.effects.iter().all(|effect| effect.key != "readahead"));
}

#[test]
fn every_goal_has_a_name_that_is_read_back() {
    for (name, goal) in Goal::ALL {
        assert_eq!(goal.to_string(), name);
        assert_eq!(name.parse::<Goal>().unwrap(), goal);
    }
    assert!("fast".parse::<Goal>().unwrap_err().to_string().contains("throughput"));
}

/// Candidates are alike whichever setting was set first by the place of each in that list.
#[test]
fn every_axis_has_its_place_among_the_settings_of_a_candidate() {
    let long = Job::new(4, 100, 1 << 20).run(|n| (Op::Write, n << 20));
    let short = Job { process: 1, ..Job::new(4, 100, 4096) };
    let signature = together(vec![long, short.run(|n| (Op::Read, scattered(n, 4096)))]);
    let freedom = Freedom { cache: true, array: true };
    let axes = main_axes(&signature).into_iter().chain(further_axes(
        &signature,
        freedom,
        CleaningConfig::default(),
        &ClassSetting::None,
    ));
    let found: BTreeSet<&str> = axes.map(|axis| axis.key).collect();
    assert_eq!(found, BTreeSet::from(axes::KEYS));
}

/// Short writes, long reads and writes, and some metadata.
fn of_many_lengths() -> Signature {
    let short = Job::new(4, 500, 4096).run(|n| (Op::Write, scattered(n, 4096)));
    let long = Job { process: 1, ..Job::new(2, 200, 256 << 10) }.run(|n| {
        let op = if n % 2 == 0 { Op::Read } else { Op::Write };
        (op, scattered(n, 256 << 10))
    });
    let mut metadata = Job::new(1, 50, 4096).run(|n| (Op::Read, n << 30));
    metadata.iter_mut().for_each(|record| record.flags = RecordFlags::METADATA);
    together(vec![short, long, metadata])
}

#[test]
fn classes_are_tried_that_tell_requests_apart() {
    let values = class_axis(&of_many_lengths(), &ClassSetting::None).unwrap().values;
    assert_eq!(
        values,
        [
            "none",
            "past:request_size:ge:262144",
            "keep:request_size:lt:262144",
            "past:request_size:ge:262144&io_direction:read",
            "past:request_size:ge:262144&io_direction:write",
            "keep:metadata",
            "only:metadata",
        ]
    );
    for value in &values {
        let setting = ClassSetting::try_from(value.clone()).unwrap();
        assert_eq!(setting.file(), None, "{value}");
    }
    let alike = Job::new(4, 100, 4096).run(|n| (Op::Write, scattered(n, 4096)));
    assert_eq!(class_axis(&Signature::of_records(&alike), &ClassSetting::None), None);
    let of_file = ClassSetting::parse("[[class]]\nid = 1\nwhen = \"metadata\"\n").unwrap();
    assert_eq!(class_axis(&of_many_lengths(), &of_file), None);
    let set = ClassSetting::try_from("past:request_size:ge:262144".to_owned()).unwrap();
    let values = class_axis(&of_many_lengths(), &set).unwrap().values;
    assert_eq!(values[..3], [&values[0], "none", "keep:request_size:lt:262144"]);
    assert_eq!((&*values[0], values.len()), ("past:request_size:ge:262144", 7));
    for of_place in ["past:lba:lt:8", "keep:core_id:eq:1"] {
        let set = ClassSetting::try_from(of_place.to_owned()).unwrap();
        assert_eq!(class_axis(&of_many_lengths(), &set), None, "{of_place}");
    }
    let unmarked = together(vec![
        Job::new(4, 100, 4096).run(|n| (Op::Write, scattered(n, 4096))),
        Job::new(4, 100, 1 << 20).run(|n| (Op::Write, scattered(n, 1 << 20))),
    ]);
    assert!(class_axis(&unmarked, &ClassSetting::None).is_some());
    assert_eq!(class_axis(&unmarked, &ClassSetting::Lustre), None, "nothing is known of metadata");
}

/// Of eight lengths the least and the greatest are among those that are tried.
#[test]
fn of_many_lengths_both_ends_are_tried() {
    let jobs = (0..8).map(|exponent| {
        let bytes = 4096 << exponent;
        Job::new(4, 100, bytes).run(|n| (Op::Write, scattered(n, bytes)))
    });
    let values = class_axis(&together(jobs.collect()), &ClassSetting::None).unwrap().values;
    let past = values.iter().filter_map(|value| value.strip_prefix("past:request_size:ge:"));
    assert_eq!(past.collect::<Vec<_>>(), ["8192", "65536", "524288"]);
}

/// With some classes and no cutoff the cache is best on everything, and worse on a part of it.
struct GoodInTheLongRun;

impl Judge for GoodInTheLongRun {
    fn judge(&mut self, questions: &[Question]) -> Result<Vec<Trial>, JudgeError> {
        let cost = |question: &Question| {
            let Question { candidate, requests, .. } = question;
            let (classes, cutoff) = (candidate.value("classes"), candidate.value("seq-cutoff"));
            let has_classes = classes == Some("past:request_size:ge:262144");
            let is_part = *requests < 20_000;
            match (candidate.has_cache(), has_classes, cutoff == Some("never")) {
                (false, ..) => 1.0,
                (true, true, true) if is_part => 1.15,
                (true, true, true) => 0.4,
                (true, true, false) => 1.2,
                (true, false, true) => 2.0,
                (true, false, false) => 0.98,
            }
        };
        Ok(questions.iter().map(|question| trial(cost(question))).collect())
    }
}

#[test]
fn classes_are_found_that_are_good_without_a_cutoff_and_on_everything_alone() {
    let found = found_for(&of_many_lengths(), &mut GoodInTheLongRun, |_| {});
    let chosen = found.chosen.candidate.to_string();
    assert!(chosen.contains("seq-cutoff=never classes=past:request_size:ge:262144"), "{chosen}");
}

#[test]
fn classes_that_are_more_than_a_line_stay_on_the_machine() {
    let text = "name = \"test\"\n[core]\nraid = 0\ndrive = \"hdd-7k2-4t\"\ndrives = 2\n";
    let of_text = ClassSetting::parse("[[class]]\nid = 1\nwhen = \"metadata\"\n").unwrap();
    for classes in [of_text, ClassSetting::File("/no/file".into())] {
        let mut stack = Stack::parse(&format!("{text}[cache]\nsize = \"64M\"\n")).unwrap();
        let cache = stack.cache.as_mut().unwrap();
        cache.settings.classes = classes.clone();
        let standing = Candidate::standing(&stack);
        assert_eq!(standing.value("classes"), None);
        let applied = standing.applied(&stack, 64 << 20).cache.unwrap();
        assert_eq!(applied.settings.classes, classes);
    }
}

#[test]
fn classes_are_part_of_the_best_where_they_help() {
    let past = "past:request_size:ge:262144&io_direction:read";
    let mut judge = judge(&[("mode", "write-back", 0.5), ("classes", past, 0.8)]);
    let found = found_for(&of_many_lengths(), &mut judge, |_| {});
    let chosen = found.chosen.candidate.to_string();
    assert!(chosen.contains(&format!(" classes={past}")), "{chosen}");
}
