//! `taskwheel check`: what is wrong with a configuration and its database, and how to mend it.

use crate::database::open_existing;
use crate::output;
use crate::serve::{self, ServeArgs};
use anyhow::{Result, bail};
use taskwheel_model::Time;
use taskwheel_store::clock::here;
use taskwheel_store::{Inspection, Store};

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
    match looked_into(&args, &*store, &inspection).await {
        Ok(found) => problems.extend(found),
        // What was found by then may well be why.
        Err(error) if inspection.findings.is_empty() => return Err(error),
        Err(error) => problems.push(format!("not everything could be looked at: {error:#}")),
    }
    let Inspection { database, schema_version, notes, findings, .. } = inspection;
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

/// What is wrong by what is in the tables, by settings and by clocks.
async fn looked_into(args: &ServeArgs, store: &dyn Store, inspection: &Inspection) -> Result<Vec<String>> {
    let weak = inspection.weak_settings.iter().map(|weak| {
        format!(
            "{} is {}: set it to {}, or a crash of the machine may lose acknowledged tasks",
            weak.name, weak.value, weak.wanted
        )
    });
    let contradictions = store.contradictions().await?;
    let torn = (contradictions > 0).then(|| {
        format!(
            "{contradictions} tasks are in two places at once or in none, or not where searches look for them: \
             somebody wrote into our tables"
        )
    });
    let of_configuration = serve::problems_with(args, store).await?.into_iter();
    Ok(of_configuration.chain(weak).chain(torn).chain(skew(inspection.now, here())).collect())
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
}
