//! `taskwheel check`: what is wrong with a configuration and its database, and how to mend it.

use crate::database::open_existing;
use crate::output;
use crate::serve::{self, ServeArgs};
use anyhow::{Error, Result, bail};
use taskwheel_model::Time;
use taskwheel_store::clock::here;
use taskwheel_store::{Inspection, WeakSetting};

/// Looks at what `serve` would be given, and at its database.
pub(crate) async fn check(args: ServeArgs, json: bool) -> Result<()> {
    let mut problems = serve::problems(&args).await;
    let store = match open_existing(&args.database).await {
        Ok(store) => store,
        Err(error) => {
            problems.iter().for_each(|problem| output::say(&format_args!("- {problem}")));
            return Err(error);
        }
    };
    let inspection = store.inspect().await?;
    // At once: what is looked at next takes its time, and would pass for a clock that is behind.
    let skew = skew(inspection.now, here());
    let Inspection { database, schema_version, weak_settings, notes, findings, .. } = inspection;
    let of_configuration = serve::problems_with(&args, &*store).await;
    let contradictions = store.contradictions().await.map_err(Error::from);
    problems.extend(found(of_configuration, &weak_settings, skew, contradictions));
    problems.extend(findings);
    if json {
        let answer = serde_json::json!({"database": database, "schema_version": schema_version,
                                        "problems": problems, "notes": notes});
        output::print(&answer.to_string())?;
    } else {
        output::print(&format!("{database}, schema version {schema_version}"))?;
        problems.iter().try_for_each(|problem| output::print(&format!("- {problem}")))?;
        notes.iter().try_for_each(|note| output::print(&format!("note: {note}")))?;
    }
    match problems.len() {
        0 if json => {}
        0 => output::say("nothing is wrong"),
        1 => bail!("1 problem was found"),
        count => bail!("{count} problems were found"),
    }
    Ok(())
}

/// What is wrong by the configuration, by settings, by clocks and by what is in the tables. What could not be looked at
/// is one more problem, and hides none of the others.
fn found(
    of_configuration: Result<Option<String>>,
    weak_settings: &[WeakSetting],
    skew: Option<String>,
    contradictions: Result<u64>,
) -> Vec<String> {
    let unseen = |error: Error| Some(format!("not everything could be looked at: {error:#}"));
    let weak = weak_settings.iter().map(|weak| {
        format!(
            "{} is {}: set it to {}, or a crash of the machine may lose acknowledged tasks",
            weak.name, weak.value, weak.wanted
        )
    });
    let torn = |tasks: u64| {
        (tasks > 0).then(|| {
            format!(
                "{tasks} tasks are in two places at once or in none, or not where searches look for them: somebody \
                 wrote into our tables"
            )
        })
    };
    let of_configuration = of_configuration.unwrap_or_else(unseen);
    let of_tables = contradictions.map_or_else(unseen, torn);
    of_configuration.into_iter().chain(weak).chain(skew).chain(of_tables).collect()
}

/// How far the clocks of this machine and of the database may be apart. Nothing depends on it but what people read.
const SKEW_MS_MAX: i64 = 2_000;

fn skew(of_database: Time, here: Time) -> Option<String> {
    let ahead_ms = of_database.ms_since(here);
    let (apart_ms, side) = (ahead_ms.abs(), if ahead_ms < 0 { "behind" } else { "ahead of" });
    (apart_ms > SKEW_MS_MAX).then(|| {
        format!(
            "the database's clock is {apart_ms} ms {side} this machine's: tasks go by the database's; let both be set by NTP"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_far_apart_are_named_and_which_is_behind() {
        let here = Time(1_000_000);
        let of_database = |ahead_ms: i64| skew(here.plus_ms(ahead_ms), here).unwrap_or_default();
        assert_eq!((of_database(SKEW_MS_MAX), of_database(-SKEW_MS_MAX)), (String::new(), String::new()));
        assert!(of_database(2_001).contains("is 2001 ms ahead of this machine's"), "{}", of_database(2_001));
        assert!(of_database(-2_001).contains("is 2001 ms behind this machine's"), "{}", of_database(-2_001));
    }

    #[test]
    fn what_could_not_be_looked_at_hides_nothing_else() {
        let weak = WeakSetting { name: "fsync".into(), value: "off".into(), wanted: "on".into() };
        let said = |contradictions: Result<u64>| {
            found(Ok(Some("no tokens".into())), std::slice::from_ref(&weak), Some("skew".into()), contradictions)
        };
        let lines = said(Err(Error::msg("statement timeout")));
        let [configuration, setting, clocks, tables] = lines.as_slice() else { panic!("four are wrong: {lines:?}") };
        assert_eq!((configuration.as_str(), clocks.as_str()), ("no tokens", "skew"));
        assert!(setting.starts_with("fsync is off: set it to on"), "{setting}");
        assert_eq!(tables, "not everything could be looked at: statement timeout");
        assert!(said(Ok(2))[3].starts_with("2 tasks are in two places"), "{:?}", said(Ok(2)));
        assert_eq!(said(Ok(0)).len(), 3, "{:?}", said(Ok(0)));
        assert_eq!(found(Err(Error::msg("away")), &[], None, Ok(0)), ["not everything could be looked at: away"]);
    }
}
