//! The indexes that a schema makes, primary keys among them, and what is wrong with those that are there.

/// An index of a table.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) table: String,
    /// `None` is the primary key.
    pub(crate) name: Option<String>,
    /// With commas between them.
    pub(crate) columns: String,
    /// Whether it keeps two rows from having the same.
    pub(crate) is_unique: bool,
    /// Whether searches can use it.
    pub(crate) is_whole: bool,
}

/// An index that a schema makes, and the statement that makes it again.
struct Wanted {
    index: Index,
    remedy: String,
}

/// The indexes of a schema: each statement, and each line within a table, is one.
fn wanted(schema: &str) -> Vec<Wanted> {
    let (mut found, mut within) = (Vec::new(), "");
    for line in schema.lines() {
        let part = line.trim().trim_end_matches([',', ';']);
        let adds = |clause: &str| format!("ALTER TABLE {within} ADD {clause}");
        let (table, name, columns, remedy) = match part.split_whitespace().collect::<Vec<_>>()[..] {
            ["CREATE", "TABLE", "IF", "NOT", "EXISTS", name, ..] | ["CREATE", "TABLE", name, ..] => {
                within = name;
                continue;
            }
            ["CREATE", "INDEX", name, "ON", table, ..] => (table, Some(name), in_brackets(part), part.to_owned()),
            ["KEY", name, ..] | ["UNIQUE", "KEY", name, ..] | ["CONSTRAINT", name, "UNIQUE", ..] => {
                (within, Some(name), in_brackets(part), adds(part))
            }
            ["ALTER", "TABLE", table, "ADD", "PRIMARY", "KEY", ..] => (table, None, in_brackets(part), part.to_owned()),
            ["PRIMARY", "KEY", ..] | ["CONSTRAINT", _, "PRIMARY", ..] => (within, None, in_brackets(part), adds(part)),
            ["--", ..] => continue,
            // Without its key a column cannot number its rows either.
            [column, ..] if part.ends_with("AUTO_INCREMENT PRIMARY KEY") => {
                (within, None, column.to_owned(), format!("ALTER TABLE {within} MODIFY {part}"))
            }
            [column, ..] if part.contains(" PRIMARY KEY") => {
                (within, None, column.to_owned(), adds(&format!("PRIMARY KEY ({column})")))
            }
            _ => continue,
        };
        let (table, name) = (table.to_owned(), name.map(str::to_owned));
        let is_unique = name.is_none() || part.contains("UNIQUE");
        found.push(Wanted { index: Index { table, name, columns, is_unique, is_whole: true }, remedy });
    }
    found
}

/// The columns of a statement or a line that makes an index.
pub(crate) fn in_brackets(text: &str) -> String {
    let inner = text.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map_or("", |(inner, _)| inner);
    inner.split(',').map(|column| column.trim().trim_matches('`')).collect::<Vec<_>>().join(", ")
}

/// What is wrong with the indexes that are there, and how to mend it. Where no primary key can be dropped none is looked for, and none at
/// all where a table is missing.
pub(crate) fn faults(
    schema: &str,
    there: &[Index],
    with_primary_keys: bool,
    has_table: impl Fn(&str) -> bool,
) -> Vec<String> {
    let is_looked_for = |index: &Index| (with_primary_keys || index.name.is_some()) && has_table(&index.table);
    let wanted = wanted(schema).into_iter().filter(|Wanted { index, .. }| is_looked_for(index));
    wanted.filter_map(|Wanted { index, remedy }| fault(&index, &remedy, there)).collect()
}

fn fault(wanted: &Index, remedy: &str, there: &[Index]) -> Option<String> {
    let what = match &wanted.name {
        Some(name) => format!("the index {name}"),
        None => format!("the primary key of {}", wanted.table),
    };
    match there.iter().find(|index| index.table == wanted.table && index.name == wanted.name) {
        None => Some(format!("{what} is missing: make it again with {remedy}")),
        Some(index) if index.columns != wanted.columns => Some(format!(
            "{what} is on {}, and not on {}: remove it, and make it again with {remedy}",
            index.columns, wanted.columns
        )),
        Some(index) if wanted.is_unique && !index.is_unique => Some(format!(
            "{what} lets two rows have the same: remove it, and make it again with {remedy}; rows that have the same already stand in the way"
        )),
        Some(index) if !index.is_whole => {
            Some(format!("{what} is of no use, because its making failed: remove it, and make it again with {remedy}"))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMA: &str = "
-- The PRIMARY KEY is a promise.
CREATE TABLE task (
    id   bigint AUTO_INCREMENT PRIMARY KEY,
    KEY task_by_type (type, id),
    UNIQUE KEY task_once (`rank`, id),
    CONSTRAINT task_bytes CHECK (id > 0),
    CONSTRAINT task_key UNIQUE (key)
);
CREATE INDEX task_by_key ON task (key) WHERE key IS NOT NULL;
CREATE TABLE IF NOT EXISTS task_run (
    type varchar(200) NOT NULL,
    PRIMARY KEY (type, id),
    KEY task_run_live (status)
) ENGINE = InnoDB;
CREATE TABLE task_waiting (
    id   bigint NOT NULL
);
ALTER TABLE task_waiting ADD PRIMARY KEY (id);
";

    #[test]
    fn what_is_gone_is_named_with_the_statement_that_makes_it() {
        let remedies: Vec<_> = faults(SCHEMA, &[], true, |_| true);
        assert_eq!(
            remedies.iter().map(|text| text.split_once(" with ").unwrap().1).collect::<Vec<_>>(),
            [
                "ALTER TABLE task MODIFY id   bigint AUTO_INCREMENT PRIMARY KEY",
                "ALTER TABLE task ADD KEY task_by_type (type, id)",
                "ALTER TABLE task ADD UNIQUE KEY task_once (`rank`, id)",
                "ALTER TABLE task ADD CONSTRAINT task_key UNIQUE (key)",
                "CREATE INDEX task_by_key ON task (key) WHERE key IS NOT NULL",
                "ALTER TABLE task_run ADD PRIMARY KEY (type, id)",
                "ALTER TABLE task_run ADD KEY task_run_live (status)",
                "ALTER TABLE task_waiting ADD PRIMARY KEY (id)",
            ]
        );
        assert!(remedies[0].starts_with("the primary key of task is missing"));
        assert_eq!(faults(SCHEMA, &[], false, |_| true).len(), 5);
        assert_eq!(
            faults(SCHEMA, &[], true, |table| table == "task_run").len(),
            2,
            "the others are of a table that is gone"
        );
        let there: Vec<_> = wanted(SCHEMA).into_iter().map(|one| one.index).collect();
        assert_eq!(faults(SCHEMA, &there, true, |_| true), [""; 0]);
    }

    #[test]
    fn what_is_there_under_its_name_alone_is_named_too() {
        let mut there: Vec<_> = wanted(SCHEMA).into_iter().map(|one| one.index).collect();
        there[1].columns = "id".into();
        there[2].is_unique = false;
        there[4].is_whole = false;
        let found = faults(SCHEMA, &there, true, |_| true);
        assert!(found[0].starts_with("the index task_by_type is on id, and not on type, id: remove it"), "{found:?}");
        assert!(found[1].starts_with("the index task_once lets two rows have the same"), "{found:?}");
        assert!(found[2].starts_with("the index task_by_key is of no use"), "{found:?}");
        assert_eq!(found.len(), 3);
    }
}
