//! Calls made up from the OpenAPI document, good and bad: no answer is a server's error, none is one that the document does
//! not know, and each has the shape that it says.

use crate::support::Server;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Calls to each operation.
const CALLS: usize = 60;

/// Values that break things elsewhere.
fn odd(random: &mut StdRng) -> Value {
    let odd = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(i64::MAX),
        json!(1e300),
        json!(""),
        json!("\u{0}"),
        json!("x".repeat(5_000)),
        json!("';--"),
        json!("\u{fffd}😀é"),
        json!([]),
        json!({}),
        json!([[[[[]]]]]),
        json!("9999-12-31T23:59:59.999999999Z"),
    ];
    odd.choose(random).unwrap().clone()
}

struct Maker<'d> {
    document: &'d Value,
    random: StdRng,
}

impl Maker<'_> {
    /// A value of a schema; now and then one that is not.
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        if self.random.random_ratio(1, 12) || depth > 6 {
            return odd(&mut self.random);
        }
        if let Some(name) = schema["$ref"].as_str() {
            let schema =
                self.document.pointer(name.trim_start_matches('#')).expect("a reference leads somewhere").clone();
            return self.value(&schema, depth);
        }
        for of in ["oneOf", "anyOf"] {
            if let Some(choices) = schema[of].as_array() {
                let choice = choices.choose(&mut self.random).unwrap().clone();
                return self.value(&choice, depth);
            }
        }
        if let Some(all) = schema["allOf"].as_array() {
            let mut object = Map::new();
            for part in all.clone() {
                if let Value::Object(part) = self.value(&part, depth) {
                    object.extend(part);
                }
            }
            return Value::Object(object);
        }
        if let Some(values) = schema["enum"].as_array() {
            return values.choose(&mut self.random).unwrap().clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.choose(&mut self.random).cloned().unwrap_or_default(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("object") => self.object(schema, depth),
            Some("array") => {
                let items = self.random.random_range(0..3);
                (0..items).map(|_| self.value(&schema["items"], depth + 1)).collect()
            }
            Some("integer" | "number") => {
                json!([1, 2, 5, 9, 100, 1_000].choose(&mut self.random))
            }
            Some("boolean") => json!(self.random.random_bool(0.5)),
            Some("string") => match schema["format"].as_str() {
                Some("uuid") => json!("01890000-0000-7000-8000-000000000000"),
                Some("date-time") => json!("2030-01-31T12:00:00.000Z"),
                _ => json!(["mail", "a", "w1", "New"].choose(&mut self.random)),
            },
            Some("null") => Value::Null,
            _ => odd(&mut self.random),
        }
    }

    fn object(&mut self, schema: &Value, depth: usize) -> Value {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let properties = schema["properties"].as_object().cloned().unwrap_or_default();
        let mut object = Map::new();
        for (name, schema) in &properties {
            let is_required = required.contains(&json!(name)) && !self.random.random_ratio(1, 20);
            if is_required || self.random.random_ratio(1, 3) {
                object.insert(name.clone(), self.value(schema, depth + 1));
            }
        }
        Value::Object(object)
    }

    /// A path or query value as text.
    fn text(&mut self, schema: &Value) -> String {
        match self.value(schema, 0) {
            Value::String(text) => text.chars().take(300).collect(),
            value => value.to_string(),
        }
    }
}

fn methods() -> [(&'static str, Method); 5] {
    [
        ("get", Method::GET),
        ("post", Method::POST),
        ("put", Method::PUT),
        ("patch", Method::PATCH),
        ("delete", Method::DELETE),
    ]
}

async fn calls_from_the_document_are_answered_as_it_says(server: &Server) {
    let document = server.get("/openapi.json").await.ok();
    let seed = 20_261_116;
    let mut maker = Maker { document: &document, random: StdRng::seed_from_u64(seed) };
    let mut statuses = BTreeMap::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (name, method) in methods() {
            let Some(operation) = operations.get(name) else { continue };
            for _ in 0..CALLS {
                let status = call(server, &mut maker, path, &method, operation).await;
                *statuses.entry(status).or_insert(0) += 1;
            }
        }
    }
    // Good calls and bad ones were among them.
    for status in [200, 201, 404, 422] {
        assert!(statuses.get(&status).is_some_and(|calls| *calls >= 10), "{statuses:?}");
    }
}

async fn call(server: &Server, maker: &mut Maker<'_>, path: &str, method: &Method, operation: &Value) -> u16 {
    let (mut url, mut query) = (format!("{}{path}", server.url()), Vec::new());
    for parameter in operation["parameters"].as_array().into_iter().flatten() {
        let name = parameter["name"].as_str().unwrap();
        match parameter["in"].as_str() {
            Some("path") => {
                let text: String = form(&maker.text(&parameter["schema"]));
                url = url.replace(&format!("{{{name}}}"), if text.is_empty() { "x" } else { &text });
            }
            Some("query") if maker.random.random_ratio(1, 4) => {
                query.push((name.to_owned(), maker.text(&parameter["schema"])));
            }
            _ => {}
        }
    }
    let mut request = server.client.request(method.clone(), &url).query(&query);
    let mut sent = Value::Null;
    if let Some(schema) = operation.pointer("/requestBody/content/application~1json/schema") {
        sent = maker.value(schema, 0);
        // Nobody waits here.
        if let Some(wait) = sent.get_mut("wait_ms").filter(|wait| wait.is_u64()) {
            *wait = json!(0);
        }
        request = request.json(&sent);
    }
    let what = format!("{method} {url} {query:?} {}", sent.to_string().chars().take(500).collect::<String>());
    let answer = request.send().await.unwrap_or_else(|error| panic!("{what}: {error}"));
    let status = answer.status().as_u16();
    let text = answer.text().await.unwrap();
    assert!(status < 500, "{what}: {status} {text}");
    // Where a path is broken by its own characters, another address is meant.
    if status == 404 || status == 405 {
        return status;
    }
    let response = &operation["responses"][status.to_string()];
    assert!(response.is_object(), "{what}: {status} is not in the document: {text}");
    if let Some(schema) = response.pointer("/content/application~1json/schema") {
        let body: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{what}: {error}: {text}"));
        let mut whole = schema.clone();
        whole["components"] = maker.document["components"].clone();
        if let Err(error) = jsonschema::validate(&whole, &body) {
            panic!("{what}: {status} {text}: {error} at {}", error.instance_path());
        }
    }
    status
}

/// A text as a segment of a path.
fn form(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

crate::facts![calls_from_the_document_are_answered_as_it_says];
