#include "client/cli/chaos/damage.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/units.h"

namespace firn::cli {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kPage = 4096, kSector = 512;
constexpr uint64_t kFillBytesMax = 4 * kGiB;

// A file that is written to in place and reaches the medium before it is closed, as the daemon reads around the cache.
class Patch {
 public:
  explicit Patch(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)), error_(fd_ < 0 ? errno : 0) {}
  ~Patch() {
    if (fd_ < 0) return;
    ::fsync(fd_);
    ::close(fd_);
  }
  Patch(const Patch&) = delete;
  Patch& operator=(const Patch&) = delete;
  // A segment may be reclaimed at any time.
  absl::Status opened() const { return fd_ < 0 ? ErrnoStatus(error_, "open " + path_.string()) : absl::OkStatus(); }
  std::vector<uint8_t> Read(uint64_t at, size_t bytes) const {
    std::vector<uint8_t> out(bytes);
    ssize_t got = ::pread(fd_, out.data(), bytes, static_cast<off_t>(at));
    out.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return out;
  }
  void Write(uint64_t at, const std::vector<uint8_t>& bytes) const {
    if (::pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(at)) < 0) failed_ = errno;
  }
  absl::Status status() const {
    return failed_ == 0 ? absl::OkStatus() : ErrnoStatus(failed_, "write " + path_.string());
  }

 private:
  const fs::path path_;
  const int fd_;
  const int error_;
  mutable int failed_ = 0;
};

// Its last page is a trailer (docs/formats/segment.md).
bool IsSealed(const fs::path& file) {
  std::error_code error;
  uint64_t bytes = fs::file_size(file, error);
  if (error || bytes < 3 * kPage) return false;
  std::ifstream in(file, std::ios::binary);
  in.seekg(static_cast<std::streamoff>(bytes - kPage));
  std::array<char, 4> magic{};
  in.read(magic.data(), magic.size());
  return in && std::memcmp(magic.data(), "FSTR", magic.size()) == 0;
}

std::vector<fs::path> FilesBelow(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (auto it = fs::recursive_directory_iterator(folder, error); !error && it != fs::recursive_directory_iterator();
       it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) files.push_back(it->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::string> FlipBytes(const fs::path& file, uint64_t bytes, std::mt19937_64& random) {
  Patch patch(file);
  FIRN_RETURN_IF_ERROR(patch.opened());
  const uint64_t count = 1 + random() % 16;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t at = random() % bytes;
    std::vector<uint8_t> byte = patch.Read(at, 1);
    if (byte.empty()) continue;
    byte[0] ^= static_cast<uint8_t>(1 + random() % 255);
    patch.Write(at, byte);
  }
  FIRN_RETURN_IF_ERROR(patch.status());
  return fmt::format("{} bytes flipped", count);
}

absl::StatusOr<std::string> ZeroSectors(const fs::path& file, uint64_t bytes, std::mt19937_64& random) {
  Patch patch(file);
  FIRN_RETURN_IF_ERROR(patch.opened());
  const uint64_t sectors = bytes / kSector, count = std::min(sectors, 1 + random() % 16);
  uint64_t first = random() % (sectors - count + 1);
  patch.Write(first * kSector, std::vector<uint8_t>(count * kSector));
  FIRN_RETURN_IF_ERROR(patch.status());
  return fmt::format("{} sectors zeroed from byte {}", count, first * kSector);
}

absl::StatusOr<std::string> SwapPages(const fs::path& file, uint64_t bytes, std::mt19937_64& random) {
  Patch patch(file);
  FIRN_RETURN_IF_ERROR(patch.opened());
  uint64_t one = random() % (bytes / kPage) * kPage, other = random() % (bytes / kPage) * kPage;
  std::vector<uint8_t> of_one = patch.Read(one, kPage), of_other = patch.Read(other, kPage);
  patch.Write(one, of_other);
  patch.Write(other, of_one);
  FIRN_RETURN_IF_ERROR(patch.status());
  return fmt::format("pages at {} and {} swapped", one, other);
}

absl::StatusOr<std::string> Truncate(const fs::path& file, uint64_t bytes, std::mt19937_64& random) {
  const uint64_t left = random() % 4 == 0 ? 0 : random() % 3 == 0 ? bytes - 1 : random() % bytes;
  if (::truncate(file.c_str(), static_cast<off_t>(left)) != 0) return ErrnoStatus(errno, "truncate " + file.string());
  return fmt::format("cut from {} to {} bytes", bytes, left);
}

}  // namespace

absl::StatusOr<std::string> DamageSegment(SegmentDamage how, const fs::path& cold, std::mt19937_64& random) {
  std::vector<fs::path> sealed = FilesBelow(cold);
  std::erase_if(sealed, [](const fs::path& file) { return file.extension() != ".seg" || !IsSealed(file); });
  if (sealed.empty()) return NotFound("no segment is sealed yet");
  const fs::path& file = sealed[random() % sealed.size()];
  std::error_code error;
  const uint64_t bytes = fs::file_size(file, error);
  if (error) return NotFound("{} is gone", file.string());
  absl::StatusOr<std::string> done = std::string("removed");
  switch (how) {
    case SegmentDamage::kFlip:
      done = FlipBytes(file, bytes, random);
      break;
    case SegmentDamage::kZero:
      done = ZeroSectors(file, bytes, random);
      break;
    case SegmentDamage::kSwap:
      done = SwapPages(file, bytes, random);
      break;
    case SegmentDamage::kTruncate:
      done = Truncate(file, bytes, random);
      break;
    case SegmentDamage::kDelete:
      if (!fs::remove(file, error)) done = NotFound("{} is gone", file.string());
      break;
  }
  FIRN_RETURN_IF_ERROR(done.status());
  return file.filename().string() + ": " + *done;
}

absl::StatusOr<std::string> DamageIndex(const fs::path& cold, std::mt19937_64& random) {
  std::vector<fs::path> files = FilesBelow(cold);
  std::erase_if(files, [](const fs::path& file) {
    std::error_code ignored;
    return file.parent_path().filename() != "index" || fs::file_size(file, ignored) == 0 || file.filename() == "LOCK";
  });
  if (files.empty()) return NotFound("there is no index yet");
  if (random() % 4 == 0) {
    std::error_code error;
    fs::remove_all(files[0].parent_path(), error);
    if (error) return ErrnoStatus(error.value(), "remove " + files[0].parent_path().string());
    return std::string("removed");
  }
  const fs::path& file = files[random() % files.size()];
  const uint64_t bytes = fs::file_size(file);
  auto done = random() % 2 == 0 ? FlipBytes(file, bytes, random) : Truncate(file, bytes, random);
  FIRN_RETURN_IF_ERROR(done.status());
  return file.filename().string() + ": " + *done;
}

std::string WhyNotFill(const fs::path& folder) {
  struct stat here {
  }, above{};
  std::error_code error;
  const fs::path path = fs::canonical(folder, error);
  if (error || ::stat(path.c_str(), &here) != 0 || ::stat(path.parent_path().c_str(), &above) != 0) {
    return "the folder cannot be looked at";
  }
  if (here.st_dev == above.st_dev) return "the folder is no file system of its own";
  struct statvfs room {};
  if (::statvfs(path.c_str(), &room) != 0 || room.f_blocks * room.f_frsize > kFillBytesMax) {
    return "the file system is larger than " + FormatBytes(kFillBytesMax);
  }
  std::ifstream mounts("/proc/self/mounts");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string device, at;
    fields >> device >> at;
    if (at == path.string() && device.starts_with("/dev/loop")) return "";
  }
  return "the file system is not in a file (a loop device)";
}

absl::Status FillUp(const fs::path& file) {
  int fd = ::open(file.c_str(), O_CREAT | O_WRONLY | O_APPEND | O_CLOEXEC, 0600);
  if (fd < 0) return ErrnoStatus(errno, "open " + file.string());
  const std::vector<char> zeros(kMiB);
  for (size_t bytes = zeros.size(); bytes >= 1; bytes /= 2) {
    while (::write(fd, zeros.data(), bytes) == static_cast<ssize_t>(bytes)) {
    }
  }
  ::fsync(fd);
  ::close(fd);
  return absl::OkStatus();
}

}  // namespace firn::cli
