//! How long `taskwheel serve` keeps finished tasks and records.

use crate::duration::milliseconds;
use clap::Args;
use taskwheel_engine::EngineOptions;
use taskwheel_store::Retention;

/// How long finished tasks are kept, each until it is deleted unless something else is said.
#[derive(Args)]
#[command(next_help_heading = "How long finished tasks are kept, for ever unless given")]
pub(crate) struct RetentionArgs {
    /// Keep successful tasks so long, like 7d; 0 removes them as they finish.
    #[arg(long, env = "TASKWHEEL_KEEP_SUCCESS", value_name = "DURATION", value_parser = kept_ms)]
    keep_success: Option<i64>,
    /// Keep failed tasks so long, like 30d.
    #[arg(long, env = "TASKWHEEL_KEEP_FAILURE", value_name = "DURATION", value_parser = kept_ms)]
    keep_failure: Option<i64>,
    /// Keep tasks so long that a person has dealt with.
    #[arg(long, env = "TASKWHEEL_KEEP_RESOLVED", value_name = "DURATION", value_parser = kept_ms)]
    keep_resolved: Option<i64>,
    /// Keep cancelled tasks so long.
    #[arg(long, env = "TASKWHEEL_KEEP_CANCELLED", value_name = "DURATION", value_parser = kept_ms)]
    keep_cancelled: Option<i64>,
    /// Keep the records of the runs of schedules so long after their end, like 90d.
    #[arg(long, env = "TASKWHEEL_KEEP_RUNS", value_name = "DURATION", value_parser = kept_ms)]
    keep_runs: Option<i64>,
    /// Keep the log of changes so long, like 400d.
    #[arg(long, env = "TASKWHEEL_KEEP_AUDIT", value_name = "DURATION", value_parser = kept_ms)]
    keep_audit: Option<i64>,
}

impl RetentionArgs {
    /// Whether successful tasks are kept at all.
    pub(crate) fn keeps_success(&self) -> bool {
        self.keep_success != Some(0)
    }

    /// How an engine is to keep things.
    pub(crate) fn options(&self) -> EngineOptions {
        let retention = Retention {
            success_ms: self.keep_success,
            failure_ms: self.keep_failure,
            manually_processed_ms: self.keep_resolved,
            cancelled_ms: self.keep_cancelled,
        };
        let (keep_runs_ms, keep_audit_ms) = (self.keep_runs, self.keep_audit);
        EngineOptions { retention, keep_runs_ms, keep_audit_ms, ..EngineOptions::default() }
    }
}

/// Nothing needs no unit.
fn kept_ms(text: &str) -> Result<i64, String> {
    if text == "0" { Ok(0) } else { milliseconds(text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        retention: RetentionArgs,
    }

    fn read(line: &str) -> Result<RetentionArgs, clap::Error> {
        Line::try_parse_from(line.split(' ')).map(|line| line.retention)
    }

    #[test]
    fn everything_is_kept_unless_something_else_is_said() {
        let kept = read("serve").unwrap();
        assert!(kept.keeps_success());
        assert_eq!(kept.options().retention, Retention::default());
        assert_eq!((kept.options().keep_runs_ms, kept.options().keep_audit_ms), (None, None));
        let kept = read("serve --keep-runs 90d --keep-audit 400d").unwrap().options();
        assert_eq!((kept.keep_runs_ms, kept.keep_audit_ms), (Some(90 * 86_400_000), Some(400 * 86_400_000)));
        let kept = read("serve --keep-success 7d --keep-cancelled 0").unwrap();
        assert!(kept.keeps_success());
        let expected = Retention { success_ms: Some(7 * 86_400_000), cancelled_ms: Some(0), ..Retention::default() };
        assert_eq!(kept.options().retention, expected);
    }

    #[test]
    fn success_can_be_removed_at_once() {
        for nothing in ["0", "0s"] {
            assert!(!read(&format!("serve --keep-success {nothing}")).unwrap().keeps_success());
        }
        assert!(read("serve --keep-success 7").is_err(), "a number alone is no duration");
    }
}
