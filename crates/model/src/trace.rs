//! The trace that a task belongs to, as the header `traceparent` of W3C names it.

/// A `traceparent` as version 00 writes it: `00-`, 32 hex digits, 16, and 2, of which the first two are not all zeros. A later version begins
/// with the same parts, and may go on. Whatever else a caller sends is no trace.
#[must_use]
pub fn trace_parent(header: &str) -> Option<String> {
    let (version, parts) = (header.get(..2)?, header.get(2..55)?);
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_zero = |part: &str| part.bytes().all(|byte| byte == b'0');
    let is_trace = match parts.split('-').collect::<Vec<_>>()[..] {
        ["", trace, span, flags] => {
            [trace, span, flags].map(str::len) == [32, 16, 2]
                && [version, trace, span, flags].into_iter().all(is_hex)
                && ![trace, span].into_iter().any(is_zero)
        }
        _ => false,
    };
    let may_end_so = match version {
        "00" => header.len() == 55,
        "ff" => false,
        _ => header.len() == 55 || header[55..].starts_with('-'),
    };
    (is_trace && may_end_so).then(|| format!("00{parts}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_trace_is_kept_as_it_came_sampled_or_not() {
        let unsampled = TRACE.replace("-01", "-00");
        for trace in [TRACE, &unsampled] {
            assert_eq!(trace_parent(trace).as_deref(), Some(trace));
        }
    }

    #[test]
    fn a_later_version_is_read_as_far_as_this_one_goes() {
        for end in ["", "-", "-more"] {
            let later = format!("01{}{end}", &TRACE[2..]);
            assert_eq!(trace_parent(&later).as_deref(), Some(TRACE), "{later}");
        }
    }

    #[test]
    fn anything_else_is_none() {
        let others = [
            TRACE.to_uppercase(),
            TRACE.replacen("00", "ff", 1),
            TRACE.replacen("00", "0g", 1),
            format!("{TRACE}-more"),
            format!("01{}more", &TRACE[2..]),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-0af7651916cd43dd8448eb211c80319c-{}-01", "0".repeat(16)),
            "é".repeat(30),
            TRACE[..54].to_owned(),
            String::new(),
        ];
        for text in others {
            assert_eq!(trace_parent(&text), None, "{text}");
        }
    }
}
