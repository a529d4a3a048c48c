//! The table on the terminal: a line for each measurement and system.

use super::results::{Cell, Line, Results};

/// Prints all of it.
#[expect(clippy::print_stdout, reason = "the table is the output")]
pub(super) fn print(results: &Results) {
    println!("\n{} · medians of {} · scale {}", results.machine, results.runs, results.scale);
    for line in &results.rows {
        println!("\n{}", line.title);
        let takes_part = |cell: &&Cell| results.system(&cell.system).is_none_or(|system| system.takes_part([line]));
        for cell in line.cells.iter().filter(takes_part) {
            let title = results.system(&cell.system).map_or(cell.system.as_str(), |system| &system.title);
            let durable = results.system(&cell.system).is_none_or(|system| system.less_durable.is_none());
            let mark = if durable { " " } else { "*" };
            println!("  {title:<34}{mark} {}", figure(line, cell));
        }
    }
    if results.scale < 1.0 {
        println!("\nThis run was scaled down: its figures say that the comparison works, not how fast anything is.");
    }
    if results.systems.iter().any(|system| system.less_durable.is_some()) {
        println!("\n* less durable than the others");
    }
}

fn figure(line: &Line, cell: &Cell) -> String {
    let Some(median) = cell.median() else { return format!("– {}", cell.missing) };
    let (least, most) = cell.spread();
    let note = if cell.note.is_empty() { String::new() } else { format!("  {}", cell.note) };
    let spread = format!("{} – {}", line.unit.show(least), line.unit.show(most));
    format!("{:>14}  ({spread}){note}", line.unit.show(median))
}
