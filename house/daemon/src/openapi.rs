//! The description of the API, `GET /api/v1/openapi.json`, made from the types of the calls.
//!
//! Requests are described field by field. The values of answers are not: most are the engine's own types.

use api::{Call, Method};
use serde_json::{Map, Value, json};

/// A field of a request, and its schema.
type Field = (String, Value);

/// The description of the calls that a router has.
#[derive(Default)]
pub(crate) struct Description {
    paths: Map<String, Value>,
    schemas: Map<String, Value>,
}

impl Description {
    /// Adds a call.
    pub(crate) fn add<C: Call>(&mut self) {
        let mut parts = Vec::new();
        C::schemas(&mut parts);
        for (name, schema) in parts {
            self.schemas.insert(name, to_value(&schema));
        }
        let schema = to_value(&C::schema());
        let (in_path, rest) = split_fields(C::PATH, &schema);
        let mut parameters: Vec<Value> =
            in_path.iter().map(|(name, schema)| parameter(name, schema, "path", true)).collect();
        let mut operation = json!({
            "operationId": C::name(),
            "summary": schema.get("description").cloned().unwrap_or_default(),
            "x-changes": C::CHANGES,
            "x-owner-only": C::OWNER_ONLY,
            "x-operates": C::OPERATES,
            "responses": {
                "200": { "description": "It succeeded: {\"value\": ..., \"warnings\": [...]}" },
                "default": {
                    "description": "It failed",
                    "content": { "application/json": {
                        "schema": { "$ref": "#/components/schemas/Refusal" } } },
                },
            },
        });
        let required = required_fields(&schema);
        if C::METHOD.has_body() {
            let fields: Map<String, Value> = rest.into_iter().collect();
            let required: Vec<_> =
                required.into_iter().filter(|name| fields.contains_key(name)).collect();
            operation["requestBody"] = json!({ "content": { "application/json": {
                "schema": { "type": "object", "properties": fields, "required": required } } } });
        } else {
            let query = rest
                .iter()
                .map(|(name, schema)| parameter(name, schema, "query", required.contains(name)));
            parameters.extend(query);
        }
        operation["parameters"] = parameters.into();
        let path = self.paths.entry(format!("{}{}", api::PREFIX, C::PATH)).or_insert(json!({}));
        path[method_word(C::METHOD)] = operation;
    }

    /// The document.
    pub(crate) fn document(&self) -> Value {
        let mut schemas = self.schemas.clone();
        schemas.insert(
            "Refusal".to_owned(),
            json!({ "type": "object", "required": ["error", "status"], "properties": {
                "error": { "type": "string", "description": "A sentence for the user" },
                "status": { "type": "integer", "description": "The exit status of the command" },
            } }),
        );
        json!({
            "openapi": "3.1.0",
            "info": { "title": "Poolhouse", "version": env!("CARGO_PKG_VERSION") },
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
            },
            "security": [{ "token": [] }],
        })
    }
}

fn to_value(schema: &impl serde::Serialize) -> Value {
    serde_json::to_value(schema).unwrap_or_default()
}

/// The fields of a request that are in its path, and the others, each with its schema.
fn split_fields(path: &str, schema: &Value) -> (Vec<Field>, Vec<Field>) {
    let fields = schema.get("properties").and_then(Value::as_object);
    let fields = fields.into_iter().flatten().map(|(name, schema)| (name.clone(), schema.clone()));
    fields.partition(|(name, _)| path.contains(&format!("{{{name}}}")))
}

fn required_fields(schema: &Value) -> Vec<String> {
    let names = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    names.filter_map(|name| name.as_str().map(str::to_owned)).collect()
}

fn parameter(name: &str, schema: &Value, place: &str, required: bool) -> Value {
    let description = schema.get("description").cloned().unwrap_or_default();
    json!({ "name": name, "in": place, "required": required, "description": description,
        "schema": schema })
}

const fn method_word(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Put => "put",
        Method::Patch => "patch",
        Method::Delete => "delete",
    }
}

#[cfg(test)]
mod tests {
    use api::{CreateFilesystem, DestroyPool, ListDatasets};
    use serde_json::json;

    use super::Description;

    #[test]
    fn calls_are_described_field_by_field() {
        let mut description = Description::default();
        description.add::<ListDatasets>();
        description.add::<DestroyPool>();
        description.add::<CreateFilesystem>();
        let document = description.document();
        let list = &document["paths"]["/api/v1/datasets"]["get"];
        assert_eq!(list["summary"], "Lists datasets.");
        assert_eq!((&list["x-changes"], &list["x-owner-only"]), (&json!(false), &json!(false)));
        assert_eq!(list["parameters"].as_array().unwrap().len(), 4);
        let destroy = &document["paths"]["/api/v1/pools/{name}"]["delete"]["parameters"];
        let places = [&destroy[0]["in"], &destroy[1]["in"]];
        assert_eq!(places, [&json!("path"), &json!("query")]);
        assert_eq!(destroy[0]["required"], true);
        let create = &document["paths"]["/api/v1/filesystems"]["post"]["requestBody"];
        let schema = &create["content"]["application/json"]["schema"];
        assert_eq!(schema["required"], json!(["name"]));
        assert_eq!(schema["properties"]["parents"]["type"], "boolean");
        assert!(document["components"]["schemas"]["Secret"].is_object());
    }
}
