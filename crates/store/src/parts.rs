//! The tables, triggers and views that a schema makes, and which of them are not there.

/// What a schema makes besides indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Table,
    Trigger,
    View,
}

/// Something that a schema makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part<'s> {
    pub(crate) kind: Kind,
    pub(crate) name: &'s str,
    /// The statement that makes it, with all up to the next empty line.
    statement: &'s str,
}

/// What a schema makes, in order.
pub(crate) fn parts(schema: &str) -> Vec<Part<'_>> {
    let kinds = [
        ("CREATE TABLE IF NOT EXISTS ", Kind::Table),
        ("CREATE TABLE ", Kind::Table),
        ("CREATE TRIGGER ", Kind::Trigger),
        ("CREATE OR REPLACE VIEW ", Kind::View),
        ("CREATE VIEW ", Kind::View),
    ];
    let starts = std::iter::once(0).chain(schema.match_indices('\n').map(|(place, _)| place + 1));
    let part = |start: usize| {
        let text = &schema[start..];
        let (words, kind) = kinds.into_iter().find(|(words, _)| text.starts_with(words))?;
        let name = text[words.len()..].split_whitespace().next()?;
        let statement = text.split("\n\n").next().unwrap_or(text).trim_end().trim_end_matches(';');
        Some(Part { kind, name, statement })
    };
    starts.filter_map(part).collect()
}

/// What is missing, and how to mend it. `there` tells whether something is there, and at work.
pub(crate) fn faults(schema: &str, there: impl Fn(&Part<'_>) -> bool) -> Vec<String> {
    let fault = |part: Part<'_>| {
        let Part { name, statement, .. } = part;
        match part.kind {
            Kind::Table => format!("the table {name} is missing: restore it, with what was in it, from a backup"),
            Kind::Trigger => format!(
                "the trigger {name} is missing or switched off, so that tasks may be stored that nobody finds: switch it on, or make it \
                 again with {statement}"
            ),
            Kind::View => format!("the view {name} is missing: make it again with {statement}"),
        }
    };
    parts(schema).into_iter().filter(|part| !there(part)).map(fault).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS task (
    id bigint
);
CREATE TABLE task_waiting (id bigint);

-- CREATE TABLE in a comment is none.
CREATE TRIGGER task_goes_live AFTER INSERT ON task BEGIN
    SELECT 1;
END;

CREATE OR REPLACE VIEW task_view AS
SELECT 1;
";

    #[test]
    fn what_is_gone_is_named_with_what_brings_it_back() {
        let named: Vec<_> = parts(SCHEMA).iter().map(|part| (part.kind, part.name)).collect();
        let (table, trigger, view) = (Kind::Table, Kind::Trigger, Kind::View);
        let all = [(table, "task"), (table, "task_waiting"), (trigger, "task_goes_live"), (view, "task_view")];
        assert_eq!(named, all);
        assert_eq!(faults(SCHEMA, |_| true), [""; 0]);
        let gone = faults(SCHEMA, |part| part.name == "task");
        assert_eq!(gone.len(), 3);
        assert!(gone[0].starts_with("the table task_waiting is missing"), "{gone:?}");
        let statement = "with CREATE TRIGGER task_goes_live AFTER INSERT ON task BEGIN\n    SELECT 1;\nEND";
        assert!(gone[1].ends_with(statement), "{gone:?}");
        assert!(gone[2].ends_with("CREATE OR REPLACE VIEW task_view AS\nSELECT 1"), "{gone:?}");
    }
}
