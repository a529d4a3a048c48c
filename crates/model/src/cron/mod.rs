//! Cron expressions: which local times they mean, and when those come in a time zone.
//!
//! Written for this platform because the seeds print expressions that other parsers refuse, and because firings at the
//! changes of daylight saving are a promise: see [`Cron::next_after`].
//!
//! | fields | dialect |
//! |---|---|
//! | 5: minute hour day month weekday | POSIX: weekday 0 or 7 is Sunday; where day and weekday are both given, either will do |
//! | 6: second first | Quartz: weekday 1 is Sunday; day or weekday is `?` or `*` |
//! | 7: year last | as with 6 |
//!
//! All know lists, ranges (also wrapped: `22-2`, `FRI-MON`), steps, names, `?`, the days `L`, `L-3`, `LW` and `15W`, and
//! the weekdays `L`, `FRIL` and `MON#2`.

mod calendar;
mod days;
mod field;
mod search;

use crate::field::{self as check, FieldError};
use crate::limits;
use days::Days;
use field::{Dialect, Field, Span, Unit};

/// A cron expression that was understood and can fire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cron {
    text: String,
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: Days,
    months: u64,
    /// `None` is every year.
    years: Option<Vec<Span>>,
    /// Whether it goes by elapsed time: an hour that the clocks repeat counts twice, one that they skip not at all.
    is_elapsed: bool,
}

impl Cron {
    /// Reads an expression. Errors are about the field `cron`.
    pub fn parse(text: &str) -> Result<Cron, FieldError> {
        Cron::parse_field("cron", text)
    }

    /// Reads an expression that a request has under another name.
    pub fn parse_field(field: &str, text: &str) -> Result<Cron, FieldError> {
        check::name(field, text, limits::CRON_CHARS_MAX)?;
        let cron = Cron::read(text.trim()).map_err(|message| FieldError::new(field, message))?;
        if !cron.can_fire() {
            let message = "never fires: no month it names has such a day; `L` is a month's last day";
            return Err(FieldError::new(field, message));
        }
        Ok(cron)
    }

    /// The expression as it was written.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn read(text: &str) -> Result<Cron, String> {
        let capitals = match text.strip_prefix('@') {
            Some(name) => macro_text(name)?.to_owned(),
            None => text.to_ascii_uppercase(),
        };
        let parts: Vec<&str> = capitals.split_whitespace().collect();
        let (dialect, [second, minute, hour, day, month, weekday, year]) = match parts[..] {
            [minute, hour, day, month, weekday] => (Dialect::Posix, ["0", minute, hour, day, month, weekday, "*"]),
            [second, minute, hour, day, month, weekday] => {
                (Dialect::Quartz, [second, minute, hour, day, month, weekday, "*"])
            }
            [second, minute, hour, day, month, weekday, year] => {
                (Dialect::Quartz, [second, minute, hour, day, month, weekday, year])
            }
            _ => return Err(wrong_number(parts.len())),
        };
        let field = |unit, text| Field { unit, dialect, text };
        let days = Days::parse(field(Unit::Day, day), field(Unit::Weekday, weekday))?;
        if dialect == Dialect::Quartz && days.are_given_twice() {
            return Err(given_twice(&parts));
        }
        Ok(Cron {
            text: text.to_owned(),
            seconds: field(Unit::Second, second).bits()?,
            minutes: field(Unit::Minute, minute).bits()?,
            hours: field(Unit::Hour, hour).bits()?,
            days,
            months: field(Unit::Month, month).bits()?,
            years: years(field(Unit::Year, year))?,
            is_elapsed: hour.contains(['*', '/']),
        })
    }
}

fn years(field: Field<'_>) -> Result<Option<Vec<Span>>, String> {
    if field.is_any()? {
        return Ok(None);
    }
    field.items().map(|item| field.span(item)).collect::<Result<_, _>>().map(Some)
}

fn macro_text(name: &str) -> Result<&'static str, String> {
    match name.to_ascii_lowercase().as_str() {
        "yearly" | "annually" => Ok("0 0 1 1 *"),
        "monthly" => Ok("0 0 1 * *"),
        "weekly" => Ok("0 0 * * 0"),
        "daily" | "midnight" => Ok("0 0 * * *"),
        "hourly" => Ok("0 * * * *"),
        _ => Err(format!("`@{name}` is not known: write @yearly, @monthly, @weekly, @daily or @hourly")),
    }
}

fn wrong_number(count: usize) -> String {
    let fields = if count == 1 { "field" } else { "fields" };
    format!(
        "has {count} {fields}: write 5 (minute hour day month weekday), 6 (second first) or 7 (second first, year last)"
    )
}

/// Quartz refuses this and POSIX takes either, so that nobody can know what was meant.
fn given_twice(parts: &[&str]) -> String {
    const DAY: usize = 3;
    const WEEKDAY: usize = 5;
    let without = |index: usize| {
        let mut parts = parts.to_vec();
        parts[index] = "?";
        parts.join(" ")
    };
    format!("day and weekday are both given: write `?` for one of them, `{}` or `{}`", without(WEEKDAY), without(DAY))
}
