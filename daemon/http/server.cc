#include "daemon/http/server.h"

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <list>
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
constexpr uint32_t kHeaderBytesMax = 8192;
constexpr std::chrono::milliseconds kHeaderTime(2000);     // For a request, once its connection is new.
constexpr std::chrono::milliseconds kBetweenTime(10'000);  // For the next one.
constexpr std::chrono::milliseconds kAnswerTime(10'000);
constexpr std::chrono::milliseconds kFarewellTime(1000);
constexpr std::chrono::milliseconds kAcceptPause(100);

HttpAnswer Refusal(const beast::error_code& error) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return {431, "text/plain; charset=utf-8", "a request has at most 8 KiB\n"};
  }
  return {400, "text/plain; charset=utf-8", "not an HTTP/1 request: " + error.message() + "\n"};
}

bool IsTheClientsFault(const beast::error_code& error) {
  return error.category() == make_error_code(http::error::bad_method).category() &&
         error != http::error::end_of_stream && error != http::error::partial_message;
}

}  // namespace

// One connection, always in one step: reading a request, writing its answer, or taking leave. Keeps itself alive
// through the step's pending operation.
class HttpServer::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Tcp::socket socket, std::shared_ptr<State> server)
      : stream_(std::move(socket)), server_(std::move(server)) {}
  ~Connection() { Leave(); }

  void Read(std::chrono::milliseconds time);
  void Close();

 private:
  void BeginStep(std::chrono::milliseconds time);
  void Leave();
  void Answer(HttpAnswer answer, unsigned version, bool with_body, bool keep_alive);
  void Respond();
  // Closing at once with input unread would be a reset, which takes the answer away from a client that still sends.
  void TakeLeave();
  void Discard();

  beast::tcp_stream stream_;
  beast::flat_buffer buffer_{kHeaderBytesMax};
  std::optional<http::request_parser<http::empty_body>> parser_;
  std::optional<http::response<http::string_body>> response_;
  const std::shared_ptr<State> server_;
  std::optional<std::list<Connection*>::iterator> place_;
};

struct HttpServer::State : std::enable_shared_from_this<HttpServer::State> {
  State(asio::io_context& context, Handler answer) : acceptor(context), pause(context), handler(std::move(answer)) {}
  void Accept();
  Tcp::acceptor acceptor;
  asio::steady_timer pause;
  Handler handler;
  std::list<Connection*> connections;  // The one whose step began first is at the front.
  bool stopped = false;
};

void HttpServer::Connection::BeginStep(std::chrono::milliseconds time) {
  Leave();
  place_ = server_->connections.insert(server_->connections.end(), this);
  stream_.expires_after(time);
}

void HttpServer::Connection::Leave() {
  if (place_.has_value()) server_->connections.erase(*place_);
  place_.reset();
}

void HttpServer::Connection::Close() {
  Leave();
  stream_.close();
}

void HttpServer::Connection::Read(std::chrono::milliseconds time) {
  parser_.emplace();
  parser_->header_limit(kHeaderBytesMax);
  parser_->body_limit(boost::none);  // None is read.
  BeginStep(time);
  http::async_read_header(stream_, buffer_, *parser_, [self = shared_from_this()](beast::error_code error, size_t) {
    if (self->server_->stopped) return;
    if (!error) return self->Respond();
    if (IsTheClientsFault(error)) self->Answer(Refusal(error), 11, true, false);
  });
}

void HttpServer::Connection::Respond() {
  const auto& request = parser_->get();
  // A body is nothing that this server would read.
  bool keep_alive = request.keep_alive() && !parser_->chunked() && parser_->content_length().value_or(0) == 0;
  bool head = request.method() == http::verb::head;
  if (request.method() != http::verb::get && !head) {
    return Answer({405, "text/plain; charset=utf-8", "GET and HEAD only\n"}, request.version(), true, keep_alive);
  }
  std::string path(request.target().data(), request.target().size());
  Answer(server_->handler(path.substr(0, path.find('?'))), request.version(), !head, keep_alive);
}

void HttpServer::Connection::Answer(HttpAnswer answer, unsigned version, bool with_body, bool keep_alive) {
  response_.emplace(static_cast<http::status>(answer.status), version);
  response_->set(http::field::content_type, answer.content_type);
  response_->set(http::field::cache_control, "no-store");
  response_->keep_alive(keep_alive);
  response_->content_length(answer.body.size());
  if (with_body) response_->body() = std::move(answer.body);
  BeginStep(kAnswerTime);
  http::async_write(stream_, *response_, [self = shared_from_this()](beast::error_code error, size_t) {
    if (error || self->server_->stopped) return;
    if (self->response_->keep_alive()) return self->Read(kBetweenTime);
    self->TakeLeave();
  });
}

void HttpServer::Connection::TakeLeave() {
  beast::error_code ignored;
  stream_.socket().shutdown(Tcp::socket::shutdown_send, ignored);
  BeginStep(kFarewellTime);
  Discard();
}

void HttpServer::Connection::Discard() {
  buffer_.clear();
  stream_.async_read_some(buffer_.prepare(kHeaderBytesMax),
                          [self = shared_from_this()](beast::error_code error, size_t) {
                            if (!error && !self->server_->stopped) self->Discard();
                          });
}

void HttpServer::State::Accept() {
  acceptor.async_accept([self = shared_from_this()](beast::error_code error, Tcp::socket socket) {
    if (self->stopped || error == asio::error::operation_aborted) return;
    if (error && error != asio::error::connection_aborted) {  // No descriptors: they come back.
      self->pause.expires_after(kAcceptPause);
      return self->pause.async_wait([self](beast::error_code) {
        if (!self->stopped) self->Accept();
      });
    }
    if (!error) {
      // A probe that comes must be answered, whoever else came and waits.
      if (self->connections.size() >= kConnectionsMax) self->connections.front()->Close();
      std::make_shared<Connection>(std::move(socket), self)->Read(kHeaderTime);
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
  state_->pause.cancel();
}

uint16_t HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }

}  // namespace firn
