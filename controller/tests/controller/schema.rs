//! JSON values held against the part of JSON Schema that the API's description uses.

use serde_json::{Map, Value};

/// Keywords that describe without forbidding anything.
const ANNOTATIONS: [&str; 7] =
    ["components", "default", "deprecated", "description", "example", "examples", "title"];

/// What is wrong with a value, each with the path to it. `root` is the description that references
/// start from.
///
/// # Panics
/// When the schema has a keyword that is not known here: it would go unchecked.
pub(crate) fn problems(root: &Value, schema: &Value, value: &Value) -> Vec<String> {
    let mut found = Vec::new();
    Check { root }.value(schema, value, "$", &mut found);
    found
}

struct Check<'a> {
    root: &'a Value,
}

impl Check<'_> {
    fn value(&self, schema: &Value, value: &Value, path: &str, found: &mut Vec<String>) {
        let rules = match schema {
            Value::Bool(true) => return,
            Value::Object(rules) => rules,
            _ => panic!("{path}: {schema} is no schema"),
        };
        for (keyword, rule) in rules {
            self.keyword(rules, (keyword, rule), value, path, found);
        }
    }

    fn keyword(
        &self,
        rules: &Map<String, Value>,
        (keyword, rule): (&str, &Value),
        value: &Value,
        path: &str,
        found: &mut Vec<String>,
    ) {
        let mut wrong = |what: &str| found.push(format!("{path}: {what} {rule}: {value}"));
        match keyword {
            "$ref" => {
                let pointer = rule.as_str().and_then(|rule| rule.strip_prefix('#'));
                let referred = pointer.and_then(|pointer| self.root.pointer(pointer));
                self.value(referred.expect("a reference that leads somewhere"), value, path, found);
            }
            "type" => {
                let fits = match rule {
                    Value::Array(types) => types.iter().any(|one| is_of_type(value, one)),
                    one => is_of_type(value, one),
                };
                if !fits {
                    wrong("not of type");
                }
            }
            "enum" => {
                if !rule.as_array().expect("a list").contains(value) {
                    wrong("none of");
                }
            }
            "const" => {
                if value != rule {
                    wrong("not");
                }
            }
            "format" => {
                if !has_format(value, rule.as_str().expect("a name")) {
                    wrong("not of format");
                }
            }
            "minimum" => {
                if value.as_f64().is_some_and(|value| value < rule.as_f64().expect("a number")) {
                    wrong("less than");
                }
            }
            "maximum" => {
                if value.as_f64().is_some_and(|value| value > rule.as_f64().expect("a number")) {
                    wrong("more than");
                }
            }
            "minItems" | "maxItems" => {
                let limit = rule.as_u64().expect("a number");
                let at_least = keyword == "minItems";
                let fits = |items: &Vec<Value>| {
                    let items = items.len() as u64;
                    if at_least { items >= limit } else { items <= limit }
                };
                if !value.as_array().is_none_or(fits) {
                    wrong(keyword);
                }
            }
            "required" => {
                let Some(fields) = value.as_object() else { return };
                for name in rule.as_array().expect("a list") {
                    if !fields.contains_key(name.as_str().expect("a name")) {
                        found.push(format!("{path}: {name} is required"));
                    }
                }
            }
            "properties" => {
                for (name, schema) in rule.as_object().expect("schemas by name") {
                    if let Some(field) = value.get(name) {
                        self.value(schema, field, &format!("{path}.{name}"), found);
                    }
                }
            }
            "additionalProperties" => {
                let named = rules.get("properties").and_then(Value::as_object);
                let fields = value.as_object().into_iter().flatten();
                for (name, field) in
                    fields.filter(|(name, _)| !named.is_some_and(|named| named.contains_key(*name)))
                {
                    match rule {
                        Value::Bool(false) => found.push(format!("{path}: {name} is unknown")),
                        schema => self.value(schema, field, &format!("{path}.{name}"), found),
                    }
                }
            }
            "propertyNames" => {
                for name in value.as_object().into_iter().flat_map(Map::keys) {
                    self.value(rule, &Value::from(name.as_str()), path, found);
                }
            }
            "items" | "prefixItems" => {
                let items = value.as_array().into_iter().flatten();
                let first = rules.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len);
                for (at, item) in items.enumerate() {
                    let path = format!("{path}[{at}]");
                    match (rule, keyword) {
                        (Value::Bool(false), _) if at < first => {}
                        (Value::Bool(false), _) => found.push(format!("{path}: one too many")),
                        (Value::Array(each), "prefixItems") => {
                            if let Some(schema) = each.get(at) {
                                self.value(schema, item, &path, found);
                            }
                        }
                        (schema, _) if at >= first => self.value(schema, item, &path, found),
                        _ => {}
                    }
                }
            }
            "allOf" => {
                for schema in rule.as_array().expect("schemas") {
                    self.value(schema, value, path, found);
                }
            }
            "oneOf" | "anyOf" => {
                let fits = |schema: &&Value| {
                    let mut found = Vec::new();
                    self.value(schema, value, path, &mut found);
                    found.is_empty()
                };
                let fitting = rule.as_array().expect("schemas").iter().filter(fits).count();
                if fitting == 0 || (keyword == "oneOf" && fitting > 1) {
                    found.push(format!("{path}: {fitting} of {keyword} {rule} fit {value}"));
                }
            }
            _ => assert!(ANNOTATIONS.contains(&keyword), "{path}: unknown keyword {keyword}"),
        }
    }
}

fn is_of_type(value: &Value, name: &Value) -> bool {
    match name.as_str().expect("a type's name") {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        unknown => panic!("unknown type {unknown}"),
    }
}

/// Whether a number lies in what its format holds, and a string is what its format says. A format
/// says nothing of values of other types.
fn has_format(value: &Value, format: &str) -> bool {
    let number = |fits: fn(i64) -> bool| match value {
        Value::Number(number) => number.as_i64().is_some_and(fits),
        _ => true,
    };
    let text = |fits: fn(&str) -> bool| value.as_str().is_none_or(fits);
    match format {
        "int32" => number(|number| i32::try_from(number).is_ok()),
        "int64" => number(|_| true),
        "float" | "double" => true,
        "ip" | "ipv4" | "ipv6" => text(|text| text.parse::<std::net::IpAddr>().is_ok()),
        "uri" => text(|text| text.contains(':')),
        unknown => panic!("unknown format {unknown} of {value}"),
    }
}

#[test]
fn a_schema_refuses_what_it_forbids() {
    let root = serde_json::json!({"components": {"schemas": {
        "Flow": {"type": "object", "required": ["lost"], "additionalProperties": false,
                 "properties": {"lost": {"type": ["integer", "null"], "minimum": 1}}}}}});
    let list = serde_json::json!({"type": "array", "items": {"$ref": "#/components/schemas/Flow"}});
    let wrong = |value: Value| problems(&root, &list, &value).len();
    assert_eq!(wrong(serde_json::json!([{"lost": 1}, {"lost": null}])), 0);
    assert_eq!(wrong(serde_json::json!([{"lost": 0}, {"lost": 1.5}, {"lost": "1"}])), 3);
    assert_eq!(wrong(serde_json::json!([{}, {"lost": 2, "more": 1}, 7])), 3);
    assert_eq!(wrong(serde_json::json!({})), 1);
}
