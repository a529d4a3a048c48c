//! What the simulated people make: types, tasks and schedules, of every sort that matters to a decision.

use crate::random::Random;
use crate::store::{Given, Row, Schedule, Store, TimerRow};
use std::rc::Rc;
use taskwheel_model::schedule::{Child, Definition, Overlap, Shards};
use taskwheel_model::{
    Life, Misfire, MisfirePolicy, Outcome, RetryPolicy, Rhythm, Time, Timer, TimerSpec, TypeSettings,
};

/// The last type has no worker.
pub(crate) const KINDS: usize = 5;
const UNIQUE_KEYS: usize = 12;
const SCHEDULES: usize = 6;

pub(crate) fn kinds() -> Vec<TypeSettings> {
    let plain = TypeSettings::default();
    vec![
        plain.clone(),
        TypeSettings { need_manual: true, retry: Some(RetryPolicy::Fixed { delay_ms: 500 }), ..plain.clone() },
        TypeSettings { timeout_ms: Some(20_000), max_attempts: Some(2), ..plain.clone() },
        TypeSettings { retry: Some(RetryPolicy::None), ..plain.clone() },
        plain,
    ]
}

pub(crate) fn task(random: &mut Random, now: Time) -> Row {
    let retry = random.maybe(50, |random| {
        random.pick(&[
            RetryPolicy::None,
            RetryPolicy::Fixed { delay_ms: 1_000 },
            RetryPolicy::Sequence { intervals_ms: vec![0, 2_000, 60_000] },
            RetryPolicy::Exponential { delay_ms: 100, multiplier: 3.0, max_delay_ms: 5_000 },
        ])
    });
    let max_attempts = random.maybe(50, |random| random.pick(&[-1, 1, 2, 5]));
    let timeout_ms = random.maybe(30, |random| random.pick(&[-1, 1_000, 5_000, 60_000]));
    let delay_ms = random.pick(&[0, 0, 0, 700, 30_000]);
    let expire_at = random.maybe(15, |random| now.plus_ms(random.ms(0..60_000)));
    Row {
        life: Life::new(now.plus_ms(delay_ms), expire_at),
        kind: if random.percent(2) { KINDS - 1 } else { random.below(KINDS - 1) },
        given: Given { retry, max_attempts, timeout_ms },
        priority: random.pick(&[1, 1, 1, 5, 9]),
        unique: random.maybe(25, |random| random.below(UNIQUE_KEYS)),
        worker: None,
        step: None,
    }
}

pub(crate) fn outcome(random: &mut Random) -> Outcome {
    use Outcome::{Completed, Error, Failure, Release, Retry, Success};
    random.pick(&[Success, Success, Success, Success, Completed, Completed, Error, Error, Failure, Retry, Release])
}

pub(crate) fn schedules(random: &mut Random, store: &mut Store) {
    for schedule in 0..SCHEDULES {
        let mut timers = Vec::new();
        for _ in 0..=random.below(3) {
            let timer = store.next();
            let rhythm = rhythm(random);
            let row = TimerRow { schedule, rhythm, has_begun: false, cursor: None, next_due: None };
            store.timers.insert(timer, row);
            timers.push(timer);
        }
        let definition = Rc::new(definition(random));
        store.schedules.push(Schedule { definition, is_online: false, timers });
    }
}

pub(crate) fn rhythm(random: &mut Random) -> Rc<Rhythm> {
    let (period_ms, initial_delay_ms) = (random.ms(2_000..60_000), random.pick(&[0, 0, 10_000]));
    let cron = |text: &str, zone: &str| TimerSpec::Cron { cron: text.to_owned(), timezone: Some(zone.to_owned()) };
    let spec = match random.below(6) {
        0 | 1 => TimerSpec::FixedRate { period_ms, initial_delay_ms },
        2 | 3 => TimerSpec::FixedDelay { period_ms, initial_delay_ms },
        4 => TimerSpec::OnceAfter { delay_ms: period_ms },
        _ => random.pick(&[cron("*/10 * * * * *", "UTC"), cron("*/7 * * * *", "Europe/Berlin")]),
    };
    let timer = Timer::new(spec);
    Rc::new(timer.rhythm("timer", "UTC").expect("the timer is a good one"))
}

fn definition(random: &mut Random) -> Definition {
    let policy = random.pick(&[MisfirePolicy::Skip, MisfirePolicy::FireOnce, MisfirePolicy::CatchUp]);
    Definition {
        name: "simulated".to_owned(),
        task_type: random.below(KINDS - 1).to_string(),
        misfire: Misfire { policy, max: 3 },
        overlap: random.pick(&[Overlap::Allow, Overlap::Skip, Overlap::Queue, Overlap::Replace]),
        shards: random.maybe(50, |random| Shards::Fixed(random.pick(&[1, 2, 3]))),
        children: children(random, 2),
        ..Definition::default()
    }
}

fn children(random: &mut Random, depth: usize) -> Vec<Child> {
    if depth == 0 {
        return Vec::new();
    }
    let child = |random: &mut Random| Child {
        name: None,
        task_type: random.below(KINDS - 1).to_string(),
        payload: None,
        timeout_ms: None,
        enabled: !random.percent(15),
        children: children(random, depth - 1),
    };
    (0..random.below(3)).map(|_| child(random)).collect()
}
