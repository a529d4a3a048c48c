//! What the kernel says of a process's memory.

use crate::floor::Result;

/// The most memory that a process has had resident so far, in megabytes. It is named by its id, or as `self`.
pub(crate) fn peak_mb(process: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).ok_or("the kernel tells no peak")?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes / 1024.0)
}
