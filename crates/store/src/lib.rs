//! The task store.
