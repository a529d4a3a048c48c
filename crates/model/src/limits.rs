//! Every limit of the platform, by name, with its unit last.
//!
//! A limit is here so that the API, the store and the documentation cannot disagree about it.

/// Longest task type, in characters.
pub const TYPE_CHARS_MAX: usize = 200;
/// Longest task key, unique key, route key and category, in characters.
pub const KEY_CHARS_MAX: usize = 200;
/// Longest tenant, creator, host, worker id and app name, in characters.
pub const NAME_CHARS_MAX: usize = 64;
/// Largest payload, as JSON text, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 256 * 1024;
/// Largest result of an execution, as JSON text, in bytes.
pub const RESULT_BYTES_MAX: usize = 256 * 1024;
/// Largest checkpoint, as JSON text, in bytes.
pub const CHECKPOINT_BYTES_MAX: usize = 256 * 1024;
/// Largest progress record, as JSON text, in bytes.
pub const PROGRESS_BYTES_MAX: usize = 4 * 1024;
/// Longest error text that is kept, in bytes. Longer ones are cut, never refused: an error must not be lost to its length.
pub const ERROR_BYTES_MAX: usize = 8 * 1024;
/// Longest remark of a person, in characters.
pub const REMARK_CHARS_MAX: usize = 4_000;
/// Lowest priority, and the default.
pub const PRIORITY_MIN: u8 = 1;
/// Highest priority.
pub const PRIORITY_MAX: u8 = 9;
/// Most attempts a task may be given; −1 stands for unlimited.
pub const ATTEMPTS_MAX: i32 = 1_000_000;
/// Longest hard time limit of one attempt, in milliseconds: 366 days. −1 stands for none.
pub const TIMEOUT_MS_MAX: i64 = 366 * DAY_MS;
/// Longest pause between two attempts, in milliseconds: 366 days.
pub const RETRY_DELAY_MS_MAX: i64 = 366 * DAY_MS;
/// Most intervals in a retry sequence.
pub const RETRY_INTERVALS_MAX: usize = 100;
/// Largest multiplier of an exponential retry policy.
pub const RETRY_MULTIPLIER_MAX: f64 = 1_000.0;
/// Shortest heartbeat a worker may announce, in milliseconds.
pub const HEARTBEAT_MS_MIN: i64 = 100;
/// Longest heartbeat a worker may announce, in milliseconds.
pub const HEARTBEAT_MS_MAX: i64 = 60 * 60 * 1_000;
/// How many heartbeats a worker may miss before its executions are taken over.
pub const HEARTBEATS_MISSED_MAX: i64 = 3;
/// When nobody has looked after the clocks for so long, in milliseconds, workers had nobody to call: three looks.
pub const WATCH_GAP_MS: i64 = 1_500;
/// The lease of an execution without heartbeat and without time limit, in milliseconds: 15 minutes.
pub const LEASE_MS_DEFAULT: i64 = 15 * 60 * 1_000;
/// How long other hosts leave a due task to the host it has an affinity to, in milliseconds.
pub const AFFINITY_GRACE_MS: i64 = 30_000;
/// Latest time that is accepted anywhere: the end of the year 2999.
pub const TIME_MS_MAX: i64 = 32_503_679_999_999;
/// Most tasks in one batch of submits.
pub const SUBMIT_BATCH_MAX: usize = 10_000;
/// How long a call with an idempotency key is answered as at first, in milliseconds: 24 hours.
pub const IDEMPOTENCY_MS: i64 = DAY_MS;
/// Most tasks in one claim.
pub const CLAIM_BATCH_MAX: usize = 1_000;
/// Most task types, and most categories, in one claim.
pub const CLAIM_LANES_MAX: usize = 1_000;
/// Most bytes in the names of the types and categories of a claim.
pub const CLAIM_NAMES_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of JSON.
pub const JSON_DEPTH_MAX: usize = 128;
/// Most tasks of one node of a run.
pub const SHARDS_MAX: u32 = 1_000;
/// Most nodes below the root of a schedule.
pub const CHILDREN_MAX: usize = 1_000;
/// Most levels below the root of a schedule.
pub const CHILDREN_DEPTH_MAX: usize = 20;
/// Most timers of a schedule.
pub const TIMERS_MAX: usize = 20;
/// Most runs of a schedule that wait for another to end.
pub const RUNS_QUEUED_MAX: usize = 100;
/// Most bytes in the results of its parents that a child is given. What is more is left out.
pub const PARENTS_BYTES_MAX: usize = 1024 * 1024;
/// Most items in one renew or finish.
pub const REPORT_BATCH_MAX: usize = 10_000;
/// Most tasks on one page of a list.
pub const PAGE_ROWS_MAX: usize = 500;
/// Most rows that one page of a list looks at. A page whose filter has no index of its own may therefore be short while
/// there is still a next cursor.
pub const PAGE_SCAN_ROWS_MAX: usize = 1_500;
/// Most tasks that one chunk of a bulk action, a rescue or a purge changes in one transaction.
pub const CHUNK_ROWS_MAX: usize = 1_000;
/// How long statistics are kept, in milliseconds: 400 days.
pub const STATISTICS_MS: i64 = 400 * DAY_MS;
/// Longest cron expression, in characters.
pub const CRON_CHARS_MAX: usize = 200;
/// Longest period, initial delay and one-shot delay of a timer, in milliseconds: 100 years.
pub const TIMER_MS_MAX: i64 = 100 * 366 * DAY_MS;
/// A due time that is found later than this, in milliseconds, was missed.
pub const MISSED_AFTER_MS: i64 = 5_000;
/// Most missed due times that a schedule catches up on at once.
pub const CATCH_UP_MAX: u32 = 1_000;
/// How many missed due times a schedule catches up on where it does not say.
pub const CATCH_UP_DEFAULT: u32 = 100;
/// Most coming firings in one preview.
pub const PREVIEW_MAX: usize = 1_000;
/// Number of routing slots.
pub const SLOTS: u16 = 1_024;
/// Highest number a database may have.
pub const DATABASE_NUMBER_MAX: u16 = 511;

const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
