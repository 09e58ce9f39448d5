// What firnd and its GPU child say to each other: one child a GPU, over a Unix socket pair, versioned.
//
// The parent owns all bookkeeping: it hands out the pool's extents and says where every byte of a job lies. The child
// owns the GPU, and nothing that a restart could not make again. Neither trusts the other: whatever arrives is checked
// against the sizes of the pool and the regions before anything is touched (CheckJob).
//
// A conversation: Hello, Ready, then any number of MapRegion, RegionUsable, ArtifactData and Job, each Job answered by
// one JobDone in any order. A child whose GPU is lost says Fatal and ends. The grammar is docs/formats/gpu_protocol.md.
// Threads: values. Errors: InvalidArgument for messages that do not parse or break a limit, naming what and the limit.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "base/bytes.h"
#include "codecs/types.h"
#include "tiers/hot/device_rows.h"

namespace firn::gpu {

inline constexpr uint32_t kProtocolVersion = 1;
inline constexpr uint32_t kPlacesMax = 1u << 17;   // In one job.
inline constexpr uint32_t kRegionsMax = 64;        // Region ids are below it; 0 is the pool.
inline constexpr uint32_t kMessageTextMax = 1024;  // Of names and error messages.

enum class MessageType : uint16_t {
  kHello = 1,         // Parent: the first message.
  kReady = 2,         // Child: its answer.
  kMapRegion = 3,     // Parent, with a descriptor.
  kRegionUsable = 4,  // Parent.
  kArtifact = 5,      // Parent.
  kJob = 6,           // Parent.
  kJobDone = 7,       // Child.
  kFatal = 8,         // Child: its last message.
};

// A stretch of the pool (space 0) or of a region.
struct Place {
  uint32_t space = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
  bool operator==(const Place&) const = default;
};
inline constexpr uint32_t kPoolSpace = 0;

struct Hello {
  uint32_t version = kProtocolVersion;
  uint32_t device = 0;         // Which GPU.
  uint64_t pool_bytes = 0;     // The most that the pool may take; 0: no pool.
  uint64_t scratch_bytes = 0;  // For what is being converted.
  bool operator==(const Hello&) const = default;
};

struct Ready {
  uint32_t version = kProtocolVersion;
  uint64_t pool_bytes = 0;    // What could be had.
  uint64_t device_bytes = 0;  // Of the GPU, in all.
  std::string device;         // "NVIDIA H200", "cpu"
  bool operator==(const Ready&) const = default;
};

// Memory of the parent's that jobs may name from now on, by its descriptor.
struct MapRegion {
  uint32_t region = 0;
  uint64_t bytes = 0;
  uint64_t usable_bytes = 0;  // From the front: what is really there.
  bool operator==(const MapRegion&) const = default;
};
struct RegionUsable {
  uint32_t region = 0;
  uint64_t usable_bytes = 0;
  bool operator==(const RegionUsable&) const = default;
};

// Model data that later jobs name by digest.
struct ArtifactData {
  std::vector<uint8_t> serialized;
  bool operator==(const ArtifactData&) const = default;
};

// Jobs of one lane begin in order, beside those of the other lanes. Those that are not answered may run side by side:
// no job names bytes that another of them writes.
enum class Lane : uint8_t { kServe = 0, kStore = 1, kDemote = 2, kImport = 3 };
inline constexpr uint32_t kLanes = 4;

// Copies bytes as they are. Sources and targets are each a sequence of places with the same number of bytes in all.
struct CopyJob {
  std::vector<Place> source, target;
  bool operator==(const CopyJob&) const = default;
};

// Codes a record anew: the source's checks are verified, the target's runs are written, and the answer is the target's
// header, complete. DataLoss where the source is damaged, Aborted where its values do not fit the planned metadata,
// Unimplemented where this device has no kernel for a coding.
struct RecodeJob {
  std::vector<uint8_t> source_header;  // Serialized.
  std::vector<uint8_t> target_header;  // Likewise; its checks and errors mean nothing yet.
  std::array<std::vector<Place>, kRunIds> source, target;
  bool operator==(const RecodeJob&) const = default;
};

// Takes values from where a worker has them into a record of source bytes, once the worker's event has come. The answer
// is the record's header, complete.
struct ImportJob {
  std::vector<uint8_t> header;  // Serialized; its checks mean nothing yet.
  DeviceRows from;
  std::array<std::vector<Place>, kRunIds> target;
  bool operator==(const ImportJob&) const = default;
};

// Decodes a record, of the runs that are given, to where a worker wants it. The checks are verified before a byte is
// written. DataLoss where they do not agree, Unimplemented where this device has no kernel for a coding.
struct ExportJob {
  std::vector<uint8_t> header;  // Serialized.
  std::array<std::vector<Place>, kRunIds> source;
  DeviceRows to;
  bool operator==(const ExportJob&) const = default;
};

struct Job {
  uint64_t id = 0;
  Lane lane = Lane::kServe;
  std::variant<CopyJob, RecodeJob, ImportJob, ExportJob> work;
  bool operator==(const Job&) const = default;
};

struct JobDone {
  uint64_t id = 0;
  absl::Status status;
  std::vector<uint8_t> payload;  // Of a RecodeJob and an ImportJob, the header.
  bool operator==(const JobDone&) const = default;
};

// The GPU is of no use to this process any more.
struct Fatal {
  int32_t code = 0;  // CUDA's.
  std::string message;
  bool operator==(const Fatal&) const = default;
};

using Message = std::variant<Hello, Ready, MapRegion, RegionUsable, ArtifactData, Job, JobDone, Fatal>;
MessageType TypeOf(const Message& message);
std::vector<uint8_t> SerializeMessage(const Message& message);
absl::StatusOr<Message> ParseMessage(MessageType type, ByteSpan payload);

uint64_t TotalBytes(const std::vector<Place>& places);
// How much of each space may be named; a region that is not mapped has 0.
using SpaceBytes = std::array<uint64_t, kRegionsMax>;
// InvalidArgument unless every place of the job lies within its space and both sides agree.
absl::Status CheckJob(const Job& job, const SpaceBytes& spaces);

}  // namespace firn::gpu
