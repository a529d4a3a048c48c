//! The indexes that a schema makes, and which of them are gone.

/// An index that must be there, and the statement that makes it again.
struct Index<'s> {
    name: &'s str,
    remedy: String,
}

/// The named indexes of a schema: each statement, and each line within a table, is one.
fn indexes(schema: &str) -> Vec<Index<'_>> {
    let (mut found, mut table) = (Vec::new(), "");
    for line in schema.lines() {
        let part = line.trim().trim_end_matches([',', ';']);
        match part.split_whitespace().collect::<Vec<_>>()[..] {
            ["CREATE", "TABLE", "IF", "NOT", "EXISTS", name, ..] | ["CREATE", "TABLE", name, ..] => table = name,
            ["CREATE", "INDEX", name, ..] => found.push(Index { name, remedy: part.to_owned() }),
            ["KEY", name, ..] | ["UNIQUE", "KEY", name, ..] | ["CONSTRAINT", name, "UNIQUE" | "PRIMARY", ..] => {
                found.push(Index { name, remedy: format!("ALTER TABLE {table} ADD {part}") });
            }
            _ => {}
        }
    }
    found
}

/// What is wrong where an index of a schema is not among these, and how to mend it.
pub(crate) fn missing(schema: &str, there: &[String]) -> Vec<String> {
    let gone = indexes(schema).into_iter().filter(|index| !there.iter().any(|one| one == index.name));
    gone.map(|Index { name, remedy }| format!("the index {name} is missing: make it again with {remedy}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "
CREATE TABLE task (
    id   bigint PRIMARY KEY,
    KEY task_by_type (type, id),
    UNIQUE KEY task_once (`rank`, id),
    CONSTRAINT task_bytes CHECK (id > 0),
    CONSTRAINT task_key UNIQUE (key)
);
CREATE INDEX task_by_key ON task (key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS task_run (
    KEY task_run_live (status)
) ENGINE = InnoDB;
";

    #[test]
    fn what_is_gone_is_named_with_the_statement_that_makes_it() {
        let remedies: Vec<_> = missing(SCHEMA, &["task_pkey".into()]);
        assert_eq!(
            remedies.iter().map(|text| text.split_once(" with ").unwrap().1).collect::<Vec<_>>(),
            [
                "ALTER TABLE task ADD KEY task_by_type (type, id)",
                "ALTER TABLE task ADD UNIQUE KEY task_once (`rank`, id)",
                "ALTER TABLE task ADD CONSTRAINT task_key UNIQUE (key)",
                "CREATE INDEX task_by_key ON task (key) WHERE key IS NOT NULL",
                "ALTER TABLE task_run ADD KEY task_run_live (status)",
            ]
        );
        let there = ["task_by_type", "task_once", "task_key", "task_by_key", "task_run_live"].map(str::to_owned);
        assert_eq!(missing(SCHEMA, &there), [""; 0]);
    }
}
