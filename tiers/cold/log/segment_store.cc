#include "tiers/cold/log/segment_store.h"

#include <cerrno>
#include <condition_variable>
#include <optional>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "tiers/cold/device/aligned_buffer.h"

namespace firn {
namespace {

constexpr int kStrangersMax = 64;  // Names taken by files of others, in a row.

}  // namespace

std::string SegmentFileName(uint32_t id) { return fmt::format("{:08x}.seg", id); }

std::optional<uint32_t> ParseSegmentFileName(const std::string& name) {
  if (name.size() != 12 || !name.ends_with(".seg")) return std::nullopt;
  uint32_t id = 0;
  for (char c : name.substr(0, 8)) {
    uint32_t digit = 0;
    if (c >= '0' && c <= '9') {
      digit = static_cast<uint32_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      digit = static_cast<uint32_t>(c - 'a') + 10;
    } else {
      return std::nullopt;
    }
    id = id << 4 | digit;
  }
  if (id == 0) return std::nullopt;
  return id;
}

// Counts work on the executor that refers to the store. A task holds it longer than the store itself.
struct SegmentStore::Gate {
  std::mutex mu;
  std::condition_variable idle;
  int tasks = 0;  // Guarded by mu.

  void Enter() {
    std::lock_guard lock(mu);
    ++tasks;
  }
  void Leave() {
    std::lock_guard lock(mu);
    if (--tasks == 0) idle.notify_all();
  }
};

SegmentStore::SegmentStore(const SegmentStoreOptions& options)
    : options_(options), capacity_(options.capacity_bytes), gate_(std::make_shared<Gate>()) {}

SegmentStore::~SegmentStore() {
  std::map<uint32_t, SegmentPtr> segments;
  {
    std::lock_guard lock(mu_);
    segments.swap(segments_);
  }
  segments.clear();
  std::unique_lock lock(gate_->mu);
  gate_->idle.wait(lock, [this] { return gate_->tasks == 0; });
}

uint64_t SegmentStore::free_bytes(bool privileged) const {
  uint64_t taken = used_bytes() + (privileged ? 0 : options_.reserve_bytes);
  uint64_t capacity = capacity_;
  return capacity > taken ? capacity - taken : 0;
}

SegmentPtr SegmentStore::Wrap(std::unique_ptr<Segment> segment) {
  return SegmentPtr(segment.release(), [this](Segment* released) { Release(released); });
}

void SegmentStore::Create(uint64_t bytes, bool privileged, Created done) {
  uint32_t id = 0;
  uint64_t free = 0;
  {
    std::lock_guard lock(mu_);
    free = free_bytes(privileged);
    if (free >= bytes) {
      id = next_id_++;
      segment_bytes_ += bytes;
    }
  }
  if (id == 0) {
    done(ResourceExhausted("a segment of {} bytes does not fit: {} of {} bytes are free", bytes, free,
                           capacity_bytes()));
    return;
  }
  gate_->Enter();
  options_.executor->Post([this, id, bytes, done = std::move(done)]() mutable {
    auto file = options_.device->Create(SegmentFileName(id), bytes);
    // Somebody else's file has the name: it is left alone, and the next number is as good.
    for (int tries = 0; StatusErrno(file.status()) == EEXIST && tries < kStrangersMax; ++tries) {
      {
        std::lock_guard lock(mu_);
        id = next_id_++;
      }
      file = options_.device->Create(SegmentFileName(id), bytes);
    }
    if (!file.ok()) {
      segment_bytes_ -= bytes;
      return FinishCreate(nullptr, file.status(), std::move(done));
    }
    segment_bytes_ += (*file)->allocated_bytes() - bytes;
    std::random_device random;
    uint64_t salt = uint64_t{random()} << 32 | random();
    SegmentPtr segment = Wrap(std::make_unique<Segment>(id, *std::move(file), salt));
    {
      std::lock_guard lock(mu_);
      segments_[id] = segment;
    }
    WriteHeader(std::move(segment), std::move(done));
  });
}

// A segment that exists has its header, durably: one that is missing has been removed, and never was on its way.
void SegmentStore::WriteHeader(SegmentPtr segment, Created done) {
  auto block = std::make_shared<AlignedBuffer>(kSegmentHeaderBytes);
  std::vector<uint8_t> header =
      SerializeSegmentHeader({segment->id, Stream::kUnassigned, segment->salt, segment->file->size()});
  std::copy(header.begin(), header.end(), block->data());
  FilePtr file = segment->file;
  options_.device->Write(file, 0, block->span(),
                         [this, segment = std::move(segment), done = std::move(done), block](IoResult written) mutable {
                           if (!written.status.ok())
                             return FinishCreate(std::move(segment), written.status, std::move(done));
                           FilePtr its_file = segment->file;
                           options_.device->Sync(its_file, [this, segment = std::move(segment),
                                                            done = std::move(done)](IoResult synced) mutable {
                             FinishCreate(std::move(segment), synced.status, std::move(done));
                           });
                         });
}

void SegmentStore::FinishCreate(SegmentPtr segment, const absl::Status& status, Created done) {
  std::shared_ptr<Gate> gate = gate_;
  if (status.ok()) {
    done(std::move(segment));
  } else {
    if (segment != nullptr) Condemn(segment);
    segment = nullptr;
    done(status);
  }
  done = nullptr;
  gate->Leave();
}

SegmentPtr SegmentStore::Adopt(uint32_t id, FilePtr file, uint64_t salt) {
  segment_bytes_ += file->allocated_bytes();
  SegmentPtr segment = Wrap(std::make_unique<Segment>(id, std::move(file), salt));
  std::lock_guard lock(mu_);
  segments_[id] = segment;
  next_id_ = std::max(next_id_, id + 1);
  return segment;
}

void SegmentStore::Condemn(const SegmentPtr& segment) {
  std::lock_guard lock(mu_);
  segment->state = SegmentState::kCondemned;
  ++removing_;
  condemned_[segment->id] = true;
  FIRN_CHECK(segments_.erase(segment->id) == 1);
}

void SegmentStore::Release(Segment* segment) {
  if (segment->state != SegmentState::kCondemned) {
    delete segment;
    return;
  }
  if (closing_) {
    // The last to refer to it went with the tier, whose executor may run nothing more and which hears no more of it.
    options_.device->Remove(segment->file->name()).IgnoreError();
    delete segment;
    return;
  }
  gate_->Enter();
  options_.executor->Post([this, gate = gate_, segment] {
    uint32_t id = segment->id;
    uint64_t bytes = segment->file->allocated_bytes();
    absl::Status status = options_.device->Remove(segment->file->name());
    delete segment;  // Closes the file: only now are its blocks free.
    if (status.ok()) {
      segment_bytes_ -= bytes;
      std::lock_guard lock(mu_);
      condemned_.erase(id);
    }
    // Otherwise the file stays and counts; the next start finds nothing alive in it and removes it.
    --removing_;
    if (removed_) removed_(id, status);
    gate->Leave();
  });
}

void SegmentStore::OnShrunk(uint64_t before_bytes, uint64_t after_bytes) {
  segment_bytes_ -= before_bytes;
  segment_bytes_ += after_bytes;
}

bool SegmentStore::busy() const {
  std::lock_guard lock(gate_->mu);
  return gate_->tasks > 0;
}

SegmentPtr SegmentStore::Find(uint32_t id) const {
  std::lock_guard lock(mu_);
  auto found = segments_.find(id);
  return found == segments_.end() ? nullptr : found->second;
}

std::vector<SegmentPtr> SegmentStore::All() const {
  std::lock_guard lock(mu_);
  std::vector<SegmentPtr> all;
  for (const auto& [id, segment] : segments_) all.push_back(segment);
  return all;
}

bool SegmentStore::Exists(uint32_t id) const {
  std::lock_guard lock(mu_);
  return segments_.contains(id) || condemned_.contains(id) || unreadable_.contains(id);
}

void SegmentStore::NoteUnreadable(uint32_t id) {
  std::lock_guard lock(mu_);
  unreadable_.insert(id);
}

uint32_t SegmentStore::oldest_id() const {
  std::lock_guard lock(mu_);
  uint32_t oldest = next_id_;
  if (!segments_.empty()) oldest = std::min(oldest, segments_.begin()->first);
  if (!condemned_.empty()) oldest = std::min(oldest, condemned_.begin()->first);
  if (!unreadable_.empty()) oldest = std::min(oldest, *unreadable_.begin());
  return oldest;
}

uint32_t SegmentStore::next_id() const {
  std::lock_guard lock(mu_);
  return next_id_;
}

void SegmentStore::SetNextIdAtLeast(uint32_t id) {
  std::lock_guard lock(mu_);
  next_id_ = std::max(next_id_, id);
}

}  // namespace firn
