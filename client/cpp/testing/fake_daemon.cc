#include "client/cpp/testing/fake_daemon.h"

#include <chrono>
#include <thread>

namespace firnkv {

using grpc::ServerContext;
using grpc::StatusCode;

FakeDaemon::FakeDaemon() {
  limits.set_block_bytes_max(uint64_t{128} << 20);
  limits.set_chunk_bytes_max(1 << 20);
  limits.set_message_bytes_max(4 << 20);
  limits.set_keys_max(10);
  limits.set_opaque_key_bytes_max(4096);
}

void FakeDaemon::Start(const std::string& address) {
  stopping_ = false;
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(this);
  server_ = builder.BuildAndStart();
}

void FakeDaemon::Stop() {
  if (server_ == nullptr) return;
  {
    std::lock_guard lock(mu_);
    stopping_ = true;
    changed_.notify_all();
  }
  server_->Shutdown(std::chrono::system_clock::now());
  server_.reset();
}

grpc::Status FakeDaemon::Enter(ServerContext* context) {
  ++calls;
  if (faults.refuse_calls.load() > 0 && faults.refuse_calls-- > 0) return {StatusCode::UNAVAILABLE, "starting"};
  while (faults.hang && !context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return grpc::Status::OK;
}

size_t FakeDaemon::blocks() const {
  std::lock_guard lock(mu_);
  return stored_.size();
}

grpc::Status FakeDaemon::RegisterNamespace(ServerContext* context, const firn::v1::RegisterNamespaceRequest* request,
                                           firn::v1::NamespaceInfo* response) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  response->set_namespace_fingerprint(std::string(32, 'n'));
  response->set_model_fingerprint(std::string(32, 'm'));
  *response->mutable_facts() = request->facts();
  *response->mutable_plan() = request->plan();
  return grpc::Status::OK;
}

firn::v1::PutResponse FakeDaemon::Store(uint32_t index, const firn::v1::PutBlock& facts, std::string payload) {
  firn::v1::PutResponse response;
  response.set_index(index);
  std::lock_guard lock(mu_);
  last_block = facts;
  std::string key = facts.ref().SerializeAsString();
  if (stored_.contains(key)) {
    response.set_outcome(firn::v1::PUT_OUTCOME_EXISTS);
  } else if (stored_.size() >= faults.full_after) {
    response.set_outcome(firn::v1::PUT_OUTCOME_FAILED);
    response.mutable_status()->set_code(StatusCode::RESOURCE_EXHAUSTED);
    response.mutable_status()->set_message("full");
  } else {
    stored_[key] = {facts, std::move(payload)};
    response.set_outcome(firn::v1::PUT_OUTCOME_STORED);
    response.set_generation(stored_.size());
    response.set_stored_bytes(facts.payload_bytes());
  }
  return response;
}

grpc::Status FakeDaemon::Put(ServerContext* context,
                             grpc::ServerReaderWriter<firn::v1::PutResponse, firn::v1::PutRequest>* stream) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  firn::v1::PutRequest request;
  firn::v1::PutBlock block;
  std::string payload;
  uint32_t next_index = 0;
  bool open = false;
  while (stream->Read(&request)) {
    ++put_messages;
    put_bytes += request.payload().size();
    if (request.has_block()) {
      block = request.block();
      payload.clear();
      open = true;
      ++next_index;
      bool exists = false;
      {
        std::lock_guard lock(mu_);
        exists = stored_.contains(block.ref().SerializeAsString());
      }
      if (exists || block.announce()) {  // What the real one says as early as it can.
        firn::v1::PutResponse early;
        early.set_index(next_index - 1);
        early.set_outcome(exists ? firn::v1::PUT_OUTCOME_EXISTS : firn::v1::PUT_OUTCOME_BEGUN);
        open = !exists;
        if (!faults.silent_puts) stream->Write(early);
      }
    }
    if (!open) continue;
    if (request.offset() != payload.size()) return {StatusCode::INTERNAL, "offset out of order"};
    payload += request.payload();
    if (payload.size() < block.payload_bytes()) continue;
    if (payload.size() > block.payload_bytes()) return {StatusCode::INTERNAL, "payload too long"};
    open = false;
    auto response = Store(next_index - 1, block, std::move(payload));
    payload.clear();
    if (!faults.silent_puts) stream->Write(response);
  }
  return grpc::Status::OK;
}

bool FakeDaemon::Answer(const firn::v1::GetRequest& request, uint32_t index,
                        grpc::ServerReaderWriter<firn::v1::GetResponse, firn::v1::GetRequest>* stream, int* messages) {
  Stored stored;
  bool exists = false;
  {
    std::lock_guard lock(mu_);
    auto at = stored_.find(request.blocks(static_cast<int>(index)).SerializeAsString());
    exists = at != stored_.end();
    if (exists) stored = at->second;
  }
  firn::v1::GetResponse response;
  response.set_tag(request.tag());
  response.set_index(index);
  if (!exists) {
    response.mutable_status()->set_code(StatusCode::NOT_FOUND);
    return stream->Write(response);
  }
  uint64_t size = stored.payload.size();
  firn::v1::GetBlock* found = response.mutable_found();
  found->set_tokens(stored.facts.tokens());
  found->mutable_served()->set_k(firn::v1::PRECISION_CLASS_EXACT);
  found->mutable_served()->set_v(firn::v1::PRECISION_CLASS_EXACT);
  found->set_k_bytes(size / 2);
  found->set_v_bytes(size - size / 2);
  found->set_payload_bytes(size);
  std::vector<std::pair<uint64_t, uint64_t>> chunks;
  for (uint64_t at = 0; at < size; at += request.chunk_bytes()) {
    chunks.emplace_back(at, std::min<uint64_t>(request.chunk_bytes(), size - at));
  }
  if (faults.shuffle) std::reverse(chunks.begin(), chunks.end());
  if (faults.shorten && !chunks.empty()) chunks.back().second -= 1;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (faults.break_gets_after >= 0 && (*messages)++ >= faults.break_gets_after) return false;
    response.set_offset(chunks[i].first + (faults.overrun ? size : 0));
    response.set_payload(stored.payload.substr(chunks[i].first, chunks[i].second));
    response.set_last(i + 1 == chunks.size());
    if (!stream->Write(response)) return false;
    response.clear_found();
  }
  return true;
}

grpc::Status FakeDaemon::Get(ServerContext* context,
                             grpc::ServerReaderWriter<firn::v1::GetResponse, firn::v1::GetRequest>* stream) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  firn::v1::GetRequest request;
  int messages = 0;
  while (stream->Read(&request)) {
    ++get_requests;
    {
      std::lock_guard lock(mu_);
      last_get = request;
    }
    for (int i = 0; i < request.blocks_size(); ++i) {
      if (Answer(request, static_cast<uint32_t>(i), stream, &messages)) continue;
      faults.break_gets_after = -1;
      return {StatusCode::UNAVAILABLE, "going away"};
    }
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Lookup(ServerContext* context, const firn::v1::LookupRequest* request,
                                firn::v1::LookupResponse* response) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  std::lock_guard lock(mu_);
  last_lookup = *request;
  response->set_prefix_blocks(1);
  response->add_blocks()->set_found(true);
  response->add_keys(std::string(32, 'k'));
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Exists(ServerContext* context, const firn::v1::ExistsRequest* request,
                                firn::v1::ExistsResponse* response) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  std::lock_guard lock(mu_);
  for (const auto& key : request->keys()) {
    firn::v1::BlockRef ref;
    *ref.mutable_key() = key;
    response->add_blocks()->set_found(stored_.contains(ref.SerializeAsString()));
  }
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Delete(ServerContext* context, const firn::v1::DeleteRequest* request,
                                firn::v1::BatchResponse* response) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  for (int i = 0; i < request->keys_size(); ++i) response->add_statuses();
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Pin(ServerContext* context, const firn::v1::PinRequest* request,
                             firn::v1::BatchResponse* response) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  if (request->session().size() != 16) return {StatusCode::FAILED_PRECONDITION, "no session"};
  for (int i = 0; i < request->keys_size(); ++i) response->add_statuses();
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Session(
    ServerContext* context, grpc::ServerReaderWriter<firn::v1::SessionResponse, firn::v1::SessionRequest>* stream) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  firn::v1::SessionRequest request;
  if (!stream->Read(&request)) return grpc::Status::OK;
  ++open_sessions;
  firn::v1::SessionResponse response;
  response.set_session(std::string(16, 's'));
  stream->Write(response);
  while (stream->Read(&request)) {
  }
  --open_sessions;
  return grpc::Status::OK;
}

void FakeDaemon::Emit(uint64_t sequence, bool gap) {
  std::lock_guard lock(mu_);
  firn::v1::WatchResponse& response = events_.emplace_back();
  response.set_sequence(sequence);
  response.set_gap(gap);
  firn::v1::BlockEvent* event = response.add_events();
  event->set_sequence(sequence);
  event->set_kind(firn::v1::EVENT_KIND_DEMOTED);
  changed_.notify_all();
}

grpc::Status FakeDaemon::Watch(ServerContext* context, const firn::v1::WatchRequest* request,
                               grpc::ServerWriter<firn::v1::WatchResponse>* stream) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  std::unique_lock lock(mu_);
  firn::v1::WatchResponse hello;
  hello.set_sequence(request->after());
  stream->Write(hello);
  uint64_t after = request->after();
  while (!context->IsCancelled() && !stopping_) {
    for (const auto& response : events_) {
      if (response.sequence() <= after) continue;
      after = response.sequence();
      stream->Write(response);
    }
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  return {StatusCode::UNAVAILABLE, "stopping"};
}

grpc::Status FakeDaemon::Stats(ServerContext* context, const firn::v1::StatsRequest*,
                               firn::v1::StatsResponse* response) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  firn::v1::TierStats* tier = response->add_tiers();
  tier->set_name("hot");
  tier->set_used_bytes(7);
  tier->set_hits(3);
  return grpc::Status::OK;
}

grpc::Status FakeDaemon::Capabilities(ServerContext* context, const firn::v1::CapabilitiesRequest*,
                                      firn::v1::CapabilitiesResponse* response) {
  if (auto entered = Enter(context); !entered.ok()) return entered;
  *response->mutable_limits() = limits;
  return grpc::Status::OK;
}

}  // namespace firnkv
