//! What a run ran on, and when.

use crate::floor::Result;

/// How large the machine is; nothing that says whose it is.
pub(crate) fn size() -> Result<String> {
    let memory = std::fs::read_to_string("/proc/meminfo")?;
    let kilobytes = memory.split_whitespace().nth(1).and_then(|word| word.parse::<f64>().ok()).unwrap_or_default();
    let cores = std::thread::available_parallelism()?;
    let processor = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = processor.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let model = model.map_or("", |(_, model)| model.trim());
    Ok(format!("{cores} cores ({model}), {:.0} GB of memory", kilobytes / 1024.0 / 1024.0))
}

/// The first line that a program says, where it is there.
pub(crate) fn said_by(program: &str, arguments: &[&str]) -> Option<String> {
    let said = std::process::Command::new(program).args(arguments).output().ok()?;
    let text = String::from_utf8(said.stdout).ok().filter(|_| said.status.success())?;
    text.lines().next().map(|line| line.trim().to_owned())
}

/// The day, in UTC.
pub(crate) fn today() -> String {
    jiff::Timestamp::now().strftime("%Y-%m-%d").to_string()
}
