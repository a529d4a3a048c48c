//! What a task's type and the task itself say about its attempts, and the rules that come out of both.

use crate::field::{self, FieldError};
use crate::limits;
use serde::{Deserialize, Serialize};

/// When a task is tried again after an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "strategy", rename_all = "snake_case", deny_unknown_fields)]
pub enum RetryPolicy {
    /// One attempt, whatever the maximum says.
    None,
    /// The same pause each time.
    Fixed {
        /// The pause, in milliseconds.
        delay_ms: i64,
    },
    /// A pause that grows by a factor with each error.
    Exponential {
        /// The first pause, in milliseconds.
        delay_ms: i64,
        /// What each pause is multiplied by to give the next.
        #[serde(default = "default_multiplier")]
        multiplier: f64,
        /// The longest pause, in milliseconds.
        #[serde(default = "default_max_delay_ms")]
        max_delay_ms: i64,
    },
    /// Given pauses in turn; the last one repeats.
    Sequence {
        /// The pauses, in milliseconds.
        intervals_ms: Vec<i64>,
    },
}

fn default_multiplier() -> f64 {
    2.0
}

fn default_max_delay_ms() -> i64 {
    limits::RETRY_DELAY_MS_MAX
}

impl RetryPolicy {
    /// The policy where neither task nor type gives one: 10 s, doubled each time.
    pub const BUILT_IN: RetryPolicy =
        RetryPolicy::Exponential { delay_ms: 10_000, multiplier: 2.0, max_delay_ms: limits::RETRY_DELAY_MS_MAX };

    /// The pause after the `errors`-th error, counted from 1, in milliseconds.
    #[must_use]
    pub fn delay_ms(&self, errors: u32) -> i64 {
        let nth = errors.max(1) - 1;
        match self {
            RetryPolicy::None => 0,
            RetryPolicy::Fixed { delay_ms } => *delay_ms,
            RetryPolicy::Exponential { delay_ms, multiplier, max_delay_ms } => {
                let grown = *delay_ms as f64 * multiplier.powf(f64::from(nth));
                // `as` saturates, so that a power beyond all numbers ends at the cap.
                (grown.round() as i64).min(*max_delay_ms)
            }
            RetryPolicy::Sequence { intervals_ms } => {
                let last = intervals_ms.len().saturating_sub(1);
                intervals_ms.get((nth as usize).min(last)).copied().unwrap_or(0)
            }
        }
    }

    /// Checks the policy's numbers. `field` is the name of the policy in the request.
    pub fn validate(&self, field: &str) -> Result<(), FieldError> {
        let delay = |name: &str, ms: i64| field::range(&format!("{field}.{name}"), ms, 0, limits::RETRY_DELAY_MS_MAX);
        match self {
            RetryPolicy::None => Ok(()),
            RetryPolicy::Fixed { delay_ms } => delay("delay_ms", *delay_ms),
            RetryPolicy::Exponential { delay_ms, multiplier, max_delay_ms } => {
                delay("delay_ms", *delay_ms)?;
                delay("max_delay_ms", *max_delay_ms)?;
                if !(1.0..=limits::RETRY_MULTIPLIER_MAX).contains(multiplier) {
                    let message = format!("must be between 1 and {}", limits::RETRY_MULTIPLIER_MAX);
                    return Err(FieldError::new(format!("{field}.multiplier"), message));
                }
                Ok(())
            }
            RetryPolicy::Sequence { intervals_ms } => {
                let count = i64::try_from(intervals_ms.len()).unwrap_or(i64::MAX);
                let name = format!("{field}.intervals_ms");
                if !(1..=limits::RETRY_INTERVALS_MAX as i64).contains(&count) {
                    let message = format!("must have 1 to {} intervals", limits::RETRY_INTERVALS_MAX);
                    return Err(FieldError::new(name, message));
                }
                intervals_ms.iter().try_for_each(|ms| delay("intervals_ms", *ms))
            }
        }
    }
}

/// What a task type settles for its tasks. What is `None` is as built in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TypeSettings {
    /// A name for people.
    pub name: Option<String>,
    /// The category of its tasks that give none.
    pub category: Option<String>,
    /// When its tasks are tried again.
    pub retry: Option<RetryPolicy>,
    /// How many attempts its tasks have; −1 is unlimited.
    pub max_attempts: Option<i32>,
    /// The hard time limit of one attempt in milliseconds; −1 is none.
    pub timeout_ms: Option<i64>,
    /// Whether a task that used up its attempts waits for a person (Pending) instead of ending as Failure.
    pub need_manual: bool,
    /// The priority of its tasks that give none.
    pub priority: Option<u8>,
}

impl TypeSettings {
    /// Checks every field.
    pub fn validate(&self) -> Result<(), FieldError> {
        if let Some(name) = &self.name {
            field::text("name", name, limits::KEY_CHARS_MAX)?;
        }
        if let Some(category) = &self.category {
            field::name("category", category, limits::KEY_CHARS_MAX)?;
        }
        if let Some(priority) = self.priority {
            field::range("priority", priority.into(), limits::PRIORITY_MIN.into(), limits::PRIORITY_MAX.into())?;
        }
        validate_attempts(self.retry.as_ref(), self.max_attempts, self.timeout_ms)
    }
}

/// Checks the three settings of attempts that both a task and a type may give.
pub(crate) fn validate_attempts(
    retry: Option<&RetryPolicy>,
    max_attempts: Option<i32>,
    timeout_ms: Option<i64>,
) -> Result<(), FieldError> {
    if let Some(policy) = retry {
        policy.validate("retry")?;
    }
    if let Some(attempts) = max_attempts {
        field::range_or_unlimited("max_attempts", attempts.into(), 1, limits::ATTEMPTS_MAX.into())?;
    }
    if let Some(ms) = timeout_ms {
        field::range_or_unlimited("timeout_ms", ms, 1, limits::TIMEOUT_MS_MAX)?;
    }
    Ok(())
}

/// The rules that hold for a task at the moment of a decision: its own settings, else its type's, else the built-in.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// Most attempts; `None` is unlimited.
    pub max_attempts: Option<u32>,
    /// When it is tried again.
    pub retry: RetryPolicy,
    /// The hard time limit of one attempt, in milliseconds.
    pub timeout_ms: Option<i64>,
    /// Pending instead of Failure when the attempts are used up.
    pub need_manual: bool,
    /// Whether success owes a callback.
    pub callback: bool,
}

impl Rules {
    /// Attempts where neither task nor type says how many.
    pub const ATTEMPTS_BUILT_IN: i32 = 3;

    /// The rules from what the task gives and what its type says.
    #[must_use]
    pub fn of(
        retry: Option<RetryPolicy>,
        max_attempts: Option<i32>,
        timeout_ms: Option<i64>,
        settings: Option<&TypeSettings>,
    ) -> Rules {
        let retry =
            retry.or_else(|| settings.and_then(|settings| settings.retry.clone())).unwrap_or(RetryPolicy::BUILT_IN);
        let max_attempts = match retry {
            RetryPolicy::None => 1,
            _ => max_attempts
                .or_else(|| settings.and_then(|settings| settings.max_attempts))
                .unwrap_or(Rules::ATTEMPTS_BUILT_IN),
        };
        let timeout_ms = timeout_ms.or_else(|| settings.and_then(|settings| settings.timeout_ms));
        Rules {
            max_attempts: u32::try_from(max_attempts).ok(),
            retry,
            timeout_ms: timeout_ms.filter(|ms| *ms > 0),
            need_manual: settings.is_some_and(|settings| settings.need_manual),
            callback: false,
        }
    }

    /// Whether so many attempts are all that a task has.
    #[must_use]
    pub fn used_up(&self, attempts: u32) -> bool {
        self.max_attempts.is_some_and(|max| attempts >= max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn each_strategy_gives_its_pauses() {
        let delays = |policy: &RetryPolicy| (1..=4).map(|n| policy.delay_ms(n)).collect::<Vec<_>>();
        assert_eq!(delays(&RetryPolicy::Fixed { delay_ms: 5 }), [5, 5, 5, 5]);
        assert_eq!(delays(&RetryPolicy::BUILT_IN), [10_000, 20_000, 40_000, 80_000]);
        let capped = RetryPolicy::Exponential { delay_ms: 10, multiplier: 3.0, max_delay_ms: 100 };
        assert_eq!(delays(&capped), [10, 30, 90, 100]);
        assert_eq!(delays(&RetryPolicy::Sequence { intervals_ms: vec![1, 7] }), [1, 7, 7, 7]);
    }

    #[test]
    fn policies_are_read_as_the_api_writes_them() {
        let read = |text: &str| serde_json::from_str::<RetryPolicy>(text);
        assert_eq!(read(r#"{"strategy":"none"}"#).unwrap(), RetryPolicy::None);
        assert_eq!(read(r#"{"strategy":"fixed","delay_ms":7}"#).unwrap(), RetryPolicy::Fixed { delay_ms: 7 });
        let exponential = read(r#"{"strategy":"exponential","delay_ms":10000}"#).unwrap();
        assert_eq!(exponential, RetryPolicy::BUILT_IN);
        assert!(read(r#"{"strategy":"fixed","delay_ms":7,"jitter":1}"#).is_err());
        assert!(read(r#"{"strategy":"often"}"#).is_err());
    }

    #[test]
    fn bad_policies_name_their_field() {
        let field = |policy: RetryPolicy| policy.validate("retry").unwrap_err().field;
        assert_eq!(field(RetryPolicy::Fixed { delay_ms: -1 }), "retry.delay_ms");
        assert_eq!(field(RetryPolicy::Sequence { intervals_ms: vec![] }), "retry.intervals_ms");
        let shrinking = RetryPolicy::Exponential { delay_ms: 1, multiplier: 0.5, max_delay_ms: 1 };
        assert_eq!(field(shrinking), "retry.multiplier");
        let nan = RetryPolicy::Exponential { delay_ms: 1, multiplier: f64::NAN, max_delay_ms: 1 };
        assert_eq!(field(nan), "retry.multiplier");
    }

    #[test]
    fn the_task_goes_before_its_type_and_the_type_before_the_built_in() {
        let settings = TypeSettings {
            max_attempts: Some(5),
            timeout_ms: Some(60),
            need_manual: true,
            retry: Some(RetryPolicy::Fixed { delay_ms: 1 }),
            ..TypeSettings::default()
        };
        assert_eq!(Rules::of(None, None, None, None).max_attempts, Some(3));
        assert_eq!(Rules::of(None, None, None, Some(&settings)).max_attempts, Some(5));
        assert_eq!(Rules::of(None, Some(-1), None, Some(&settings)).max_attempts, None);
        assert_eq!(Rules::of(Some(RetryPolicy::None), Some(9), None, None).max_attempts, Some(1));
        assert_eq!(Rules::of(None, None, Some(-1), Some(&settings)).timeout_ms, None);
        assert_eq!(Rules::of(None, None, None, Some(&settings)).timeout_ms, Some(60));
    }

    proptest! {
        #[test]
        fn pauses_never_shrink_overflow_or_pass_the_cap(
            delay_ms in 0..=limits::RETRY_DELAY_MS_MAX,
            multiplier in 1.0..=limits::RETRY_MULTIPLIER_MAX,
            max_delay_ms in 0..=limits::RETRY_DELAY_MS_MAX,
            errors in 1..u32::MAX,
        ) {
            let policy = RetryPolicy::Exponential { delay_ms, multiplier, max_delay_ms };
            prop_assert!(policy.validate("retry").is_ok());
            let delay = policy.delay_ms(errors);
            prop_assert!((0..=max_delay_ms).contains(&delay));
            prop_assert!(delay <= policy.delay_ms(errors.saturating_add(1)));
        }
    }
}
