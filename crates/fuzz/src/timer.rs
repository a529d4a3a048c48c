//! Timers: `CURSOR NOW JSON`, with both times in milliseconds.

use taskwheel_model::{Misfire, MisfirePolicy, Rhythm, Time, Timer, limits};

pub(crate) fn timer(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut words = text.splitn(3, ' ');
    let mut time = || words.next()?.parse::<i64>().ok().map(|ms| Time(ms.clamp(0, limits::TIME_MS_MAX)));
    let (Some(online_at), Some(now)) = (time(), time()) else { return };
    let Some(Ok(timer)) = words.next().map(serde_json::from_str::<Timer>) else { return };
    let Ok(rhythm) = timer.rhythm("timer", "UTC") else { return };
    let again = serde_json::to_string(&timer).expect("a good timer can be written");
    assert_eq!(serde_json::from_str::<Timer>(&again).expect("and read"), timer, "{again}");
    let Some(first) = rhythm.first_due(online_at) else { return };
    if let Some(next) = rhythm.next_due(first) {
        assert!(next > first, "{next:?} does not come after {first:?}");
    }
    for policy in [MisfirePolicy::Skip, MisfirePolicy::FireOnce, MisfirePolicy::CatchUp] {
        missed(&rhythm, first, now, Misfire { policy, max: 3 });
    }
}

fn missed(rhythm: &Rhythm, cursor: Time, now: Time, misfire: Misfire) {
    // Firing by the millisecond for five seconds is work, and shows nothing more.
    if rhythm.next_due(cursor).is_some_and(|next| next.ms_since(cursor) < 100) {
        return;
    }
    let due = rhythm.misfire(cursor, now, misfire);
    assert!(due.fire.is_sorted_by(|earlier, later| earlier < later), "{due:?}");
    assert!(due.fire.iter().all(|time| cursor <= *time && *time <= now), "{due:?}");
    assert!(due.next.is_none_or(|next| next > now || next == cursor), "{due:?} at {now:?}");
    if let Some(missed) = due.missed {
        assert!(missed.fired <= missed.count && missed.first <= missed.last && missed.last <= now, "{due:?}");
    }
}
