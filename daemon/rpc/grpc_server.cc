#include "daemon/rpc/grpc_server.h"

#include <google/protobuf/stubs/logging.h>
#include <grpc/grpc.h>
#include <grpc/support/log.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <utility>

#include "base/read_file.h"
#include "base/status.h"
#include "daemon/rpc/accept_loop.h"
#include "daemon/rpc/admin_service.h"
#include "daemon/rpc/kv_service.h"
#include "daemon/runtime/instance_lock.h"
#include "daemon/runtime/listen_socket.h"
#include "daemon/runtime/log.h"

namespace firn {
namespace {

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> CredentialsOf(const ListenerSettings& settings) {
  if (settings.certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  FIRN_ASSIGN_OR_RETURN(std::string certificate, ReadSmallFile(settings.certificate, kPemBytesMax));
  FIRN_ASSIGN_OR_RETURN(std::string key, ReadSmallFile(settings.private_key, kPemBytesMax));
  FIRN_ASSIGN_OR_RETURN(options.pem_root_certs, ReadSmallFile(settings.client_ca, kPemBytesMax));
  options.pem_key_cert_pairs.push_back({std::move(key), std::move(certificate)});
  return grpc::SslServerCredentials(options);
}

void SetOptions(grpc::ServerBuilder* builder, const LimitSettings& limits, size_t listeners) {
  builder->SetMaxReceiveMessageSize(static_cast<int>(kMessageBytesMax));
  builder->SetMaxSendMessageSize(static_cast<int>(kMessageBytesMax));
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, static_cast<int>(limits.streams_max));
  builder->AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, 16 * 1024);
  // A client that is gone without a word, or stopped, is found out within a minute, and what its streams hold given
  // back.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 30'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 20'000);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 5'000);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 5);
  // Payloads arrive in large pieces: wide windows and frames, and reads from the socket as large as a chunk. What a
  // connection may have on its way in that nobody has asked for yet is bounded by the window, and all of it by the
  // quota below.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 8 << 20);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, 1 << 20);
  builder->AddChannelArgument(GRPC_ARG_TCP_READ_CHUNK_SIZE, 1 << 20);
  builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, 4 << 20);
  // A connection on which nothing is said is no client's.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 20'000);
  grpc::ResourceQuota quota("firnd");
  // Half of the budget is gRPC's, half is for the buffers that the service asks for itself.
  quota.Resize(limits.transport_budget_bytes / 2 / listeners);
  builder->SetResourceQuota(quota);
}

}  // namespace

struct GrpcListener::State {
  ListenerSettings settings;
  std::string address;
  std::unique_ptr<InstanceLock> socket_lock;
  std::unique_ptr<KvService> kv;
  std::unique_ptr<AdminService> admin;
  std::optional<ListenSocket> socket;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<AcceptLoop> accepting;
};

GrpcListener::GrpcListener(std::unique_ptr<State> state) : state_(std::move(state)) {}

absl::StatusOr<std::unique_ptr<GrpcListener>> GrpcListener::Start(ServiceCore* core, const ListenerSettings& settings,
                                                                  size_t listeners) {
  static std::once_flag plugins;
  std::call_once(plugins, [] {
    // Never balanced by grpc_shutdown: the last one waits in version 1.51 for a poller, at times for 10 s.
    grpc_init();
    // What a client's bytes make the libraries say is for whoever looks for it, not for every log.
    gpr_set_log_function([](gpr_log_func_args* line) { Log(LogLevel::kDebug, "gRPC", {{"message", line->message}}); });
    google::protobuf::SetLogHandler([](google::protobuf::LogLevel, const char*, int, const std::string& message) {
      Log(LogLevel::kDebug, "protobuf", {{"message", message}});
    });
    grpc::EnableDefaultHealthCheckService(true);
    grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  });
  auto state = std::make_unique<State>();
  state->settings = settings;
  state->address = settings.Address();
  if (!settings.uds.empty()) {
    FIRN_ASSIGN_OR_RETURN(state->socket_lock, InstanceLock::Acquire(settings.uds + ".lock"));
    FIRN_RETURN_IF_ERROR(PrepareSocketPath(settings.uds));
  }
  CallerIdentity caller{settings.tenant, settings.admin, !settings.uds.empty()};
  state->kv = std::make_unique<KvService>(core, caller);
  grpc::ServerBuilder builder;
  SetOptions(&builder, core->limits(), listeners);
  FIRN_ASSIGN_OR_RETURN(auto credentials, CredentialsOf(settings));
  state->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  builder.RegisterService(state->kv.get());
  if (settings.admin) {
    state->admin = std::make_unique<AdminService>(core, caller);
    builder.RegisterService(state->admin.get());
  }
  auto socket = settings.uds.empty() ? ListenSocket::Tcp(settings.tcp)
                                     : ListenSocket::Unix(settings.uds, settings.mode, settings.group);
  FIRN_RETURN_IF_ERROR(socket.status());
  state->socket.emplace(*std::move(socket));
  if (settings.uds.empty()) {
    state->address = settings.tcp.substr(0, settings.tcp.rfind(':')) + ":" + std::to_string(state->socket->port());
  }
  state->server = builder.BuildAndStart();
  if (state->server == nullptr) return Unavailable("gRPC does not start a server for {}", settings.Address());
  auto handle = [acceptor = state->acceptor.get()](int listener_fd, int fd) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.listener_fd = listener_fd;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  FIRN_ASSIGN_OR_RETURN(state->accepting, AcceptLoop::Start(&*state->socket, &core->connections(), handle));
  std::unique_ptr<GrpcListener> listener(new GrpcListener(std::move(state)));
  listener->SetServing(false);
  return listener;
}

GrpcListener::~GrpcListener() { Shutdown(0); }

void GrpcListener::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* health = state_->server->GetHealthCheckService();
  if (health == nullptr) return;
  for (const char* name : {"", "firn.v1.KvStore", "firn.v1.Admin"}) {
    if (*name == 0 || state_->admin != nullptr || std::string_view(name) != "firn.v1.Admin") {
      health->SetServingStatus(name, serving);
    }
  }
}

void GrpcListener::Shutdown(int64_t grace_ms) {
  if (state_->server == nullptr) return;
  state_->accepting.reset();
  state_->socket.reset();
  state_->server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(grace_ms));
  state_->server->Wait();
  state_->server.reset();
  state_->socket_lock.reset();
}

const std::string& GrpcListener::address() const { return state_->address; }

}  // namespace firn
