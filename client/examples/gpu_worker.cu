// An inference worker on a GPU that keeps its KV blocks in FirnKV by CUDA IPC: a paged cache, a tensor a layer for keys
// and one for values, a producer that writes blocks, and a loop that gives them to the store, loses them, and gets them
// back into other pages, as a decode loop does whose sequences come and go.
//
//   gpu_worker --socket /run/firnkv/firnd.sock [--rounds 100] [--seconds 0] [--blocks 8] [--delay-us 0] [--layers 32]
//              [--heads 8] [--go FILE]
//
// Ends after so many rounds, or after so many seconds where those are not 0. With --go, it prints `ready` once it has
// all that it needs and begins when FILE is there, so that several workers begin together.
// Every value that comes back is compared with what was produced. Exit code 1: something was wrong.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "firnkv/client.h"
#include "firnkv/session.h"

namespace {

constexpr uint32_t kWidth = 128, kPageTokens = 16, kBlockTokens = 64, kPagesABlock = kBlockTokens / kPageTokens;

struct Options {
  std::string socket = "/run/firnkv/firnd.sock";
  uint32_t rounds = 100, blocks = 8, layers = 32, heads = 8;
  uint32_t seconds = 0;
  std::string go;
  uint32_t delay_us = 0;  // How long the producer takes before it writes.
};

void Check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "gpu_worker: %s: %s\n", what, cudaGetErrorString(error));
  std::exit(2);
}
void Check(const absl::Status& status, const char* what) {
  if (status.ok()) return;
  std::fprintf(stderr, "gpu_worker: %s: %s\n", what, status.ToString().c_str());
  std::exit(2);
}

// What a producer computes: finite, and of its place alone.
__device__ __half ValueAt(uint64_t seed, uint32_t row, uint32_t channel) {
  uint64_t x = (seed * 0x9E3779B97F4A7C15ull) ^ (uint64_t{row} << 20) ^ channel;
  x ^= x >> 31, x *= 0xBF58476D1CE4E5B9ull, x ^= x >> 27;
  return __float2half(static_cast<float>(static_cast<int>(x % 4001) - 2000) / 512.0f);
}

struct Cache {
  __half* const* tensors;  // [2 * layers]: keys, values of a layer.
  uint32_t layers, heads;
};

// visit(row number, address of a value)
template <typename Visit>
__device__ void ForValues(const Cache& cache, const uint32_t* pages, Visit visit) {
  uint64_t rows = uint64_t{2} * cache.layers * cache.heads * kBlockTokens;
  for (uint64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    uint32_t token = row % kBlockTokens, head = row / kBlockTokens % cache.heads;
    uint32_t tensor = static_cast<uint32_t>(row / kBlockTokens / cache.heads);
    uint64_t at =
        ((uint64_t{pages[token / kPageTokens]} * kPageTokens + token % kPageTokens) * cache.heads + head) * kWidth;
    visit(static_cast<uint32_t>(row), cache.tensors[tensor] + at + threadIdx.x);
  }
}

__global__ void Produce(Cache cache, const uint32_t* pages, uint64_t seed, long long delay_cycles) {
  long long since = clock64();
  while (clock64() - since < delay_cycles) {
  }
  ForValues(cache, pages, [&](uint32_t row, __half* value) { *value = ValueAt(seed, row, threadIdx.x); });
}

__global__ void Forget(Cache cache, const uint32_t* pages) {
  ForValues(cache, pages, [](uint32_t, __half* value) { *value = __ushort_as_half(0x7E00); });
}

// The sum of squared differences and of squares.
__global__ void Compare(Cache cache, const uint32_t* pages, uint64_t seed, double* sums) {
  double error = 0, norm = 0;
  ForValues(cache, pages, [&](uint32_t row, __half* value) {
    double x = __half2float(ValueAt(seed, row, threadIdx.x)), y = __half2float(*value);
    error += (x - y) * (x - y), norm += x * x;
  });
  atomicAdd(&sums[0], error);
  atomicAdd(&sums[1], norm);
}

class Worker {
 public:
  explicit Worker(const Options& options) : options_(options) {
    uint64_t pages = uint64_t{2} * options.blocks * kPagesABlock;
    tensor_bytes_ = pages * kPageTokens * options.heads * kWidth * sizeof(__half);
    std::vector<__half*> tensors(2 * options.layers);
    for (auto& tensor : tensors) {
      // Allocations of their own, so that a handle begins where the tensor does.
      Check(cudaMalloc(&tensor, std::max<uint64_t>(tensor_bytes_, 2u << 20)), "allocate a layer");
      cudaIpcMemHandle_t handle;
      Check(cudaIpcGetMemHandle(&handle, tensor), "get a handle of memory");
      std::memcpy(handles_.emplace_back().data(), &handle, sizeof(handle));
    }
    Check(cudaMalloc(&cache_.tensors, tensors.size() * sizeof(tensors[0])), "allocate");
    Check(cudaMemcpy(const_cast<__half**>(cache_.tensors), tensors.data(), tensors.size() * sizeof(tensors[0]),
                     cudaMemcpyHostToDevice),
          "copy");
    cache_.layers = options.layers, cache_.heads = options.heads;
    Check(cudaMalloc(&sums_, 2 * sizeof(double)), "allocate");
    Check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "make a stream");
    Check(cudaEventCreateWithFlags(&produced_, cudaEventDisableTiming | cudaEventInterprocess), "make an event");
    cudaIpcEventHandle_t event;
    Check(cudaIpcGetEventHandle(&event, produced_), "get a handle of an event");
    std::memcpy(event_.data(), &event, sizeof(event));
    // Pages in an order that is not theirs: a cache is never tidy.
    for (uint32_t i = 0; i < pages; ++i) order_.push_back((i * 7 + 3) % static_cast<uint32_t>(pages));
    std::sort(order_.begin(), order_.end(),
              [](uint32_t a, uint32_t b) { return (a * 2654435761u) < (b * 2654435761u); });
    Check(cudaMalloc(&pages_, order_.size() * sizeof(uint32_t)), "allocate");
    Check(cudaMemcpy(pages_, order_.data(), order_.size() * sizeof(uint32_t), cudaMemcpyHostToDevice), "copy");
    Check(cudaDeviceSynchronize(), "wait for copies");  // The stream that does not block would not.
    int clock_khz = 0;
    Check(cudaDeviceGetAttribute(&clock_khz, cudaDevAttrClockRate, 0), "ask for the clock");
    delay_cycles_ = static_cast<long long>(options.delay_us) * clock_khz / 1000;
  }

  uint64_t block_bytes() const {
    return uint64_t{2} * options_.layers * options_.heads * kBlockTokens * kWidth * sizeof(__half);
  }
  firnkv::DeviceRows RowsOf(uint32_t slot, bool with_event) const {
    firnkv::DeviceRows rows;
    rows.memory = handles_;
    if (with_event) rows.event = event_;
    for (uint32_t p = 0; p < 2; ++p) {
      firnkv::DevicePart& part = p == 0 ? rows.k : rows.v;
      for (uint32_t layer = 0; layer < options_.layers; ++layer) part.layers.push_back({2 * layer + p, 0});
      part.pages.assign(order_.begin() + slot * kPagesABlock, order_.begin() + (slot + 1) * kPagesABlock);
      part.page_tokens = kPageTokens;
      part.head_stride = kWidth * sizeof(__half);
      part.token_stride = part.head_stride * options_.heads;
      part.page_stride = part.token_stride * kPageTokens;
    }
    return rows;
  }
  // The rows of ForValues are keys and values of a layer in turn: tensor 2 * layer + part.
  void ProduceInto(uint32_t slot, uint64_t seed) {
    Produce<<<256, kWidth, 0, stream_>>>(cache_, pages_ + slot * kPagesABlock, seed, delay_cycles_);
  }
  void Record() { Check(cudaEventRecord(produced_, stream_), "record an event"); }
  void ForgetPages(uint32_t slot) { Forget<<<256, kWidth, 0, stream_>>>(cache_, pages_ + slot * kPagesABlock); }
  double RelativeError(uint32_t slot, uint64_t seed) {
    Check(cudaMemsetAsync(sums_, 0, 2 * sizeof(double), stream_), "clear");
    Compare<<<256, kWidth, 0, stream_>>>(cache_, pages_ + slot * kPagesABlock, seed, sums_);
    double sums[2];
    Check(cudaMemcpyAsync(sums, sums_, sizeof(sums), cudaMemcpyDeviceToHost, stream_), "copy");
    Check(cudaStreamSynchronize(stream_), "wait");
    return sums[0] == 0 ? 0 : std::sqrt(sums[0] / sums[1]);
  }
  void Wait() { Check(cudaStreamSynchronize(stream_), "wait"); }

 private:
  const Options options_;
  uint64_t tensor_bytes_ = 0;
  Cache cache_{};
  std::vector<firnkv::DeviceHandle> handles_;
  firnkv::DeviceHandle event_{};
  std::vector<uint32_t> order_;
  uint32_t* pages_ = nullptr;
  double* sums_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t produced_ = nullptr;
  long long delay_cycles_ = 0;
};

firnkv::BlockKey KeyOf(uint64_t seed) {
  std::string opaque = "gpu_worker " + std::to_string(getpid()) + " " + std::to_string(seed);
  return firnkv::BlockKey::Opaque(opaque);
}

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Totals {
  uint64_t put = 0, got = 0, missed = 0, exact = 0, wrong = 0;
  double put_s = 0, get_s = 0, worst = 0;
};

void PutBlocks(Worker& worker, firnkv::Session& session, const firnkv::Namespace& ns, const Options& options,
               uint64_t first, Totals* totals) {
  for (uint32_t b = 0; b < options.blocks; ++b) worker.ProduceInto(b, first + b);
  worker.Record();
  double since = Seconds();
  std::vector<firnkv::PutItem> items(options.blocks);
  std::vector<firnkv::DeviceRows> rows;
  for (uint32_t b = 0; b < options.blocks; ++b) {
    items[b].key = KeyOf(first + b);
    items[b].tokens = kBlockTokens;
    rows.push_back(worker.RowsOf(b, true));
  }
  auto leases = session.BeginPutFromDevice(ns, items, {}, 10'000);
  Check(leases.status(), "begin puts");
  std::vector<uint64_t> numbers;
  for (const firnkv::Lease& lease : *leases) {
    Check(lease.status, "begin a put");
    numbers.push_back(lease.lease);
  }
  auto filled = session.FillFromDevice(numbers, rows);
  Check(filled.status(), "fill from device memory");
  for (const absl::Status& status : *filled) Check(status, "fill a block from device memory");
  auto stored = session.CommitPut(numbers);
  Check(stored.status(), "commit");
  for (const firnkv::PutResult& result : *stored) Check(result.status, "commit a block");
  totals->put_s += Seconds() - since;
  totals->put += options.blocks;
}

void GetBlocks(Worker& worker, firnkv::Client& client, const firnkv::Namespace& ns, const Options& options,
               uint64_t first, Totals* totals) {
  std::vector<firnkv::GetItem> items(options.blocks);
  std::vector<firnkv::DeviceRows> rows;
  for (uint32_t b = 0; b < options.blocks; ++b) {
    items[b].key = KeyOf(first + b);
    worker.ForgetPages(options.blocks + b);
    rows.push_back(worker.RowsOf(options.blocks + b, false));
  }
  worker.Wait();
  double since = Seconds();
  auto results = client.GetToDevice(ns, items, rows);
  Check(results.status(), "get to device memory");
  totals->get_s += Seconds() - since;
  for (uint32_t b = 0; b < options.blocks; ++b) {
    const firnkv::DeviceResult& result = (*results)[b];
    if (absl::IsNotFound(result.status)) {
      ++totals->missed;
      continue;
    }
    Check(result.status, "get a block to device memory");
    ++totals->got;
    double error = worker.RelativeError(options.blocks + b, first + b);
    bool exact = result.served.k == firnkv::Precision::kExact && result.served.v == firnkv::Precision::kExact;
    totals->exact += exact;
    // The coarsest code of uniform noise is within a half; another block's values are at 1.4.
    if (!(error <= (exact ? 0.0 : 0.6))) {
      ++totals->wrong;
      std::fprintf(stderr, "gpu_worker: block %llu came back with a relative error of %g\n",
                   static_cast<unsigned long long>(first + b), error);
    }
    totals->worst = std::max(totals->worst, error);
  }
}

int Run(const Options& options) {
  firnkv::ClientOptions client_options;
  client_options.address = options.socket;
  auto client = firnkv::Client::Create(client_options);
  Check(client.status(), "make a client");
  Check((*client)->WaitUntilReady(30'000), "reach the daemon");
  firnkv::NamespaceFacts facts;
  facts.model_id = "gpu_worker";
  facts.layer_last = options.layers;
  facts.kv_heads = options.heads;
  facts.k_width = facts.v_width = kWidth;
  facts.block_tokens = kBlockTokens;
  auto ns = (*client)->RegisterNamespace(facts);
  Check(ns.status(), "register");
  auto session = (*client)->OpenSession("gpu_worker");
  Check(session.status(), "open a session");
  Worker worker(options);
  Totals totals;
  if (!options.go.empty()) {
    std::puts("ready");
    std::fflush(stdout);
    while (access(options.go.c_str(), F_OK) != 0) usleep(1000);
  }
  const double begin = Seconds();
  for (uint32_t round = 0; options.seconds > 0 ? Seconds() - begin < options.seconds : round < options.rounds;
       ++round) {
    uint64_t first = uint64_t{round} * options.blocks;
    PutBlocks(worker, **session, *ns, options, first, &totals);
    GetBlocks(worker, **client, *ns, options, first, &totals);
    // And what was put a while ago, from wherever it is by now.
    if (round >= 4 && round % 4 == 0)
      GetBlocks(worker, **client, *ns, options, first / 2 / options.blocks * options.blocks, &totals);
  }
  const double took = Seconds() - begin;
  double gb = static_cast<double>(worker.block_bytes()) / 1e9;
  std::printf(
      "worker blocks of %.2f MB: put %llu at %.2f GB/s, got %llu at %.2f GB/s (%llu exact), missed %llu, wrong %llu, "
      "worst error %.3f, in %.2f s\n",
      gb * 1e3, static_cast<unsigned long long>(totals.put), static_cast<double>(totals.put) * gb / totals.put_s,
      static_cast<unsigned long long>(totals.got), static_cast<double>(totals.got + totals.missed) * gb / totals.get_s,
      static_cast<unsigned long long>(totals.exact), static_cast<unsigned long long>(totals.missed),
      static_cast<unsigned long long>(totals.wrong), totals.worst, took);
  return totals.wrong == 0 && totals.got > 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string name = argv[i];
    auto number = static_cast<uint32_t>(std::strtoul(argv[i + 1], nullptr, 10));
    if (name == "--socket") options.socket = argv[i + 1];
    if (name == "--go") options.go = argv[i + 1];
    if (name == "--seconds") options.seconds = number;
    if (name == "--rounds") options.rounds = number;
    if (name == "--blocks") options.blocks = std::max(1u, number);
    if (name == "--layers") options.layers = std::max(1u, number);
    if (name == "--heads") options.heads = std::max(1u, number);
    if (name == "--delay-us") options.delay_us = number;
  }
  return Run(options);
}
