//! Coalescing.
