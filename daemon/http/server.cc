#include "daemon/http/server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "base/status.h"
#include "daemon/runtime/asio_executor.h"

namespace firn {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Tcp = asio::ip::tcp;

namespace {
constexpr size_t kConnectionsMax = 64;
constexpr uint64_t kRequestBytesMax = 8192;
constexpr auto kTimeout = std::chrono::seconds(10);
}  // namespace

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  State(asio::io_context& context, Handler answer) : acceptor(context), handler(std::move(answer)) {}
  void Accept();
  Tcp::acceptor acceptor;
  Handler handler;
  size_t connections = 0;
  bool stopped = false;
};

namespace {

// One connection. Keeps itself alive through its pending operation.
template <typename Server>
class Connection : public std::enable_shared_from_this<Connection<Server>> {
 public:
  Connection(Tcp::socket socket, std::shared_ptr<Server> server)
      : stream_(std::move(socket)), server_(std::move(server)) {
    ++server_->connections;
  }
  ~Connection() { --server_->connections; }

  void Read() {
    parser_.emplace();
    parser_->header_limit(kRequestBytesMax);
    parser_->body_limit(kRequestBytesMax);
    stream_.expires_after(kTimeout);
    http::async_read(stream_, buffer_, *parser_, [self = this->shared_from_this()](beast::error_code error, size_t) {
      if (!error && !self->server_->stopped) self->Respond();
    });
  }

 private:
  void Respond() {
    const auto& request = parser_->get();
    HttpAnswer answer;
    if (request.method() != http::verb::get && request.method() != http::verb::head) {
      answer = {405, "text/plain; charset=utf-8", "GET and HEAD only\n"};
    } else {
      std::string path(request.target().data(), request.target().size());
      answer = server_->handler(path.substr(0, path.find('?')));
    }
    response_.emplace(static_cast<http::status>(answer.status), request.version());
    response_->set(http::field::content_type, answer.content_type);
    response_->set(http::field::cache_control, "no-store");
    response_->keep_alive(request.keep_alive());
    response_->content_length(answer.body.size());
    if (request.method() != http::verb::head) response_->body() = std::move(answer.body);
    http::async_write(stream_, *response_, [self = this->shared_from_this()](beast::error_code error, size_t) {
      if (error || self->server_->stopped) return;
      if (self->response_->keep_alive()) return self->Read();
      beast::error_code ignored;
      self->stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
    });
  }

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kRequestBytesMax};
  std::optional<http::request_parser<http::string_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
  const std::shared_ptr<Server> server_;
};

}  // namespace

void HttpServer::State::Accept() {
  acceptor.async_accept([self = shared_from_this()](beast::error_code error, Tcp::socket socket) {
    if (self->stopped || error == asio::error::operation_aborted) return;
    // Over the limit a connection is closed at once; probes come again.
    if (!error && self->connections < kConnectionsMax) {
      std::make_shared<Connection<State>>(std::move(socket), self)->Read();
    }
    self->Accept();
  });
}

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(ControlLoop* loop, const std::string& address,
                                                              Handler handler) {
  size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  beast::error_code error;
  auto ip = asio::ip::make_address(host, error);
  if (error || colon == std::string::npos)
    return InvalidArgument("admin.http = \"{}\": not an address and a port", address);
  Tcp::endpoint endpoint(ip, static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  auto state = std::make_shared<State>(loop->context(), std::move(handler));
  state->acceptor.open(endpoint.protocol(), error);
  if (!error) state->acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) state->acceptor.bind(endpoint, error);
  if (!error) state->acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) return FailedPrecondition("admin.http = \"{}\": cannot listen: {}", address, error.message());
  state->Accept();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(state)));
}

HttpServer::HttpServer(std::shared_ptr<State> state) : state_(std::move(state)) {}

HttpServer::~HttpServer() {
  state_->stopped = true;
  beast::error_code ignored;
  state_->acceptor.close(ignored);
}

uint16_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

}  // namespace firn
