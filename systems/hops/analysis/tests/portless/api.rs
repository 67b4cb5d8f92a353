//! A controller's HTTP API, asked over a socket and held against its own description.

use std::io::{Read, Write};
use std::net::TcpStream;

use calumma_controller::server::Running;
use serde_json::Value;

#[path = "../../../../../controller/tests/controller/schema.rs"]
mod schema;

/// The answer to a request for `path`, which is as the API describes its route.
pub(crate) fn get(controller: &Running, path: &str) -> Value {
    let answer = fetch(controller, path);
    let description = fetch(controller, "/api/v1/openapi.json");
    let route = path.split('?').next().unwrap();
    let methods = description["paths"].as_object().unwrap();
    let generic = |route: &str| {
        let (start, end) = route.rsplit_once('/').unwrap();
        format!("{}/{{system}}/{end}", start.rsplit_once('/').unwrap().0)
    };
    let described = methods.get(route).or_else(|| methods.get(&generic(route)));
    let described = described.unwrap_or_else(|| panic!("{route} is not described"));
    let schema = &described["get"]["responses"]["200"]["content"]["application/json"]["schema"];
    let problems = schema::problems(&description, schema, &answer);
    assert!(problems.is_empty(), "{path}: {problems:?}");
    let of_seven = schema::problems(&description, schema, &Value::from(7));
    assert!(!of_seven.is_empty(), "{route}: its schema says nothing");
    answer
}

/// The answer to `body`, with which the owner of `token` changes something.
#[allow(dead_code, reason = "not every test crate changes something")]
pub(crate) fn post(controller: &Running, token: &str, path: &str, body: &Value) -> Value {
    let body = body.to_string();
    let length = body.len();
    let headers = format!(
        "Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}"
    );
    ask(controller, &format!("POST {path}"), &headers, &body)
}

fn fetch(controller: &Running, path: &str) -> Value {
    ask(controller, &format!("GET {path}"), "Accept: */*", "")
}

fn ask(controller: &Running, path: &str, headers: &str, body: &str) -> Value {
    let mut stream = TcpStream::connect(controller.http().unwrap()).unwrap();
    // Of 1.0: long answers come in one piece.
    let request = format!("{path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.0 200"), "{path}: {answer}");
    serde_json::from_str(body).unwrap()
}
