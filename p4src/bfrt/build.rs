//! Generates the client and server of the BFRuntime service; its messages stand in `src/proto.rs`.

use tonic_build::manual::{Builder, Method, Service};

/// A request or response: its message, and whether it is a stream of them.
type Side = (&'static str, bool);

/// Methods: name in Rust, name on the wire, request, response.
const METHODS: [(&str, &str, Side, Side); 5] = [
    ("write", "Write", ("WriteRequest", false), ("WriteResponse", false)),
    ("read", "Read", ("ReadRequest", false), ("ReadResponse", true)),
    (
        "set_forwarding_pipeline_config",
        "SetForwardingPipelineConfig",
        ("SetForwardingPipelineConfigRequest", false),
        ("SetForwardingPipelineConfigResponse", false),
    ),
    (
        "get_forwarding_pipeline_config",
        "GetForwardingPipelineConfig",
        ("GetForwardingPipelineConfigRequest", false),
        ("GetForwardingPipelineConfigResponse", false),
    ),
    (
        "stream_channel",
        "StreamChannel",
        ("StreamMessageRequest", true),
        ("StreamMessageResponse", true),
    ),
];

fn main() {
    let mut service = Service::builder().name("BfRuntime").package("bfrt_proto");
    for (name, route, (input, streams_in), (output, streams_out)) in METHODS {
        let mut method = Method::builder()
            .name(name)
            .route_name(route)
            .input_type(format!("crate::proto::{input}"))
            .output_type(format!("crate::proto::{output}"))
            .codec_path("tonic_prost::ProstCodec");
        if streams_in {
            method = method.client_streaming();
        }
        if streams_out {
            method = method.server_streaming();
        }
        service = service.method(method.build());
    }
    Builder::new().compile(&[service.build()]);
    println!("cargo::rerun-if-changed=build.rs");
}
