//! The service: clients, the programs they are bound to, and their requests.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use calumma_bfrt::MAX_MESSAGE_BYTES;
use calumma_bfrt::proto::{
    Any, Entity, Error, ForwardingPipelineConfig, GetForwardingPipelineConfigRequest,
    GetForwardingPipelineConfigResponse, NonP4Config, ReadRequest, ReadResponse,
    SetForwardingPipelineConfigRequest, SetForwardingPipelineConfigResponse, StreamMessageRequest,
    StreamMessageResponse, StreamRequest, StreamResponse, Subscribe, WriteRequest, WriteResponse,
};
use calumma_bfrt::service::bf_runtime_server::{BfRuntime, BfRuntimeServer};
use calumma_tna::Program;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::pipe::Pipe;
use crate::schema::Schema;
use crate::tables;

/// Entities that are read at once, between two packets.
const PIECE: usize = 256;

/// Entities of one response.
const RESPONSE: usize = 4096;

type Outgoing<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// The driver of one device, which runs one program.
#[derive(Clone, Debug)]
pub struct Driver {
    pipe: Pipe,
    name: Arc<str>,
    schema: Arc<Schema>,
    /// Clients by their numbers, and whether each is bound.
    clients: Arc<Mutex<HashMap<u32, bool>>>,
}

impl Driver {
    /// The driver of a switch that runs `program` under that name.
    pub fn new(pipe: Pipe, name: &str, program: &Program) -> Driver {
        let schema = Arc::new(Schema::new(program, pipe.counts()));
        Driver { pipe, name: name.into(), schema, clients: Arc::default() }
    }

    /// Serves until `stop` is done.
    ///
    /// # Errors
    /// When the address is taken, or the connection of the service breaks.
    pub async fn serve(
        self,
        address: SocketAddr,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let listener = TcpListener::bind(address)
            .await
            .map_err(|error| anyhow::anyhow!("listening at {address}: {error}"))?;
        self.serve_on(listener, stop).await
    }

    /// The same on a listener that is there already.
    ///
    /// # Errors
    /// When the service breaks.
    pub async fn serve_on(
        self,
        listener: TcpListener,
        stop: impl Future<Output = ()>,
    ) -> anyhow::Result<()> {
        let service = BfRuntimeServer::new(self)
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
            .max_encoding_message_size(MAX_MESSAGE_BYTES);
        // The server's own option is only for sockets that it opens itself. Without it an answer
        // now and then waits 40 ms for the acknowledgement of the one before.
        let connections = TcpListenerStream::new(listener).map(|connection| {
            connection.and_then(|stream| stream.set_nodelay(true).map(|()| stream))
        });
        let server = tonic::transport::Server::builder()
            .add_service(service)
            .serve_with_incoming(connections);
        // Clients keep their streams open for ever: to stop is to let go of them.
        tokio::select! {
            ended = server => Ok(ended?),
            () = stop => Ok(()),
        }
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<u32, bool>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a client known for as long as the value lives; none where its number is taken.
    fn know(&self, client: u32) -> Option<Known> {
        let mut clients = self.clients();
        if clients.contains_key(&client) {
            return None;
        }
        clients.insert(client, false);
        Some(Known { driver: self.clone(), client })
    }

    fn check(&self, client: u32, program: &str) -> Result<(), Status> {
        if self.clients().get(&client) != Some(&true) {
            let problem = format!("client {client} is not bound to a program");
            return Err(Status::failed_precondition(problem));
        }
        if !program.is_empty() && *program != *self.name {
            return Err(Status::invalid_argument(format!("no program {program} runs here")));
        }
        Ok(())
    }
}

/// The status of a write: an error for each update, or none at all.
fn status_of(results: Vec<Result<(), Status>>) -> Result<(), Status> {
    if results.iter().all(Result::is_ok) {
        return Ok(());
    }
    let detail = |result: Result<(), Status>| {
        let error = match result {
            Ok(()) => Error::default(),
            Err(status) => {
                Error { canonical_code: status.code().into(), message: status.message().to_owned() }
            }
        };
        let type_url = "type.googleapis.com/bfrt_proto.Error".to_owned();
        Any { type_url, value: error.encode_to_vec() }
    };
    let message = "Error(s) in the updates of a write".to_owned();
    let all = calumma_bfrt::proto::Status {
        code: Code::Unknown.into(),
        message: message.clone(),
        details: results.into_iter().map(detail).collect(),
    };
    Err(Status::with_details(Code::Unknown, message, all.encode_to_vec().into()))
}

/// The client of a stream is known for as long as this lives.
struct Known {
    driver: Driver,
    client: u32,
}

impl Drop for Known {
    fn drop(&mut self) {
        self.driver.clients().remove(&self.client);
    }
}

#[tonic::async_trait]
impl BfRuntime for Driver {
    async fn write(
        &self,
        request: Request<WriteRequest>,
    ) -> Result<Response<WriteResponse>, Status> {
        let WriteRequest { client_id, updates, p4_name, .. } = request.into_inner();
        self.check(client_id, &p4_name)?;
        let mut answers = Vec::with_capacity(updates.len());
        for update in updates {
            let (to, answer) = oneshot::channel();
            let schema = self.schema.clone();
            self.pipe.ask(move |switch| {
                let _ = to.send(tables::update(&schema, switch, update));
            });
            answers.push(answer);
        }
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(answer.await.unwrap_or_else(|_| Err(stopped())));
        }
        status_of(results)?;
        Ok(Response::new(WriteResponse::default()))
    }

    type ReadStream = Outgoing<ReadResponse>;

    async fn read(
        &self,
        request: Request<ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let ReadRequest { client_id, mut entities, p4_name, .. } = request.into_inner();
        self.check(client_id, &p4_name)?;
        let mut pieces = Vec::new();
        while !entities.is_empty() {
            let rest = entities.split_off(entities.len().min(PIECE));
            let piece = std::mem::replace(&mut entities, rest);
            let (to, answer) = oneshot::channel();
            let schema = self.schema.clone();
            self.pipe.ask(move |switch| {
                let found = piece.into_iter().map(|entity| tables::read(&schema, switch, entity));
                let found: Result<Vec<Vec<Entity>>, Status> = found.collect();
                let _ = to.send(found.map(|found| found.concat()));
            });
            match answer.await.unwrap_or_else(|_| Err(stopped())) {
                Ok(found) => pieces.extend(found.chunks(RESPONSE).map(|entities| {
                    Ok(ReadResponse { entities: entities.to_vec(), status: Vec::new() })
                })),
                Err(status) => pieces.push(Err(status)),
            }
        }
        Ok(Response::new(Box::pin(tokio_stream::iter(pieces))))
    }

    async fn set_forwarding_pipeline_config(
        &self,
        request: Request<SetForwardingPipelineConfigRequest>,
    ) -> Result<Response<SetForwardingPipelineConfigResponse>, Status> {
        let SetForwardingPipelineConfigRequest { client_id, action, config, .. } =
            request.into_inner();
        if action != 0 {
            return Err(Status::unimplemented("only binding; the program is there already"));
        }
        let [config] = &config[..] else {
            return Err(Status::invalid_argument("a client binds one program"));
        };
        if *config.p4_name != *self.name {
            let problem = format!("{} runs here, not {}", self.name, config.p4_name);
            return Err(Status::not_found(problem));
        }
        let mut clients = self.clients();
        if clients.iter().any(|(&client, &bound)| bound && client != client_id) {
            return Err(Status::already_exists("another client is bound to the program"));
        }
        match clients.get_mut(&client_id) {
            Some(bound) => *bound = true,
            None => return Err(Status::failed_precondition("the client has not subscribed")),
        }
        Ok(Response::new(SetForwardingPipelineConfigResponse {}))
    }

    async fn get_forwarding_pipeline_config(
        &self,
        _: Request<GetForwardingPipelineConfigRequest>,
    ) -> Result<Response<GetForwardingPipelineConfigResponse>, Status> {
        let program = ForwardingPipelineConfig {
            p4_name: self.name.to_string(),
            bfruntime_info: self.schema.program.clone(),
        };
        let fixed = NonP4Config { bfruntime_info: self.schema.fixed.clone() };
        Ok(Response::new(GetForwardingPipelineConfigResponse {
            config: vec![program],
            non_p4_config: Some(fixed),
        }))
    }

    type StreamChannelStream = Outgoing<StreamMessageResponse>;

    async fn stream_channel(
        &self,
        request: Request<Streaming<StreamMessageRequest>>,
    ) -> Result<Response<Self::StreamChannelStream>, Status> {
        let mut incoming = request.into_inner();
        let (to, outgoing) = mpsc::channel(4);
        let driver = self.clone();
        tokio::spawn(async move {
            // Forgotten when the stream ends.
            let mut known = Vec::new();
            while let Some(Ok(StreamMessageRequest { client_id, update })) = incoming.next().await {
                let Some(StreamRequest::Subscribe(subscribe)) = update else { continue };
                let status = match driver.know(client_id) {
                    Some(client) => {
                        known.push(client);
                        calumma_bfrt::proto::Status::default()
                    }
                    None => calumma_bfrt::proto::Status {
                        code: Code::AlreadyExists.into(),
                        message: format!("client {client_id} is there already"),
                        details: Vec::new(),
                    },
                };
                let answer = Subscribe { status: Some(status), ..subscribe };
                let update = Some(StreamResponse::Subscribe(answer));
                if to.send(Ok(StreamMessageResponse { update })).await.is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(outgoing))))
    }
}

fn stopped() -> Status {
    Status::unavailable("the switch has stopped")
}
