//! The document that describes the API is part of the repository, so that a change of the API is seen.

use std::path::Path;
use std::{env, fs};

/// Set it to write the document anew.
const UPDATE: &str = "TASKWHEEL_UPDATE_DOCUMENT";

#[test]
fn the_document_is_the_one_in_the_repository() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let document = taskwheel_server::document() + "\n";
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, &document).unwrap();
    }
    let stored = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        document == stored,
        "the API has changed: look at the difference after {UPDATE}=1 cargo nextest run document"
    );
}
